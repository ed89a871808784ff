"""A video goes online at one date and offline at another; a date that is moved is the same id again.

It prints:
    vid1 is online
    vid1 is offline
"""

from datetime import UTC, datetime, timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler


def publish(plan: Scheduler, video: str, online: datetime, offline: datetime) -> None:
    """Both dates; called again with others, it moves them."""
    for state, at in (("online", online), ("offline", offline)):
        plan.schedule(Message("videos", key=video.encode(), value=state.encode()), id=f"{video}-{state}", at=at)


def main() -> None:
    videos, now = Arrivals("videos"), datetime.now(UTC)
    with scheduler() as plan:
        publish(plan, "vid1", online=now + timedelta(days=7), offline=now + timedelta(days=67))
        publish(
            plan, "vid1", online=now + timedelta(seconds=3), offline=now + timedelta(seconds=4)
        )  # on second thoughts
    for _ in range(2):
        message = videos.next()
        print(f"{(message.key or b'').decode()} is {(message.value or b'').decode()}")


if __name__ == "__main__":
    main()
