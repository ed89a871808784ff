"""The stream from a real Kafka into the book, over restarts and lost checkpoints (rule 10)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from logs import schedule
from waiting import until

from almanac import kafka, words
from almanac.book import ingest, places, read, stretch, table
from almanac.broker import Broker
from almanac.record import Headers
from almanac.settings import Settings

MakeTopic = Callable[..., str]


class Feed:
    """Writes to one partition, in transactions: each leaves a marker behind, an aborted one also holes."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._topic = topic
        self._producer = Producer({**broker.client_settings(), "transactional.id": f"feed-{topic}"})
        self._producer.init_transactions(30)

    def __call__(self, *said: tuple[bytes, bytes | None, Headers], partition: int = 0, abort: bool = False) -> None:
        self._producer.begin_transaction()
        for key, value, headers in said:
            self._producer.produce(self._topic, key=key, value=value, headers=list(headers), partition=partition)
        self._producer.flush(30)
        self._producer.abort_transaction(30) if abort else self._producer.commit_transaction(30)


def source(broker: Broker, *topics: str, partitions: int = 2) -> ingest.Source:
    servers = str(broker.client_settings()["bootstrap.servers"])
    return ingest.Source(
        kafka={"bootstrap.servers": servers},
        log=stretch.KafkaLog(kafka.consumer(Settings(bootstrap_servers=servers))),
        topic_ids={topic: f"id-{topic}" for topic in topics},
        partitions=dict.fromkeys(topics, partitions),
        formats=dict.fromkeys(topics, "etf1"),
        merge_delay_s=1,
        merge_least=1,
    )


def pending(book: table.Book) -> set[bytes]:
    return {row.id for row in read.Reader(book.folder).pending(1000)}


def catch_up(book: table.Book, where: ingest.Source) -> None:
    query = ingest.Ingest(book, where).catch_up()
    assert query.awaitTermination(120), "the query ends by itself"


@pytest.mark.rule(10)
@pytest.mark.timeout(300)
def test_catching_up_over_restarts(book: table.Book, broker: Broker, make_topic: MakeTopic) -> None:
    topic = make_topic("schedules", 2)
    feed = Feed(broker, topic)
    feed((b"a", b"v", schedule()), (b"b", b"v", schedule()))
    feed((b"c", b"v", schedule()), abort=True)
    catch_up(book, source(broker, topic))
    assert pending(book) == {b"a", b"b"}
    # two records, a marker; an aborted record, its marker: the log's very end
    assert book.offsets() == {(topic, 0): 5, (topic, 1): 0}
    feed((b"a", None, words.acknowledgement(0, f"id-{topic}")), (b"d", b"v", schedule()))
    shutil.rmtree(Path(book.folder) / "checkpoints")
    catch_up(book, source(broker, topic))
    assert pending(book) == {b"b", b"d"}
    before = book.position()
    catch_up(book, source(broker, topic))
    assert book.position().offsets == before.offsets
    book.drop()  # a cache: built again it says the same
    book.create()
    catch_up(book, source(broker, topic))
    assert pending(book) == {b"b", b"d"}
    assert book.position().offsets == before.offsets


@pytest.mark.timeout(300)
def test_a_topic_that_is_added_is_read_from_its_beginning(
    book: table.Book, broker: Broker, make_topic: MakeTopic
) -> None:
    one, two = make_topic("schedules", 2), make_topic("schedules", 2)
    Feed(broker, one)((b"a", b"v", schedule()))
    Feed(broker, two)((b"b", b"v", schedule()), partition=1)
    catch_up(book, source(broker, one))
    assert pending(book) == {b"a"}
    catch_up(book, source(broker, one, two))
    assert pending(book) == {b"a", b"b"}


@pytest.mark.timeout(300)
def test_following_shows_its_progress(
    book: table.Book, broker: Broker, admin: AdminClient, make_topic: MakeTopic
) -> None:
    topic = make_topic("schedules", 2)
    feed = Feed(broker, topic)
    reader = ingest.Ingest(book, source(broker, topic))
    query = reader.start()
    try:
        feed((b"a", b"v", schedule()))
        until(lambda: query.exception() is None and book.offsets() and b"a" in pending(book), 120, "the first merge")
        feed((b"a", None, []), (b"b", b"v", schedule()))
        until(lambda: pending(book) == {b"b"}, 120, "the second merge")
        until(lambda: reader.progress.rows == 3, 60, "the listener's report")
        assert (reader.progress.error, reader.progress.behind) == (None, 0)
        assert reader.progress.batch_ms > 0
    finally:
        query.stop()
        reader.close()


def test_an_error_with_a_long_trace_reaches_spark_in_brief(
    book: table.Book, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: str) -> str:
        raise OSError("first line\n" + "\tat a.line\n" * 10_000)

    monkeypatch.setattr(places, "text", fail)
    with pytest.raises(RuntimeError, match="OSError: first line") as raised:
        ingest.Ingest(book, source(broker, "any")).take(book.spark.range(0), 0)
    assert len(str(raised.value)) < 1000
