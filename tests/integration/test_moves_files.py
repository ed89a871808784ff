"""`almanac export` and `import` on a real Kafka: every schedule once, whatever happens on the way."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from conftest import MakeTopic
from moving import (
    LATER,
    Place,
    etf1,
    forgotten,
    killed,
)

from almanac import client, imports
from almanac.client import Message


def test_an_export_of_no_topic_leaves_the_file(place: Place, tmp_path: Path) -> None:
    file = tmp_path / "schedules.jsonl"
    file.write_text("before")
    place.environ["SCHEDULES_TOPICS"] = f"{place.native},no-such-topic"
    assert "the topic no-such-topic does not exist" in place.run("export", "--output", str(file), code=2)
    assert file.read_text() == "before"
    assert [each.name for each in tmp_path.iterdir()] == [file.name]


def test_an_export_goes_into_a_pipe_and_through_a_link(
    place: Place, write: Callable[..., None], tmp_path: Path
) -> None:
    write(etf1("\u20ac", 1, place.native), Message(place.native, b"bad", b"no schedule"))
    lines = place.run("export")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real").write_text("before")
    told = json.loads(place.run("export", "--output", str(tmp_path / "link"), "--json"))
    assert (told["schedules"], [each["record"].split("/")[0] for each in told["unreadable"]]) == (1, [place.native])
    assert (tmp_path / "link").is_symlink()
    os.mkfifo(tmp_path / "pipe")
    with subprocess.Popen(["cat", tmp_path / "pipe"], stdout=subprocess.PIPE, text=True, encoding="utf-8") as reader:
        place.run("export", "--output", str(tmp_path / "pipe"))
        assert reader.communicate(timeout=30)[0] == (tmp_path / "link").read_text(encoding="utf-8") == lines
    command = f"{sys.executable} -m almanac export --output /dev/stdout | cat"
    done = subprocess.run(["bash", "-c", command], env={**os.environ, **place.environ}, capture_output=True, timeout=60)
    assert done.stdout.decode().splitlines()[: len(lines.splitlines())] == lines.splitlines()
    assert "--output is empty" in place.run("export", "--output", "", code=2)


def test_an_export_to_stdout_is_utf_8_whatever_the_locale(place: Place, write: Callable[..., None]) -> None:
    write(etf1("\u20ac", 1, place.native))
    environ = {**os.environ, **place.environ, "PYTHONIOENCODING": "latin-1"}
    command = [sys.executable, "-m", "almanac", "export"]
    done = subprocess.run(command, env=environ, capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout.decode())["id"] == "\u20ac"


def test_a_file_whose_times_have_come_can_be_run_again(place: Place, tmp_path: Path) -> None:
    began = datetime.now(UTC) - timedelta(hours=2)
    line = {"due": (began + timedelta(hours=1)).isoformat(), "target_topic": "videos", "value": "v"}
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps({"id": f"id{n}", **line}) + "\n" for n in range(3)))
    with file.open("rb") as opened:
        work = imports.Import(place.settings, opened, place.native, int(began.timestamp() * 1000))
        work.write(work.check(False, lambda *_: lambda _: None), False, lambda *_: lambda _: None)
    done = json.loads(place.run("import", str(file), "--json"))
    assert (done["before"], done["imported"], done["refused"]) == (3, 0, [])
    said = place.run("import", str(file), "--again", code=2)
    assert "line 1: due" in said
    assert "This run has imported nothing" in said
    assert len(place.read()) == 3


def test_what_was_exported_can_be_imported_once(
    place: Place, write: Callable[..., None], make_topic: MakeTopic, tmp_path: Path
) -> None:
    odd = Message("videos", b"\xff", b"\x00\xff", [("a", None), ("a", b"\xfe"), ("b", b"")])
    write(*(etf1(f"id{n}", n, place.native) for n in range(5)), client.etf1.schedule(odd, b"\xfe", LATER, place.native))
    write(etf1("id1", 11, place.native), client.etf1.cancel("id2", place.native))
    file = tmp_path / "schedules.jsonl"
    told = json.loads(place.run("export", "--output", str(file), "--json"))
    assert told["schedules"] == 5
    assert place.run("export").splitlines() == file.read_text().splitlines()
    before = place.waiting()

    elsewhere = Place(place.environ, make_topic("other", 2, {"cleanup.policy": "compact"}), place.peer, place.admin)
    elsewhere.environ = {**place.environ, "SCHEDULES_TOPICS": elsewhere.native}
    for imported, earlier in ((5, 0), (0, 5)):
        done = json.loads(elsewhere.run("import", str(file), "--json"))
        assert (done["lines"], done["imported"], done["before"], done["refused"]) == (5, imported, earlier, [])
    assert len(elsewhere.read()) == 5
    after = elsewhere.waiting()
    assert set(after) == set(before)
    for key, schedule in before.items():
        copy = after[key]
        assert (copy.due, copy.target, copy.key, copy.value) == schedule[:3] + schedule[4:5]
        own = [header for header in schedule.headers if not header[0].startswith("scheduler-")]
        assert [header for header in copy.headers if not header[0].startswith("scheduler-")] == own
    # The same schedules in another file: the topic has heard of them.
    file.write_text("\n".join(reversed(file.read_text().splitlines())))
    assert json.loads(elsewhere.run("import", str(file), "--json"))["newer"] == 5
    write(client.etf1.cancel("id0", elsewhere.native))
    assert b"id0" not in elsewhere.waiting()
    assert json.loads(elsewhere.run("import", str(file), "--again", "--json"))["imported"] == 5
    assert b"id0" in elsewhere.waiting()


def test_bad_lines_are_named_and_stop_it_or_not(place: Place, tmp_path: Path) -> None:
    good = {"due": LATER.isoformat(), "target_topic": "videos", "value": "v"}
    file = tmp_path / "lines.jsonl"
    ids = [json.dumps({"id": name, **good}) for name in ("a", "", "b")]
    null = json.dumps({**good, "id": "c", "value": None})
    file.write_text("\n".join([ids[0], "", "nonsense", *ids[1:], null]))
    said = place.run("import", str(file), code=2)
    assert "line 3: no JSON" in said
    assert "3 of 5 lines are bad" in said
    assert place.read() == []
    assert json.loads(place.run("import", str(file), "--dry-run", "--json"))["applied"] is False
    done = json.loads(place.run("import", str(file), "--on-bad-line", "skip", "--json"))
    assert (done["imported"], [each["line"] for each in done["refused"]]) == (2, [3, 4, 6])
    assert set(place.waiting()) == {b"a", b"b"}


def test_stdin_is_imported_once_too(place: Place) -> None:
    line = json.dumps({"id": "a", "due": LATER.isoformat(), "target_topic": "videos", "value": "v"})
    assert "1 imported" in place.run("import", "-", input=f"{line}\n")
    assert "0 imported" in place.run("import", "-", input=f"{line}\n")
    assert len(place.read()) == 1


def test_an_import_that_is_killed_goes_on(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good = {"due": LATER.isoformat(), "target_topic": "videos", "value": "v", "timestamp_ms": int(time.time() * 1000)}
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps({"id": f"id{n}", **good}) + "\n" for n in range(55)))
    killed(place, monkeypatch, "before", "import", str(file))
    forgotten(monkeypatch)
    done = json.loads(place.run("import", str(file), "--json"))
    assert (done["before"], done["imported"]) == (20, 35)
    assert Counter(record.key for record in place.read()) == Counter(f"id{n}".encode() for n in range(55))


def test_a_killed_import_brings_the_rest_though_its_times_have_come(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lines without a time stamp; the last one is an update of the first."""
    due = (datetime.now(UTC) + timedelta(minutes=5)).isoformat()
    lines = [{"id": f"id{n % 24}", "due": due, "target_topic": "videos", "value": f"video {n}"} for n in range(25)]
    file = tmp_path / "lines.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    killed(place, monkeypatch, "before", "import", str(file))
    with file.open("rb") as opened:
        work = imports.Import(place.settings, opened, place.native, int(time.time() * 1000) + 600_000)
        report = work.check(False, lambda *_: lambda _: None)
        work.write(report, False, lambda *_: lambda _: None)
    assert (report.refused, report.before, report.imported, report.newer) == ([], 20, 5, 0)
    waiting = place.waiting()
    assert (len(waiting), waiting[b"id0"].value) == (24, b"video 24")
