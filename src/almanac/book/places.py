"""Folders below the book's location, on whatever file system that is."""

from pyarrow import fs


def _at(path: str) -> tuple[fs.FileSystem, str]:
    found: tuple[fs.FileSystem, str] = fs.FileSystem.from_uri(path)
    return found


def exists(path: str) -> bool:
    """Is there anything?"""
    system, place = _at(path)
    return bool(system.get_file_info(place).type != fs.FileType.NotFound)


def remove(path: str) -> None:
    """The folder and all below it, if it is there."""
    system, place = _at(path)
    if system.get_file_info(place).type == fs.FileType.Directory:
        system.delete_dir(place)


def names(path: str) -> list[str]:
    """What the folder holds; nothing if it is not there."""
    system, place = _at(path)
    return sorted(each.base_name for each in system.get_file_info(fs.FileSelector(place, allow_not_found=True)))


def text(path: str) -> str:
    """A small file's content."""
    system, place = _at(path)
    with system.open_input_stream(place) as stream:
        return str(stream.read().decode())
