"""Schedules as the peers' own clients put them on the wire, byte by byte: no library of ours or theirs takes part."""

from base64 import b64encode

from almanac.record import Headers


def _zigzag(number: int) -> bytes:
    """Avro's long."""
    return _varint(number * 2 if number >= 0 else -number * 2 - 1)


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])


def _counted(content: bytes) -> bytes:
    return _zigzag(len(content)) + content


def sky_avro(
    time: int, topic: str, key: bytes, value: bytes | None, headers: dict[str, bytes] | None, sized: bool = False
) -> bytes:
    """Without headers: the older shape. `sized`: Avro's other way to write a map, a negative count and its bytes."""
    said = _zigzag(time) + _counted(topic.encode()) + _counted(key)
    said += _zigzag(0) if value is None else _zigzag(1) + _counted(value)
    if headers is None:
        return said
    block = b"".join(_counted(name.encode()) + _counted(each) for name, each in headers.items())
    if headers:
        said += _zigzag(-len(headers)) + _zigzag(len(block)) if sized else _zigzag(len(headers))
    return said + block + _zigzag(0)


def sky_json(time: int, topic: str, key: bytes, value: bytes | None, headers: dict[str, bytes] | None) -> bytes:
    """Without headers: the field is left out."""

    def text(content: bytes) -> str:
        return '"' + b64encode(content).decode() + '"'

    def name(of: str) -> str:
        return '"' + "".join(f"\\u{unit:04x}" for unit in _utf16(of)) + '"'

    fields = [f'"topic":{name(topic)}', f'"time":{time}', f'"value":{"null" if value is None else text(value)}']
    fields.append(f'"key":{text(key)}')
    if headers is not None:
        fields.append('"headers":{' + ", ".join(f"{name(each)} : {text(of)}" for each, of in headers.items()) + "}")
    return ("{ " + ",\n".join(fields) + " }").encode()


def _utf16(text: str) -> list[int]:
    raw = text.encode("utf-16-be")
    return [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]


def etf1(epoch: int, topic: str, key: bytes | None, headers: Headers) -> Headers:
    """The Go client's order: what the message had, then when and where."""
    said = [*headers, ("scheduler-epoch", str(epoch).encode()), ("scheduler-target-topic", topic.encode())]
    return said if key is None else [*said, ("scheduler-target-key", key)]


def karafka(
    epoch: int, topic: str, key: bytes | None, partition: int | None, partition_key: bytes | None, headers: Headers
) -> Headers:
    """The Ruby client's order."""
    said: Headers = [
        *headers, ("schedule_schema_version", b"1.0.0"), ("schedule_target_epoch", str(epoch).encode()),
        ("schedule_source_type", b"schedule"), ("schedule_target_topic", topic.encode()),
    ]  # fmt: skip
    more = {
        "partition": None if partition is None else str(partition).encode(), "key": key, "partition_key": partition_key,
    }  # fmt: skip
    return said + [(f"schedule_target_{name}", value) for name, value in more.items() if value is not None]


def future(topic: str, key: str, content: bytes) -> bytes:
    """Protobuf's wire form; as in proto3, what is empty is left out."""
    fields = ((1, topic.encode()), (2, key.encode()), (3, content))
    return b"".join(_varint(number << 3 | 2) + _varint(len(each)) + each for number, each in fields if each)
