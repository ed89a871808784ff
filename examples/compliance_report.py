"""A report is due again and again: whoever makes one schedules the next, so that none is forgotten.

It prints:
    report 1 filed
    report 2 filed
    report 3 filed
"""

from datetime import timedelta

from arrivals import Arrivals, scheduler

from almanac.client import Message, Scheduler

QUARTER = timedelta(seconds=1)  # for the sake of the example


def plan_report(plan: Scheduler, number: int) -> None:
    """One id for the series: planning it twice, after a crash say, still makes one report."""
    content = Message("reports-due", key=b"compliance", value=b"%d" % number)
    plan.schedule(content, id="compliance-report", after=QUARTER)


def main() -> None:
    due = Arrivals("reports-due")
    with scheduler() as plan:
        plan_report(plan, 1)
        for _ in range(3):
            number = int(due.next().value or b"")
            print(f"report {number} filed")
            plan_report(plan, number + 1)
        plan.cancel("compliance-report")  # the business was sold


if __name__ == "__main__":
    main()
