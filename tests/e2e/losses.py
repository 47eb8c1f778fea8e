"""Counters of everything that packets between two hosts pass, so that a lost packet names its place."""

import re

from switch import run


def counters(switch, *hosts):
    """{(place, name): number}: drops and events of the switch, of the kernel's devices and of the hosts' IP and UDP."""
    found = {}
    for line in switch.ours.appctl("dpif/show-drops").splitlines():
        if match := re.fullmatch(r"(.+): (\d+)", line.strip()):
            found["switch drops", match[1]] = int(match[2])
    for line in switch.ours.appctl("coverage/show").splitlines():
        if match := re.match(r"(\w+) .* total: (\d+)", line):
            found["switch counts", match[1]] = int(match[2])
    for line in switch.ours.appctl("upcall/show").splitlines():
        if match := re.match(r"\s+(port \S+):.*?(\d+) dropped", line):
            found["upcalls dropped", match[1]] = int(match[2])
    # Packets that the kernel had no room for, of all namespaces and tests: the second column, for each processor.
    with open("/proc/net/softnet_stat", encoding="ascii") as lines:
        for number, line in enumerate(lines):
            found["backlog", f"dropped on processor {number}"] = int(line.split()[1], 16)
    for namespace in (switch.namespace, *(host.name for host in hosts)):
        found |= of_namespace(namespace)
    return found


def of_namespace(namespace):
    """Counters of the devices and protocols of a network namespace."""
    found = {}
    text = run(["ip", "netns", "exec", namespace, "cat", "/proc/net/dev", "/proc/net/snmp", "/proc/net/snmp6"]).out
    names = []
    for line in text.splitlines():
        words = line.replace(":", " ").split()
        if re.match(r"\s*\S+:(\s+\d+){16}$", line):
            columns = ("rx packets", "rx errs", "rx drop", "tx packets", "tx errs", "tx drop")
            for column, at in zip(columns, (2, 3, 4, 10, 11, 12)):
                found[namespace, f"{words[0]} {column}"] = int(words[at])
        elif re.match(r"\w+: [A-Z]", line):
            names = words
        elif re.match(r"\w+: -?\d", line):
            found |= {(namespace, f"{words[0]} {name}"): int(n) for name, n in zip(names[1:], words[1:])}
        elif re.fullmatch(r"\w+6\w+\s+\d+", line):
            found[namespace, words[0]] = int(words[1])
    return found


def changes(before, after):
    """The counters that changed, a line each."""
    changed = sorted((key, n - before.get(key, 0)) for key, n in after.items() if n != before.get(key, 0))
    return "\n".join(f"{place}: {name}: +{n}" for (place, name), n in changed)
