"""A nightly job begins when its message comes, with all it needs to know in the payload.

It prints:
    aggregating clicks of 2099-01-01 with 4 workers
"""

import json
from datetime import UTC, date, datetime, time, timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler


def night_after(day: date) -> datetime:
    """When the day's data is complete: two o'clock, UTC."""
    return datetime.combine(day + timedelta(days=1), time(2), tzinfo=UTC)


def kick_off(plan: Scheduler, day: date, at: datetime) -> None:
    """The id names the job and the day: to plan it again does no harm."""
    job = {"job": "aggregate", "input": "clicks", "day": day.isoformat(), "workers": 4}
    plan.schedule(Message("jobs", key=b"aggregate", value=json.dumps(job).encode()), id=f"aggregate-{day}", at=at)


def main() -> None:
    jobs, day = Arrivals("jobs"), date(2099, 1, 1)
    with scheduler() as plan:
        kick_off(plan, day, at=night_after(day))
        kick_off(plan, day, at=datetime.now(UTC) + timedelta(seconds=1))  # we do not wait for the night here
    job = json.loads(jobs.next().value or b"{}")
    print(f"aggregating {job['input']} of {job['day']} with {job['workers']} workers")


if __name__ == "__main__":
    main()
