"""What a scrape says, without a scheduler."""

import re
import socket
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import almanac
from almanac import errors, exporter, keeper, metrics, tally, totals
from almanac.settings import Settings


class Told:
    """Stands for a runner."""

    def __init__(self, **settings: Any) -> None:
        self.settings = Settings(group_id="billing", **settings)
        self.totals = totals.Totals()
        self.statuses: dict[int, dict[str, Any]] = {}
        self.duties: dict[str, dict[str, Any]] = {}
        self.figures = keeper.Figures()
        self.shards = 0

    def hear(self, work: int | str, **status: Any) -> None:
        told = {"start": 1, "reported": time.time() * 1000, "state": "firing", **status}
        self.totals.hear(work, told)
        if isinstance(work, int):
            self.statuses[work] = told
            self.shards = max(self.shards, work + 1)
        else:
            self.duties[work] = told


def scraped(told: Told) -> dict[tuple[str, ...], float]:
    """Samples by name and labels' values."""
    registry = metrics.registry(told)
    assert list(text_string_to_metric_families(metrics.exposed(registry).decode())), "it can be parsed"
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def histogram(**counts: int) -> list[int]:
    return [counts.get(f"to_{bound}", 0) for bound in tally.BOUNDS] + [counts.get("more", 0)]


def test_the_peers_metric() -> None:
    told = Told()
    letters = {"invalid": 2, "outdated": 1, "undeliverable": 8}
    told.hear(0, fired=5, planned=9, cancelled=3, missed_total=1, dead_letters=letters)
    told.hear(1, fired=6, planned=1)
    found = scraped(told)
    events = {name[1]: value for name, value in found.items() if name[0] == "kafka_scheduler_event_total"}
    assert events == {
        "kafka_scheduler_missed_schedule": 1,
        "kafka_scheduler_invalid_schedule": 3,
        "kafka_scheduler_deleted_schedule": 3,
        "kafka_scheduler_planned_schedule": 10,
        "kafka_scheduler_triggered_schedule": 11,
    }
    assert found["almanac_dead_letters_total", "undeliverable"] == 8


def test_before_anything_is_known_it_answers() -> None:
    found = scraped(Told())
    assert found["almanac_info", almanac.__version__, "billing", "false"] == 1
    assert found["almanac_shards",] == 0
    assert found["kafka_scheduler_event_total", "kafka_scheduler_triggered_schedule"] == 0


def test_lateness_is_a_histogram_in_seconds() -> None:
    told = Told()
    told.hear(0, late=histogram(to_5=3, to_1000=1), late_sum=1_012)
    told.hear(1, late=histogram(to_5=1, more=1), late_sum=4_000_002)
    found = scraped(told)
    assert found["almanac_lateness_seconds_bucket", "0.002"] == 0
    assert found["almanac_lateness_seconds_bucket", "0.005"] == 4
    assert found["almanac_lateness_seconds_bucket", "1"] == 5
    assert found["almanac_lateness_seconds_bucket", "+Inf"] == found["almanac_lateness_seconds_count",] == 6
    assert found["almanac_lateness_seconds_sum",] == pytest.approx(4001.014)


def test_pending_is_the_book_of_the_oldest_page_in_use_and_what_came_since() -> None:
    told = Told()
    told.figures = keeper.Figures(rows={3: {"a": 10, "b": 5}, 4: {"a": 12}}, files=7, pages=4, page_ms=2_500)
    told.hear(0, page=3, nets={"a": 2, "b": -6})
    told.hear(1, page=4, nets={"c": 1})
    found = scraped(told)
    assert [found["almanac_pending", topic] for topic in "abc"] == [12, 0, 1]
    assert found["almanac_book_rows", "a"] == 12
    assert (found["almanac_page_seconds_count",], found["almanac_page_seconds_sum",]) == (4, 2.5)


def test_states_of_shards_and_partitions() -> None:
    told = Told()
    told.hear(0, positions=[["a", 0, 40], ["a", 2, 7]], halted=[["a", 2, "offset 7: newer"]], hanging=[["a", 0]])
    told.hear(1, positions=[["a", 1, 9]], reported=time.time() * 1000 - 60_000)
    told.shards = 3
    found = scraped(told)
    assert found["almanac_shard_state", "0", "firing"] == 1
    assert found["almanac_shard_state", "0", "waiting"] == 0
    assert found["almanac_shard_state", "1", "silent"] == 1
    assert found["almanac_shard_state", "1", "firing"] == 0
    assert found["almanac_shard_state", "2", "starting"] == 1, "one that never reported"
    assert found["almanac_shard_report_age_seconds", "1"] == pytest.approx(60, abs=5)
    assert found["almanac_partition_state", "a", "0", "firing"] == 1
    assert found["almanac_partition_state", "a", "2", "incompatible"] == 1
    assert found["almanac_partition_state", "a", "1", "silent"] == 1
    assert (found["almanac_partition_halted", "a", "2"], found["almanac_partition_halted", "a", "0"]) == (1, 0)
    assert found["almanac_partition_hanging", "a", "0"] == 1
    assert found["almanac_partition_position", "a", "0"] == 40


def test_what_runs_beside_the_wheels() -> None:
    told = Told()
    told.hear("oscillator", state="ticking", second=int(time.time()) - 3, ticks=12)
    told.hear("bridge", state="bridging", bridged=4, lost=1, behind=2, dead_letters={"invalid": 5})
    found = scraped(told)
    assert found["almanac_oscillator_age_seconds",] == pytest.approx(3.5, abs=2)
    assert found["almanac_oscillator_ticks_total",] == 12
    assert found["almanac_bridged_total",] == 4
    assert found["almanac_bridge_behind",] == 2
    assert found["almanac_duty_state", "oscillator", "ticking"] == 1
    assert found["almanac_dead_letters_total", "invalid"] == 5


def test_a_scrape_costs_little() -> None:
    """Sixteen wheels, a thousand partitions, a hundred targets each."""
    told = Told()
    for shard in range(16):
        positions = [["schedules", partition, 1] for partition in range(shard, 1_000, 16)]
        told.hear(shard, positions=positions, targets={f"t{n}": n for n in range(100)}, late=histogram(to_5=1))
    registry = metrics.registry(told)
    began = time.perf_counter()
    metrics.exposed(registry)
    assert time.perf_counter() - began < 1.0


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def serve(address: str) -> exporter.Exporter:
    told = Told(metrics_http_addr=address)
    assert told.settings.metrics_address is not None
    return exporter.Exporter(told.settings.metrics_address, metrics.registry(told))


@pytest.mark.parametrize("address", ["127.0.0.1:0", ":0"])
def test_served_and_ended(address: str) -> None:
    with serve(address) as served:
        assert re.fullmatch(r"http://(127\.0\.0\.1|localhost):\d+/metrics", served.url)
        status, text = get(f"http://127.0.0.1:{served.port}/metrics")
        assert status == 200
        assert 'almanac_info{group="billing"' in text
        assert get(f"http://127.0.0.1:{served.port}/")[0] == 404
        port = served.port
    with pytest.raises(OSError, match="refused"), socket.create_connection(("127.0.0.1", port), 5):
        pass
    serve(f"127.0.0.1:{port}").close()


@pytest.mark.parametrize("host", ["127.0.0.1", ""])
def test_a_port_that_is_taken(host: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"{host}:{taken.getsockname()[1]}"
        with pytest.raises(errors.AddressTaken, match=rf"METRICS_HTTP_ADDR={address}: .*another METRICS_HTTP_ADDR"):
            serve(address)


def test_an_address_that_is_not_this_machines() -> None:
    with pytest.raises(errors.UsageError, match=r"METRICS_HTTP_ADDR=192\.0\.2\.1:8001: cannot listen there"):
        serve("192.0.2.1:8001")


def test_every_metric_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:almanac|kafka_scheduler)_[a-z_]+)`", text)) - {*metrics.EVENTS, metrics.INVALID}
    families = list(metrics.Scheduler(Told()).collect())
    suffixes = {"counter": "_total", "info": "_info"}
    assert named == {family.name + suffixes.get(family.type, "") for family in families}
