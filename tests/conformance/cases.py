"""The case files of os-ken's conformance tester, and their distribution over runs that take little time.

A case is one JSON file: a description, then tests, each with a verdict of its own. The tester takes a folder of
cases, sorts them by description and drops all but one of those with equal descriptions, so such files go into
different parcels."""

import importlib.util
import json
from pathlib import Path

VERSIONS = ("of10", "of13", "of14")
# The cost of a test in seconds, to estimate the duration of a parcel: checking a table for misses waits a second, and a
# measured stream lasts as long as its file says.
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
        self.bodies = [each for each in content if isinstance(each, dict)]
        self.tests = [body["description"] for body in self.bodies]

    def whole(self):
        return Part(self, range(len(self.tests)))


class Part:
    """Tests of one case, by their positions in its file."""

    def __init__(self, case, places):
        self.case = case
        self.places = list(places)
        steps = [step for place in self.places for step in case.bodies[place]["tests"]]
        streams = [step["ingress"]["packets"] for step in steps if isinstance(step["ingress"], dict)]
        # Packets a second that the tester has to send.
        self.load = max((stream.get("pktps", 1000) for stream in streams), default=0)
        misses = sum("table-miss" in step for step in steps)
        self.cost_s = len(steps) * PLAIN_S + misses * MISS_S + len(streams) * STREAM_S

    def put_into(self, folder, name):
        """Writes the file for the tester, or one with these tests only."""
        path = folder / f"{name}.json"
        if len(self.places) == len(self.case.tests):
            path.symlink_to(self.case.path)
        else:
            path.write_text(json.dumps([self.case.description, *(self.case.bodies[place] for place in self.places)]))


def folder():
    """The folder of the installed os-ken's case files."""
    return Path(importlib.util.find_spec("os_ken").origin).parent / "tests/switch"


def find(versions):
    """All cases of some versions, by name."""
    top = folder()
    return [
        Case(path, version, str(path.relative_to(top).with_suffix("")))
        for version in versions
        for path in sorted((top / version).rglob("*.json"))
    ]


def parcels(parts):
    """Groups of parts for one start of the tester: of one version, without two equal descriptions, none much longer
    than PARCEL_S; the long ones first, so that none is left over at the end."""
    made = []
    for part in sorted(parts, key=lambda part: -part.cost_s):
        for parcel in made:
            if (
                parcel[0].case.version == part.case.version
                and sum(each.cost_s for each in parcel) + part.cost_s <= PARCEL_S
                and all(each.case.description != part.case.description for each in parcel)
            ):
                parcel.append(part)
                break
        else:
            made.append([part])
    return made
