"""Bytes of others, for people: ids, headers, payloads. All of it is text for the page, never HTML."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, quote_from_bytes

SHOWN = 65_536  # bytes of a payload that are shown
_ROW = 16


def text(raw: bytes | None) -> str:
    """One line: as text where it is some, in hexadecimal where it is not."""
    if raw is None:
        return "null"
    try:
        decoded = raw.decode()
    except UnicodeDecodeError:
        return f"0x{raw.hex()}"
    return decoded if decoded.isprintable() else f"0x{raw.hex()}"


def readable(raw: bytes) -> str:
    """Several lines of text; what is no UTF-8 is shown as \\xNN."""
    return raw[:SHOWN].decode(errors="backslashreplace")


def pretty(raw: bytes) -> str | None:
    """As JSON, indented; None if it is none."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return json.dumps(value, indent=2, ensure_ascii=False)[:SHOWN]


def dump(raw: bytes) -> str:
    """Offset, sixteen bytes, and the same as text."""
    lines = []
    for at in range(0, min(len(raw), SHOWN // 8), _ROW):
        row = raw[at : at + _ROW]
        seen = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:06x}  {row.hex(' '):<{3 * _ROW - 1}}  {seen}")
    return "\n".join(lines)


def best(raw: bytes) -> str:
    """How it is shown at first: json, text or hex."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        return "hex"
    return "json" if raw.lstrip()[:1] in (b"{", b"[") and pretty(raw) is not None else "text"


def size(number: int) -> str:
    return f"{number:,} bytes" if number != 1 else "1 byte"


def address(path: str, **parts: str | int | bytes | None) -> str:
    """A link with these parameters, ids of any bytes among them; None and empty ones are left out."""
    given = []
    for name, value in parts.items():
        if value is None or value in ("", b""):
            continue
        raw = value if isinstance(value, bytes) else str(value).encode()
        given.append(f"{name}={quote_from_bytes(raw, safe='')}")
    return f"{path}?{'&'.join(given)}" if given else path


def parameters(query: str) -> dict[str, bytes]:
    """The parameters of such a link, byte for byte."""
    pairs = parse_qsl(query, keep_blank_values=True, encoding="latin-1")
    return {name: value.encode("latin-1") for name, value in pairs}
