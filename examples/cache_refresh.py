"""A cached page is refreshed before it expires, as long as somebody reads it.

It prints:
    home: version 1
    home: version 2
    home: version 3
    nobody reads it any more
"""

from datetime import timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler

EXPIRES = timedelta(seconds=1.5)
EARLY = timedelta(seconds=0.5)  # before that


def fill(plan: Scheduler, cache: dict[str, int], page: str) -> None:
    """Renders the page, and has itself called again in time. Reading it twice plans one refresh: the id is the page."""
    cache[page] = cache.get(page, 0) + 1
    print(f"{page}: version {cache[page]}")
    plan.schedule(Message("refresh", key=page.encode(), value=b"refresh"), id=f"refresh-{page}", after=EXPIRES - EARLY)


def main() -> None:
    refresh = Arrivals("refresh")
    cache: dict[str, int] = {}
    with scheduler() as plan:
        fill(plan, cache, "home")
        for _ in range(2):
            fill(plan, cache, (refresh.next().key or b"").decode())
        plan.cancel("refresh-home")
    print("nobody reads it any more")


if __name__ == "__main__":
    main()
