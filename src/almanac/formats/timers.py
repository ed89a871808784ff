"""`timers`: the key is the second it is due, the value a protobuf `Future` (timers.proto).

Many requests share a key, and the topic is not compacted: requests are bridged into a native topic (see `bridge`).
"""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from almanac import formats
from almanac.record import UNREADABLE, Record, first

ID = "scheduler-id"  # a header with which the requester chooses the id, so as to cancel


def _make() -> Any:
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="almanac/timers.proto", syntax="proto3")
    shape = file.message_type.add(name="Future")
    for number, (name, kind) in enumerate(
        (("callBackTopic", kinds.TYPE_STRING), ("callBackKey", kinds.TYPE_STRING), ("callBack", kinds.TYPE_BYTES)), 1
    ):
        shape.field.add(name=name, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Future"))


Future = _make()
_parsed = Future.FromString


def read(record: Record) -> formats.Schedule:
    """What a request asks for. Raises Invalid."""
    due, target, key, value = asked(record)
    return formats.Schedule(due, target.decode(), key, -1, value, [], None)


def asked(record: Record) -> tuple[int, bytes, bytes, bytes]:
    """The same, for who asks for nothing else: due, target, key and value. Raises Invalid."""
    second = record.key
    if not second or not second.isdigit() or len(second) > 12:
        raise formats.Invalid(f"the key is not a second since 1970: {formats.shown(second)}")
    due = formats.due_ms(1000 * int(second), "the key")
    try:
        future = _parsed(record.value or b"")
    except (message.DecodeError, UnicodeDecodeError) as error:
        raise formats.Invalid(f"the value is not a Future in protobuf: {error}") from None
    target = future.callBackTopic.encode()
    formats.target(target, "field callBackTopic")
    return due, target, future.callBackKey.encode(), future.callBack


def prefix(topic: str, partition: int, anew: str | None = None) -> bytes:
    """What the ids of a partition's requests begin with: all but the offset.

    The offsets of a topic that was made anew begin again: its topic id (`anew`) becomes part of the ids then.
    """
    return f"{topic}/{f'{anew}/' if anew else ''}{partition}/".encode()


def name(record: Record, own: bytes) -> bytes:
    """The request's id: the one that the requester chose, or `own`. Raises Invalid."""
    if not record.headers:
        return own
    named = first(record.headers)
    if any(UNREADABLE in header for header in named):
        raise formats.Invalid("a header's name is not UTF-8")
    chosen = named.get(ID, own)
    if not chosen:
        raise formats.Invalid(f"header {ID} is empty; leave it out or choose an id")
    return chosen
