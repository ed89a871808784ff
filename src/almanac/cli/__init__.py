"""The command `almanac`: one module for each group of commands.

scheduler.py    up, run
mini.py         mini
schedules.py    schedule, reschedule, cancel
questions.py    ls, show, explain, stats, history
letters.py      dead-letters
steering.py     pause, resume, cap
top.py          top
moves.py        migrate, export, import
upkeep.py       topics apply, doctor, config, schema, version
bench.py        bench burst, steady, live, all
"""

import typer

from almanac.cli import bench, letters, mini, moves, questions, scheduler, schedules, steering, top, upkeep

app = typer.Typer(
    name="almanac",
    help="Scheduled messages for Kafka: exactly once, never early, milliseconds late.",
    epilog="Every command takes its settings from the environment too; `almanac config` shows the values in force.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=True,
    rich_markup_mode="rich",
)

app.command()(scheduler.up)
app.command()(scheduler.run)
app.command()(mini.mini)
app.command()(schedules.schedule)
app.command()(schedules.reschedule)
app.command()(schedules.cancel)
app.command()(questions.ls)
app.command()(questions.show)
app.command()(questions.explain)
app.command()(questions.stats)
app.command()(questions.history)
app.command("dead-letters")(letters.dead_letters)
app.command()(top.top)
app.command()(steering.pause)
app.command()(steering.resume)
app.command()(steering.cap)
app.command()(moves.migrate)
app.command("export")(moves.export_schedules)
app.command("import")(moves.import_schedules)
app.command()(upkeep.doctor)
app.command()(upkeep.config)
app.command()(upkeep.schema)
app.command()(upkeep.version)

topics = typer.Typer(help="The topics of the scheduler.", no_args_is_help=True, rich_markup_mode="rich")
topics.command("apply")(upkeep.topics_apply)
app.add_typer(topics, name="topics")

measures = typer.Typer(help="How fast and how late.", no_args_is_help=True, rich_markup_mode="rich")
measures.command()(bench.burst)
measures.command()(bench.steady)
measures.command()(bench.live)
measures.command()(bench.ingest)
measures.command("all")(bench.everything)
app.add_typer(measures, name="bench")


def main() -> None:
    app()
