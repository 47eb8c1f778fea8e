"""os-ken's conformance tester fails only in the cases that tests/conformance/known.txt lists.

These are all cases that take a few seconds at most, and one that measures streams, each for half a minute;
`tests/conformance/run` without options also runs the others, which takes most of an hour."""

import json
import os
import subprocess
import sys

from switch import TOP

# Cells run in parallel: the tester sleeps most of the time.
JOBS = 8
# A meter: its rate does not depend on the tester's own rate on a busy machine.
STREAMS = ("of13/meter/01_DROP_01_PKTPS_00_100",)


def run(tmp_path, peers, *words):
    """Runs the tester's driver and returns its results."""
    results = tmp_path / "results.json"
    command = [sys.executable, TOP / "tests/conformance/run", "--jobs", str(JOBS), "--json", results, *words]
    command += ["--known", TOP / "tests/conformance/known.txt", "--seconds", "600"]
    environment = dict(os.environ, FLOWSTONE_PEERS=str(peers.parent))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    print(done.stdout)
    complaints = [line for line in done.stdout.splitlines() if line.startswith(("unexpected", "wrong"))]
    assert done.returncode == 0, "\n".join(complaints) or done.stdout + done.stderr
    # A listed case must still fail, otherwise it has to be removed from the list.
    outdated = [line for line in done.stdout.splitlines() if line.startswith("nothing that only this")]
    assert not outdated, "\n".join(outdated)
    return json.loads(results.read_text())


def test_conformance(tmp_path, peers):
    words = [word for pattern in STREAMS for word in ("--also", pattern)]
    results = run(tmp_path, peers, "--load-max", "0", "--again", "2", *words)
    assert results["totals"]["all"]["cases"] == 296 + len(STREAMS)
