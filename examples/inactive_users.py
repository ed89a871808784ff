"""A user who has not logged in for a year is deleted: each login moves that day.

It prints:
    delete bob
    delete alice
"""

from datetime import timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler

YEAR = timedelta(days=365)


def logged_in(plan: Scheduler, user: str, patience: timedelta = YEAR) -> None:
    """Replaces what the last login planned: the id is the user's."""
    content = Message("inactive-users", key=user.encode(), value=b"delete")
    plan.schedule(content, id=f"inactive-{user}", after=patience)


def main() -> None:
    inactive = Arrivals("inactive-users")
    with scheduler() as plan:
        logged_in(plan, "alice", timedelta(seconds=2))
        logged_in(plan, "bob", timedelta(seconds=3))
        logged_in(plan, "alice", timedelta(seconds=4))  # alice is back: what was planned is moved
    for _ in range(2):
        message = inactive.next()
        print(f"{(message.value or b'').decode()} {(message.key or b'').decode()}")


if __name__ == "__main__":
    main()
