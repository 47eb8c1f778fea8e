"""Packets of tunnels that no interface takes: the log and the counters, beside Open vSwitch's."""

import re

import pytest
from scapy.contrib.geneve import GENEVE
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether, GRE
from scapy.layers.vxlan import VXLAN

from dummies import Dummies, on_both
from waiting import until

LOCAL, REMOTE, OTHER = "192.0.2.1", "192.0.2.2", "192.0.2.9"
LOCAL6, REMOTE6 = "fd00::1", "fd00::2"
LOCAL_MAC = "02:00:00:00:00:aa"
ETHER = Ether(src="02:00:00:00:01:01", dst="02:00:00:00:01:02")
INNER = ETHER / IP(src="10.0.0.1", dst="10.0.0.2", tos=8) / UDP(sport=1, dport=2)
OPTION = bytes.fromhex("01028001aabbccdd")


INNERS = [
    ETHER / Dot1Q(vlan=7, prio=3) / IP(src="10.0.0.1", dst="10.0.0.2") / TCP(sport=1, dport=2, flags="S"),
    ETHER / IPv6(src="fd01::1", dst="fd01::2") / UDP(sport=1, dport=2),
    ETHER / ARP(psrc="10.0.0.1", pdst="10.0.0.2", hwsrc="02:00:00:00:01:01"),
    ETHER / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(),
]


def outer(source=REMOTE, **fields):
    ends = {"src": source, "dst": LOCAL6 if ":" in source else LOCAL}
    return Ether(src="02:00:00:00:00:bb", dst=LOCAL_MAC) / (IPv6 if ":" in source else IP)(**ends, **fields)


def vxlan(inner=INNER, vni=5, source=REMOTE, **fields):
    return outer(source, **fields) / UDP(sport=5000, dport=4789, chksum=0) / VXLAN(vni=vni, flags=8) / inner


def geneve(options=b"", vni=5, **fields):
    return outer() / UDP(sport=5000, dport=6081, chksum=0) / GENEVE(vni=vni, options=options, **fields) / INNER


# By name: the type of the interface with key 123, and packets, at most five: Open vSwitch logs no more at once.
CASES = {
    "another key": ("vxlan", [vxlan()]),
    "another source": ("vxlan", [vxlan(vni=123, source=OTHER)]),
    "keys that differ": ("vxlan", [vxlan(vni=vni) for vni in range(3)]),
    "outer fields": ("vxlan", [vxlan(tos=0x28, ttl=9)]),
    "over IPv6": ("vxlan", [vxlan(source=REMOTE6)]),
    # With keys that differ, so that each is the first of a cached flow.
    "inner packets": ("vxlan", [vxlan(inner, vni) for vni, inner in enumerate(INNERS)]),
    "geneve": ("geneve", [geneve(), geneve(OPTION, vni=6), geneve(OPTION, vni=7, critical=True)]),
    "gre": ("gre", [outer(proto=47) / GRE(proto=0x6558, **key) / INNER for key in ({"key_present": 1, "key": 7}, {})]),
}


def warnings(switch):
    """What the switch logged about packets of no interface, without the names of threads."""
    return re.findall(r"\|tunnel(?:\([^)]*\))?\|(WARN\|receive tunnel port not found .*)", switch.log())


def give_addresses(switch):
    """Makes br0 the end of tunnels."""
    switch.vsctl("set", "bridge", "br0", f"other_config:hwaddr={LOCAL_MAC}")
    switch.appctl("netdev-dummy/ip4addr", "br0", f"{LOCAL}/24")
    switch.appctl("netdev-dummy/ip6addr", "br0", f"{LOCAL6}/64")
    switch.appctl("ovs/route/add", f"{LOCAL}/24", "br0")
    switch.appctl("ovs/route/add", f"{LOCAL6}/64", "br0")


@pytest.mark.parametrize("case", CASES)
def test_packets_of_no_interface(making, case):
    kind, packets = CASES[case]

    def shown(dummies):
        switch = dummies.switch
        words = ["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy", "fail-mode=secure"]
        words += ["--", "add-port", "br1", "t1", "--", "set", "interface", "t1", f"type={kind}"]
        switch.vsctl(*words, f"options:remote_ip={REMOTE}", "options:key=123")
        give_addresses(switch)
        dummies.flows("actions=normal")
        for packet in packets:
            dummies.receive("p1", packet)
        count = lambda: int(switch.appctl("coverage/read-counter", "datapath_drop_upcall_error"))
        until(lambda: count() >= len(packets), lambda: f"{len(packets)} drops, not {count()}")
        until(lambda: len(warnings(switch)) >= len(packets), lambda: f"warnings: {warnings(switch)}")
        return count(), warnings(switch)

    theirs, ours = (shown(dummies) for dummies in on_both(making, "p1"))
    assert ours == theirs


def test_packets_of_a_cached_flow_are_logged_too(making):
    """The log names packets of a cached flow when it next counts them, within the rate that Open vSwitch has."""
    switch = making.switch()
    dummies = Dummies(switch, "br0", "p1")
    words = ["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy", "--", "add-port", "br1", "t1", "--"]
    switch.vsctl(*words, "set", "interface", "t1", "type=vxlan", f"options:remote_ip={REMOTE}", "options:key=123")
    give_addresses(switch)
    dummies.flows("actions=normal")
    dummies.receive("p1", vxlan())
    until(lambda: len(warnings(switch)) == 1, "a warning")
    dummies.receive("p1", *[vxlan()] * 3)
    until(lambda: len(warnings(switch)) == 2, lambda: f"a second warning: {warnings(switch)}")
    drops = switch.ours.appctl("dpif/show-drops")
    assert "no-tunnel: 4" in drops, drops
