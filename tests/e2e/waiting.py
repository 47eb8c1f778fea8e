"""Waiting for a condition: the tests poll with a generous deadline and never sleep for a guessed time."""

import os
import time

# Long enough for a loaded machine with two processors; no working test comes near it. A smaller value saves time while
# a failing test is being investigated.
DEADLINE_S = float(os.environ.get("FLOWSTONE_DEADLINE_S", 90))


def until(check, what, deadline_s=DEADLINE_S, interval_s=0.05):
    """Calls `check` until it returns a true value, and returns that; after the deadline it fails and names `what`."""
    end = time.monotonic() + deadline_s
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"not seen within {deadline_s:.0f} s: {what() if callable(what) else what}")
        time.sleep(interval_s)
