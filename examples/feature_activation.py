"""A feature is switched on everywhere at the same moment: each instance hears of it when it is time.

It prints:
    before: new-checkout off
    after: new-checkout on
"""

from datetime import UTC, datetime, timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler


def activate(plan: Scheduler, feature: str, at: datetime) -> None:
    """The switch, as a message that every instance reads."""
    plan.schedule(Message("features", key=feature.encode(), value=b"on"), id=f"activate-{feature}", at=at)


def main() -> None:
    changes = Arrivals("features")
    features = {"new-checkout": "off"}
    with scheduler() as plan:
        activate(plan, "new-checkout", at=datetime.now(UTC) + timedelta(seconds=2))
        activate(plan, "dark-mode", at=datetime.now(UTC) + timedelta(seconds=2))
        plan.cancel("activate-dark-mode")  # not ready
    print("before: new-checkout", features["new-checkout"])
    message = changes.next()
    features[(message.key or b"").decode()] = (message.value or b"").decode()
    print("after: new-checkout", features["new-checkout"])


if __name__ == "__main__":
    main()
