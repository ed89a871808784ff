"""What stands before the desk: token, read-only, origins, sizes, rates; and how errors look.

The desk here answers nothing: where a request reaches it, that is an error of its own.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from almanac import api, desk, errors, live
from almanac.api import guard
from almanac.settings import Settings

TOKEN = "sixteen-characters-or-more"


class Stub:
    """A desk that says one thing."""

    def __init__(self, raises: Exception | None = None) -> None:
        self.raises = raises
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def answer(*_: Any, **__: Any) -> Any:
            self.asked.append(name)
            if self.raises is not None:
                raise self.raises
            if name == "ready":
                return None
            return desk.Found(rows=[], cursor=None)

        return answer


def client(stub: Stub | None = None, page: bool = False, host: str = "127.0.0.1", **told: Any) -> TestClient:
    settings = Settings(**{"server_addr": "127.0.0.1:8000", **told})
    app = api.app(stub or Stub(), settings, page)  # type: ignore[arg-type]
    return TestClient(app, f"http://{host}:8000", raise_server_exceptions=False)


def test_the_token_is_needed_everywhere_but_where_a_probe_asks() -> None:
    asked = client(api_token=TOKEN)
    for path in ("/api/v1/schedules", "/schedules", "/info", "/docs", "/openapi.json", "/anything"):
        answer = asked.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json"), path
        assert TOKEN not in answer.text
    assert asked.get("/liveness").status_code == asked.get("/readiness").status_code == 200
    good = {"Authorization": f"Bearer {TOKEN}"}
    assert asked.get("/api/v1/schedules", headers=good).status_code == 200
    assert asked.get("/api/v1/schedules", headers={"Authorization": f"Bearer {TOKEN}x"}).status_code == 401
    assert asked.get("/docs", auth=("anybody", TOKEN)).status_code == 200
    assert asked.get("/docs", headers={"Authorization": "Basic !"}).status_code == 401
    # A browser would send it along with what a foreign page asks for.
    assert asked.post("/api/v1/controls/pause", auth=("anybody", TOKEN)).status_code == 401


def test_on_another_address_without_a_token_nothing_can_be_changed() -> None:
    for address in (":8000", "0.0.0.0:8000", "192.0.2.1:8000", "[::]:8000"):
        asked = client(server_addr=address)
        assert asked.get("/api/v1/schedules").status_code == 200
        refused = asked.delete("/api/v1/schedules/x")
        assert refused.status_code == 403
        assert "API_TOKEN" in refused.json()["detail"]
    assert (
        client(server_addr=":8000", api_token=TOKEN)
        .delete("/api/v1/schedules/x", headers={"Authorization": f"Bearer {TOKEN}"})
        .status_code
        != 403
    )


def test_foreign_pages_change_nothing() -> None:
    assert client().post("/api/v1/controls/pause", headers={"Origin": "http://evil.example"}).status_code == 403
    assert client(host="evil.example").post("/api/v1/controls/pause").status_code == 403
    stub = Stub(desk.NotFound("id", "x", "nothing is pending under it"))
    asked = client(stub)
    assert asked.post("/api/v1/schedules/x/fire", headers={"Origin": "http://127.0.0.1:8000"}).status_code == 404
    assert stub.asked == ["fire_now"]


def test_the_page_guards_its_own_paths() -> None:
    assert client(page=True, api_token=TOKEN).get("/ui/x").status_code == 404
    assert client(page=True, api_token=TOKEN).get("/api/v1/schedules").status_code == 401
    assert client(page=True, api_token=TOKEN).get("/api").status_code == 401


def test_sizes() -> None:
    asked = client(api_max_body="1KiB")
    large = asked.post("/api/v1/schedules", content=b"x" * 1025)
    assert (large.status_code, large.json()["allowed"]) == (413, "1024 (API_MAX_BODY)")

    def parts() -> Any:
        for _ in range(20):
            yield b"x" * 100

    assert asked.post("/api/v1/schedules", content=parts()).status_code == 413


def test_rates() -> None:
    rates = guard.Rates(10)
    assert [rates.allow("a", 0.0) for _ in range(21)] == [True] * 20 + [False]
    assert rates.allow("b", 0.0)
    assert [rates.allow("a", 0.1), rates.allow("a", 0.1)] == [True, False]
    assert all(guard.Rates(0).allow("a", 0.0) for _ in range(1000))
    asked = client(api_rate=1)
    assert [asked.get("/api/v1/schedules").status_code for _ in range(3)] == [200, 200, 429]
    assert asked.get("/liveness").status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body", "field", "allowed"),
    [
        ("GET", "/api/v1/schedules?limt=5", None, "limt", "not known"),
        ("GET", "/api/v1/schedules?sort=size", None, "sort", "'due', '-due' or 'id'"),
        ("GET", "/api/v1/schedules?due_from=soon", None, "due_from", "soon"),
        ("GET", "/api/v1/counts?by=week", None, "by", "'hour' or 'day'"),
        ("POST", "/api/v1/schedules", {"target": "t", "value": "v"}, "due", "required"),
        ("POST", "/api/v1/schedules", {"due": "+1h", "target": "t", "value": "v", "idd": "x"}, "idd", "not known"),
        ("POST", "/api/v1/schedules", {"due": "+1h", "target": "t", "value_base64": "?"}, "value_base64", "base64"),
        ("PUT", "/api/v1/controls/caps/missed", {"per_second": -1}, "per_second", "greater than or equal to 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(method: str, path: str, body: Any, field: str, allowed: str) -> None:
    answer = client().request(method, path, json=body)
    told = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json")
    assert (told["field"], told["status"]) == (field, 422)
    assert allowed in told["allowed"]


def test_no_payload_in_an_error() -> None:
    secret = "the payload itself"
    for body in (
        {"due": "+1h", "target": "t", "value": [secret]},
        {"due": "+1h", "target": "t", "value": secret, "value_base64": base64.b64encode(secret.encode()).decode()},
        {"due": "+1h", "target": "t", "value_base64": secret},
        {"due": "+1h", "target": "t", "value": "v", "headers": [secret]},
    ):
        answer = client().post("/api/v1/schedules", json=body)
        assert answer.status_code == 422
        assert secret not in answer.text
    assert secret not in client().post("/api/v1/schedules", content=json.dumps(secret).encode()).text


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (desk.Refused("limit", "0", "must be 1 to 1000"), 422),
        (desk.NotFound("id", "x", "nothing is pending"), 404),
        (desk.Exists("id", "x", "is pending"), 412),
        (desk.Ambiguous("id", "x", "several"), 409),
        (errors.Unreachable("Kafka is away"), 503),
        (live.Behind(), 503),
        (ValueError("with a payload"), 500),
    ],
)
def test_what_the_desk_says_as_a_problem(error: Exception, status: int, caplog: pytest.LogCaptureFixture) -> None:
    answer = client(Stub(error)).get("/api/v1/schedules")
    assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
    assert "with a payload" not in answer.text + caplog.text
    if isinstance(error, desk.Refused):
        told = answer.json()
        assert (told["field"], told["value"], told["allowed"]) == (error.field, error.value, error.allowed)


def test_the_documentation_works_offline() -> None:
    asked = client()
    page = asked.get("/docs").text
    assert "//cdn" not in page
    for path in [part.split('"')[0] for part in page.split('src="')[1:]] + [
        part.split('"')[0] for part in page.split('href="')[1:]
    ]:
        assert path.startswith("/"), path
        assert asked.get(path).status_code == 200
    paths = asked.get("/openapi.json").json()["paths"]
    parameters = paths["/api/v1/schedules/{id}"]["delete"]["parameters"]
    assert {each["name"] for each in parameters} >= {"id", "topic", "partition", "timeout"}
