"""A new schedule, from a form."""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable
from typing import Any

from almanac import desk
from almanac.record import Headers
from almanac.ui import dialogs, frame, payloads, site, tags, times

QUICK = ("+1m", "+1h", "tomorrow 09:00")


class Due:
    """A field for a point in time that says what it understands, while it is typed."""

    def __init__(self, viewer: frame.Viewer, label: str = "Due", *, value: str = "", focus: bool = False) -> None:
        self._viewer = viewer
        hint = f"+90s, tomorrow 09:00, 2027-03-01 09:00; in {viewer.zone_name}"
        more: dict[str, Any] = {"data_autofocus": True} if focus else {}
        self.field = tags.Field(label, value=value, hint=hint, changed=self._typed, autocomplete="off", **more)
        with tags.tag("div", classes="al-chips", role="group", aria_label="Quick choices"):
            for text in QUICK:
                chip = tags.button(text, classes="al-little")
                chip.on("click", js_handler=self.field.put(text))

    def _typed(self, text: str) -> None:
        if text.strip():
            meaning, understood = times.meant(text, self._viewer.now, self._viewer.zone)
            if understood:
                self.field.say(meaning)

    def read(self) -> int | None:
        """Epoch ms; None, and a word below the field, if it is nothing or not understood."""
        meaning, understood = times.meant(self.field.value, self._viewer.now, self._viewer.zone)
        if not understood:
            self.field.say(meaning or "When is it due?", bad=True)
            return None
        return times.read(self.field.value, self._viewer.now, self._viewer.zone)


def read_payload(text: str, kind: str) -> bytes:
    """What was typed, as bytes; ValueError says what is wrong."""
    if kind == "hex":
        try:
            return binascii.unhexlify("".join(text.split()).removeprefix("0x"))
        except (binascii.Error, ValueError):
            raise ValueError("hexadecimal is pairs of 0 to 9 and a to f, such as 00 ff 7a") from None
    if kind == "json":
        try:
            json.loads(text)
        except ValueError as error:
            raise ValueError(f"this is no JSON: {error}") from None
    return text.encode()


def read_headers(text: str) -> Headers:
    """`name: value` on each line; ValueError names the line that is not so."""
    found: Headers = []
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or not name.strip():
            raise ValueError(f"write each as name: value, not {line.strip()[:60]!r}")
        found.append((name.strip(), value.strip().encode()))
    return found


class _Form:
    def __init__(self, viewer: frame.Viewer) -> None:
        self._viewer = viewer
        self._kind = "text"
        self._if_absent = True

    def build(self) -> None:
        with tags.tag("div", classes="al-form"):
            with tags.tag("div", classes="al-field"):
                self._due = Due(self._viewer, focus=True)
            self._target = tags.Field("Target topic", hint="Where it is delivered", autocomplete="off")
            self._key = tags.Field("Key of the message", hint="Empty: none", autocomplete="off")
            self._id = tags.Field("Id", hint="Empty: a new one is made up", autocomplete="off")
            self._topic = ""
            topics = self._viewer.site.settings.topics
            if len(topics) > 1:
                self._topic_choice(topics)
            with tags.tag("div", classes="al-all al-body"):
                kinds = (("text", "Text"), ("json", "JSON"), ("hex", "Hex"))
                tags.choices("The payload is", kinds, "text", self._kind_chosen)
                self._payload = tags.Field("Payload", many=True, spellcheck="false")
            self._headers = tags.Field(
                "Headers", many=True, hint="One a line, name: value", classes="al-all", spellcheck="false", rows="2"
            )
            with tags.tag("label", classes="al-all al-check"):
                box = tags.tag("input", type="checkbox", defaultChecked=True)
                tags.tag("span", "Refuse it if the id is pending already (otherwise it replaces that one)")
            box.on("change", self._checked, js_handler="(e) => emit(e.target.checked)")

    def _topic_choice(self, topics: tuple[str, ...]) -> None:
        self._topic = topics[0]

        def chosen(topic: str) -> None:
            self._topic = topic

        with tags.tag("div", classes="al-all"):
            tags.choices("Schedules topic", [(topic, topic) for topic in topics], topics[0], chosen)

    def _kind_chosen(self, kind: str) -> None:
        self._kind = kind

    def _checked(self, event: object) -> None:
        self._if_absent = bool(getattr(event, "args", True))

    def read(self) -> desk.New | None:
        """None, and words below the fields, if something has to be mended."""
        good = True
        due = self._due.read()
        target = self._target.value.strip()
        if not target:
            self._target.say("Which topic is it for?", bad=True)
            good = False
        try:
            value = read_payload(self._payload.value, self._kind)
        except ValueError as error:
            self._payload.say(str(error), bad=True)
            good = False
        try:
            headers = read_headers(self._headers.value)
        except ValueError as error:
            self._headers.say(str(error), bad=True)
            good = False
        if not good or due is None:
            return None
        key, id = self._key.value, self._id.value.strip()
        return desk.New(
            target=target,
            due=due,
            value=value,
            id=id.encode() or None,
            target_key=key.encode() or None,
            headers=headers,
            topic=self._topic or None,
            if_absent=self._if_absent,
        )

    async def act(self) -> dialogs.Answer | None:
        new = self.read()
        if new is None:
            return None
        try:
            row = await site.call(self._viewer.site.desk.create, new, who=self._viewer.who)
        except desk.Exists:
            self._id.say("This id is pending already. Choose another, or let it be replaced.", bad=True)
            return None
        except desk.Refused as error:
            return self._blame(error)
        return made("Scheduled", row, self._viewer)

    def _blame(self, error: desk.Refused) -> dialogs.Answer | None:
        fields = {"due": self._due.field, "target": self._target, "id": self._id, "key": self._key,
                  "target_key": self._key, "value": self._payload, "headers": self._headers}  # fmt: skip
        if error.field not in fields:
            raise error
        fields[error.field].say(error.allowed, bad=True)
        return None


def made(title: str, row: desk.Row, viewer: frame.Viewer) -> dialogs.Answer:
    """Kafka has it."""
    due = f"{times.show(row.due, viewer.zone)} ({viewer.zone_name}), {times.utc(row.due)}"
    lines = (
        f"{payloads.text(row.id)} is due {due}.",
        f"Kafka has it: {row.topic}/{row.partition}, offset {row.version:,}.",
    )
    to = payloads.address("/ui/schedule", id=row.id, topic=row.topic, partition=row.partition)
    return dialogs.Answer("good", title, lines, to, "Open it")


def ask(viewer: frame.Viewer, done: Callable[[], object]) -> None:
    """The dialog."""
    if viewer.why_not is not None:
        return
    form = _Form(viewer)
    dialogs.ask("New schedule", form.build, "Schedule it", form.act, done=done, wide=True)
