"""ofproto/trace for the same flows and packets on Debian's switch and on ours: the text of each step, the final key,
and the datapath's actions."""

import re

import pytest
from dummies import Dummies

TLVS = "{class=0xffff,type=0,len=4}->tun_metadata0,{class=0xffff,type=1,len=8}->tun_metadata1,{class=0xff00,type=2,len=124}->tun_metadata2"

# Flows, and packets, two of which have tunnel options.
OPTIONS = {
    "set, match, move, push, delete": [
        "table=0,actions=set_field:0x5->tun_metadata0,set_field:0x12/0xff->tun_metadata1,resubmit(,1)",
        "table=1,tun_metadata0=5,actions=move:tun_metadata0[0..15]->tun_metadata1[16..31],push:tun_metadata0[0..31],"
        "pop:reg0[],delete_field:tun_metadata0,resubmit(,2)",
        "table=2,tun_metadata0,actions=1",
        "table=2,priority=1,tun_metadata0=0,actions=3",
        "table=2,priority=0,actions=2",
    ],
    "an option of zeros": ["tun_metadata0=0,actions=2", "priority=1,actions=in_port"],
    "a masked option": ["tun_metadata0=0/1,actions=2", "priority=1,actions=in_port"],
    "long ones": [
        "actions=move:tun_metadata0[0..31]->tun_metadata2[800..831],move:tun_metadata2[700..900]->tun_metadata2[0..200],"
        "push:tun_metadata2[],pop:tun_metadata2[],move:tun_metadata2[100..131]->reg1[],resubmit(,1)",
        "table=1,reg1=7,actions=2",
    ],
    "some bits": ["actions=load:0x5->tun_metadata0[4..7],push:tun_metadata1[0..63],pop:tun_metadata0[0..31],pop:reg1[],2"],
    "a copy": [
        "actions=clone(delete_field:tun_metadata0,set_field:9->tun_metadata1,2),resubmit(,1)",
        "table=1,tun_metadata0,actions=2",
    ],
    "learned": ["actions=learn(table=3,NXM_NX_TUN_METADATA0[0..31],load:5->NXM_NX_TUN_METADATA1[0..31]),2"],
    "what a tunnel is to say": [
        "actions=set_field:1.2.3.4->tun_dst,set_field:6.7.8.9->tun_src,set_field:fe80::1->tun_ipv6_dst,"
        "set_field:9->tun_gbp_id,set_field:1->tun_gbp_flags,resubmit(,1)",
        "table=1,tun_dst=1.2.3.4,tun_gbp_id=9,actions=2",
    ],
}
OF_TUNNELS = ["", ",tun_metadata0=7,tun_metadata1=0x1122334455667788", ",tun_dst=5.5.5.5,tun_metadata0=6"]

# Refused flows, and the reasons.
REFUSED = {
    "set_field:1->tun_metadata9": "NXFMFC_INVALID_TLV_FIELD",
    "delete_field:tun_metadata9": "NXFMFC_INVALID_TLV_FIELD",
    "load:1->tun_metadata9[0..3]": "NXFMFC_INVALID_TLV_FIELD",
    "push:tun_metadata1[]": "OFPBAC_BAD_SET_LEN",
    "move:tun_metadata0[0..32]->tun_metadata1[0..32]": "OFPBAC_BAD_SET_LEN",
    "delete_field:tun_id": "OFPBAC_BAD_ARGUMENT",
}


# Flows that match transport ports, and packets that only have some in their first fragment.
FRAGMENT_FLOWS = [
    "table=0,priority=9,tcp,tp_dst=80,actions=2",
    "table=0,priority=8,tcp,tp_dst=0,actions=resubmit(,1)",
    "table=0,priority=7,udp,tp_src=5,actions=drop",
    "table=0,priority=6,udp6,tp_src=7,actions=2",
    "table=0,priority=5,ip,nw_frag=later,actions=dec_ttl,2",
    "table=0,priority=3,icmp,icmp_type=8,actions=2",
    "table=0,priority=2,udp6,udp_src=0,udp_dst=0,actions=mod_tp_dst:3,resubmit(,1)",
    "table=0,priority=0,actions=resubmit(,1)",
    "table=1,priority=9,tcp,tp_dst=80,actions=mod_tp_src:9,2",
    "table=1,priority=8,tcp,tcp_flags=+syn,actions=mod_dl_dst:00:00:00:00:00:01,mod_tp_dst:99,2",
    "table=1,priority=7,tcp,tp_src=0,tp_dst=0,actions=move:tcp_dst[]->reg1[0..15],mod_nw_tos:4,2",
    "table=1,priority=6,udp6,udp_dst=3,actions=drop",
    "table=1,priority=1,actions=2",
]
FRAGMENTED = [
    "tcp,tp_src=1000,tp_dst=80",
    "tcp,tp_src=1000,tp_dst=80,tcp_flags=syn",
    "udp,udp_src=5,udp_dst=6",
    "udp6,udp_src=7,udp_dst=8",
    "icmp,icmp_type=8,icmp_code=3",
    "tcp6,tp_dst=80",
    "icmp6,icmpv6_type=135,icmpv6_code=0",
]


@pytest.fixture(scope="module")
def benches(module_making):
    """Dummy ports on Debian's switch and on ours."""
    made = []
    for maker in (module_making.peers, None):
        switch = module_making.switch(maker=maker)
        made.append(Dummies(switch, "br0", "p1", "p2"))
        switch.ofctl("add-tlv-map", "br0", TLVS)
    return made


def traced(bench, packet):
    text = bench.switch.appctl("ofproto/trace", "br0", packet)
    if "tun_dst" in packet:
        # A tunnel port decides which bits of its packets are read; this is no tunnel port.
        text = re.sub(r"^Megaflow: .*$", "", text, flags=re.MULTILINE)
    # The tunnel port also sets whether the packet has a key.
    return re.sub(r"\btun_id=\w+,", "", text)


@pytest.mark.parametrize("name", OPTIONS)
def test_tunnel_options(benches, name):
    for bench in benches:
        bench.flows(*OPTIONS[name])
    for packet in OF_TUNNELS:
        theirs, ours = (traced(bench, f"in_port=1{packet}") for bench in benches)
        assert ours == theirs, packet


@pytest.mark.parametrize("actions", REFUSED)
def test_unmapped_options(benches, actions):
    for bench in benches:
        result = bench.switch.ours.run("ovs-ofctl", "add-flow", "br0", f"actions={actions},2", check=False)
        assert REFUSED[actions] in result.err


@pytest.mark.parametrize("mode", ["drop", "nx-match", "normal"])
def test_fragments(benches, mode):
    for bench in benches:
        bench.flows(*FRAGMENT_FLOWS)
        bench.switch.ofctl("set-frags", "br0", mode)
        assert bench.switch.ofctl("get-frags", "br0") == mode
        refused = bench.switch.peers.run("ovs-ofctl", "-OOpenFlow14", "set-frags", "br0", "reassemble", check=False)
        assert "setting fragment handling mode failed" in refused.err
        assert bench.switch.ofctl("-OOpenFlow13", "get-frags", "br0") == mode
    for packet in FRAGMENTED:
        for part in ("no", "first", "later"):
            theirs, ours = (traced(bench, f"in_port=1,{packet},nw_frag={part},nw_ttl=7") for bench in benches)
            # Ours often reads less of a packet. The printed key consists of the bits read, which no packet may have.
            theirs, ours = (re.sub(r"^(Megaflow|Flow): .*$", "", text, flags=re.MULTILINE) for text in (theirs, ours))
            assert ours == theirs, (packet, part)


@pytest.mark.parametrize(
    "flow",
    [
        "actions=2",
        "packet_type=(1,0x800),actions=2",
        "packet_type=(1,0x800),nw_src=1.2.3.4,actions=encap(ethernet),set_field:02:00:00:00:00:01->eth_dst,2",
        "ip,actions=drop",
        "packet_type=(0,0),actions=2",
    ],
)
def test_packets_without_an_ethernet_header(benches, flow):
    for bench in benches:
        bench.flows(flow, version="OpenFlow15")
    for packet in ("", ",nw_src=1.2.3.4"):
        theirs, ours = (traced(bench, f"in_port=1,packet_type=(1,0x800){packet}") for bench in benches)
        # Open vSwitch also prints fields of tracked connections without such a header, and reads more.
        theirs, ours = (re.sub(r"^Megaflow: .*$|ct_nw_(src|dst)=0.0.0.0,", "", text, flags=re.MULTILINE) for text in (theirs, ours))
        assert ours == theirs, packet
