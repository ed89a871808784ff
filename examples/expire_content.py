"""Content that may be shown until a date: one component says when it is over, and no consumer needs the rule.

It prints:
    on the air: film, series
    on the air: series
"""

import json
from datetime import timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler


def acquire(plan: Scheduler, catalogue: set[str], asset: str, rights: timedelta) -> None:
    """The rights to an asset are bought for a while."""
    catalogue.add(asset)
    gone = Message("expired", key=asset.encode(), value=json.dumps({"asset": asset, "reason": "rights"}).encode())
    plan.schedule(gone, id=f"expiry-{asset}", after=rights)


def main() -> None:
    expired = Arrivals("expired")
    catalogue: set[str] = set()
    with scheduler() as plan:
        acquire(plan, catalogue, "film", rights=timedelta(seconds=1))
        acquire(plan, catalogue, "series", rights=timedelta(days=30))
    print("on the air:", ", ".join(sorted(catalogue)))
    catalogue.remove(json.loads(expired.next().value or b"{}")["asset"])
    print("on the air:", ", ".join(sorted(catalogue)))


if __name__ == "__main__":
    main()
