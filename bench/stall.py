"""The longest stall of forwarding during large operations of the switch's control plane, in microseconds: a bundle
replaces 100,000 flows, 100 ports are added and removed, the database is compacted.

A steady stream of numbered packets of one known flow passes meanwhile. A stall is a time without a received packet,
less the sender's own pauses (`traffic gaps`); a lost packet is not received. The case without an operation shows the
machine's own stalls.
"""

import time

import common
import messages
from between import NO_SUCH_TYPE, Between, NoSuchType, chosen, compiled
from replay import CONTROL_CORE
from report import Report, Table, middle

FLOWS = 100_000
PORTS = 100
STREAM_PPS = 20_000
STREAM = "table=0,priority=65535,in_port=1,udp,nw_src=10.99.0.1,actions=output:2"
QUIET_S = 3
# Deferred work of one load must not be part of the next one.
BETWEEN_S = 2


def measure(options):
    common.need_programs("ip", "taskset")
    kinds = chosen(options)
    turns = {kind: [] for kind in kinds}
    with compiled("traffic") as programs:
        flows = [programs / f"{change}.flows" for change in (0, 1)]
        for change, path in enumerate(flows):
            path.write_text("".join(f"{messages.text('acl', i, change)}\n" for i in range(FLOWS)) + f"{STREAM}\n")
        for round_number in range(options.rounds):
            for kind in kinds:
                try:
                    turns[kind].append(one(kind, programs / "traffic", flows))
                except NoSuchType:
                    turns[kind] = None
                    common.say(f"{kind.name}: {NO_SUCH_TYPE}")
                    continue
                common.say(f"stall, round {round_number + 1}, {kind.name}: {turns[kind][-1]}")
            kinds = [kind for kind in kinds if turns[kind] is not None]
    return report(turns)


def one(kind, traffic, flows):
    """One turn: the longest stall and the packets lost, during each load."""
    found = {}
    with Between(kind, [STREAM], pinned=False) as between:
        ofctl = ["taskset", "-c", CONTROL_CORE, common.programs("peer") / "ovs-ofctl", "-O", "OpenFlow14", "--bundle"]
        between.vsctl("set", "Bridge", "br0", "protocols=OpenFlow10,OpenFlow13,OpenFlow14")
        common.run(*ofctl, "replace-flows", "br0", flows[0], env=between.switch.env)
        loads = {
            "nothing": lambda: time.sleep(QUIET_S),
            f"{FLOWS:,} flows replaced": lambda: common.run(*ofctl, "replace-flows", "br0", flows[1], env=between.switch.env),
            f"{PORTS} ports added": lambda: change_ports(between, "add-port"),
            f"{PORTS} ports removed": lambda: change_ports(between, "del-port"),
            "database compacted": lambda: between.switch("ovs-appctl", "-t", "ovsdb-server", "ovsdb-server/compact"),
        }
        for name, load in loads.items():
            time.sleep(BETWEEN_S)
            with stream(traffic, between.hosts) as seen:
                time.sleep(0.5)
                start = time.monotonic()
                load()
                seconds = time.monotonic() - start
                time.sleep(0.5)
            if not seen["received"]:
                raise SystemExit(f"{kind.name}: nothing of the stream came in\n{between.switch.log_tail()}")
            found[name] = {"us": round(seen["gap_ms"] * 1000), "lost": seen["lost"], "seconds": round(seconds, 3)}
    return found


def change_ports(between, what):
    """Adds or removes the ports, in one transaction that waits until the switch has done it."""
    words = []
    for number in range(PORTS):
        words += ["--", what, "br0", f"many{number}"]
        if what == "add-port":
            words += ["--", "set", "Interface", f"many{number}", "type=internal"]
    between.vsctl(*words[1:])


def stream(traffic, hosts):
    """Sends numbered packets from one host to the other; the result is available after the block."""
    words = ["taskset", "-c", CONTROL_CORE, traffic, "gaps", STREAM_PPS, "known", hosts[0], "e0", hosts[1], "e0"]
    return common.beside(*words)


def report(turns):
    figures, rows = {}, []
    for kind, found in turns.items():
        if not found:
            figures[kind.name] = NO_SUCH_TYPE
            continue
        figures[kind.name] = {"rounds": found}
        for load in found[0]:
            medians = {what: middle(one[load][what] for one in found) for what in ("us", "lost", "seconds")}
            figures[kind.name][load] = medians
            rows.append([load, kind.label, *medians.values()])
    loads = list(dict.fromkeys(row[0] for row in rows))
    rows.sort(key=lambda row: loads.index(row[0]))
    notes = [f"{kind.label}: {NO_SUCH_TYPE}." for kind, found in turns.items() if not found]
    notes.append(f"{STREAM_PPS:,} packets a second. Database and clients share the core of the senders, which come first there.")
    header = ["meanwhile", "switch", "longest stall, µs", "packets lost", "seconds that it takes"]
    return Report([Table("the longest stall of forwarding", header, rows)], figures, notes)
