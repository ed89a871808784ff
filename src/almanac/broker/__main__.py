"""`python -m almanac.broker`: a first start of the embedded Kafka, on an empty folder, to make later ones quick."""

import sys
import tempfile
from pathlib import Path

from almanac import errors, jars
from almanac.broker import START_TIMEOUT_S, Broker, Config, archive, ports


def make_archive() -> None:
    with tempfile.TemporaryDirectory(dir=jars.root(), prefix="archive-") as name:
        made = Path(name) / "broker.jsa"
        config = Config(folder=Path(name) / "kafka", port=ports.free(), controller_port=ports.free())
        with Broker(config, archive.making(made)) as broker:
            broker.start()
            broker.stop(timeout=START_TIMEOUT_S)  # it writes the archive at its end
        if made.exists():
            made.rename(archive.path())


def main() -> None:
    if archive.path().exists():
        return
    print("Kafka: a first start, to make later ones quick", flush=True)
    try:
        make_archive()
    except errors.AlmanacError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
