"""TCP between two containers of one host (one stream, eight, short transactions): the kernel's bridge, minimal forwarding
BPF programs (XDP, tc with two kinds of redirection), and Flowstone without
and with its accelerator (`other_config:hw-offload=true`). MTU 1500; no thread is bound to a core.
"""

import contextlib

import common
import tcp
from between import compiled
from report import Report, Table, middle, ratio


def add_arguments(arguments):
    names = list(WAYS)
    arguments.add_argument("--ways", nargs="+", choices=names, default=names, metavar="WAY", help=f"({' '.join(names)})")
    arguments.add_argument("--exchanges", type=int, default=1, help="bytes there and back in each connection (1)")


# Matches both ports of a packet, so that each connection has flows of its own; otherwise forwards the same way.
EACH = "tcp,actions=move:NXM_OF_TCP_SRC[]->NXM_NX_REG0[0..15],move:NXM_OF_TCP_DST[]->NXM_NX_REG0[16..31],NORMAL"


def measure(options):
    common.need_programs("ip", "iperf3", "ping", "ethtool")
    turns = {name: [] for name in options.ways}
    with compiled("crr", "redirect") as programs:
        for round_number in range(options.rounds):
            for name, found in turns.items():
                with WAYS[name](programs) as hosts:
                    common.wait_for_ping(hosts[0], tcp.SERVER)
                    found.append(tcp.one(hosts, programs / "crr", options.seconds, options.exchanges))
                common.say(f"local, round {round_number + 1}, {name}: {found[-1]}")
    return report(turns)


@contextlib.contextmanager
def joined(programs, how):
    """Two hosts whose devices one of the programs of redirect.c connects."""
    with common.hosts(2) as (hosts, devices):
        if how == "xdp":
            # A veth accepts redirected frames only if its peer receives by NAPI, which `gro` turns on; and XDP loses
            # the metadata of partial checksums, so that TCP works only if senders complete checksums themselves.
            for host in hosts:
                common.run("ip", "netns", "exec", host, "ethtool", "-K", "e0", "gro", "on", "tx", "off")
        with common.beside(programs / "redirect", how, *devices):
            yield hosts


WAYS = {
    tcp.BRIDGE: lambda programs: tcp.linux_bridge(),
    "xdp": lambda programs: joined(programs, "xdp"),
    "tcx": lambda programs: joined(programs, "tcx"),
    "tcx-peer": lambda programs: joined(programs, "tcx-peer"),
    tcp.OURS: lambda programs: tcp.userspace("ours"),
    tcp.OFFLOAD: lambda programs: tcp.userspace("ours", "hw-offload=true"),
    "flowstone-each": lambda programs: tcp.userspace("ours", flows=[EACH]),
    "flowstone-offload-each": lambda programs: tcp.userspace("ours", "hw-offload=true", flows=[EACH]),
}
LABELS = {
    tcp.BRIDGE: tcp.LABELS[tcp.BRIDGE],
    "xdp": "XDP program, bpf_redirect, senders' offload off",
    "tcx": "tc program, bpf_redirect",
    "tcx-peer": "tc program, bpf_redirect_peer",
    tcp.OURS: tcp.LABELS[tcp.OURS],
    tcp.OFFLOAD: tcp.LABELS[tcp.OFFLOAD],
    "flowstone-each": "Flowstone, flows of each connection",
    "flowstone-offload-each": "Flowstone, hw-offload=true, flows of each connection",
}


def report(turns):
    figures, rows = {}, []
    for name, found in turns.items():
        medians = {column: middle(of(one) for one in found) for column, of in tcp.COLUMNS.items()}
        figures[name] = {"rounds": found, **medians}
        rows.append([LABELS[name], *medians.values()])
    if tcp.BRIDGE in figures:
        for name in turns:
            figures[name][f"ratio to {tcp.BRIDGE}"] = {
                column: ratio(figures[name][column], figures[tcp.BRIDGE][column]) for column in list(tcp.COLUMNS)[:3]
            }
    return Report([Table("TCP between two containers of a host", ["between them", *tcp.COLUMNS], rows)], figures)
