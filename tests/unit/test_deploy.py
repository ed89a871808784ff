"""Dashboard and alerts: well-formed, and what they speak of exists. (A running scheduler: integration/test_tools.)"""

import re

import deployed
import promql_parser
import pytest

SAYS = {"lateness": "AlmanacLate", "halted": "AlmanacHalted", "dead letters": "AlmanacDeadLetters",
        "no owner": "AlmanacNoOwner", "clock": "AlmanacClock", "hanging": "AlmanacHangingTransaction"}  # fmt: skip
BY = re.compile(r"\b(?:by|on) \(([^)]*)\)")
SHOWN = re.compile(r"\$labels\.(\w+)")


def test_there_is_an_alert_for_everything_that_may_go_wrong() -> None:
    assert set(SAYS.values()) <= {rule["alert"] for rule in deployed.rules()}


@pytest.mark.parametrize("rule", deployed.rules(), ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_shows_labels_that_it_has(rule: dict[str, str]) -> None:
    assert rule["labels"]["severity"] in ("info", "warning", "critical")  # type: ignore[index]
    text = " ".join(rule["annotations"].values())  # type: ignore[attr-defined]
    kept = {label.strip() for found in BY.findall(rule["expr"]) for label in found.split(",")} | {"instance"}
    assert set(SHOWN.findall(text)) <= kept


@pytest.mark.parametrize(("where", "expression"), list(deployed.expressions()))
def test_prometheus_understands_it(where: str, expression: str) -> None:
    """It refuses a whole file of rules for one that it cannot parse."""
    for name, value in (("$__rate_interval", "5m"), ("$__range", "1h")):
        expression = expression.replace(name, value)
    promql_parser.parse(expression)


def test_each_alert_is_explained() -> None:
    text = (deployed.FOLDER / "README.md").read_text(encoding="utf-8")
    assert not [rule["alert"] for rule in deployed.rules() if rule["alert"] not in text]


def test_panels_do_not_overlap_and_ask_for_something() -> None:
    panels = deployed.dashboard()["panels"]
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"])
                 for y in range(place["y"], place["y"] + place["h"])}  # fmt: skip
        assert not taken & cells, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
        assert panel["type"] == "row" or panel["targets"]
    assert len({panel["id"] for panel in panels}) == len(panels)
