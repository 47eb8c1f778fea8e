"""TCP between two hosts through VXLAN: each host is at a switch of its own, in a namespace of its own, and a veth pair of
MTU 1500 joins both switches. The rates of one stream and of eight, and short transactions, as in `tcp.py`.

Compared are the kernel's bridge with its vxlan device, Open vSwitch's userspace datapath in its default configuration,
for which hosts must complete checksums and segment themselves, the same with segmentation by the receiver
(`userspace-tso-enable`), and Flowstone. No thread is pinned to a core.
"""

import contextlib

import common
import tcp
from between import compiled
from report import Table, middle, ratio

OURS, KERNEL, PEER, PEER_TSO = "flowstone", "kernel", "ovs", "ovs-tso"
LABELS = {
    KERNEL: "Linux bridge and vxlan",
    PEER: "Open vSwitch",
    PEER_TSO: "Open vSwitch, userspace TSO",
    OURS: "Flowstone",
}
# What Flowstone's rates are wanted to be by others'.
TARGETS = {PEER: 3, KERNEL: 0.7}
INNER_MTU, KEY, PORT = 1450, 7, 4789
ADDRESS = "192.0.2.{}"


def measure(options, notes):
    """The table and the figures."""
    common.need_programs("ip", "iperf3", "ping")
    turns = {name: [] for name in options.through}
    with compiled("crr") as programs:
        for number in range(options.rounds):
            for name, found in turns.items():
                with SWITCHES[name]() as hosts:
                    common.wait_for_ping(hosts[0], tcp.SERVER)
                    found.append(tcp.one(hosts, programs / "crr", options.seconds))
                common.say(f"tcp through vxlan, round {number + 1}, {name}: {found[-1]}")
    return report(turns, notes)


# ---- Switches, each a context that yields two hosts.


@contextlib.contextmanager
def apart():
    """Two hosts, and for each the namespace of its switch, in which `host` leads to it and `under` to the other switch."""
    with common.hosts(2) as (hosts, devices):
        names = [f"{host}s" for host in hosts]
        try:
            for host, device, name in zip(hosts, devices, names):
                common.run("ip", "netns", "add", name)
                common.run("ip", "link", "set", device, "netns", name, "name", "host")
                common.run("ip", "-n", host, "link", "set", "e0", "mtu", INNER_MTU)
            pair = ["under", "netns", names[0], "type", "veth", "peer", "name", "under", "netns", names[1]]
            common.run("ip", "link", "add", *pair)
            for name in names:
                for device in ("lo", "host", "under"):
                    common.run("ip", "-n", name, "link", "set", device, "up")
            yield hosts, names
        finally:
            for name in names:
                common.run("ip", "netns", "del", name, check=False)


def ends(number):
    """The own address of a switch and the other's."""
    return ADDRESS.format(number), ADDRESS.format(3 - number)


@contextlib.contextmanager
def kernel():
    with apart() as (hosts, names):
        for number, name in enumerate(names, 1):
            own, other = ends(number)
            inside = ["ip", "-n", name]
            common.run(*inside, "addr", "add", f"{own}/24", "dev", "under")
            options = ["id", KEY, "dstport", PORT, "local", own, "remote", other]
            common.run(*inside, "link", "add", "tunnel", "type", "vxlan", *options)
            common.run(*inside, "link", "add", "br0", "type", "bridge")
            for device in ("host", "tunnel"):
                common.run(*inside, "link", "set", device, "master", "br0")
            for device in ("tunnel", "br0"):
                common.run(*inside, "link", "set", device, "up")
        yield hosts


@contextlib.contextmanager
def userspace(which, *config, offloads=True):
    """Two switches in their default configuration except for these settings. Without `offloads` the hosts compute
    checksums and segment themselves."""
    if which == "peer":
        common.need_peer()
    with apart() as (hosts, names), contextlib.ExitStack() as made:
        if not offloads:
            common.need_programs("ethtool")
            for host in hosts:
                common.run("ip", "netns", "exec", host, "ethtool", "-K", "e0", "tx", "off")
        for number, name in enumerate(names, 1):
            own, other = ends(number)
            switch = common.Switch(which)
            made.callback(switch.stop)
            if config:
                settings = [f"other_config:{words}" for words in config]
                switch("ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", *settings)
            switch.start(inside=name)
            words = []
            for bridge, device in (("overlay", "host"), ("underlay", "under")):
                words += ["--", "add-br", bridge, "--", "set", "Bridge", bridge, "datapath_type=netdev"]
                words += ["--", "add-port", bridge, device]
            words += ["--", "add-port", "overlay", "tunnel", "--", "set", "Interface", "tunnel", "type=vxlan"]
            words += [f"options:remote_ip={other}", f"options:key={KEY}"]
            switch("ovs-vsctl", "--timeout=60", *words[1:])
            common.run("ip", "-n", name, "addr", "add", f"{own}/24", "dev", "underlay")
            common.run("ip", "-n", name, "link", "set", "underlay", "up")
        yield hosts


SWITCHES = {
    KERNEL: kernel,
    PEER: lambda: userspace("peer", offloads=False),
    PEER_TSO: lambda: userspace("peer", "userspace-tso-enable=true"),
    OURS: lambda: userspace("ours"),
}


# ---- The report.


def report(turns, notes):
    figures, rows = {}, []
    for name, found in turns.items():
        medians = {column: middle(of(one) for one in found) for column, of in tcp.COLUMNS.items()}
        figures[name] = {"rounds": found, **medians}
        rows.append([LABELS[name], *medians.values()])
    for other, target in TARGETS.items():
        if OURS in figures and other in figures:
            by = {column: ratio(figures[OURS][column], figures[other][column]) for column in list(tcp.COLUMNS)[:3]}
            figures[f"ratio to {other}"] = by
            rows.append([f"Flowstone by {LABELS[other]} (wanted: {target})", *by.values(), None, None, None])
            missed = [column.partition(",")[0] for column, times in by.items() if times is None or times < target]
            if missed:
                notes.append(f"Not met: {', '.join(missed)} ({target} times {LABELS[other]}).")
    return Table("TCP between two hosts through VXLAN", ["between them", *tcp.COLUMNS], rows), figures
