"""`almanac migrate` on a real Kafka: every schedule once, whatever happens on the way."""

import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from moving import SOON_MS, Place, at_partition, content, etf1, forgotten, killed, sky_json
from waiting import until

from almanac import client, errors, mover, topics


@pytest.mark.parametrize("dies", ["before", "after"])
def test_killed_at_a_commit_and_run_again(
    dies: str, place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(100)))
    killed(place, monkeypatch, dies, "migrate", "--from-topic", place.peer, "--format", "sky-json", "--yes")
    forgotten(monkeypatch)
    # Said after the kill, before the next run: an update of what was copied, and of what was not.
    write(sky_json("id0", 1000, place.peer), sky_json("id99", 1099, place.peer))
    place.migrate("sky-json")
    place.migrate("sky-json")
    counts = Counter(record.key for record in place.read())
    twice = {b"id0", b"id99"}
    assert {key for key, number in counts.items() if number != 1} <= twice, "copied twice"
    waiting = place.waiting()
    assert len(waiting) == 100
    assert (waiting[b"id0"].value, waiting[b"id99"].value) == (b"video 1000", b"video 1099")


def test_killed_between_two_partitions_that_have_the_same_id(
    place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each id one partition's word counts, also if a run was killed when it had copied that."""
    passed = datetime(1970, 1, 1, tzinfo=UTC)  # its native copy has a time stamp of long ago
    for n in range(30):
        newer = client.sky.schedule(content(n), f"id{n}", passed, place.peer, "json")
        write(at_partition(newer, 0), timestamp=SOON_MS - 100_000_000)
        write(at_partition(sky_json(f"id{n}", 100 + n, place.peer), 1), timestamp=SOON_MS - 200_000_000)
    killed(place, monkeypatch, "after", "migrate", "--from-topic", place.peer, "--format", "sky-json", "--yes")
    done = place.migrate("sky-json")
    assert (done["before"], done["copied"], len(done["refused"])) == (30, 0, 30)
    assert Counter(record.value for record in place.read()) == Counter(b"video %d" % n for n in range(30))


@pytest.mark.parametrize("dies", ["before", "after"])
def test_killed_between_an_update_and_the_cancel_in_the_old_partition(
    dies: str, place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*(at_partition(etf1(f"id{n}", 1, place.peer), 1) for n in range(30)))
    place.migrate("etf1")
    write(*(at_partition(etf1(f"id{n}", 2, place.peer), 0) for n in range(30)))
    write(*(at_partition(client.etf1.cancel(f"id{n}", place.peer), 1) for n in range(30)))
    killed(place, monkeypatch, dies, "migrate", "--from-topic", place.peer, "--format", "etf1", "--yes")
    monkeypatch.setattr(mover, "SETTLE", 1.0)  # what the killed run left open is not waited for, but ended
    place.migrate("etf1")
    assert [each.value for each in place.waiting().values()] == [b"video 2"] * 30


@pytest.mark.long
def test_a_process_that_is_killed_and_run_again(place: Place, write: Callable[..., None], tmp_path: Path) -> None:
    number = 30_000
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(number)))
    command = [sys.executable, "-m", "almanac", "migrate", "--from-topic", place.peer, "--format", "sky-json", "--yes"]
    environ = {**os.environ, **place.environ}
    process = subprocess.Popen(command, env=environ, cwd=tmp_path, stdout=subprocess.DEVNULL)
    until(lambda: sum(place.ends(place.native).values()) > 0, 60, "it writes")
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert 0 < sum(place.ends(place.native).values()) < number, "it was killed in the middle"
    place.migrate("sky-json")
    counts = Counter(record.key for record in place.read())
    assert (len(counts), set(counts.values())) == (number, {1})


def test_an_earlier_run_that_lives_on_is_shut_out(place: Place, write: Callable[..., None]) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(3)))
    first = mover.Mover(place.settings, place.native)
    first.fence()
    place.migrate("sky-json")
    with pytest.raises(Exception, match="taken over"):
        first.write([], "import x", {})
    assert len(place.read()) == 3


@pytest.mark.parametrize("name", ["migrate {id}", "migrate {id}/0", "migrate another/0"])
def test_markers_of_another_version_stop_it(name: str, place: Place, write: Callable[..., None]) -> None:
    write(sky_json("a", 1, place.peer))
    log = mover.Mover(place.settings, place.native)
    log.fence()
    log.write([], name.format(id=topics.topic_ids(place.admin, [place.peer])[place.peer]), {"at": 1})
    log.fence()
    log.close()
    said = place.run("migrate", "--from-topic", place.peer, "--format", "sky-json", "--yes", code=1)
    assert "does not know" in said
    assert place.read() == []


class Doubtful(Producer):
    """A producer that hears of a lost connection during its first commit, and gets its answer all the same."""

    made = 0
    fails = False

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(config)
        Doubtful.made += 1
        self._config = config

    def commit_transaction(self, *arguments: Any) -> None:
        super().commit_transaction(*arguments)
        if Doubtful.fails and Doubtful.made == 1:
            self._config["error_cb"](KafkaError(KafkaError._TRANSPORT, "the connection was lost"))


@pytest.mark.parametrize("why", ["slow", "transport"])
def test_a_producer_in_doubt_is_replaced(
    why: str, place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*(at_partition(sky_json(f"id{n}", n, place.peer), 0) for n in range(25)))
    monkeypatch.setattr(mover, "BATCH", 10)
    monkeypatch.setattr(mover, "Producer", Doubtful)
    monkeypatch.setattr(Doubtful, "made", 0)
    monkeypatch.setattr(Doubtful, "fails", why == "transport")
    monkeypatch.setattr(mover, "SLOW", -1.0 if why == "slow" else 1e9)
    assert place.migrate("sky-json")["copied"] == 25
    # Three transactions, and one producer before and after all of them.
    assert Doubtful.made == (4 if why == "slow" else 3)
    assert Counter(record.key for record in place.read()) == Counter(f"id{n}".encode() for n in range(25))


def test_who_was_in_doubt_does_not_shut_out_who_came_later(
    place: Place, write: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(*(sky_json(f"id{n}", n, place.peer) for n in range(3)))
    first = mover.Mover(place.settings, place.native)
    first.fence()
    first.markers()
    with monkeypatch.context() as patch:
        patch.setattr(mover, "SLOW", -1.0)
        first.write([], "import x", {})
    place.migrate("sky-json")
    with pytest.raises(errors.AlmanacError, match="taken over"):
        first.write([], "import x", {})
    first.close()
    assert place.migrate("sky-json")["copied"] == 0
