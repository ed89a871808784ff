"""Gathers the settings from arguments, environment and YAML file, and keeps where each came from."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from almanac import errors, kafka, passthrough, settings

_EMPTY_MEANS_OFF = ("history_topic", "states_topic", "server_addr", "metrics_http_addr")
"""Elsewhere an empty environment variable is an unset one (Docker and Compose pass such)."""


class _Found(NamedTuple):
    """A value as the user wrote it, what the user calls it, and where it stood."""

    value: object
    name: str
    origin: str


def load(arguments: Mapping[str, object], environ: Mapping[str, str]) -> settings.Settings:
    """The settings in force; raises SettingsError with every wrong one, named as the user wrote it.

    `arguments` holds fields by name (`group_id`); None means not given.
    """
    found = _environment(environ) | _arguments(arguments)
    place = found.get("configuration_file")
    problems: list[tuple[str, str, str]] = []
    notes: list[str] = []
    if place is not None:
        path = str(place.value)
        try:
            content = _read(path, place.name)
        except errors.SettingsError as error:
            problems += error.problems
        else:
            in_file, wrong = _file(content, path, notes)
            problems += wrong
            found = in_file | found
    values = {name: each.value for name, each in found.items()}
    values["origins"] = {name: found[name].origin if name in found else "default" for name in settings.NAMES}
    values["notes"] = tuple(notes)
    try:
        loaded = settings.Settings.model_validate(values)
    except errors.SettingsError as error:
        problems = [_as_written(problem, found) for problem in error.problems] + problems
    if problems:
        raise errors.SettingsError(problems)
    kafka.verify(loaded)
    return loaded


def _as_written(problem: tuple[str, str, str], found: Mapping[str, _Found]) -> tuple[str, str, str]:
    name, _, allowed = problem
    if name not in found:
        return problem
    raw = passthrough.masked(name, found[name].value)
    return found[name].name, passthrough.text(raw), allowed


def _arguments(arguments: Mapping[str, object]) -> dict[str, _Found]:
    given = {name: value for name, value in arguments.items() if value is not None}
    options = {name: "--" + name.replace("_", "-") for name in given}
    return {name: _Found(value, options[name], f"argument {options[name]}") for name, value in given.items()}


def _environment(environ: Mapping[str, str]) -> dict[str, _Found]:
    found = {}
    for name in settings.NAMES:
        for variable in settings.environment(name):
            value = environ.get(variable)
            if value or (value is not None and name in _EMPTY_MEANS_OFF and name not in found):
                found[name] = _Found(value, variable, f"environment {variable}")
            if value:
                break
    if "schedules_topics" not in found and (topics := _sky_topics(environ)):
        found["schedules_topics"] = topics
    return found


SKY = {"SCHEDULE_TOPICS": "sky-avro", "JSON_SCHEDULE_TOPICS": "sky-json"}
"""A peer names its topics by format; SCHEDULES_TOPICS says all that and more."""


def _sky_topics(environ: Mapping[str, str]) -> _Found | None:
    given = [variable for variable in SKY if environ.get(variable)]
    topics = [
        f"{name.strip()}={SKY[variable]}" for variable in given for name in environ[variable].split(",") if name.strip()
    ]
    names = " and ".join(given)
    return _Found(",".join(topics), names, f"environment {names}") if topics else None


def _read(path: str, name: str) -> dict[Any, Any]:
    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise errors.SettingsError([(name, path, f"cannot be read: {error.strerror}")]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        # The message of a YAML error quotes the line, which may hold a password.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise errors.SettingsError([(name, path, f"is not YAML{where}; indent with spaces, `name: value`")]) from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise errors.SettingsError([(name, path, "must hold `name: value` lines at the top level")])
    return content


def _file(
    content: Mapping[Any, Any], path: str, notes: list[str]
) -> tuple[dict[str, _Found], list[tuple[str, str, str]]]:
    """What the file says by field, and what is wrong in it."""
    fields = {name: name for name in settings.NAMES if name not in (*passthrough.SECTIONS, "configuration_file")}
    fields |= {section: field for field, section in passthrough.SECTIONS.items()}
    found: dict[str, _Found] = {}
    problems = []
    for key, value in content.items():
        name = str(key)
        if name not in fields:
            near = difflib.get_close_matches(name.lower(), fields, n=1)
            hint = f"; did you mean {near[0]}?" if near else f"; known are {', '.join(fields)}"
            problems.append((f"{name} in {path}", "...", f"is no setting{hint}"))
        elif value is not None:
            found[fields[name]] = _Found(value, f"{name} in {path}", f"file {path}")
    for field, section in passthrough.SECTIONS.items():
        each = found.get(field)
        if each is None or not isinstance(each.value, dict):
            continue
        configuration = dict(each.value)
        ignored = [key for key in passthrough.IGNORED if configuration.pop(key, None) is not None]
        notes += (f"{key} in {section} of {path} is ignored: BOOTSTRAP_SERVERS decides" for key in ignored)
        for key in [key for key, value in configuration.items() if value is None]:
            problems.append((f"{section}: {key} in {path}", "", "has no value"))
            del configuration[key]
        if "partitioner" in configuration:  # the README of the peer names it there
            chosen = configuration.pop("partitioner")
            found.setdefault("partitioner", _Found(chosen, f"{section}: partitioner in {path}", f"file {path}"))
        found[field] = each._replace(value=configuration)
    return found, problems
