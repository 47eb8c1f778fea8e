#!/usr/bin/env python3
"""Ports over AF_XDP beside ports over packet sockets: the same veths, the same switch, small packets and a TCP stream.

usage: bench/afxdp.py [--seconds N] [--rounds N]      (root; needs iproute2, ethtool, iperf3, cc and a release build)

The two take turns, round by round. A sender on core 0 sends packets of 64 bytes of one flow, more than get through; the
switch is on core 1. Prints one JSON line: packets a second that arrived, processor time of the switch for each, and the
stream in Gb/s (with AF_XDP the sender has its checksum offload off, as the peer would need it, and on).
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile

import common
import workload

RATE_PPS = 4_000_000
SENDER_CORE, SWITCH_CORE = "0", "1"
KINDS = ("system", "afxdp")


def inside(name, *words):
    return ["ip", "netns", "exec", name, *map(str, words)]


def packets(traffic, pcap, switch, names, seconds):
    """Packets a second that came through, and nanoseconds of the switch's processor time for each."""
    count = subprocess.Popen(
        inside(names[1], traffic, "count", "e0"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    count.stdout.readline()
    before_s = switch.cpu_s()
    sent = json.loads(common.run("taskset", "-c", SENDER_CORE, *inside(names[0], traffic, "send", "e0", pcap, RATE_PPS, seconds)))
    busy_s = switch.cpu_s() - before_s
    received = json.loads(count.communicate("")[0])["received"]
    return {"offered_pps": sent["pps"], "pps": received / seconds, "ns": busy_s * 1e9 / max(received, 1)}


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--seconds", type=int, default=3)
    args.add_argument("--rounds", type=int, default=3)
    args = args.parse_args()
    common.own_network()
    found = {kind: [] for kind in KINDS}
    switch = common.Switch("ours")
    try:
        with tempfile.TemporaryDirectory() as folder, common.hosts(2) as (names, ports):
            traffic, pcap = pathlib.Path(folder, "traffic"), pathlib.Path(folder, "p2p-1.pcap")
            common.run("cc", "-O2", "-pthread", "-o", traffic, common.ROOT / "bench/traffic.c")
            workload.write("p2p-1", folder)
            switch.start(core=SWITCH_CORE)
            common.receive_on(SWITCH_CORE, ports)
            for _ in range(args.rounds):
                for kind in KINDS:
                    words = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev"]
                    for port in ports:
                        words += ["--", "add-port", "br0", port, "--", "set", "interface", port, f"type={kind}"]
                    switch("ovs-vsctl", "--timeout=30", *words)
                    common.wait_for_ping(names[0], "10.98.0.2")
                    switch("ovs-ofctl", "add-flow", "br0", "priority=9,in_port=1,udp,actions=output:2")
                    one = packets(traffic, pcap, switch, names, args.seconds)
                    for offload in ("on", "off"):
                        for name in names:
                            common.run(*inside(name, "ethtool", "-K", "e0", "tx", offload))
                        one[f"tcp_gbps_tx_{offload}"] = common.tcp_gbps(names[0], names[1], "10.98.0.2", args.seconds)
                    for name in names:
                        common.run(*inside(name, "ethtool", "-K", "e0", "tx", "on"))
                    found[kind].append(one)
                    common.say(f"{kind}: {one}")
                    switch("ovs-vsctl", "del-br", "br0")
    finally:
        switch.stop()
    keys = found["system"][0]
    print(json.dumps({kind: {key: round(statistics.median(one[key] for one in all_), 2) for key in keys} for kind, all_ in found.items()}))


if __name__ == "__main__":
    main()
