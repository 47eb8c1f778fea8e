"""The states of packets, with Linux's own connection tracker as a second opinion.

A namespace forwards between two cables, and a rule of nft writes the state of each packet into its DSCP. A switch of dummy
ports receives the same frames and writes its state into the Ethernet address. A difference is a failure unless
`DIFFERENCES` has its reason.
"""

import ctypes
import os
import random
import re
import socket
import threading

import pytest

import frames
import tracked
from frames import UDP, ethernet
from hosts import Namespace
from switch import TOP, run
from tracked_talks import BACK, CONVERSATIONS, INSIDE, OUT, OUTSIDE, tcp_windows
from waiting import DEADLINE_S, until

MARKER_PORT = 9
ETH_P_ALL = 3
SOL_PACKET, PACKET_IGNORE_OUTGOING = 263, 23
CLONE_NEWNET = 0x40000000

# The kernel's states by DSCP, and how nft matches them.
STATES = {
    1: ("new", "ct state new"),
    2: ("established", "ct state established ct direction original"),
    3: ("established reply", "ct state established ct direction reply"),
    4: ("related", "ct state related ct direction original"),
    5: ("related reply", "ct state related ct direction reply"),
    6: ("invalid", "ct state invalid"),
    7: ("untracked", "ct state untracked"),
}
RULES = """
table inet states {{
  ct helper ftp-server {{ type "ftp" protocol tcp; }}
  ct helper tftp-server {{ type "tftp" protocol udp; }}
  chain helpers {{
    type filter hook prerouting priority -150;
    tcp dport 21 ct helper set "ftp-server"
    udp dport 69 ct helper set "tftp-server"
  }}
  chain forward {{
    type filter hook forward priority 0;
{}
  }}
}}
"""
# A switch's table 2 reports states by port 3.
FLOWS = [
    flow
    for family, tcp, udp in (("ip", "tcp", "udp"), ("ipv6", "tcp6", "udp6"))
    for flow in (
        f"{family},actions=ct(table=1)",
        f"table=1,priority=30,ct_state=+trk+new,{tcp},tp_dst=21,actions=resubmit(,2),ct(commit,alg=ftp)",
        f"table=1,priority=30,ct_state=+trk+new,{udp},tp_dst=69,actions=resubmit(,2),ct(commit,alg=tftp)",
        f"table=1,priority=20,ct_state=+trk+new,{family},actions=resubmit(,2),ct(commit)",
        f"table=1,priority=10,{family},actions=resubmit(,2)",
        f"table=2,{family},actions=clone(move:NXM_NX_CT_STATE[]->NXM_OF_ETH_SRC[0..31],output:3)",
    )
]

# Expected differences: steps, the states of Linux 6.18 and ours, both as regular expressions, and the reason. In all of
# them, Open vSwitch has our states.
DIFFERENCES = [
    ("tcp close reset by .*, again, open: 0 >S", "established / new", "Linux reopens a reset connection in its old entry"),
    ("tcp both open: 1 <S", "established reply / new", "a connection is new until a SYN, ACK"),
    ("tcp first (R|RA|FA) from .", "invalid / new", "Linux picks up no connection from an RST or FIN"),
    ("tcp second behind (R|RA|FA) from .", "new / established reply", "the packet before began the connection"),
    ("tcp mid-stream: 1 >PA:10", "new / established", "Linux waits for the other direction of a picked up connection"),
    ("tcp window, -70000 from .: (data|ACK)", "established.* / invalid", "Linux passes old segments"),
    (
        "tcp window(, 66000|, 70000|, scaled, 9000000) from .: (data|RST)",
        "established.* / invalid",
        "Linux passes a segment that exceeds the window by less than another window",
    ),
    (
        "tcp window(, scaled)?, (1000|66000) from .: ACK",
        "invalid / established.*",
        "an acknowledgement may cover up to 67,035 bytes that were not seen",
    ),
    ("tcp flags (FRA|SAU), .*", "invalid / (new|established)", "Linux refuses these flags"),
    ("tcp flags (SA|SAP), established", "invalid / established", "Linux refuses SYN, ACK from the client"),
    ("tcp flags (SP|SU), .*", "(new|established) / invalid", "PSH and URG need ACK"),
    ("ipv6 udp first without checksum", "new / invalid", "IPv6 demands a checksum (RFC 8200, section 8.1)"),
    ("icmp type (17|18 to 17)", "(new|established reply) / invalid", "address mask requests are deprecated (RFC 6918)"),
    ("icmp6 type 139", "new / invalid", "node information queries have no connections"),
    ("icmp6 type (130|133|135|143)", "untracked / invalid", "Linux does not track discovery"),
    ("error about udp, (24|44) bytes", "related reply / invalid", "an error must contain 8 bytes behind the IP header"),
    ("(ftp|tftp:) .*", "established.* / established related.*", "connections that a helper expects remain related"),
    ("ftp behind the data: 0 >S", "new / related", "an expectation serves more than one connection"),
    ("sctp first chunk (0|10)", "invalid / new", "Linux picks up no association from DATA or COOKIE ECHO"),
]
# The same if neither checks sequence numbers.
DIFFERENCES_WITHOUT_WINDOWS = [
    ("tcp window.*, -70000 from .: RST", "invalid / established.*", "Linux still refuses an old RST"),
]


class Kernel:
    """A namespace that forwards between `in` and `out`, whose other ends are in a namespace without addresses."""

    def __init__(self):
        self.namespaces = []
        self.sockets = {}
        self.marker = 0
        try:
            self.router, self.ends = self.namespace("rt"), self.namespace("en")
            self.cable(OUT, "in", INSIDE)
            self.cable(BACK, "out", OUTSIDE)
            settings = ["net/ipv4/ip_forward=1", "net/ipv6/conf/all/forwarding=1", "net/ipv4/conf/all/rp_filter=0"]
            settings += ["net/netfilter/nf_conntrack_checksum=1"]
            self.sysctl(self.router, *settings)
            rules = [
                f"    {match} {family} dscp set {value}" for value, (_, match) in STATES.items() for family in ("ip", "ip6")
            ]
            self.router.run("nft", "-f", "-", input=RULES.format("\n".join(rules)))
        except BaseException:
            self.end()
            raise

    def namespace(self, word):
        self.namespaces.append(Namespace(word))
        return self.namespaces[-1]

    def sysctl(self, namespace, *settings):
        namespace.run("sh", "-c", "; ".join(f"echo {s.split('=')[1]} > /proc/sys/{s.split('=')[0]}" for s in settings))

    def cable(self, port, device, hosts):
        router, mac = self.router.name, bytes.fromhex(frames.MACS[port]).hex(":")
        run(
            ["ip", "link", "add", device, "netns", router, "address", "02:00:00:00:00:aa", "type", "veth"]
            + ["peer", "name", device, "netns", self.ends.name, "address", mac]
        )
        self.sysctl(self.ends, f"net/ipv6/conf/{device}/disable_ipv6=1")
        self.sysctl(self.router, f"net/ipv4/conf/{device}/rp_filter=0")
        for namespace in (router, self.ends.name):
            run(["ip", "-n", namespace, "link", "set", device, "up"])
        for family, host in hosts.items():
            own, length, nodad = (f"{host[:-1]}254", 24, []) if family == 4 else (f"{host[:-1]}fe", 64, ["nodad"])
            run(["ip", "-n", router, "addr", "add", f"{own}/{length}", "dev", device, *nodad])
            run(["ip", "-n", router, "neigh", "add", host, "lladdr", mac, "dev", device, "nud", "permanent"])
        self.sockets[port] = socket_in(self.ends.name, device)

    def send(self, port, sent):
        """Sends frames that a host behind the port has made, and a marker."""
        self.marker += 1
        there = OUTSIDE[4] if port == OUT else INSIDE[4]
        here = INSIDE[4] if port == OUT else OUTSIDE[4]
        payload = frames.udp(here, there, MARKER_PORT, MARKER_PORT, self.marker.to_bytes(8, "big"))
        for frame in [*sent, ethernet(frames.ip(here, there, UDP, payload), port)]:
            self.sockets[port].send(frame)

    def states(self, port):
        """The states of the forwarded frames, read up to the marker."""
        found = []
        while True:
            frame = self.sockets[3 - port].recv(65536)
            # Multicasts are the router's own.
            if frame[:6].hex() != frames.MACS[3 - port]:
                continue
            parts = frames.Parts(frame)
            if parts.proto == UDP and parts.dport == MARKER_PORT:
                if parts.l4[8:16] == self.marker.to_bytes(8, "big"):
                    return found
                continue
            dscp = frame[15] >> 2 if parts.version == 4 else (int.from_bytes(frame[14:16], "big") >> 6) & 0x3F
            found.append(STATES.get(dscp, ["without state"])[0])

    def end(self):
        for each in self.sockets.values():
            each.close()
        for namespace in self.namespaces:
            namespace.delete()


def socket_in(namespace, device):
    """A packet socket on a device of another namespace, which a thread of its own enters."""
    made = []

    def make():
        with open(f"/run/netns/{namespace}", "rb") as file:
            if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        made.append(socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)))
        made[0].setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
        made[0].bind((device, 0))
        made[0].settimeout(DEADLINE_S)

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    return made[0]


class Ours:
    """A switch whose time stands still, see tracked.py."""

    def __init__(self, programs):
        self.switch = tracked.Switch(tracked.Programs(programs, TOP / "crates/ovsdb/schemas"))

    def __enter__(self):
        self.switch.__enter__()
        self.switch.flows(FLOWS)
        return self

    def __exit__(self, *words):
        self.switch.__exit__(*words)

    def states(self, port, sent):
        """The states of the frames, which all leave."""
        self.switch.begin(port, sent)
        outputs, errors = self.switch.outputs()
        assert not errors, errors
        found = outputs[3]

        def is_complete():
            if len(found) < len(sent):
                found.extend(self.switch.late()[3])
            return len(found) >= len(sent)

        until(is_complete, lambda: f"{len(sent)} frames out of p3, only {len(found)}", interval_s=0.001)
        return [state_of(int.from_bytes(frame[8:12], "big")) for frame in found]


def state_of(bits):
    names = {1: "new", 2: "established", 4: "related", 16: "invalid"}
    # Linux has one name for an expected connection's first packet.
    if bits & 5 == 5:
        bits ^= 1
    words = [name for bit, name in names.items() if bits & bit] or ["tracked" if bits & 32 else "untracked"]
    return " ".join(words + ["reply"] * bool(bits & 8))


@pytest.fixture
def ours(programs):
    with Ours(programs) as ours:
        yield ours
        assert not [line for line in ours.switch.log() if "panicked" in line]


@pytest.fixture
def kernel(ours):
    # On one processor, no frame overtakes another. The switch has started with all of them.
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {random.choice(sorted(allowed))})
    try:
        kernel = Kernel()
        yield kernel
        kernel.end()
    finally:
        os.sched_setaffinity(0, allowed)


def compare(kernel, ours, conversations, differences):
    """Sends the frames of conversations through both. Their states differ as listed, and each listed difference occurs."""
    count, wrong, used = 0, [], set()
    for family in (4, 6):
        for conversation in conversations:
            for step, port, sent in conversation(family):
                kernel.send(port, sent)
                pair = [summary(each) for each in (kernel.states(port), ours.states(port, sent))]
                count += len(sent)
                if pair[0] != pair[1]:
                    name, states = f"ipv{family} {step}", " / ".join(pair)
                    reasons = [
                        entry
                        for entry in differences
                        if re.fullmatch(f"(ipv[46] )?({entry[0]})", name) and re.fullmatch(entry[1], states)
                    ]
                    used.update(reasons)
                    if not reasons:
                        wrong.append(f"{name}: {states}")
    print(f"{count} frames compared")
    assert not wrong, "Linux's state / ours\n" + "\n".join(wrong)
    assert used == set(differences), set(differences) - used


def summary(states):
    """The state of a step: fragments have the same one."""
    return ", ".join(sorted(set(states))) or "dropped"


def test_states_are_those_of_linux(kernel, ours):
    compare(kernel, ours, CONVERSATIONS, DIFFERENCES)


def test_states_without_windows_are_those_of_linux(kernel, ours):
    kernel.sysctl(kernel.router, "net/netfilter/nf_conntrack_tcp_be_liberal=1")
    ours.switch.command("dpctl/ct-disable-tcp-seq-chk")
    compare(kernel, ours, [tcp_windows], DIFFERENCES_WITHOUT_WINDOWS)
