"""A call that nobody answers ends after a while: the timer is cancelled when somebody does.

It prints:
    call 2: no answer, hang up
"""

from datetime import timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler

RINGING = timedelta(seconds=2)


def ring(plan: Scheduler, call: str) -> None:
    """It rings: if nothing happens, the timer speaks."""
    plan.schedule(Message("call-events", key=call.encode(), value=b"no answer"), id=f"ringing-{call}", after=RINGING)


def answer(plan: Scheduler, call: str) -> None:
    """Somebody answers: the timer is not wanted any more."""
    plan.cancel(f"ringing-{call}")


def main() -> None:
    events = Arrivals("call-events")
    with scheduler() as plan:
        ring(plan, "call 1")
        answer(plan, "call 1")
        ring(plan, "call 2")
    event = events.next()
    print(f"{(event.key or b'').decode()}: {(event.value or b'').decode()}, hang up")


if __name__ == "__main__":
    main()
