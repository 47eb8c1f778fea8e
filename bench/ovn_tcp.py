"""TCP between two hosts at two chassis of OVN, by the address of a load balancer, through ACLs, a router and Geneve over a veth pair
of MTU 1500: one stream, eight, and short transactions, as in `tcp.py`. No thread is pinned to a core.

Compared are Open vSwitch's userspace datapath in its default configuration, for which hosts complete checksums and segment
themselves, the same with segmentation by the receiver (`userspace-tso-enable`), and Flowstone.
"""

import contextlib
import pathlib
import tempfile

import common
import tcp
from between import compiled
from encapsulated_tcp import apart
from ovn_network import UNDERLAY_NET, Central, Chassis
from report import Table, middle, ratio

OURS, PEER, PEER_TSO = "flowstone", "ovs", "ovs-tso"
LABELS = {PEER: "Open vSwitch", PEER_TSO: "Open vSwitch, userspace TSO", OURS: "Flowstone"}
TIMES = 3
# 1,500 without the outer headers: Ethernet, IPv4, UDP, and Geneve with an option of 8 bytes.
MTU = 1442
ADDRESSES = ("10.0.1.1", "10.0.2.2")
MACS = ("02:00:00:00:01:01", "02:00:00:00:02:02")


def measure(options, notes):
    """The table and the figures."""
    common.need_programs("ip", "iperf3", "ping", "ethtool")
    turns = {name: [] for name in LABELS}
    with compiled("crr") as programs:
        for number in range(options.rounds):
            for name, found in turns.items():
                with network(name) as hosts:
                    common.wait_for_ping(hosts[0], tcp.SERVER)
                    found.append(tcp.one(hosts, programs / "crr", options.seconds))
                common.say(f"tcp over ovn, round {number + 1}, {name}: {found[-1]}")
    return report(turns, notes)


@contextlib.contextmanager
def network(name):
    """Two hosts whose switches are chassis."""
    which = "ours" if name == OURS else "peer"
    with apart() as (hosts, names), contextlib.ExitStack() as made:
        directory = made.enter_context(tempfile.TemporaryDirectory(prefix="flowstone-bench-"))
        central = Central(which, pathlib.Path(directory))
        made.callback(central.stop)
        for number, space in enumerate(names, 1):
            switch = common.Switch(which)
            made.callback(switch.stop)
            if name == PEER_TSO:
                switch("ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", "other_config:userspace-tso-enable=true")
            switch.start(inside=space)
            chassis = Chassis(central, switch, number, "netdev")
            chassis.vsctl("add-port", "br-phys", "under", "--", "add-port", "br-int", "host")
            common.run("ip", "-n", space, "addr", "add", f"{UNDERLAY_NET.format(number)}/24", "dev", "br-phys")
            common.run("ip", "-n", space, "link", "set", "br-phys", "up")
            made.callback(chassis.stop)
            chassis.start()
            common.wait_for(lambda name=chassis.name: name in central.sbctl("--bare", "--columns=name", "list", "Chassis"), "a chassis", 60)
            add_host(central, hosts[number - 1], number, name == PEER)
            chassis.bind("host", f"host{number}")
        central.nbctl("--wait=hv", "lb-add", "lb0", tcp.SERVER, ADDRESSES[1], "--", "ls-lb-add", "s1", "lb0")
        yield hosts


def add_host(central, host, number, finishes):
    """A logical switch with this host, at a router, and ACLs that allow what belongs to connections. With `finishes` the host computes
    checksums and segments itself."""
    address, mac, switch = ADDRESSES[number - 1], MACS[number - 1], f"s{number}"
    inside = ["ip", "-n", host]
    common.run(*inside, "addr", "flush", "dev", "e0")
    common.run(*inside, "link", "set", "e0", "mtu", MTU, "address", mac)
    common.run(*inside, "addr", "add", f"{address}/24", "dev", "e0")
    common.run(*inside, "route", "add", "default", "via", f"10.0.{number}.254")
    if finishes:
        common.run("ip", "netns", "exec", host, "ethtool", "-K", "e0", "tx", "off")
    words = ["--may-exist", "lr-add", "r0", "--", "ls-add", switch]
    words += ["--", "lrp-add", "r0", f"r0-{switch}", f"00:00:00:00:ff:0{number}", f"10.0.{number}.254/24"]
    words += ["--", "lsp-add", switch, f"{switch}-r0", "--", "lsp-set-type", f"{switch}-r0", "router"]
    words += ["--", "lsp-set-addresses", f"{switch}-r0", "router", "--", "lsp-set-options", f"{switch}-r0", f"router-port=r0-{switch}"]
    words += ["--", "lsp-add", switch, f"host{number}", "--", "lsp-set-addresses", f"host{number}", f"{mac} {address}"]
    for direction, match, action in (
        ("from-lport", f'inport == "host{number}" && ip4', "allow-related"),
        ("to-lport", f'outport == "host{number}" && tcp', "allow-related"),
        ("to-lport", f'outport == "host{number}" && icmp4', "allow-related"),
    ):
        words += ["--", "acl-add", switch, direction, "1000", match, action]
    central.nbctl(*words)


def report(turns, notes):
    figures, rows = {}, []
    for name, found in turns.items():
        medians = {column: middle(of(one) for one in found) for column, of in tcp.COLUMNS.items()}
        figures[name] = {"rounds": found, **medians}
        rows.append([LABELS[name], *medians.values()])
    by = {column: ratio(figures[OURS][column], figures[PEER][column]) for column in list(tcp.COLUMNS)[:3]}
    figures["ratio"] = by
    rows.append([f"Flowstone by {LABELS[PEER]} (wanted: {TIMES})", *by.values(), None, None, None])
    missed = [column.partition(",")[0] for column, times in by.items() if times is None or times < TIMES]
    if missed:
        notes.append(f"Not met: {', '.join(missed)} ({TIMES} times {LABELS[PEER]}).")
    return Table("TCP between two hosts through OVN", ["between them", *tcp.COLUMNS], rows), figures
