"""`make rules`: each rule's tests with the rule (green) and without it (red). `make rules ARGS="4 11"` for some."""

import re
import subprocess
import sys

from rich.console import Console
from without import WITHOUT


def main(numbers: list[int]) -> int:
    console = Console(highlight=False, soft_wrap=True)
    wrong = 0
    for number in numbers:
        words = WITHOUT[number].__name__.strip("_").replace("_", " ")
        for without in (False, True):
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-p",
                "without",
                "--only-rule",
                str(number),
                "-m",
                "not long",
            ]
            done = subprocess.run(
                [*command, *(["--without-rule", str(number)] if without else [])], capture_output=True, text=True
            )
            # 0: all passed; 1: some failed. Anything else (no tests, an error in collecting) proves nothing.
            red = done.returncode == 1 and bool(re.search(r"\d+ failed", done.stdout))
            green = done.returncode == 0
            good = red if without else green
            wrong += not good
            seen = "[red]red[/]  " if red else "[green]green[/]" if green else f"exit {done.returncode}"
            what = f"without: {words}" if without else "with it"
            summary = done.stdout.strip().splitlines()[-1] if done.stdout.strip() else done.stderr[-200:]
            console.print(f"rule {number:2}  {seen}  {what:45} {summary.strip('= ')}")
            if not good:
                console.print(done.stdout[-3000:], markup=False)
    console.print(
        f"{len(numbers)} rules, {wrong} unexpected" if wrong else f"{len(numbers)} rules: green with, red without"
    )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main([int(argument) for argument in sys.argv[1:]] or sorted(WITHOUT)))
