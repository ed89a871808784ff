"""`almanac pause`, `resume` and `cap`: what the wheels are told while they run. They obey within a second."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from almanac import errors, when
from almanac.cli import common, reach, shown
from almanac.settings import Settings, is_topic

if TYPE_CHECKING:
    from almanac import controls

Target = Annotated[str | None, typer.Argument(metavar="[TARGET]", help="A target topic.", show_default="everything")]


@common.command()
def pause(settings: Settings, target: Target = None, api: reach.Api = None, as_json: common.Json = False) -> None:
    """Fire nothing any more, to one target or at all, until `almanac resume`. What is due meanwhile fires then.

    Example: [bold]almanac pause mails[/bold]
    """
    with reach.at(settings, api) as counter:
        _tell(counter.pause(reach.who(), _checked(target)), as_json)


@common.command()
def resume(settings: Settings, target: Target = None, api: reach.Api = None, as_json: common.Json = False) -> None:
    """Go on, with one target or with everything; targets that are paused by name stay so.

    Example: [bold]almanac resume mails[/bold]
    """
    with reach.at(settings, api) as counter:
        _tell(counter.resume(reach.who(), _checked(target)), as_json)


@common.command()
def cap(
    settings: Settings,
    per_second: Annotated[
        str, typer.Argument(help="Fires a second at most, or none for no limit.", show_default=False)
    ],
    target: Annotated[
        str | None, typer.Option(help="Of this target topic.", show_default="of missed schedules")
    ] = None,
    api: reach.Api = None,
    as_json: common.Json = False,
) -> None:
    """Limit how many a second are fired: of missed schedules, after downtime, or to one target.

    Example: [bold]almanac cap 200 --target mails[/bold]
    """
    if per_second != "none" and not (per_second.isascii() and per_second.isdecimal() and len(per_second) < 10):
        raise errors.UsageError(f"{per_second!r} must be a whole number of fires a second, or none")
    number = None if per_second == "none" else int(per_second)
    with reach.at(settings, api) as counter:
        if target is None:
            _tell(counter.cap_missed(number, reach.who()), as_json)
        else:
            _tell(counter.cap_target(str(_checked(target)), number, reach.who()), as_json)


def _checked(target: str | None) -> str | None:
    if target is not None and not is_topic(target):
        raise errors.UsageError(f"{target!r} is no topic's name: 1 to 249 of a-z A-Z 0-9 . _ -")
    return target


def _tell(told: controls.Controls, as_json: bool) -> None:
    if as_json:
        common.show_json(told.fields())
        return
    for line in shown.controlled(told, when.zone(None)) or ["nothing is held back"]:
        common.say(line)
