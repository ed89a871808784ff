"""What the commands show, and how they ask a scheduler that runs elsewhere."""

import base64
import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from almanac import board, desk, errors, remote
from almanac.cli import app, shown, top
from almanac.controls import Controls

run = CliRunner().invoke
Answer = Callable[[str, str, dict[str, str], Any], tuple[int, Any]]


class Elsewhere:
    """Stands for a scheduler's REST interface: answers as told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        self.answers: list[tuple[int, Any]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                outer.asked.append((self.command, self.path, dict(self.headers), json.loads(body or b"null")))
                status, said = outer.answers.pop(0)
                self.send_response(status)
                if status == 302:
                    self.send_header("Location", f"{outer.url}/elsewhere")
                self.end_headers()
                self.wfile.write(said if isinstance(said, bytes) else json.dumps(said).encode())

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer  # noqa: N815 (their names there)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Elsewhere()
    yield made
    made.close()


def said(name: str, value: bytes | None) -> dict[str, Any]:
    text = None if value is None or not value.isascii() else value.decode()
    return {name: text, f"{name}_base64": None if value is None else base64.b64encode(value).decode()}


def a_row(**more: Any) -> dict[str, Any]:
    """As the interface tells a schedule."""
    return {
        **said("id", b"a/b"), "topic": "schedules", "partition": 2, "version": 7, "due": 2_000_000_000_000,
        "due_utc": "2033-05-18 03:33:20+00:00", "timestamp": 5, "timestamp_utc": "", "state": "waiting",
        "target": "mails", **said("target_key", b"\xff"), **said("value", b"x"), "size": 1, "hidden": False,
        "headers": [{"name": "kind", **said("value", b"news")}, {"name": "none", **said("value", None)}], **more,
    }  # fmt: skip


def a_problem(status: int, **more: Any) -> tuple[int, dict[str, Any]]:
    return status, {"type": "about:blank", "status": status, "detail": "id 'x': must be so", **more}


def test_a_schedule_comes_over_byte_by_byte(elsewhere: Elsewhere) -> None:
    elsewhere.answers = [(200, {"rows": [a_row()]})]
    (row,) = remote.Remote(elsewhere.url + "/", "secret").schedule(b"a/b", "schedules")
    assert row == desk.Row(
        id=b"a/b", topic="schedules", partition=2, version=7, due=2_000_000_000_000, timestamp=5, target="mails",
        target_key=b"\xff", value=b"x", headers=[("kind", b"news"), ("none", None)], state="waiting", size=1,
    )  # fmt: skip
    method, path, headers, _ = elsewhere.asked[0]
    assert (method, path) == ("GET", "/api/v1/schedules/a%2Fb?topic=schedules")
    assert headers["Authorization"] == "Bearer secret"


def test_what_is_asked_for(elsewhere: Elsewhere) -> None:
    elsewhere.answers = [(200, {"rows": [a_row()], "cursor": "next", "total": None})]
    found = remote.Remote(elsewhere.url).schedules(desk.Query(id_part="ä&b", due_from=5, limit=3))
    assert (len(found.rows), found.cursor) == (1, "next")
    assert elsewhere.asked[0][1] == "/api/v1/schedules?id_part=%C3%A4%26b&due_from=5&sort=due&limit=3&total=false"


def test_a_cancel_over_the_interface(elsewhere: Elsewhere) -> None:
    outcome = {**said("id", b"x"), "outcome": "cancelled", "topic": "schedules", "partition": 1, "version": 3,
               "offset": 9, "detail": "it will not be delivered", "took": 41}  # fmt: skip
    elsewhere.answers = [(200, outcome), a_problem(404, field="id", value="x", allowed="nothing is pending")]
    far = remote.Remote(elsewhere.url)
    assert far.cancel(b"x", "cli ada").answer == "cancelled"
    assert elsewhere.asked[0][:2] == ("DELETE", "/api/v1/schedules/x?timeout=5.0")
    assert elsewhere.asked[0][2]["X-Almanac-User"] == "cli ada"
    assert far.cancel(b"x", "cli ada").answer == "not-found"


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        (a_problem(422, field="due", value="x", allowed="must be a time"), desk.Refused, "due 'x': must be a time"),
        (a_problem(409, field="id", value="x", allowed="several places"), desk.NotNow, "several places"),
        (a_problem(401), errors.AlmanacError, "ALMANAC_API_TOKEN"),
        (a_problem(503), errors.Unreachable, "must be so"),
        ((200, b"<html>"), errors.AlmanacError, "is no Almanac"),
        ((404, b"nothing"), errors.AlmanacError, "is no Almanac: 404"),
        ((302, b""), errors.AlmanacError, "is no Almanac: 302"),
    ],
)
def test_what_is_refused_there_is_refused_here(
    elsewhere: Elsewhere, answer: tuple[int, Any], kind: type[Exception], says: str
) -> None:
    elsewhere.answers = [answer]
    with pytest.raises(kind, match=says) as refused:
        remote.Remote(elsewhere.url, "secret").controls()
    assert "secret" not in str(refused.value)
    assert len(elsewhere.asked) == 1, "a token goes nowhere else"


def test_nobody_there() -> None:
    result = run(app, ["ls"], env={"ALMANAC_API": "http://127.0.0.1:1", "no_proxy": "127.0.0.1"})
    assert result.exit_code == 7
    assert "no scheduler answers at http://127.0.0.1:1" in result.stderr


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x", "http://", "http://a:b@c", "http://x?y"])
def test_an_address_that_is_none(url: str) -> None:
    result = run(app, ["ls", "--api", url])
    assert result.exit_code == 2
    assert "--api" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ls", "--sort", "size"], "--sort 'size': must be due, -due or id"),
        (["ls", "--from", "then"], "not understood"),
        (["stats", "--by", "week"], "--by 'week': must be hour or day"),
        (["show", "x", "--payload", "json5"], "must be auto, text or hex"),
        (["reschedule", "x", "--at", "-1h"], "has passed"),
        (["cancel", ""], "the id is empty"),
        (["cancel", "x", "--no-wait", "--api", "http://x"], "--no-wait writes straight to Kafka"),
        (["pause", "a b"], "is no topic's name"),
        (["cap", "fast"], "a whole number of fires a second, or none"),
        (["dead-letters", "--send-again", "12"], "must be PARTITION/OFFSET"),
    ],
)
def test_commands_refuse(arguments: list[str], says: str) -> None:
    result = run(app, arguments, env={"ALMANAC_API": ""})
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("value", "form", "looks"),
    [
        (b"hello", "auto", "hello"),
        (None, "auto", "(null)"),
        (b"", "auto", ""),
        (b"a\x1b[31m", "auto", "00000000  61 1b 5b 33 31 6d"),
        (b"a\x1b[31m", "text", "a\\x1b[31m"),
        (b"\xff" * 17, "auto", "00000000  " + "ff " * 15 + "ff\n00000010  ff"),
        (b"hi", "hex", "00000000  68 69"),
    ],
)
def test_a_payload_cannot_steer_the_terminal(value: bytes | None, form: str, looks: str) -> None:
    assert shown.payload(value, form) == looks


def view(**more: Any) -> desk.Overview:
    seen = board.Overview(
        pending=1_204_551, fired=88_012, per_second=997.2, late_p50=10, late_p99=20, late_max=31, next_due=None,
        dead_letters=3, states={0: "firing"}, halted=(),
    )  # fmt: skip
    status = {"page": 4, "fired": 88_012, "in_memory": 77, "lag": 0, "clock_ms": -3, "rss": 200 << 20,
              "targets": {"mails": 88_000, "calls": 12}, "quarantine": {"gone": 5}}  # fmt: skip
    partitions = [
        desk.Partition(
            topic="schedules", partition=n, shard=n % 2, state="firing", why=None, first=0, end=10, position=10, lag=0,
            book=8,
        )
        for n in range(20)
    ]  # fmt: skip
    return desk.Overview(**{
        "board": seen, "controls": Controls(), "partitions": partitions, "duties": {}, "group": "billing",
        "now": 1_900_000_000_000,
        "shards": [desk.Shard(shard=0, state="firing", why=None, reported=0, status=status)], **more,
    })  # fmt: skip


def looks(seen: desk.Overview, width: int = 120, trouble: str | None = None) -> str:
    console = Console(width=width, record=True)
    with console.capture() as captured:
        console.print(top.picture(seen, UTC, trouble))
    return captured.get()


def test_the_overview_at_one_glance() -> None:
    text = looks(view())
    for part in ("group billing", "1,204,551", "997", "p99 ≤20 ms", "firing", "-3 ms", "200 MB", "5 set apart",
                 "schedules/0", "and 8 more", "mails", "88,000"):  # fmt: skip
        assert part in text, part


def test_the_overview_puts_trouble_first() -> None:
    bad = desk.Partition(
        topic="rails", partition=9, shard=1, state="incompatible", why=None, first=0, end=9, position=4, lag=5, book=4
    )
    told = Controls(paused=True, paused_targets=("mails",), target_per_second={"calls": 5}, by="cli ada", at=1)
    text = looks(view(partitions=[*view().partitions, bad], controls=told), trouble="Kafka does not answer")
    lines = text.splitlines()
    assert "rails/9" in lines[next(n for n, line in enumerate(lines) if line.startswith("partition")) + 1]
    assert "everything is paused" in text
    assert "calls: at most 5 a second" in text
    assert "told by cli ada" in text
    assert "no answer: Kafka does not answer" in text


def test_the_overview_where_nothing_runs() -> None:
    assert "no scheduler of this group runs" in looks(view(shards=[]))


def test_the_overview_as_json() -> None:
    assert json.loads(json.dumps(top.described(view())))["shards"][0]["state"] == "firing"


def test_the_overview_comes_over(elsewhere: Elsewhere) -> None:
    seen = view()
    said = {"group": seen.group, "now": seen.now, "now_utc": "", **vars(seen.board), "controls": {"paused": True},
            "partitions": [vars(each) for each in seen.partitions], "shards": [vars(each) for each in seen.shards],
            "duties": {}}  # fmt: skip
    elsewhere.answers = [(200, json.loads(json.dumps(said)))]
    far = remote.Remote(elsewhere.url).overview()
    assert far == view(controls=Controls(paused=True))
