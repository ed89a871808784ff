"""The bench, small, on a scheduler of its own: a real broker, real Spark."""

import json
from pathlib import Path

import pytest
from applications import Application, almanac


def figures(application: Application) -> dict[str, object]:
    """The one run that it tells of."""
    assert application.ended(240) == 0, application.text
    text = application.text
    told = json.loads(text[text.index("\n{") + 1 :])
    assert told["exact"] is True
    run: dict[str, object] = told["runs"][0]
    return run


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_burst_from_the_book(tmp_path: Path) -> None:
    arguments = ["--from-book", "--count", "2000", "--lead", "90", "--page-length", "4", "--shards", "1"]
    with almanac({}, tmp_path, "bench", "burst", "--up", *arguments, "--json") as bench:
        run = figures(bench)
    assert "restarting the scheduler" in bench.text
    assert (run["measure"], run["source"], run["received"]) == ("burst", "book", 2000)
    assert set(run["ratio"]) == {"fires_per_s"}  # type: ignore[call-overload]


@pytest.mark.long
@pytest.mark.timeout(300)
def test_live_with_a_kafka_that_is_not_there(tmp_path: Path) -> None:
    arguments = ["--per-second", "20", "--seconds", "3", "--shards", "1"]
    with almanac({"BOOTSTRAP_SERVERS": "localhost:1"}, tmp_path, "bench", "live", *arguments, "--json") as bench:
        run = figures(bench)
    assert (run["measure"], run["received"]) == ("live", 60)
    assert set(run["ratio"]) == {"p50", "p99"}  # type: ignore[call-overload]
