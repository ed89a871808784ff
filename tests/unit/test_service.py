"""A scheduler in the foreground, and how it ends."""

import subprocess
import sys

HANGS = """
import threading, time
from almanac import errors, service, settings

class Runner:
    failure = None
    settings = settings.Settings(metrics_http_addr="127.0.0.1:0")
    def start(self): time.sleep(60)
    def close(self): time.sleep(60)

def check():
    raise errors.DiskFull("The disk is full. Make room, then start again.")

service.STOP_SECONDS = 0.2
service._serve(Runner(), threading.Event(), check, None)
"""


def test_why_it_ends_is_told_though_the_stop_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=50, check=False)
    assert ended.returncode == 5
    assert "almanac: The disk is full. Make room, then start again." in ended.stderr
    assert "was killed" in ended.stdout
