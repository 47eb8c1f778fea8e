"""A thousand BFD sessions at 100 ms in one switch, the ends of 500 links between two bridges, while packets from memory take
all of the packet thread's core and a port is added or removed each second: sessions that went down, and after the other ends
of ten links stop, how long their detection took.

Only our switch has BFD on patch ports.
"""

import contextlib
import json
import pathlib
import tempfile
import time

import common
import control
import workload
from replay import OURS, Replay
from report import Report, Table

LINKS = 500
INTERVAL_MS = 100
MULTIPLIER = 3
WATCHED = 10
BRIDGES = ("br0", "br1")
PATIENCE_S = 60


def add_arguments(arguments):
    arguments.add_argument("--session-seconds", type=float, default=120, metavar="S", help="how long all sessions are watched (120)")


def measure(options):
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory, Replay(OURS) as one:
        one.vsctl("add-br", BRIDGES[1], "--", "set", "Bridge", BRIDGES[1], "datapath_type=netdev", "fail-mode=secure")
        one.add_output()
        pcap, flows = workload.write("ip-1k", pathlib.Path(directory))
        one.add_flows(flows)
        one.add_input(pcap)
        add_links(one)
        common.wait_for(lambda: len(in_state(one, "up")) == 2 * LINKS, "all sessions to be up", PATIENCE_S)
        before = flaps(one)
        changes = watch(one, options.session_seconds)
        after = flaps(one)
        lost = sum(after[name] != count for name, count in before.items())
        stats = one.stats()
        detected = detection_ms(one)
    rate = stats["packets received"]
    header = ["sessions", "seconds", "changes of ports", "sessions that went down", "detection, ms, at most", "configured, ms"]
    row = [2 * LINKS, options.session_seconds, changes, lost, detected, MULTIPLIER * INTERVAL_MS]
    figures = dict(zip(("sessions", "seconds", "changes", "down"), row)) | {"detection_ms": detected, "packets": rate}
    return Report([Table("BFD sessions of 100 ms under full traffic", header, [row])], figures)


def add_links(one):
    """Adds both ends of all links in one transaction."""
    operations = []
    bfd = ["map", [["enable", "true"], ["min_rx", str(INTERVAL_MS)], ["min_tx", str(INTERVAL_MS)]]]
    for at, bridge in enumerate(BRIDGES):
        peer = lambda number: ["map", [["peer", name(1 - at, number)]]]
        ports = [(name(at, number), "patch", {"options": peer(number), "bfd": bfd}) for number in range(LINKS)]
        operations += control.rows_of_ports(bridge, ports)
    with contextlib.closing(control.Database(one.switch.dir / "db.sock")) as database:
        database.transact(*operations)


def name(end, number):
    return f"link{number}end{end}"


def shown(one, *interface):
    """The states of all sessions by interface, or of one."""
    return json.loads(one.switch("ovs-appctl", "--format=json", "-t", one.switch.daemon, "bfd/show", *interface))


def in_state(one, state):
    return {of for of, session in shown(one).items() if session["local"]["state"] == state}


def flaps(one):
    """How often each session changed its forwarding state."""
    return {of: session["statistics"]["flaps"] for of, session in shown(one).items()}


def watch(one, seconds):
    """Adds or removes a port each second; returns how often."""
    end_s, changes = time.monotonic() + seconds, 0
    while (left_s := end_s - time.monotonic()) > 0:
        time.sleep(min(1.0, left_s))
        if changes % 2:
            one.vsctl("del-port", BRIDGES[0], "more0")
        else:
            one.vsctl("add-port", BRIDGES[0], "more0", "--", "set", "Interface", "more0", "type=null")
        changes += 1
    return changes


def detection_ms(one):
    """Stops the ends of some links in one bridge; returns the time until all other ends have noticed, that of the change and
    of the last look included."""
    words = []
    for number in range(WATCHED):
        words += ["--", "set", "Interface", name(1, number), f"options:peer=none{number}"]
    began_s = time.monotonic()
    one.vsctl(*words[1:])
    for number in range(WATCHED):
        at = name(0, number)
        while shown(one, at)[at]["local"]["state"] == "up":
            if time.monotonic() - began_s > PATIENCE_S:
                raise SystemExit(f"{at} stays up without a peer\n{one.switch.log_tail()}")
    return round((time.monotonic() - began_s) * 1000)
