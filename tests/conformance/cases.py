"""The case files of os-ken's conformance tester, and how they are put together so that a run takes little time.

A case is one JSON file: a description, then tests, each with a verdict of its own. The tester takes a folder of them,
sorts them by description and drops all but one of those with equal descriptions, so such files go into different
parcels.
"""

import importlib.util
import json
from pathlib import Path

VERSIONS = ("of10", "of13", "of14")
# What a test costs, in seconds, to judge by how long a parcel takes: a look at a table that missed waits a second, and
# a measured stream goes on for as long as its file says.
PLAIN_S, MISS_S, STREAM_S = 0.1, 1.2, 32
PARCEL_S = 45


class Case:
    """One case file."""

    def __init__(self, path, version, name):
        self.path = path
        self.version = version
        self.name = name
        content = json.loads(path.read_text())
        self.description = next(each for each in content if isinstance(each, str))
        bodies = [each for each in content if isinstance(each, dict)]
        self.bodies = bodies
        self.tests = [body["description"] for body in bodies]
        steps = [step for body in bodies for step in body["tests"]]
        streams = [step["ingress"]["packets"] for step in steps if isinstance(step["ingress"], dict)]
        # Packets a second that the tester has to send.
        self.load = max((stream.get("pktps", 1000) for stream in streams), default=0)
        misses = sum("table-miss" in step for step in steps)
        self.cost_s = len(steps) * PLAIN_S + misses * MISS_S + len(streams) * STREAM_S


def folder():
    """Where the installed os-ken has its case files."""
    return Path(importlib.util.find_spec("os_ken").origin).parent / "tests/switch"


def find(versions):
    """All cases of some versions, by name."""
    top = folder()
    return [
        Case(path, version, str(path.relative_to(top).with_suffix("")))
        for version in versions
        for path in sorted((top / version).rglob("*.json"))
    ]


def parcels(cases):
    """Groups of cases that one start of the tester goes through: of one version, without two equal descriptions, none
    much longer than PARCEL_S; the long ones first, so that none is left over at the end."""
    made = []
    for case in sorted(cases, key=lambda case: -case.cost_s):
        for parcel in made:
            if (
                parcel[0].version == case.version
                and sum(each.cost_s for each in parcel) + case.cost_s <= PARCEL_S
                and all(each.description != case.description for each in parcel)
            ):
                parcel.append(case)
                break
        else:
            made.append([case])
    return made
