"""What `spark-submit` runs; `python -m almanac.submit` tells its path and the jars it needs."""

import sys

import typer

from almanac import service, submit
from almanac.cli import common
from almanac.settings import Settings

_OFFERED = (
    "schedules_topics", "history_topic", "dead_letters_topic", "shards", "page_length", "book_location", "log_json",
    "spark_ui", "spark_event_log", "bridge_topic", "bridge_from", "oscillator_topic",
)  # fmt: skip


@common.command(*_OFFERED)
def run(settings: Settings) -> None:
    """Run the scheduler on an existing Kafka, as an application of spark-submit; Ctrl-C ends it."""
    submit.end_with_parent(submit.killed)
    submit.prepare(settings)
    service.run(settings)


def main() -> None:
    if sys.argv[1:] == ["--path"]:
        print(submit.path())
    elif sys.argv[1:] == ["--jars"]:
        print(submit.jar_list())
    elif submit.is_submitted():
        typer.run(run)
    else:
        sys.exit(f"This is for spark-submit; --path and --jars say what it needs.{submit.__doc__}")


if __name__ == "__main__":
    main()
