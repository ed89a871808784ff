"""A ticket must be answered in time: a check is scheduled when it opens, and cancelled when it is answered.

It prints:
    ticket 2 breaks its SLA: escalate to the manager on duty
"""

import json
from datetime import timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler

PROMISED = {"gold": timedelta(seconds=2), "silver": timedelta(hours=8)}


def opened(plan: Scheduler, ticket: str, level: str) -> None:
    """The check, at the last moment that is in time."""
    check = Message("sla-checks", key=ticket.encode(), value=json.dumps({"ticket": ticket, "level": level}).encode())
    plan.schedule(check, id=f"sla-{ticket}", after=PROMISED[level])


def answered(plan: Scheduler, ticket: str) -> None:
    """In time: nothing to check."""
    plan.cancel(f"sla-{ticket}")


def main() -> None:
    checks = Arrivals("sla-checks")
    with scheduler() as plan:
        opened(plan, "ticket 1", "gold")
        opened(plan, "ticket 2", "gold")
        opened(plan, "ticket 3", "silver")
        answered(plan, "ticket 1")
    broken = json.loads(checks.next().value or b"{}")
    print(f"{broken['ticket']} breaks its SLA: escalate to the manager on duty")


if __name__ == "__main__":
    main()
