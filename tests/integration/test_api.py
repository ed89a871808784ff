"""The REST interface on a real broker and one scheduler: every endpoint, the certain cancel, the errors."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from engine import Group, Reading, now
from waiting import until

from almanac import topics
from almanac.broker import Broker, ports

TOKEN = "a-token-for-the-tests"
HOUR = 3_600_000


class Api:
    """A scheduler of its own, and a client for it."""

    def __init__(self, group: Group, port: int) -> None:
        self.group = group
        self.client = httpx.Client(
            base_url=f"http://127.0.0.1:{port}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=30
        )

    def get(self, path: str, **params: Any) -> Any:
        answer = self.client.get(path, params=params)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def create(self, id: str, due: Any, **more: Any) -> Any:  # noqa: A002
        body = {"id": id, "due": due, "target": self.group.target, "value": f"value of {id}", **more}
        answer = self.client.post("/api/v1/schedules", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()

    def ids(self, **params: Any) -> list[str]:
        return [row["id"] for row in self.get("/api/v1/schedules", **params)["rows"]]


@pytest.fixture(scope="module")
def api(broker: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    port = ports.free()
    told = {"server_addr": f"127.0.0.1:{port}", "api_token": TOKEN, "api_rate": "0", "page_length": "20s"}
    with Group(broker.bootstrap_servers, tmp_path_factory.mktemp("api"), **told) as group:
        group.start().up()
        made = Api(group, port)
        until(lambda: _answers(made), 30, "the REST interface answers")
        yield made
        made.client.close()


def _answers(api: Api) -> bool:
    try:
        return api.client.get("/readiness").status_code == 200
    except httpx.HTTPError:
        return False


def _far() -> int:
    return now() + 24 * HOUR


def test_what_was_created_is_there_at_once_and_can_be_changed(api: Api) -> None:
    """Create, get, list, search, update."""
    far = _far()
    made = api.create("made/1", far, target_key="k", headers={"lang": "en"})
    assert (made["id"], made["due"], made["target"], made["state"]) == ("made/1", far, api.group.target, "waiting")
    (found,) = api.get("/api/v1/schedules/made/1")["rows"]
    assert (found["value"], found["target_key"], found["version"]) == ("value of made/1", "k", made["version"])
    assert {"name": "lang", "value": "en", "value_base64": "ZW4="} in found["headers"]

    changed = api.client.patch("/api/v1/schedules/made%2F1", json={"due": far + HOUR, "value": "other"}).json()
    assert changed["partition"] == made["partition"]
    (found,) = api.get("/api/v1/schedules/made/1")["rows"]
    assert (found["due"], found["value"], found["target_key"]) == (far + HOUR, "other", "k")
    assert {"name": "lang", "value": "en", "value_base64": "ZW4="} in found["headers"]

    for number in range(5):
        api.create(f"listed-{number}", far + number)
    assert api.ids(id_part="listed") == [f"listed-{n}" for n in range(5)]
    assert api.ids(id_part="listed", sort="-due") == [f"listed-{n}" for n in range(4, -1, -1)]
    assert api.ids(id_part="listed", due_from=far + 1, due_to=far + 3) == ["listed-1", "listed-2"]
    assert api.ids(id_part="listed", state="overdue") == []
    assert api.ids(id_part="listed", target="another") == []
    first = api.get("/api/v1/schedules", id_part="listed", limit=2, sort="id", total="true")
    assert first["total"] == 5
    seen, cursor = [row["id"] for row in first["rows"]], first["cursor"]
    while cursor is not None:
        page = api.get("/api/v1/schedules", id_part="listed", limit=2, sort="id", cursor=cursor)
        seen, cursor = seen + [row["id"] for row in page["rows"]], page["cursor"]
    assert seen == [f"listed-{n}" for n in range(5)]


def test_bytes_that_are_no_text_come_through(api: Api) -> None:
    payload = base64.b64encode(bytes(range(256))).decode()
    made = api.client.put(
        "/api/v1/schedules/%ff%00x", json={"due": "+1d", "target": api.group.target, "value_base64": payload}
    )
    assert made.status_code == 201, made.text
    (found,) = api.get("/api/v1/schedules/%ff%00x")["rows"]
    assert (found["id"], found["id_base64"], found["value_base64"]) == (None, "/wB4", payload)
    assert api.client.delete("/api/v1/schedules/%ff%00x").json()["outcome"] == "cancelled"


def test_only_if_absent_is_decided_before_anything_is_overwritten(api: Api) -> None:
    far = _far()
    only = {"If-None-Match": "*"}
    body = {"due": far, "target": api.group.target, "value": "first"}
    assert api.client.put("/api/v1/schedules/only-once", json=body, headers=only).status_code == 201
    refused = api.client.put("/api/v1/schedules/only-once", json={**body, "value": "second"}, headers=only)
    assert (refused.status_code, refused.json()["field"]) == (412, "id")
    assert api.get("/api/v1/schedules/only-once")["rows"][0]["value"] == "first"
    assert api.client.put("/api/v1/schedules/only-once", json={**body, "value": "third"}).status_code == 201
    assert api.get("/api/v1/schedules/only-once")["rows"][0]["value"] == "third"


def test_a_schedule_in_another_partition_than_its_partitioner_would_choose(api: Api) -> None:
    """Updates and cancels go where it is."""
    for partition in range(4):
        api.group.schedule(b"astray-%d" % partition, _far(), b"x", partition=partition)
    api.group.flush()
    for partition in range(4):
        moved = api.client.patch(f"/api/v1/schedules/astray-{partition}", json={"due": "+2d"}).json()
        assert moved["partition"] == partition
        gone = api.client.delete(f"/api/v1/schedules/astray-{partition}").json()
        assert (gone["outcome"], gone["partition"]) == ("cancelled", partition)
    assert api.ids(id_part="astray") == []


def test_an_id_in_two_places_must_be_named(api: Api) -> None:
    for partition in (0, 1):
        api.group.schedule(b"double", _far(), b"x", partition=partition)
    api.group.flush()
    assert len(api.get("/api/v1/schedules/double")["rows"]) == 2
    refused = api.client.delete("/api/v1/schedules/double")
    assert refused.status_code == 409
    assert "several places" in refused.json()["allowed"]
    for partition in (0, 1):
        gone = api.client.delete("/api/v1/schedules/double", params={"partition": partition}).json()
        assert gone["outcome"] == "cancelled"


def test_fire_now_and_what_fired(api: Api) -> None:
    begun = now()
    api.create("now", _far())
    fired = api.client.post("/api/v1/schedules/now/fire")
    assert (fired.status_code, fired.json()["outcome"]) == (200, "fired"), fired.text
    with api.group.read() as target:
        target.until(lambda got: any(each.value == b"value of now" for each in got), 10, "the message")
    (row,) = api.get("/api/v1/fired", id_part="now", since=begun)["rows"]
    assert (row["outcome"], row["target"]) == ("fired", api.group.target)
    assert 0 <= row["lateness"] < 5_000
    assert api.client.post("/api/v1/schedules/now/fire").status_code == 404
    assert api.client.delete("/api/v1/schedules/now").json()["outcome"] == "already-fired"


def test_cancels_around_the_due_time_are_never_wrong(api: Api) -> None:
    """50 at once, each some ms before or after its time: what was told is what the target has, and none is unknown."""
    number = 50
    due = now() + 4_000
    for each in range(number):
        api.create(f"race-{each}", due)
    answers: dict[str, Any] = {}

    def cancel(each: int) -> None:
        moment = due - 600 + each * 20  # 600 ms before to 400 ms after
        time.sleep(max(0.0, moment / 1000 - time.time()))
        answers[f"race-{each}"] = api.client.delete(f"/api/v1/schedules/race-{each}").json()

    threads = [threading.Thread(target=cancel, args=(each,)) for each in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with api.group.read() as target:
        came = {each.value for each in target.to_the_end()}
    told = {id: answer.get("outcome", answer) for id, answer in answers.items()}  # noqa: A001
    delivered = {id for id in told if f"value of {id}".encode() in came}  # noqa: A001
    assert {id for id, answer in told.items() if answer == "already-fired"} == delivered  # noqa: A001
    assert Counter(told.values()).keys() <= {"cancelled", "already-fired"}, Counter(map(str, told.values()))
    took = sorted(answer["took"] for answer in answers.values())
    print(f"cancels: {Counter(told.values())}, p50 {took[25]} ms, max {took[-1]} ms")


def test_counts_are_exact_cancels_included(api: Api) -> None:
    start = (_far() // HOUR + 100) * HOUR
    for each in range(7):
        api.create(f"counted-{each}", start + each)
    api.create("counted-later", start + HOUR)
    span = {"due_from": start, "due_to": start + 2 * HOUR, "target": api.group.target}

    def counts() -> list[tuple[int, int]]:
        return [(each["start"], each["number"]) for each in api.get("/api/v1/counts", **span)["counts"]]

    assert counts() == [(start, 7), (start + HOUR, 1)]
    api.client.delete("/api/v1/schedules/counted-0")
    api.client.patch("/api/v1/schedules/counted-1", json={"due": start + HOUR + 5})
    assert counts() == [(start, 5), (start + HOUR, 2)]
    api.group.booked()  # the same from the book
    assert counts() == [(start, 5), (start + HOUR, 2)]
    api.client.delete("/api/v1/schedules/counted-2")
    assert counts() == [(start, 4), (start + HOUR, 2)]
    assert api.get("/api/v1/schedules", id_part="counted", total="true")["total"] == 6
    assert api.ids(id_part="counted", sort="id") == [
        "counted-1", "counted-3", "counted-4", "counted-5", "counted-6", "counted-later",
    ]  # fmt: skip


def test_dead_letters_and_sending_again(api: Api) -> None:
    api.group.schedule(b"dead-1", now() - HOUR, b"too late")
    api.group.write(b"dead-2", b"no headers", [])
    api.group.flush()

    def letters(**params: Any) -> list[Any]:
        rows: list[Any] = api.get("/api/v1/dead-letters", **params)["rows"]
        return rows

    until(lambda: len(letters(id_part="dead-")) == 2, 20, "two dead letters")
    (late,) = letters(reason="outdated", id_part="dead-1")
    assert (late["value"], late["target"], late["sendable"]) == ("too late", api.group.target, True)
    again = api.client.post(f"/api/v1/dead-letters/{late['partition']}/{late['offset']}/send-again")
    assert again.status_code == 201, again.text
    with api.group.read() as target:
        target.until(lambda got: any(each.value == b"too late" for each in got), 10, "the dead letter's message")
    (bad,) = letters(reason="invalid", id_part="dead-2")
    refused = api.client.post(f"/api/v1/dead-letters/{bad['partition']}/{bad['offset']}/send-again")
    assert (refused.status_code, bad["sendable"]) == (409, False)
    assert "no headers" not in refused.text
    assert api.client.get("/api/v1/dead-letters/0/999999").status_code == 404
    page = api.get("/api/v1/dead-letters", limit=1)
    assert page["cursor"] is not None
    assert api.get("/api/v1/dead-letters", limit=1, cursor=page["cursor"])["rows"] != page["rows"]


def test_the_peers_endpoints(api: Api) -> None:
    alive = api.client.get("/liveness")
    assert (alive.status_code, alive.content) == (200, b"")
    info = api.get("/info")
    assert list(info) == ["hostname", "address", "server_address", "kafka"]
    assert info["kafka"]["topics"] == [api.group.topic]
    api.create("peer <1>", 4_000_000_000, value="", target_key="k")
    body = api.client.get("/schedules").content.decode()
    (row,) = [each for each in json.loads(body) if each["id"] == "peer <1>"]
    shown = (
        f'{{"epoch":4000000000,"id":"peer \\u003c1\\u003e","target-key":"k","target-topic":"{api.group.target}",'
        f'"timestamp":{row["timestamp"]},"topic":"{api.group.topic}","value":""}}'
    )
    assert shown in body


def test_the_token_and_what_is_open(api: Api) -> None:
    bare = httpx.Client(base_url=api.client.base_url)
    for path in ("/api/v1/schedules", "/schedules", "/info", "/docs", "/openapi.json"):
        answer = bare.get(path)
        assert answer.status_code == 401, path
        assert TOKEN not in answer.text
    assert bare.get("/liveness").status_code == bare.get("/readiness").status_code == 200
    assert bare.get("/docs", auth=("me", TOKEN)).status_code == 200
    assert bare.delete("/api/v1/schedules/x", auth=("me", TOKEN)).status_code == 401
    assert TOKEN not in json.dumps(api.get("/api/v1/config"))


def test_the_state_of_things(api: Api) -> None:
    view = api.get("/api/v1/overview")
    assert set(view["states"].values()) == {"firing"}
    partitions = api.get("/api/v1/partitions")["partitions"]
    assert {each["state"] for each in partitions} == {"firing"}
    assert [each["partition"] for each in partitions] == [0, 1, 2, 3]
    assert len(api.get("/api/v1/shards")["shards"]) == 2
    api.create("told/of", _far())
    story = api.get("/api/v1/stories/told/of")
    assert any("waits" in text for text in story["verdicts"])


def test_pause_and_resume(api: Api) -> None:
    other = api.group.make_topic(f"{api.group.name}-other")
    paused = api.client.post("/api/v1/controls/pause", json={"target": other}).json()
    assert paused["paused_targets"] == [other]
    made = {"due": "+1s", "target": other, "value": "held back"}
    assert api.client.put("/api/v1/schedules/held", json=made).status_code == 201
    waiting = api.client.post("/api/v1/schedules/held/fire", params={"timeout": 1.5})
    assert (waiting.status_code, waiting.json()["outcome"]) == (202, "waiting")
    # What is paused can be cancelled with certainty all the same.
    assert api.client.put("/api/v1/schedules/held-2", json=made).status_code == 201
    assert api.client.delete("/api/v1/schedules/held-2").json()["outcome"] == "cancelled"
    assert api.client.post("/api/v1/controls/resume", json={"target": other}).json()["paused_targets"] == []
    with Reading(api.group, other) as target:
        assert [each.value for each in target.count(1, 10)] == [b"held back"]
    assert api.client.put("/api/v1/controls/caps/missed", json={"per_second": 5}).json()["missed_per_second"] == 5
    assert api.client.put("/api/v1/controls/caps/missed", json={"per_second": None}).json()["missed_per_second"] is None


def test_who_did_it_is_recorded_and_no_payload(api: Api) -> None:
    body = {"due": "+1d", "target": api.group.target, "value": "a secret payload"}
    api.client.put("/api/v1/schedules/audited", json=body, headers={"X-Almanac-User": "ada"})
    api.client.delete("/api/v1/schedules/audited", headers={"X-Almanac-User": "ada"})
    text = Path(api.group.folder, "log", "audit.jsonl").read_text()
    lines = [line for line in map(json.loads, text.splitlines()) if line.get("id") == "audited"]
    assert [(line["act"], line["outcome"], line["who"]) for line in lines] == [
        ("create", "done", "api 127.0.0.1 (ada)"), ("cancel", "cancelled", "api 127.0.0.1 (ada)"),
    ]  # fmt: skip
    for scheduler in api.group.schedulers:
        assert "a secret payload" not in scheduler.output + text
        assert TOKEN not in scheduler.output + text


COMMANDS = re.findall(r"(?m)^\$ (curl .*)$", (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8"))


def test_the_examples_of_the_guide(api: Api, tmp_path: Path) -> None:
    """Each as it stands there, but for the address and the token."""
    for topic in ("online-videos", "mails"):
        if topic not in topics.partition_counts(api.group.admin, [topic]):
            api.group.make_topic(topic)
    (tmp_path / ".curlrc").write_text(f'silent\nshow-error\nfail-with-body\nheader = "Authorization: Bearer {TOKEN}"\n')
    base = str(api.client.base_url).rstrip("/")
    assert len(COMMANDS) > 20
    for command in COMMANDS:
        told = command.replace("http://127.0.0.1:8000", base)
        ran = subprocess.run(
            ["sh", "-c", told], env={"CURL_HOME": str(tmp_path), "PATH": os.environ["PATH"]}, capture_output=True,
            text=True, timeout=30,
        )  # fmt: skip
        assert ran.returncode == 0, f"{command}\n{ran.stdout}{ran.stderr}"
        if "DELETE" in command:
            assert '"outcome":"cancelled"' in ran.stdout
        if "/fire" in command and "POST" in command:
            assert '"outcome":"fired"' in ran.stdout
