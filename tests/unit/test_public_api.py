"""What programs may rely on. A change here is a change for users: it goes into the changelog."""

import inspect
import subprocess
import sys

import pytest

import almanac
from almanac import errors, testing
from almanac.mini import Mini

PUBLIC = ["AlmanacError", "Replaced", "Runner", "Settings", "SettingsError", "Unreachable", "UsageError"]


def test_the_names() -> None:
    assert sorted(almanac.__all__) == PUBLIC
    assert set(PUBLIC) <= set(dir(almanac))
    assert all(getattr(almanac, name) is not None for name in PUBLIC)


def test_the_runner() -> None:
    assert list(inspect.signature(almanac.Runner).parameters) == ["settings", "spark", "progress"]
    public = {name for name in vars(almanac.Runner) if not name.startswith("_")}
    assert {"start", "wait", "close", "statuses", "shards"} <= public


def test_for_tests_of_other_programs() -> None:
    assert testing.__all__ == ["almanac_mini", "almanac_settings", "mini"]
    public = {name for name in vars(Mini) if not name.startswith("_")}
    assert {"bootstrap_servers", "now", "advance", "advance_to", "settle", "records", "make_topic", "fired"} <= public
    assert {"start", "check", "close"} <= public


def test_errors_have_one_root_and_an_exit_code() -> None:
    codes = {"AlmanacError": 1, "Replaced": 3, "SettingsError": 2, "Unreachable": 7, "UsageError": 2}
    assert {name: getattr(almanac, name).exit_code for name in codes} == codes
    assert all(issubclass(getattr(almanac, name), errors.AlmanacError) for name in codes)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing_like_it"):
        getattr(almanac, "nothing_like_it")  # noqa: B009 (mypy knows better)


def test_spark_is_imported_when_the_runner_is_used() -> None:
    program = """
import sys, almanac
almanac.Settings(group_id="x"), almanac.AlmanacError
assert "pyspark" not in sys.modules
almanac.Runner
assert "pyspark" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
