"""Waiting for something to become true: the tests poll with a generous deadline and never sleep for a guessed time."""

import os
import time

# Long enough for a loaded machine with two processors; nothing that works comes near it. A smaller one saves time while
# a test that fails is looked into.
DEADLINE_S = float(os.environ.get("FLOWSTONE_DEADLINE_S", 90))


def until(check, what, deadline_s=DEADLINE_S, interval_s=0.05):
    """Calls `check` until it returns something true, and returns that; fails by naming `what` after the deadline."""
    end = time.monotonic() + deadline_s
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not seen within {deadline_s:.0f} s: {what() if callable(what) else what}")
        time.sleep(interval_s)
