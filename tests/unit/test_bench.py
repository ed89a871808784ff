"""What the bench makes of what it saw, and whom it refuses to put a load on."""

import itertools
import json
import time

import pytest
from typer.testing import CliRunner

from almanac import formats, words
from almanac.bench import feed, ingest, report, scheduler, traffic, watch
from almanac.bench.report import Figures
from almanac.bench.watch import Receipt, Seen, summary
from almanac.cli import app
from almanac.record import Record
from almanac.settings import Settings

DUE = 1_000_000


def receipts(*late: float) -> list[Receipt]:
    return [Receipt(DUE + each, DUE, b"%d" % number) for number, each in enumerate(late)]


class TestWhatWasSeen:
    def test_each_once_and_none_early(self) -> None:
        seen = summary(100, receipts(*range(1, 101)))
        assert seen.exact
        assert seen.late_ms == {"min": 1, "p50": 50, "p90": 90, "p99": 99, "p999": 100, "max": 100}
        assert seen.fires_per_s == 1_000

    def test_one_early(self) -> None:
        seen = summary(2, receipts(-0.5, 10))
        assert (seen.early, seen.double, seen.missing, seen.exact) == (1, 0, 0, False)

    def test_one_double_and_one_missing(self) -> None:
        came = receipts(1, 2)
        seen = summary(3, [*came, came[0]])
        assert (seen.early, seen.double, seen.missing, seen.exact) == (0, 1, 1, False)

    def test_nothing_at_all(self) -> None:
        seen = summary(3, [])
        assert (seen.missing, seen.fires_per_s, seen.late_ms, seen.exact) == (3, 0, {}, False)


def burst(rate: int, limit: int, source: str = "live") -> Figures:
    seen = Seen(expected=9, received=9, different=9, early=0, fires_per_s=rate, late_ms=dict.fromkeys(SPREAD, 5.0))
    return Figures(measure="burst", source="book" if source == "book" else "live", seen=seen, limit=limit)


SPREAD = ("min", *watch.QUANTILES, "max")


class TestTheReport:
    def test_the_ratio_of_a_burst_is_to_the_limit(self) -> None:
        assert burst(60_000, 80_000).ratios == {"fires_per_s": 0.75}

    def test_the_ratio_of_lateness_is_to_the_floor(self) -> None:
        late, floor = summary(2, receipts(10, 30)), summary(2, receipts(20, 20))
        figures = Figures(measure="steady", source="live", seen=late, floor=floor)
        assert figures.ratios == {"p50": 0.5, "p99": 1.5}

    def test_nothing_received_is_no_ratio(self) -> None:
        figures = Figures(measure="live", source="live", seen=summary(2, []), floor=summary(1, receipts(1)))
        assert figures.ratios == {}
        assert report.rows([figures])[0][1] == "0 of 2"

    def test_all_runs_and_their_median(self) -> None:
        runs = [burst(rate, 100) for rate in (50, 90, 60)] + [burst(70, 100, "book")]
        told = report.to_json(runs)
        assert told["median"] == {"burst": {"fires_per_s": 0.6}, "burst, from the book": {"fires_per_s": 0.7}}
        assert [run["ratio"]["fires_per_s"] for run in told["runs"]] == [0.5, 0.9, 0.6, 0.7]
        assert told["exact"] is True
        assert json.loads(json.dumps(told)) == told
        names = [row[0] for row in report.rows(runs)]
        assert names == ["burst", "burst", "burst", "burst: median", "burst, from the book"]
        assert {len(row) for row in report.rows(runs)} == {len(report.COLUMNS)}


class TestDueTimes:
    def test_by_second(self) -> None:
        assert list(feed.by_second(5_000, 2, 3)) == [5_000, 5_000, 6_000, 6_000, 7_000, 7_000]

    def test_live_ones_are_paced(self) -> None:
        begun = time.time() * 1000
        dues = list(feed.live(100, 1, 200))
        assert len(dues) == 100
        assert dues[0] >= int(begun) + 200
        assert dues[-1] - dues[0] >= 900
        assert all(later >= earlier for earlier, later in itertools.pairwise(dues))


class TestIngestion:
    @pytest.mark.parametrize("name", formats.NAMES)
    def test_what_is_fed_says_what_is_expected(self, name: str) -> None:
        part, form = traffic.Traffic(name, "schedules", "id", 3), formats.named(name)
        pending: dict[bytes | None, int] = {}
        kinds = set()
        for offset, fed in enumerate(part.records(2_000)):
            said = words.read(Record("schedules", 3, offset, 0, fed.key, fed.value, list(fed.headers)), form, "id")
            kinds.add((type(said), getattr(said, "ours", None)))
            match said:
                case words.Word(version):
                    pending[fed.key] = version
                case words.Kill(version):
                    assert version >= pending.pop(fed.key)
        assert kinds == {(words.Word, False), (words.Kill, False), (words.Kill, True)}
        assert len(pending) == part.pending

    def test_new_schedules_alone(self) -> None:
        fed = list((part := traffic.Traffic("etf1", "schedules", "id", 0, new=1.0)).records(500))
        assert len({each.key for each in fed}) == part.pending == 500
        assert all(each.value is not None for each in fed)

    def test_all_runs_and_their_median(self) -> None:
        def run(number: int, seconds: float, pending: int = 5) -> ingest.Figures:
            return ingest.Figures(
                format="etf1", new=0.5, measure="fill", run=number, rows=1_000, seconds=seconds, upkeep=1.5,
                pending=pending, expected=5, limit=5_000,
            )  # fmt: skip

        told = ingest.to_json([run(1, 0.1), run(2, 0.05)])
        assert (told["median"], told["exact"]) == ({"etf1 fill": 15_000}, True)
        assert [(each["rows_per_s"], each["ratio"]) for each in told["runs"]] == [(10_000, 2.0), (20_000, 4.0)]
        assert json.loads(json.dumps(told)) == told
        assert not ingest.to_json([run(1, 1, pending=4)])["exact"]
        lines = ingest.rows([run(1, 0.1), run(2, 0.05)])
        assert [line[2] for line in lines] == ["fill", "fill", "fill: median"]
        assert lines[0][1] == "50%"
        assert [line[ingest.COLUMNS.index("ratio")] for line in lines] == ["2.00", "4.00", "3.00"]
        assert {len(line) for line in lines} == {len(ingest.COLUMNS)}

    def test_an_unknown_format_is_refused(self) -> None:
        result = CliRunner().invoke(app, ["bench", "ingest", "--format", "morse"])
        assert result.exit_code == 2
        assert "morse" in result.stderr


class TestWhoIsMeasured:
    @pytest.mark.parametrize("servers", ["localhost:9092", "127.0.0.1:1", "PLAINTEXT://localhost:9,[::1]:9092"])
    def test_this_machine(self, servers: str) -> None:
        assert scheduler.is_here(Settings(bootstrap_servers=servers))

    @pytest.mark.parametrize("servers", ["kafka:9092", "localhost:9092,kafka:9092"])
    def test_another_machine_must_be_named_on_the_command_line(self, servers: str) -> None:
        result = CliRunner().invoke(app, ["bench", "live"], env={"BOOTSTRAP_SERVERS": servers})
        assert result.exit_code == 2
        assert f"--bootstrap-servers {servers}" in result.stderr

    def test_one_of_its_own_is_not_somebody_elses(self) -> None:
        result = CliRunner().invoke(app, ["bench", "live", "--up", "--bootstrap-servers", "kafka:9092"])
        assert result.exit_code == 2

    def test_a_restart_needs_one_of_its_own(self) -> None:
        result = CliRunner().invoke(app, ["bench", "burst", "--from-book"])
        assert result.exit_code == 2
        assert "--up" in result.stderr


@pytest.mark.parametrize("command", ["burst", "steady", "live", "ingest", "all"])
def test_help_shows_an_example(command: str) -> None:
    result = CliRunner().invoke(app, ["bench", command, "--help"])
    assert result.exit_code == 0
    assert "Example:" in result.stdout
