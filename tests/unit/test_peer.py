"""The peer's JSON, as Go prints it."""

import json

import pytest

from almanac import desk
from almanac.api import peer
from almanac.settings import Settings


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (b"plain", '"plain"'),
        (b"", '""'),
        (b'<a href="x">&</a>\\', '"\\u003ca href=\\"x\\"\\u003e\\u0026\\u003c/a\\u003e\\\\"'),
        (b"\n\r\t\b\f\x00\x1f\x7f", '"\\n\\r\\t\\b\\f\\u0000\\u001f\x7f"'),
        ("\u2028\u2029é漢😀\ufffd".encode(), '"\\u2028\\u2029é漢😀\ufffd"'),
        (b"a\xff\xfeb", '"a\\ufffd\\ufffdb"'),  # one for each byte
        (b"\xe6\xbc", '"\\ufffd\\ufffd"'),  # a character that is cut off
        (b"\xed\xa0\x80", '"\\ufffd\\ufffd\\ufffd"'),  # a surrogate
    ],
)
def test_text(given: bytes, shown: str) -> None:
    assert peer.text(given) == shown


def _row(**changes: object) -> desk.Row:
    fields: dict[str, object] = {
        "id": b"vid1-online", "topic": "schedules", "partition": 0, "version": 3, "due": 1_893_456_000_000,
        "timestamp": 1_607_918_336_123, "target": "online-videos", "target_key": b"vid1", "value": b"video 1",
        "headers": [], "state": "waiting",
    }  # fmt: skip
    return desk.Row(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_schedule() -> None:
    assert peer.schedules([_row()]) == (
        b'[{"epoch":1893456000,"id":"vid1-online","target-key":"vid1","target-topic":"online-videos",'
        b'"timestamp":1607918336,"topic":"schedules","value":"dmlkZW8gMQ=="}]'
    )


def test_null_and_empty() -> None:
    assert peer.schedules([]) == b"[]"
    assert '"value":null' in peer.schedule(_row(value=None))
    assert '"value":""' in peer.schedule(_row(value=b""))
    assert '"target-key":""' in peer.schedule(_row(target_key=None))
    assert '"epoch":1893456001,' in peer.schedule(_row(due=1_893_456_000_001))  # never early


def test_info_in_the_order_of_the_peers_struct() -> None:
    told = peer.info(Settings(server_addr=":8000")).decode()
    assert list(json.loads(told)) == ["hostname", "address", "server_address", "kafka"]
    assert told.endswith(
        '"server_address":":8000","kafka":{"bootstrap_servers":"localhost:9092","topics":["schedules"],'
        '"history_topic":"history"}}'
    )
