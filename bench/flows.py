#!/usr/bin/env python3
"""`add-flows` with many different 5-tuple flows: seconds, and bytes of memory a flow; ours beside the peer's, in one run.

usage: bench/flows.py [--flows N]     (root; needs a release build and the unpacked peer, see FLOWSTONE_PEERS)

Each switch is driven by the peer's ovs-ofctl, so that only the switches differ; ours is driven by our own once more.
Prints one JSON line.
"""

import argparse
import json
import pathlib
import tempfile
import time

import common


def write_flows(path, n):
    with open(path, "w", encoding="ascii") as f:
        for i in range(n):
            a, b, c = i >> 16 & 255, i >> 8 & 255, i & 255
            f.write(
                f"priority={100 + i % 50},tcp,nw_src=10.{a}.{b}.{c},nw_dst=11.{c}.{a}.{b},"
                f"tp_src={1024 + i % 60000},tp_dst={i % 1000},actions=output:{1 + i % 4}\n"
            )


def measure(which, flows, n, client):
    switch = common.Switch(which)
    try:
        switch.start("--enable-dummy", "--disable-system")
        switch("ovs-vsctl", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail_mode=secure")
        ofctl = client / "ovs-ofctl"
        common.run(ofctl, "dump-aggregate", "br0", env=switch.env)
        before = switch.rss_bytes()
        start = time.monotonic()
        common.run(ofctl, "add-flows", "br0", flows, env=switch.env)
        added = time.monotonic() - start
        after = switch.rss_bytes()
        start = time.monotonic()
        lines = common.run(ofctl, "dump-flows", "br0", env=switch.env).count("actions=")
        dumped = time.monotonic() - start
        if lines != n:
            raise SystemExit(f"{which}: {lines} flows instead of {n}")
        return {"add_s": round(added, 2), "dump_s": round(dumped, 2), "bytes_per_flow": (after - before) // n}
    finally:
        switch.stop()


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--flows", type=int, default=100_000)
    n = args.parse_args().flows
    with tempfile.TemporaryDirectory() as tmp:
        flows = pathlib.Path(tmp) / "flows.txt"
        write_flows(flows, n)
        peer_bin, our_bin = common.programs("peer"), common.programs("ours")
        figures = {
            "peer": measure("peer", flows, n, peer_bin),
            "flowstone": measure("ours", flows, n, peer_bin),
            "flowstone_own_client": measure("ours", flows, n, our_bin),
        }
    ours, peer = figures["flowstone"], figures["peer"]
    figures["ratio"] = {
        "add_rate": round(peer["add_s"] / ours["add_s"], 2),
        "memory": round(ours["bytes_per_flow"] / max(peer["bytes_per_flow"], 1), 3),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
