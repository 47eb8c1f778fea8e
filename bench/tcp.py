"""TCP between two hosts: the rates of one stream and of eight, and short transactions a second (connect, one byte in
each direction, reset) by sixteen clients. MTU 1500; a switch may forward large segments.

Compared are a cable, the kernel's bridge, the same with a rule that filters control frames of bridges, and Open
vSwitch's userspace datapath: in its default configuration, for which hosts must complete checksums and segment
themselves, and with segmentation by the receiver (`userspace-tso-enable`, which is off by default and experimental);
Flowstone without and with flows in the kernel (`hw-offload`). No thread is pinned to a core.
"""

import contextlib
import json
import os
import subprocess

import common
from between import cable, compiled
from replay import remove_devices
from report import Report, Table, middle, ratio

STREAMS = 8
CLIENTS = 16
PORT = 7777
SERVER = "10.98.0.2"


def add_arguments(arguments):
    names = list(SWITCHES)
    arguments.add_argument("--between", nargs="+", choices=names, default=names, metavar="SWITCH", help=f"({' '.join(names)})")


def measure(options):
    common.need_programs("ip", "iperf3", "ping")
    if BRIDGE_NFT in options.between:
        common.need_package("nft", "nftables")
    turns = {name: [] for name in options.between}
    with compiled("crr") as programs:
        for round_number in range(options.rounds):
            for name, found in turns.items():
                with SWITCHES[name]() as hosts:
                    common.wait_for_ping(hosts[0], SERVER)
                    found.append(one(hosts, programs / "crr", options.seconds))
                common.say(f"tcp, round {round_number + 1}, {name}: {found[-1]}")
    return report(turns)


def one(hosts, crr, seconds, exchanges=1):
    whole_seconds = max(1, round(seconds))
    found = {"one_gbps": round(common.tcp_gbps(*hosts, SERVER, whole_seconds), 3)}
    found["many_gbps"] = round(common.tcp_gbps(*hosts, SERVER, whole_seconds, STREAMS), 3)
    found["transactions"] = transactions(hosts, crr, seconds, exchanges)
    return found


def transactions(hosts, crr, seconds, exchanges):
    inside = lambda host, *words: ["ip", "netns", "exec", host, *map(str, words)]
    server = subprocess.Popen(inside(hosts[1], crr, "serve", PORT), stdout=subprocess.PIPE, text=True)
    try:
        if server.stdout.readline() != "ready\n":
            raise SystemExit("the server of transactions does not begin")
        return json.loads(common.run(*inside(hosts[0], crr, "ask", SERVER, PORT, seconds, CLIENTS, exchanges), timeout=seconds + 30))
    finally:
        server.kill()
        server.wait()
        server.stdout.close()


# ---- Switches, each a context that yields two hosts.


@contextlib.contextmanager
def linux_bridge(rule=None):
    with common.hosts(2) as (hosts, devices):
        bridge = f"{devices[0]}b"
        table = f"fb{os.getpid()}"
        common.run("ip", "link", "add", bridge, "type", "bridge")
        try:
            for device in devices:
                common.run("ip", "link", "set", device, "master", bridge)
            common.run("ip", "link", "set", bridge, "up")
            if rule:
                common.run("nft", "add", "table", "bridge", table)
                chain = "{ type filter hook forward priority 0 ; }"
                common.run("nft", "add", "chain", "bridge", table, "forward", chain)
                common.run("nft", "add", "rule", "bridge", table, "forward", *rule.split())
            yield hosts
        finally:
            if rule:
                common.run("nft", "delete", "table", "bridge", table, check=False)
            common.run("ip", "link", "del", bridge, check=False)


@contextlib.contextmanager
def userspace(which, *config, offloads=True, flows=()):
    """A switch in its default configuration except for these settings, with both hosts at its NORMAL bridge, which
    may have flows in front. Without `offloads` the hosts compute checksums and segments themselves."""
    with common.hosts(2) as (hosts, devices):
        if not offloads:
            common.need_programs("ethtool")
            for host in hosts:
                common.run("ip", "netns", "exec", host, "ethtool", "-K", "e0", "tx", "off")
        if which == "peer":
            common.need_peer()
        switch = common.Switch(which)
        try:
            if config:
                settings = [f"other_config:{words}" for words in config]
                switch("ovs-vsctl", "--no-wait", "set", "Open_vSwitch", ".", *settings)
            remove_devices()
            switch.start()
            words = ["add-br", "br0", "--", "set", "Bridge", "br0", "datapath_type=netdev"]
            for device in devices:
                words += ["--", "add-port", "br0", device]
            switch("ovs-vsctl", "--timeout=60", *words)
            for flow in flows:
                switch("ovs-ofctl", "add-flow", "br0", flow)
            yield hosts
        finally:
            switch.stop()


OURS, OFFLOAD, BRIDGE, BRIDGE_NFT, PEER, PEER_TSO = "flowstone", "flowstone-offload", "bridge", "bridge-nft", "ovs", "ovs-tso"
# Destination of the spanning tree protocol's frames.
CONTROL_FRAMES = "ether daddr 01:80:c2:00:00:00 drop"
SWITCHES = {
    "wire": cable,
    BRIDGE: linux_bridge,
    BRIDGE_NFT: lambda: linux_bridge(CONTROL_FRAMES),
    PEER: lambda: userspace("peer", offloads=False),
    PEER_TSO: lambda: userspace("peer", "userspace-tso-enable=true"),
    OURS: lambda: userspace("ours"),
    OFFLOAD: lambda: userspace("ours", "hw-offload=true"),
}
LABELS = {
    "wire": "no switch: one veth pair",
    BRIDGE: "Linux bridge",
    BRIDGE_NFT: "Linux bridge, one nftables rule",
    PEER: "Open vSwitch",
    PEER_TSO: "Open vSwitch, userspace TSO",
    OURS: "Flowstone",
    OFFLOAD: "Flowstone, hw-offload=true",
}


# ---- The report.

COLUMNS = {
    "one stream, Gb/s": lambda one: one["one_gbps"],
    f"{STREAMS} streams, Gb/s": lambda one: one["many_gbps"],
    "transactions/s": lambda one: one["transactions"]["per_second"],
    "µs 50 %": lambda one: one["transactions"]["us"] and one["transactions"]["us"]["p50"],
    "µs 99 %": lambda one: one["transactions"]["us"] and one["transactions"]["us"]["p99"],
    "failed": lambda one: one["transactions"]["failed"],
}


def report(turns):
    figures, rows = {}, []
    for name, found in turns.items():
        medians = {column: middle(of(one) for one in found) for column, of in COLUMNS.items()}
        figures[name] = {"rounds": found, **medians}
        rows.append([LABELS[name], *medians.values()])
    for ours, prefix in ((OURS, ""), (OFFLOAD, f"{OFFLOAD}: ")):
        for other in (BRIDGE, BRIDGE_NFT, PEER, PEER_TSO):
            if ours in figures and other in figures:
                figures[f"{prefix}ratio to {other}"] = {
                    column: ratio(figures[ours][column], figures[other][column]) for column in list(COLUMNS)[:3]
                }
    return Report([Table("TCP between two hosts", ["between them", *COLUMNS], rows)], figures)
