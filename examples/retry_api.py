"""A call that failed is tried again later, each time after a longer while, as long as the API is down.

It prints:
    attempt 0: the API is down
    attempt 1: the API is down
    attempt 2: paid
"""

from arrivals import KAFKA, Arrivals
from confluent_kafka import Producer

from almanac import client
from almanac.client import Backoff, Message
from almanac.record import first

BACKOFF = Backoff(least=1, most=3600, factor=2, attempts=20)  # 1 s, 2 s, 4 s ... an hour


def pay(attempt: int) -> None:
    """The API: down at first."""
    if attempt < 2:
        raise ConnectionError("the API is down")


def handle(message: Message, producer: Producer) -> bool:
    """One message of the topic `payments`; true if it is done."""
    attempt = int(first(message.headers).get("retry-attempt") or b"0")
    try:
        pay(attempt)
    except ConnectionError as error:
        print(f"attempt {attempt}: {error}")
        later = client.etf1.again(message, id=message.key or b"", backoff=BACKOFF)
        producer.produce(**later.arguments())
        producer.flush(10)
        return False
    print(f"attempt {attempt}: paid")
    return True


def main() -> None:
    payments, producer = Arrivals("payments"), Producer(KAFKA | {"partitioner": "murmur2_random"})
    producer.produce("payments", key=b"order 7", value=b"12.50")
    producer.flush(10)
    while not handle(payments.next(), producer):
        pass


if __name__ == "__main__":
    main()
