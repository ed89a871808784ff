"""A call that failed is tried again later, each time after a longer while, as long as the API is down.

It prints:
    attempt 0: the API is down
    attempt 1: the API is down
    attempt 2: paid
"""

from arrivals import Arrivals, scheduler

from almanac.client import Backoff, Message, Scheduler

BACKOFF = Backoff(least=1, most=3600, factor=2, attempts=20)  # 1 s, 2 s, 4 s ... an hour


def pay(attempt: int) -> None:
    """The API: down at first."""
    if attempt < 2:
        raise ConnectionError("the API is down")


def handle(message: Message, plan: Scheduler) -> bool:
    """One message of the topic `payments`; true if it is done."""
    attempt = int(dict(message.headers).get("retry-attempt") or b"0")
    try:
        pay(attempt)
    except ConnectionError as error:
        print(f"attempt {attempt}: {error}")
        plan.retry(message, id=message.key or b"", wait=BACKOFF)
        return False
    print(f"attempt {attempt}: paid")
    return True


def main() -> None:
    payments = Arrivals("payments")
    with scheduler() as plan:
        plan.send(Message("payments", key=b"order 7", value=b"12.50"))
        while not handle(payments.next(), plan):
            pass


if __name__ == "__main__":
    main()
