"""The counters of dropped packets in coverage/show: packets that are dropped for each reason, beside Open vSwitch's counters."""

import re

import pytest
from scapy.contrib.geneve import GENEVE
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Raw

from dummies import on_both
from waiting import until

LOCAL, REMOTE = "192.0.2.1", "192.0.2.2"
LOCAL_MAC = "02:00:00:00:00:aa"
ETHER = Ether(src="02:00:00:00:01:01", dst="02:00:00:00:01:02")
IP_HEADER = IP(src="10.0.0.1", dst="10.0.0.2")
FRAME = ETHER / IP_HEADER / UDP(sport=1, dport=2)
PUSHES = ",".join(["push:NXM_NX_XXREG0[]"] * 2000)
PIPELINE = {"drop_action_of_pipeline": 3}


def names(text):
    """The counters of drops in the output of coverage/show."""
    found = re.findall(r"^((?:drop_action|datapath_drop)\w+).*total: (\d+)$", text, re.MULTILINE)
    return {name: int(total) for name, total in found}


def counters(switch, n):
    """The counters, once they have `n` drops: Open vSwitch's threads bring in theirs each second or so."""
    now = lambda: names(switch.appctl("coverage/show"))
    until(lambda: sum(now().values()) >= n, lambda: f"{n} drops, not {now()}")
    return now()


# Three packets that a bridge drops, by the reason: flows, the packet, and settings of the database.
DROPPED = {
    "drop": (["actions=drop"], FRAME, ()),
    "no flow": ([], FRAME, ()),
    "no output": (["actions=set_field:1->reg0"], FRAME, ()),
    "resubmits without end": (["actions=resubmit(,0)"], FRAME, ()),
    "many resubmits": (
        [*[f"table={n},actions=resubmit(,{n + 1}),resubmit(,{n + 1})" for n in range(14)], "table=14,actions=2"],
        FRAME,
        (),
    ),
    "many pushes": ([f"table={n},actions={PUSHES},resubmit(,{n + 1})" for n in range(30)], FRAME, ()),
    "many labels": (["actions=push_mpls:0x8847,push_mpls:0x8847,push_mpls:0x8847,push_mpls:0x8847,2"], FRAME, ()),
    "the ingress port": (["actions=output:1"], FRAME, ()),
    "no such port": (["actions=output:77"], FRAME, ()),
    "a reserved address": (["actions=normal"], Ether(src="02:00:00:00:01:01", dst="01:80:c2:00:00:00") / bytes(50), ()),
    "an address at its own port": (["actions=normal"], Ether(src="02:00:00:00:01:01", dst="02:00:00:00:01:01") / bytes(50), ()),
    "another VLAN": (["actions=normal"], ETHER / Dot1Q(vlan=9) / IP_HEADER, (("set", "port", "p1", "tag=5"),)),
    "the port of a mirror": (
        ["actions=normal"],
        FRAME,
        (
            ("--", "--id=@p", "get", "port", "p1", "--", "--id=@m", "create", "mirror", "name=m", "select_all=true")
            + ("output_port=@p", "--", "set", "bridge", "br0", "mirrors=@m"),
        ),
    ),
    "a spanning tree": (["actions=2"], FRAME, (("set", "bridge", "br0", "stp_enable=true"),)),
    "trackers without end": (["table=0,ip,actions=ct(table=0,zone=1)"], FRAME, ()),
    "no header to remove": (["actions=decap(),decap(),2"], FRAME, ()),
    "no Ethernet header": (["actions=decap(),2"], FRAME, ()),
}


@pytest.mark.parametrize("case", DROPPED)
def test_what_a_bridge_drops(making, case):
    flows, packet, settings = DROPPED[case]

    def shown(dummies):
        for words in settings:
            dummies.switch.vsctl(*words)
        dummies.flows(*flows, version="OpenFlow15")
        for _ in range(3):
            dummies.receive("p1", packet)
        return counters(dummies.switch, 3)

    theirs, ours = (shown(dummies) for dummies in on_both(making, "p1", "p2"))
    assert ours == theirs and sum(ours.values()) == 3


# What ovs-ofctl does to a bridge that sends what it receives to port 2.
COMMANDS = {
    "no-forward": [("mod-port", "br0", "2", "no-forward")],
    "no-receive": [("mod-port", "br0", "1", "no-receive")],
    "a meter": [
        ("-O", "OpenFlow13", "add-meter", "br0", "meter=1,kbps,burst,bands=type=drop,rate=1,burst_size=1"),
        ("-O", "OpenFlow13", "add-flow", "br0", "actions=meter:1,2"),
    ],
    "a group without live buckets": [
        ("-O", "OpenFlow13", "add-group", "br0", "group_id=1,type=ff,bucket=watch_port:77,actions=2"),
        ("-O", "OpenFlow13", "add-flow", "br0", "actions=group:1"),
    ],
    "fragments": [("set-frags", "br0", "drop")],
}


@pytest.mark.parametrize("case", COMMANDS)
def test_what_commands_have_a_bridge_drop(making, case):
    fragment = ETHER / IP(src="10.0.0.1", dst="10.0.0.2", flags="MF") / bytes(200)

    def shown(dummies):
        dummies.flows("actions=2")
        for words in COMMANDS[case]:
            dummies.switch.ofctl(*words)
        for _ in range(3):
            dummies.receive("p1", fragment)
        return counters(dummies.switch, 3)

    theirs, ours = (shown(dummies) for dummies in on_both(making, "p1", "p2"))
    assert ours == theirs and sum(ours.values()) == 3


def outer(inner=FRAME, vni=123, **fields):
    ends = Ether(src="02:00:00:00:00:bb", dst=LOCAL_MAC) / IP(**{"src": REMOTE, "dst": LOCAL, **fields})
    return ends / UDP(sport=5000, dport=4789, chksum=0) / VXLAN(vni=vni, flags=8) / inner


def geneve(options, **fields):
    ends = Ether(src="02:00:00:00:00:bb", dst=LOCAL_MAC) / IP(src=REMOTE, dst=LOCAL)
    return ends / UDP(sport=5000, dport=6081, chksum=0) / GENEVE(vni=123, options=options, **fields) / FRAME


def wrong(packet, layer, **fields):
    """The packet with other values in a header."""
    packet = packet.copy()
    for name, value in fields.items():
        setattr(packet[layer], name, value)
    return packet


POP_ERROR, PACKET_ERROR = "datapath_drop_tunnel_pop_error", "datapath_drop_rx_invalid_packet"
TUNNELLED = "drop_action_invalid_tunnel_metadata"
# Packets of a tunnel: its type, the packet, the ingress port and flows. Where the counters differ, those of both.
TUNNELS = {
    "another key": ("vxlan", outer(vni=5), "p1", "drop", None),
    "wrong flags": ("vxlan", wrong(outer(), VXLAN, flags=0), "p1", "1", None),
    "a wrong checksum of UDP": ("vxlan", wrong(outer(), UDP, chksum=0x1234), "p1", "1", None),
    "a wrong checksum of IP": ("vxlan", wrong(outer(), IP, chksum=0x1111), "p1", "1", None),
    "options of IP": ("vxlan", outer(options=b"\1\1\1\1"), "p1", "1", None),
    "congestion": ("vxlan", outer(tos=3), "p1", "1", None),
    "dropped behind the tunnel": ("vxlan", outer(), "p1", "drop", None),
    "an unknown critical option": ("geneve", geneve(bytes.fromhex("010280010000ffff"), critical=True), "p1", "1", None),
    "no route": ("vxlan", FRAME, "q1", "9", None),
    "no Ethernet header": ("vxlan", FRAME, "q1", "decap(),9", None),
    # Open vSwitch finds these two errors later.
    "a short inner packet": ("vxlan", outer(Raw(bytes(5))), "p1", "1", (PACKET_ERROR, POP_ERROR)),
    "a malformed option": ("geneve", geneve(bytes.fromhex("01028002")), "p1", "1", (TUNNELLED, POP_ERROR)),
}


@pytest.mark.parametrize("case", TUNNELS)
def test_what_tunnels_drop(making, case):
    kind, packet, port, actions, different = TUNNELS[case]

    def shown(dummies):
        switch = dummies.switch
        remote = "198.51.100.9" if case == "no route" else REMOTE
        switch.vsctl("set", "bridge", "br0", f"other_config:hwaddr={LOCAL_MAC}")
        words = ["add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy", "fail-mode=secure"]
        words += ["--", "add-port", "br1", "q1", "--", "set", "interface", "q1", "type=dummy", "ofport_request=1"]
        words += ["--", "add-port", "br1", "t1", "--", "set", "interface", "t1", f"type={kind}", "ofport_request=9"]
        switch.vsctl(*words, f"options:remote_ip={remote}", "options:key=123")
        switch.appctl("netdev-dummy/ip4addr", "br0", f"{LOCAL}/24")
        switch.appctl("ovs/route/add", f"{LOCAL}/24", "br0")
        dummies.flows("actions=normal")
        switch.ofctl("-O", "OpenFlow15", "add-flow", "br1", f"actions={actions}")
        for _ in range(3):
            dummies.receive(port, packet)
        return counters(switch, 3)

    theirs, ours = (shown(dummies) for dummies in on_both(making, "p1"))
    expected = ({different[0]: 3}, {different[1]: 3}) if different else (theirs, theirs)
    assert (theirs, ours) == expected and sum(ours.values()) == 3


def test_names_of_counters(making):
    """Scripts read each counter of Open vSwitch, also one that nothing counts here."""
    every = "bridge_not_found congestion forwarding_disabled invalid_tunnel_metadata no_recirculation_context of_pipeline"
    every += " recirculation_conflict recursion_too_deep stack_too_deep too_many_mpls_labels too_many_resubmit"
    every += " tunnel_header_build_failed tunnel_neigh_cache_miss tunnel_output_no_ethernet tunnel_routing_failed"
    every += " unsupported_packet_type"
    of_datapath = "hw_post_process hw_post_process_consumed invalid_bond invalid_port invalid_tnl_port lock_error meter"
    of_datapath += " nsh_decap_error recirc_error rx_invalid_packet sample_error tunnel_pop_error tunnel_push_error"
    of_datapath += " upcall_error userspace_action_error"
    for maker in (making.peers, None):
        switch = making.switch(maker=maker)
        for name in [f"drop_action_{name}" for name in every.split()] + [f"datapath_drop_{name}" for name in of_datapath.split()]:
            assert switch.appctl("coverage/read-counter", name) == "0", name
