"""`almanac schedule`, `reschedule`, `cancel`: records for a schedules topic, as any producer of its format writes them.

`schedule` (and `cancel --no-wait`) write to the partition that the partitioner of the settings chooses for the id, so
they meet the schedule if that was written with the same partitioner. `reschedule` and `cancel` look where it is.
"""

from __future__ import annotations

import os
import sys
import uuid
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import typer
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from almanac import client, errors, formats, kafka, topics, when
from almanac.cli import common, reach, shown
from almanac.record import Headers
from almanac.settings import Settings, is_topic

_RESERVED = ("scheduler-", "almanac-")
_CODES = {"cancelled": 0, "already-fired": 1, "not-found": 1, "unknown": errors.Unreachable.exit_code}
_LARGEST_MESSAGE = 100_000_000  # the broker's limit is the one that counts, and its answer the clearer one


class _Written(NamedTuple):
    topic: str
    partition: int
    offset: int


@common.command("schedules_topics", "partitioner")
def schedule(
    settings: Settings,
    at: Annotated[str, typer.Option(help="When: 2027-03-01T09:00:00+01:00, an epoch, +90s, tomorrow 09:00, ...")],
    topic: Annotated[str, typer.Option(help="The topic that gets the message.")],
    key: Annotated[str | None, typer.Option(help="The message's key.", show_default="none")] = None,
    value: Annotated[str | None, typer.Option(help="The message's value.")] = None,
    value_file: Annotated[str | None, typer.Option(help="A file with the message's value; - is stdin.")] = None,
    header: Annotated[list[str] | None, typer.Option(help="A header, name=value; may be repeated.")] = None,
    id: Annotated[str | None, typer.Option(help="The schedule's id; the same id again updates it.")] = None,  # noqa: A002 (users see it)
    schedules_topic: common.SchedulesTopic = None,
    tz: Annotated[str | None, typer.Option(help="Time zone of --at.", show_default="this machine's")] = None,
    past: Annotated[bool, typer.Option("--past", help="Allow a time that has passed.")] = False,
    as_json: common.Json = False,
) -> None:
    """Schedule a message.

    Example: [bold]almanac schedule --at 'tomorrow 09:00' --tz Europe/Paris --topic mails --key 42 --value hello[/bold]
    """
    zone = when.zone(tz)
    now = datetime.now(UTC)
    due = when.parse(at, now, zone)
    if due < when.milliseconds(now) and not past:
        raise errors.TimeRefused(
            f"the time {at!r} is {when.render(due, zone)}, which has passed. For a time from now write +90s or +2h. "
            "--past sends it all the same: it fires at once if SCHEDULE_GRACE_INTERVAL allows, else it is a dead letter"
        )
    if not is_topic(topic):
        raise errors.UsageError(f"--topic {topic!r} is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
    if id == "":
        raise errors.UsageError("--id '' is empty: leave it out to get a new one")
    name = str(uuid.uuid4()) if id is None else id
    try:
        name.encode()
    except UnicodeEncodeError:
        raise errors.UsageError(f"--id {name!a} is not UTF-8") from None
    payload = _payload(value, value_file)
    target = _chosen(settings, schedules_topic)
    form = dict(settings.schedules_topics)[target]
    if form == "karafka":
        due = client.message.seconds(due) * 1000  # it knows whole seconds only
    content = client.Message(topic, None if key is None else os.fsencode(key), payload, _headers(header or []))
    built = _built(form, name, due, content, past, target)
    if topic not in _existing(settings, target):
        common.note(f"the topic {topic} does not exist yet; it must by {when.render(due, zone)}")
    written = _send(settings, target, name, built.value, list(built.headers))
    if as_json:
        common.show_json(
            {
                "id": name,
                "due_ms": due,
                "due": when.render(due, zone),
                "due_utc": when.render(due, UTC),
                "target_topic": topic,
                "target_key": key,
                **written._asdict(),
            }
        )
        return
    rows = [
        ("id", name),
        ("due", f"{when.render(due, zone)} ({when.render(due, UTC)})"),
        ("for", f"{topic}, key {key}" if key is not None else f"{topic}, no key"),
        ("written to", _place(written)),
    ]
    common.show_table(("scheduled", ""), rows)


@common.command("schedules_topics", "book_location")
def reschedule(
    settings: Settings,
    id: Annotated[str, typer.Argument(help="The schedule's id.", show_default=False)],  # noqa: A002 (users see it)
    at: Annotated[str, typer.Option(help="When: 2027-03-01T09:00:00+01:00, an epoch, +90s, tomorrow 09:00, ...")],
    schedules_topic: Annotated[str | None, typer.Option(help="In this schedules topic.")] = None,
    tz: Annotated[str | None, typer.Option(help="Time zone of --at.", show_default="this machine's")] = None,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """Move a schedule that waits to another time; message and target stay.

    Example: [bold]almanac reschedule vid1-online --at 'tomorrow 09:00' --tz Europe/Paris[/bold]
    """
    zone, now = when.zone(tz), datetime.now(UTC)
    due = when.parse(at, now, zone)
    if due < when.milliseconds(now):
        raise errors.TimeRefused(
            f"the time {at!r} is {when.render(due, zone)}, which has passed. To fire it now: --at now"
        )
    with reach.at(settings, api) as counter:
        row = counter.move(id.encode(), due, reach.who(), schedules_topic)
    if as_json:
        common.show_json(shown.row(row, zone))
        return
    rows = [
        ("id", id),
        ("due", f"{when.render(row.due, zone)} ({when.render(row.due, UTC)})"),
        ("for", row.target),
        ("written to", _place(_Written(row.topic, row.partition, row.version))),
    ]
    common.show_table(("rescheduled", ""), rows)


@common.command("schedules_topics", "partitioner", "book_location")
def cancel(
    settings: Settings,
    id: Annotated[str, typer.Argument(help="The schedule's id.", show_default=False)],  # noqa: A002 (users see it)
    schedules_topic: Annotated[str | None, typer.Option(help="In this schedules topic.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=600, help="Seconds to wait for the certain answer.")] = 5.0,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Write the cancel, whether or not there is a schedule, and do not wait.")
    ] = False,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """Cancel a schedule, and tell for certain whether it came in time.

    cancelled: it will not be delivered (exit code 0). already-fired, not-found: it is too late, or nothing waits under
    that id (1). unknown: no scheduler answered in time; the cancel is written, and is heeded if it came in time (7).

    Example: [bold]almanac cancel vid1-online[/bold]
    """
    if not id:
        raise errors.UsageError("the id is empty")
    if no_wait:
        if api:
            raise errors.UsageError(
                "--no-wait writes straight to Kafka; leave it out, or leave --api (ALMANAC_API) out"
            )
        _cancel_unseen(settings, id, schedules_topic, as_json)
        return
    if not api:
        for topic in [_chosen(settings, schedules_topic)] if schedules_topic else settings.topics:
            _existing(settings, topic)
    with reach.at(settings, api) as counter:
        outcome = counter.cancel(id.encode(), reach.who(), schedules_topic, None, timeout)
    if as_json:
        common.show_json({**vars(outcome), "id": id})
    else:
        rows = [("id", id), ("so", outcome.detail), ("took", f"{outcome.took} ms")]
        if outcome.topic is not None and outcome.offset is not None:
            rows.insert(1, ("written to", _place(_Written(outcome.topic, outcome.partition or 0, outcome.offset))))
        common.show_table((outcome.answer, ""), rows)
    if code := _CODES[outcome.answer]:
        raise typer.Exit(code)


def _cancel_unseen(settings: Settings, id: str, schedules_topic: str | None, as_json: bool) -> None:  # noqa: A002
    target = _chosen(settings, schedules_topic)
    _existing(settings, target)
    karafka = dict(settings.schedules_topics)[target] == "karafka"
    headers = list(client.karafka.cancel(id, target).headers) if karafka else []
    written = _send(settings, target, id, None, headers)
    if as_json:
        common.show_json({"id": id, **written._asdict()})
    else:
        common.show_table(("cancel written", ""), [("id", id), ("written to", _place(written))])


def _place(written: _Written) -> str:
    return f"{written.topic}, partition {written.partition}, offset {written.offset}"


def _built(form: str, name: str, due: int, content: client.Message, past: bool, topic: str) -> client.Message:
    """The schedule in the format of its topic."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=due)
    if form == "karafka":
        return client.karafka.schedule(content, at, topic, name, now=at if past else None)
    if form in ("sky-avro", "sky-json"):
        return client.sky.schedule(content, name, at, topic, "avro" if form == "sky-avro" else "json")
    headers = [*_due_headers(due), ("scheduler-target-topic", content.topic.encode())]
    if content.key is not None:
        headers.append(("scheduler-target-key", content.key))
    return client.Message(topic, name.encode(), content.value, [*headers, *content.headers])


def _due_headers(due: int) -> Headers:
    """Whole seconds as the peer has them; ours on top where they do not suffice."""
    fine: Headers = [("scheduler-epoch-ms", b"%d" % due)] if due % 1000 else []
    return [("scheduler-epoch", b"%d" % client.message.seconds(due)), *fine]


def _payload(value: str | None, value_file: str | None) -> bytes:
    if (value is None) == (value_file is None):
        raise errors.UsageError("give the message with either --value or --value-file (- is stdin)")
    if value is not None:
        return os.fsencode(value)  # as it was typed, UTF-8 or not
    try:
        return sys.stdin.buffer.read() if value_file == "-" else Path(str(value_file)).read_bytes()
    except OSError as error:
        raise errors.UsageError(f"--value-file {value_file!r} cannot be read: {error.strerror}") from None


def _headers(given: list[str]) -> Headers:
    headers: Headers = []
    for each in given:
        name, equals, value = each.partition("=")
        if not name or not equals:
            raise errors.UsageError(f"--header {each!r} must be name=value")
        if name.lower().startswith(_RESERVED):
            raise errors.UsageError(f"--header {each!r}: names that begin with {' or '.join(_RESERVED)} are reserved")
        try:
            headers.append((formats.header_name(name), os.fsencode(value)))
        except formats.Invalid as error:
            raise errors.UsageError(f"--header {each!a}: {error}") from None
    return headers


def _chosen(settings: Settings, schedules_topic: str | None) -> str:
    if schedules_topic is None:
        return settings.topics[0]
    if schedules_topic not in settings.topics:
        known = ", ".join(settings.topics)
        raise errors.UsageError(
            f"--schedules-topic {schedules_topic!r} is not read by the scheduler: SCHEDULES_TOPICS has {known}"
        )
    return schedules_topic


def _existing(settings: Settings, schedules_topic: str) -> list[str]:
    """All topics; a broker must not make a schedules topic by itself, with its own settings."""
    admin = kafka.admin_client(settings)
    try:
        found = admin.list_topics(timeout=kafka.ANSWER_SECONDS).topics  # a question that `almanac mini` answers too
    except KafkaException as error:
        raise kafka.explained(error, "looking at the topics") from error
    # What is not listed may also be forbidden: asked by name, Kafka says which.
    if schedules_topic not in found and not topics.descriptions(admin, [schedules_topic]):
        raise errors.UsageError(f"the topic {schedules_topic} does not exist; `almanac topics apply` creates it")
    return list(found)


def _send(settings: Settings, topic: str, key: str, value: bytes | None, headers: Headers) -> _Written:
    timeout_ms = int(kafka.ANSWER_SECONDS * 1000)
    config = kafka.producer(settings, delivery_timeout_ms=timeout_ms, message_max_bytes=_LARGEST_MESSAGE, linger_ms=0)
    producer = Producer(config)
    answers: list[tuple[KafkaError | None, Message]] = []
    producer.produce(
        topic,
        key=key.encode(),
        value=value,
        headers=list(headers),
        on_delivery=lambda error, message: answers.append((error, message)),
    )
    producer.flush(kafka.ANSWER_SECONDS + 5)
    if not answers:
        raise errors.Unreachable(_unsure(key, topic, "no answer"))
    error, message = answers[0]
    if error is None:
        return _Written(str(message.topic()), message.partition() or 0, message.offset() or 0)
    if error.code() == KafkaError._MSG_TIMED_OUT:
        raise errors.Unreachable(_unsure(key, topic, error.str()))
    raise kafka.explained(KafkaException(error), f"writing {key} to {topic}")


def _unsure(key: str, topic: str, reason: str) -> str:
    return (
        f"writing {key} to {topic}: {reason}. It may have been written or not; the same command with --id {key} "
        "does no harm"
    )
