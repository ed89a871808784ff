"""A customer gets an offer at each anniversary, at nine in the morning of where they live.

It prints:
    eve: 2030-03-01 09:00 in Europe/Paris
    offer for eve: 10 % off
"""

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler


def anniversary(joined: date, now: datetime, zone: ZoneInfo) -> datetime:
    """The next one, at nine; who joined on 29 February celebrates on 1 March in other years."""
    for year in (now.year, now.year + 1):
        try:
            day = joined.replace(year=year)
        except ValueError:
            day = date(year, 3, 1)
        moment = datetime.combine(day, time(9), tzinfo=zone)
        if moment > now:
            return moment
    raise AssertionError("a year has an anniversary")


def offer(plan: Scheduler, customer: str, at: datetime) -> None:
    """One offer a customer waits at a time."""
    plan.schedule(Message("offers", key=customer.encode(), value=b"10 % off"), id=f"anniversary-{customer}", at=at)


def main() -> None:
    offers, paris = Arrivals("offers"), ZoneInfo("Europe/Paris")
    at = anniversary(date(2024, 2, 29), now=datetime(2029, 6, 1, tzinfo=UTC), zone=paris)
    print(f"eve: {at:%Y-%m-%d %H:%M} in {at.tzinfo}")
    with scheduler() as plan:
        offer(plan, "eve", at=datetime.now(UTC) + timedelta(seconds=1))  # we do not wait for the spring here
    message = offers.next()
    print(f"offer for {(message.key or b'').decode()}: {(message.value or b'').decode()}")


if __name__ == "__main__":
    main()
