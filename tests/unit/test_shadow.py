"""A shadow's wheel names what it would fire, and its log stays as it was."""

import logging
from typing import Any

import pytest
from memory import START, TOPIC, Rig, Turning

from almanac import shadow
from almanac.settings import Settings


def turning(rig: Rig) -> Turning:
    """A wheel that writes as a shadow does."""
    settings = shadow.apart(Settings(shadow=True))
    rig.options |= {"history": settings.history_topic, "dead_letters": settings.dead_letters_topic}
    made = rig.wheel()
    writer: Any = shadow.ShadowWriter(settings, rig.clock)
    for part in (made.wheel, made.wheel._chores, made.wheel._ward):
        vars(part)["_writer"] = writer
    return made.begin()


def told(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """What the shadow itself has said."""
    return [record for record in caplog.records if record.name == "almanac.shadow"]


def test_it_writes_nothing_whatever_it_would_do(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "almanac.shadow")
    rig = Rig()
    rig.kafka.schedule(b"soon", START + 1_000)
    rig.kafka.schedule(b"outdated", START - 60_000)
    rig.kafka.schedule(b"adrift", START + 500_000)
    rig.kafka.write(TOPIC, b"adrift", b"?", [("scheduler-epoch", b"soon")])  # disposed of and repeated, usually
    rig.kafka.schedule(b"cancelled", START + 1_000)
    rig.kafka.cancel(b"cancelled")
    before = dict(rig.kafka.logs[TOPIC, 0].slots)
    turning(rig).run_for(3_000)
    assert rig.kafka.logs[TOPIC, 0].slots == before
    assert [source for source, log in rig.kafka.logs.items() if log.slots] == [(TOPIC, 0)]
    said = sorted(record.getMessage() for record in told(caplog))
    assert [" ".join(text.split()[:3]) for text in said] == [
        "would fire soon",
        "would refuse adrift",
        "would refuse outdated",
    ]
    fired = next(record for record in told(caplog) if "fire" in record.getMessage())
    assert (vars(fired)["id"], vars(fired)["target"], vars(fired)["due_ms"]) == ("soon", "target", START + 1_000)
    assert vars(fired)["late_ms"] < 50


def test_a_wheel_that_reads_its_tail_again_names_nothing_twice(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "almanac.shadow")
    rig = Rig()
    rig.kafka.schedule(b"soon", START + 1_000)
    wheel = turning(rig).run_for(2_000)
    wheel.wheel._read_again(rig.page())
    rig.kafka.schedule(b"soon", START + 3_000)  # another version of it is another fire
    wheel.run_for(2_000)
    assert [vars(record)["due_ms"] for record in told(caplog)] == [START + 1_000, START + 3_000]


def test_what_the_peer_acknowledges_is_forgotten() -> None:
    rig = Rig()
    for number in range(5):
        rig.kafka.schedule(b"%d" % number, START + 1_000)
    wheel = turning(rig).run_for(2_000)
    (ledger,) = wheel.wheel.ledgers.values()
    assert len(ledger._unread) == 5
    for number in range(5):
        rig.kafka.cancel(b"%d" % number)  # as the peer acknowledges: a null value
    wheel.run_for(500)
    assert not ledger._unread


def test_it_takes_no_name_of_a_scheduler_that_fires() -> None:
    told = Settings(group_id="billing", shadow=True)
    apart = shadow.apart(told)
    assert (apart.shard_topic, apart.topics) == ("billing-shadow-shards", told.topics)
    assert apart.book_folder != told.book_folder


def test_it_neither_bridges_nor_ticks() -> None:
    topics = "schedules,timer-request=timers,rails=karafka"
    told = Settings.model_validate({"schedules_topics": topics, "oscillator_topic": "seconds", "shadow": True})
    apart = shadow.apart(told)
    assert (told.duties, apart.duties) == (("bridge", "oscillator"), ())
    assert (apart.topics, apart.states_topics) == (("schedules", "rails"), {})
