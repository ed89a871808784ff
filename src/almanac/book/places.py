"""Folders below the book's location, on whatever file system that is."""

import logging

from pyarrow import fs

log = logging.getLogger(__name__)


def at(path: str) -> tuple[fs.FileSystem, str]:
    """The file system of a path or URL, and the path there."""
    # Hadoop, below Spark, and Arrow have different names for S3.
    uri = f"s3://{path.removeprefix('s3a://')}" if path.startswith("s3a://") else path
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(uri)
    return found


def exists(path: str) -> bool:
    """Is there anything?"""
    system, place = at(path)
    return bool(system.get_file_info(place).type != fs.FileType.NotFound)


def remove(path: str) -> None:
    """The folder and all below it, if it is there."""
    system, place = at(path)
    if system.get_file_info(place).type == fs.FileType.Directory:
        system.delete_dir(place)


def discard(path: str) -> None:
    """As `remove`, for what is of no use any more: where it cannot be removed that is told, and nothing else."""
    try:
        remove(path)
    except OSError as error:
        log.warning("%s is left behind: %s", path, error)


def move(path: str, to: str) -> None:
    """The folder under another name."""
    system, place = at(path)
    system.move(place, at(to)[1])


def names(path: str) -> list[str]:
    """What the folder holds; nothing if it is not there."""
    system, place = at(path)
    return sorted(each.base_name for each in system.get_file_info(fs.FileSelector(place, allow_not_found=True)))


def text(path: str) -> str:
    """A small file's content."""
    system, place = at(path)
    with system.open_input_stream(place) as stream:
        return str(stream.read().decode())


def stamp(path: str) -> tuple[int, int] | None:
    """When the file was written and how large it is; None if it is not there."""
    system, place = at(path)
    info = system.get_file_info(place)
    return None if info.type == fs.FileType.NotFound else (info.mtime_ns, info.size)
