"""Scenarios of compare.py: those written in scenarios/*.txt and those that generated.py makes.

A file of scenarios has blocks:

    == ovs-vsctl(8): Bridge Commands: a bridge and its parent
    switch
    ovs-vsctl add-br br0

The line after `==` names the section of a manual page, with a colon between page and section, and the scenario. The other
lines are its command lines, up to the next block; lib.sh has words for them. Lines that begin with `#` are comments.
"""

import dataclasses
import itertools

import bad_input
import generated


@dataclasses.dataclass(frozen=True)
class Scenario:
    section: str
    name: str
    lines: tuple
    # The name of its file, without .txt; empty for generated ones.
    file: str = ""
    # Of the first lines, as many as this, only exit statuses and first lines of errors are compared.
    brief: int = 0


def all_of_them(directory, schemas):
    """Every scenario, in a fixed order; `schemas` is the folder with the peer's schemas of databases."""
    found = [s for file in sorted((directory / "scenarios").glob("*.txt")) for s in read(file)]
    found += [Scenario(section, name, tuple(lines)) for section, name, lines in generated.all_of_them(schemas)]
    found += [Scenario(section, name, (*lines, *state), brief=len(lines)) for section, name, lines, state in bad_input.all_of_them()]
    names = [(s.section, s.name) for s in found]
    doubles = {name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else None
    assert not doubles, f"scenarios with the same name: {sorted(doubles)}"
    known = set(sections(directory))
    unknown = {s.section for s in found} - known
    assert not unknown, f"sections that sections.txt does not have: {sorted(unknown)}"
    return found


def read(file):
    """The scenarios of a file."""
    title, lines, found = None, [], []
    for line in [*file.read_text().splitlines(), "== end"]:
        if line.startswith("== "):
            if title:
                page, section, name = title.split(": ", 2)
                found.append(Scenario(f"{page}: {section}", name, tuple(lines), file.stem))
            title, lines = line[3:], []
        elif line and not line.startswith("#"):
            lines.append(line)
    return found


def sections(directory):
    """The sections of manual pages that need scenarios."""
    lines = (directory / "sections.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def in_turns(scenarios):
    """The scenarios so that sections take turns."""
    by_section = {}
    for scenario in scenarios:
        by_section.setdefault(scenario.section, []).append(scenario)
    for turn in itertools.zip_longest(*by_section.values()):
        yield from filter(None, turn)
