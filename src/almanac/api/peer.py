"""The peer's endpoints, byte by byte as its Go program answers them: its admin program will be pointed at these.

What Go prints, and therefore this:

* /liveness: 200 without a body.
* JSON without spaces and without a newline at the end (json.Marshal, not an Encoder), Content-Type application/json.
* A schedule is a Go map there: its names come in alphabetical order. /info is a struct: in the order of its fields.
* `value` is a []byte: standard base64 with padding, null for a null value, "" for an empty one.
* `epoch` and `timestamp` are whole seconds. (A due time in milliseconds is rounded up, as the peer knows none.)
* `target-key` is text: a schedule without one has "".
* Text is escaped as Go does: < > & and U+2028, U+2029 as \\u...., \\n \\r \\t \\b \\f in short, other control
  characters as \\u00..; a byte that is not UTF-8 as \\ufffd, each on its own. Everything else as it is.
* No schedules: []. Theirs come in any order, ours by due time.

Different on purpose: the peer answers with all it has in memory; here it is the next `MOST`, as there may be millions.
"""

from __future__ import annotations

import base64
import codecs
import re
import socket
from collections.abc import Iterable

import psutil

from almanac import desk
from almanac.settings import Settings

MOST = 10_000

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f"}
_SPECIAL = re.compile('["\\\\<>&\u2028\u2029\x00-\x1f\udc80-\udcff]')


def _one_byte(error: UnicodeError) -> tuple[str, int]:
    """Go gives up one byte at a time; it becomes a lone surrogate here, which no UTF-8 can mean."""
    assert isinstance(error, UnicodeDecodeError)
    return chr(0xDC00 + error.object[error.start]), error.start + 1


codecs.register_error("almanac-go", _one_byte)


def _escaped(match: re.Match[str]) -> str:
    char = match[0]
    if char in _ESCAPES:
        return _ESCAPES[char]
    return "\\ufffd" if "\udc80" <= char <= "\udcff" else f"\\u{ord(char):04x}"


def text(value: bytes | str) -> str:
    """A string as Go's encoding/json prints it."""
    told = value.decode("utf-8", "almanac-go") if isinstance(value, bytes) else value
    return f'"{_SPECIAL.sub(_escaped, told)}"'


def schedule(row: desk.Row) -> str:
    """One schedule."""
    value = "null" if row.value is None else text(base64.b64encode(row.value))
    return (
        f'{{"epoch":{-(-row.due // 1000)},"id":{text(row.id)},"target-key":{text(row.target_key or b"")},'
        f'"target-topic":{text(row.target)},"timestamp":{row.timestamp // 1000},"topic":{text(row.topic)},'
        f'"value":{value}}}'
    )


def schedules(rows: Iterable[desk.Row]) -> bytes:
    """All of them."""
    return f"[{','.join(map(schedule, rows))}]".encode()


def info(settings: Settings) -> bytes:
    """What the peer tells of itself; `address` are those of all interfaces."""
    found = [
        address.address.partition("%")[0]
        for addresses in psutil.net_if_addrs().values()
        for address in addresses
        if address.family in (socket.AF_INET, socket.AF_INET6)
    ]
    topics = ",".join(text(topic) for topic, _ in settings.schedules_topics)
    return (
        f'{{"hostname":{text(socket.gethostname())},"address":[{",".join(map(text, found))}],'
        f'"server_address":{text(settings.server_addr)},"kafka":{{"bootstrap_servers":{text(settings.bootstrap_servers)},'
        f'"topics":[{topics}],"history_topic":{text(settings.history_topic)}}}}}'
    ).encode()
