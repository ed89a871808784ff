"""Why the desk does not do what it was asked: which part of it, what was given, and what is allowed."""

from almanac import errors


class Refused(errors.UsageError):
    """It cannot be meant so. `field`, `value` (never a payload) and `allowed` say why."""

    status = 422

    def __init__(self, field: str, value: str, allowed: str) -> None:
        self.field, self.value, self.allowed = field, value[:200], allowed
        super().__init__(f"{field} {self.value!r}: {allowed}")

    def __reduce__(self) -> tuple[type, tuple[str, str, str]]:
        return type(self), (self.field, self.value, self.allowed)


class NotFound(Refused):
    """Nothing is pending under that id, or there is no such dead letter."""

    status = 404


class Exists(Refused):
    """The id is pending."""

    status = 412


class Ambiguous(Refused):
    """The id is pending in several places."""

    status = 409


class NotNow(Refused):
    """It cannot be done as things are."""

    status = 409
