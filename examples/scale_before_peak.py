"""Before a match begins the service grows, and after it shrinks again: two messages, both known long before.

It prints:
    streaming: 40 instances
    streaming: 4 instances
"""

import json
from datetime import UTC, datetime, timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler

WARM_UP = timedelta(seconds=2)  # instances need a while to start


def peak(plan: Scheduler, name: str, begin: datetime, end: datetime, instances: int, usual: int = 4) -> None:
    """So many instances from shortly before the beginning to the end."""
    for what, at, number in (("up", begin - WARM_UP, instances), ("down", end, usual)):
        content = Message("scaling", key=b"streaming", value=json.dumps({"instances": number}).encode())
        plan.schedule(content, id=f"{name}-{what}", at=at)


def main() -> None:
    scaling, now = Arrivals("scaling"), datetime.now(UTC)
    with scheduler() as plan:
        peak(plan, "final", begin=now + timedelta(seconds=5), end=now + timedelta(seconds=6), instances=40)
    for _ in range(2):
        message = scaling.next()
        print(f"{(message.key or b'').decode()}: {json.loads(message.value or b'{}')['instances']} instances")


if __name__ == "__main__":
    main()
