"""The cost of many ports of type `system`: file descriptors while idle and after traffic, resident memory, and the
time to add and remove one beside all others. Each port is a veth device; the switch daemon's limit on open files
is LIMIT.

Every port sends and receives before "after traffic" is measured: a broadcast frame that one port receives leaves by
all others.
"""

import contextlib
import os
import pathlib
import resource
import socket
import tempfile
import time

import common
from report import Report, Table, middle, ratio

PORTS = 2000
LIMIT = 65_536
SETTLE_S = 2
SINGLES = 10
FRAMES = 3


def add_arguments(arguments):
    arguments.add_argument("--system-ports", type=int, default=PORTS, metavar="N", help=f"how many ports ({PORTS})")


def measure(options):
    limit_open_files()
    common.need_peer()
    turns = {"peer": [], "ours": []}
    with devices(options.system_ports) as names:
        for round_number in range(options.rounds):
            for which, found in turns.items():
                found.append(one(which, names))
                common.say(f"system-ports, round {round_number + 1}, {which}: {found[-1]}")
    return report(turns, options.system_ports)


def limit_open_files():
    """Gives the switches LIMIT open files, as service managers do, whatever the shell's limit."""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    except ValueError:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        common.say(f"system-ports: the limit of open files is {hard}, as more are not allowed here")


@contextlib.contextmanager
def devices(n):
    """Creates veth devices; returns the names of their near ends, and of some more that are added singly."""
    names = [(f"near{number}", f"far{number}") for number in range(n + SINGLES)]
    with tempfile.NamedTemporaryFile("w", suffix=".ip") as batch:
        for near, far in names:
            batch.write(f"link add {near} up type veth peer name {far}\nlink set {far} up\n")
        batch.flush()
        common.say(f"system-ports: making {len(names)} devices")
        common.run("ip", "-batch", batch.name)
    try:
        yield names
    finally:
        with tempfile.NamedTemporaryFile("w", suffix=".ip") as batch:
            batch.writelines(f"link del {near}\n" for near, _ in names)
            batch.flush()
            common.run("ip", "-batch", batch.name, check=False)


def one(which, names):
    switch = common.Switch(which)
    try:
        switch.start()
        switch("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
        many, single = names[:-SINGLES], names[-SINGLES:]
        pid, before, had = switch.pid(), descriptors(switch.pid()), switch.rss_bytes()
        began = time.monotonic()
        switch("ovs-vsctl", *[word for near, _ in many for word in ("--", "add-port", "br0", near)][1:])
        found = {"add_all_s": round(time.monotonic() - began, 3)}
        time.sleep(SETTLE_S)
        found["descriptors_idle"] = round((descriptors(pid) - before) / len(many), 2)
        found["bytes"] = (switch.rss_bytes() - had) // len(many)
        switch("ovs-ofctl", "del-flows", "br0")
        switch("ovs-ofctl", "add-flow", "br0", "actions=flood")
        broadcast(many[0][1])
        time.sleep(SETTLE_S)
        found["descriptors_used"] = round((descriptors(pid) - before) / len(many), 2)
        found["add_ms"] = each_ms(switch, "add-port", single)
        found["del_ms"] = each_ms(switch, "del-port", single)
        # Otherwise its device outlives Open vSwitch.
        switch("ovs-vsctl", "del-br", "br0")
        return found
    finally:
        switch.stop()


def each_ms(switch, command, names):
    """Milliseconds of an ovs-vsctl command that changes a port and waits for the switch, less those of one without a
    change."""
    times = []
    for near, _ in names:
        began = time.monotonic()
        switch("ovs-vsctl", "br-exists", "br0")
        nothing = time.monotonic() - began
        began = time.monotonic()
        switch("ovs-vsctl", command, "br0", near)
        times.append(time.monotonic() - began - nothing)
    return round(middle(times) * 1000, 2)


def descriptors(pid):
    return len(os.listdir(pathlib.Path(f"/proc/{pid}/fd")))


def broadcast(device):
    """Sends some broadcast frames out of a device."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        sender.bind((device, 0))
        for _ in range(FRAMES):
            sender.send(b"\xff" * 6 + b"\x02\x00\x00\x00\x00\x01" + b"\x88\xb5" + bytes(50))
            time.sleep(0.1)


COLUMNS = {
    "descriptors a port, idle": "descriptors_idle",
    "after traffic": "descriptors_used",
    "bytes a port": "bytes",
    "all added, s": "add_all_s",
    "one added, ms": "add_ms",
    "one removed, ms": "del_ms",
}


def report(turns, n):
    figures = {which: {key: middle(one[key] for one in found) for key in COLUMNS.values()} for which, found in turns.items()}
    rows = [
        ["Open vSwitch", *figures["peer"].values()],
        ["Flowstone", *figures["ours"].values()],
        ["Flowstone / Open vSwitch", *(ratio(figures["ours"][key], figures["peer"][key]) for key in COLUMNS.values())],
    ]
    notes = [f"With {n} ports and a limit of {LIMIT:,} open files."]
    return Report([Table("ports of type system", ["switch", *COLUMNS], rows)], {**figures, "rounds": turns}, notes)
