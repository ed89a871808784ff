"""What `deploy/` expects of a scrape: the names of metrics, and the labels that are asked for."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).parents[1] / "deploy"
# One of ours, or the peer's, with what is asked of its labels.
METRIC = re.compile(r"\b((?:almanac|kafka_scheduler)_[a-z_]+)(?:\{([^}]*)\})?")
LABEL = re.compile(r"(\w+)\s*(?:=~|!=|!~|=)")
SCRAPED = {"instance", "job", "le"}  # labels that Prometheus adds, or that are part of a histogram


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return found


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((FOLDER / "prometheus-alerts.yaml").read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Where it stands, and what is asked."""
    for panel in dashboard()["panels"]:
        yield from ((panel["title"], target["expr"]) for target in panel.get("targets", ()))
    for rule in rules():
        yield rule["alert"], rule["expr"]


def metrics() -> dict[str, set[str]]:
    """Every metric that is named, with the labels that selectors ask for."""
    found: dict[str, set[str]] = {}
    for _, expression in expressions():
        for name, selector in METRIC.findall(re.sub(r'"[^"]*"', '""', expression)):
            found.setdefault(name, set()).update(LABEL.findall(selector))
    return found
