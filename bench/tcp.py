#!/usr/bin/env python3
"""A TCP stream between two namespaces: through our switch and through the kernel's Linux bridge, on the same veths.

usage: bench/tcp.py [--seconds N] [--rounds N]      (root; needs iproute2, iperf3, ping and a release build)

The two take turns, round by round. Prints one JSON line: the figures in Gb/s, their medians, and the ratio.
"""

import argparse
import json
import statistics

import common


def main():
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--seconds", type=int, default=4)
    args.add_argument("--rounds", type=int, default=3)
    args = args.parse_args()
    figures = {"linux_bridge": [], "flowstone": []}
    switch = common.Switch("ours")
    try:
        switch.start()
        with common.hosts(2) as (names, ports):
            for _ in range(args.rounds):
                bridge = f"{ports[0]}b"
                common.run("ip", "link", "add", bridge, "type", "bridge")
                try:
                    common.run("ip", "link", "set", bridge, "up")
                    for port in ports:
                        common.run("ip", "link", "set", port, "master", bridge)
                    common.wait_for_ping(names[0], "10.98.0.2")
                    figures["linux_bridge"].append(common.tcp_gbps(names[0], names[1], "10.98.0.2", args.seconds))
                finally:
                    common.run("ip", "link", "del", bridge)
                switch("ovs-vsctl", "add-br", "br0", *[w for p in ports for w in ("--", "add-port", "br0", p)])
                common.wait_for_ping(names[0], "10.98.0.2")
                figures["flowstone"].append(common.tcp_gbps(names[0], names[1], "10.98.0.2", args.seconds))
                switch("ovs-vsctl", "del-br", "br0")
    finally:
        switch.stop()
    medians = {k: round(statistics.median(v), 2) for k, v in figures.items()}
    rounded = {k: [round(x, 2) for x in v] for k, v in figures.items()}
    print(json.dumps({"gbps": rounded, "median": medians, "ratio": round(medians["flowstone"] / medians["linux_bridge"], 3)}))


if __name__ == "__main__":
    main()
