"""ofproto/trace for the same flows and packets on Debian's switch and on ours: the text of each step, the final key,
and the datapath's actions."""

import re

import pytest
from dummies import Dummies
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Dot1Q, Ether

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


A, B = "02:00:00:00:00:01", "02:00:00:00:00:02"
GROUP, RESERVED, EVERYONE = "01:00:5e:01:02:03", "01:80:c2:00:00:00", "ff:ff:ff:ff:ff:ff"

# Each entry has a command that changes the switch, or none, and the packet that is traced after it.
SWITCHED = [
    ((), f"in_port=1,dl_src={A},dl_dst={EVERYONE}"),
    ((), f"in_port=1,dl_src={A},dl_dst={GROUP}"),
    ((), f"in_port=1,dl_src={A},dl_dst={RESERVED}"),
    ((), f"in_port=9,dl_src={A},dl_dst={B}"),
    ((), f"in_port=1,dl_src={A},dl_dst={B} -generate"),
    ((), f"in_port=2,dl_src={B},dl_dst={A} -generate"),
    ((), f"in_port=2,dl_src={A},dl_dst={B} -generate"),
    ((), f"in_port=2,dl_src={B},dl_dst={A}"),
    (("ofctl", "mod-port", "br0", "p2", "no-forward"), f"in_port=1,dl_src={A},dl_dst={EVERYONE}"),
    ((), f"in_port=1,dl_src={A},dl_dst={B}"),
    (("ofctl", "mod-port", "br0", "p2", "forward"), f"in_port=1,dl_src={A},dl_dst={B}"),
    (("ofctl", "mod-port", "br0", "p2", "no-flood"), f"in_port=1,dl_src={A},dl_dst={EVERYONE}"),
    (("ofctl", "mod-port", "br0", "p2", "flood"), f"in_port=1,dl_src={A},dl_dst={EVERYONE}"),
    (("vsctl", "set", "port", "p1", "tag=10"), f"in_port=1,dl_vlan=10,dl_src={A},dl_dst={EVERYONE}"),
    (("vsctl", "set", "port", "p1", "tag=10"), f"in_port=1,dl_src={A},dl_dst={EVERYONE}"),
    (("vsctl", "clear", "port", "p1", "tag", "--", "set", "port", "p1", "trunks=5"), f"in_port=1,dl_vlan=10,dl_src={A},dl_dst={EVERYONE}"),
    (("vsctl", "set", "port", "p1", "tag=5", "cvlans=6", "vlan_mode=dot1q-tunnel"), f"in_port=1,dl_vlan=10,dl_src={A},dl_dst={EVERYONE}"),
]


@pytest.fixture
def plain_ports(benches):
    yield benches
    for bench in benches:
        for port in ("p1", "p2"):
            bench.switch.vsctl("clear", "port", port, "tag", "trunks", "cvlans", "vlan_mode", "other_config")
            bench.switch.ofctl("mod-port", "br0", port, "forward")


def test_steps_of_normal(plain_ports):
    for bench in plain_ports:
        bench.flows("actions=normal")
        bench.switch.appctl("fdb/flush", "br0")
    for change, packet in SWITCHED:
        texts = []
        for bench in plain_ports:
            if change:
                getattr(bench.switch, change[0])(*change[1:])
            text = bench.switch.appctl("ofproto/trace", "br0", *packet.split())
            text = re.sub(r"^Megaflow: .*$", "", text, flags=re.MULTILINE)
            # Both flood in the order of a hash table.
            texts.append(re.sub(r"(?<=actions: ).*", lambda found: ",".join(sorted(found[0].split(","))), text))
        assert texts[1] == texts[0], packet


VLAN_MODES = {
    "access": ["tag=10"],
    "trunk": ["vlan_mode=trunk"],
    "native-tagged": ["tag=10", "vlan_mode=native-tagged"],
    "native-untagged": ["tag=10", "vlan_mode=native-untagged"],
    "dot1q-tunnel": ["tag=10", "vlan_mode=dot1q-tunnel"],
    "dot1q-tunnel with cvlans": ["tag=10", "vlan_mode=dot1q-tunnel", "cvlans=20"],
    "dot1q-tunnel of 802.1q": ["tag=10", "vlan_mode=dot1q-tunnel", "other_config:qinq-ethtype=802.1q"],
}

# Tags of frames, outermost first: protocol and value.
VLAN_TAGS = [
    [],
    [(0x8100, 0)],
    [(0x8100, 0x6000)],
    [(0x8100, 10)],
    [(0x88A8, 0x600A)],
    [(0x8100, 0x6014)],
    [(0x88A8, 0x600A), (0x8100, 0x2014)],
    [(0x88A8, 10), (0x8100, 30)],
    [(0x8100, 20), (0x8100, 10)],
    [(0x8100, 0x6000), (0x8100, 20)],
    [(0x8100, 10), (0x8100, 0x2000)],
    [(0x88A8, 10), (0x8100, 20), (0x8100, 0x401E)],
]


def tagged(tags):
    """A frame with these tags, in hexadecimal."""
    words = "".join(f"{protocol:04x}{value:04x}" for protocol, value in tags)
    return "020000000002" + "020000000001" + words + "1234" + "00" * 46


def sent(tags, actions):
    """The ports to which datapath actions send a frame with these tags, and its tags then."""
    tags, found = list(tags), []
    for action in re.findall(r"push_vlan\([^)]*\)|pop_vlan|set\(vlan\([^)]*\)\)|[^,]+", actions):
        members = dict(member.split("=") for member in re.findall(r"\w+=[\w/]+", action))
        if action == "pop_vlan":
            tags = tags[1:]
        elif action.startswith("push_vlan"):
            tags = [(int(members.get("tpid", "0x8100"), 16), int(members["vid"]) | int(members["pcp"]) << 13), *tags]
        elif action.startswith("set"):
            (protocol, old), value, mask = tags[0], 0, 0
            for name, shift, width in (("vid", 0, 0xFFF), ("pcp", 13, 7), ("tci", 0, 0xFFFF)):
                if name in members:
                    number, _, bits = members[name].partition("/")
                    value, mask = value | int(number, 0) << shift, mask | (int(bits, 0) if bits else width) << shift
            tags = [(protocol, old & ~mask | value & mask), *tags[1:]]
        elif action != "drop":
            found.append((int(action), tuple(tags)))
    return sorted(found)


@pytest.mark.parametrize("ingress", VLAN_MODES)
def test_tags_between_ports_of_all_modes(plain_ports, ingress):
    for bench in plain_ports:
        bench.flows("actions=normal")
    for number, (egress, columns) in enumerate(VLAN_MODES.items()):
        priorities = ("never", "if-nonzero", "always")[number % 3]
        for bench in plain_ports:
            words = []
            for port, more in (("p1", VLAN_MODES[ingress]), ("p2", [*columns, f"other_config:priority-tags={priorities}"])):
                words += ["--", "clear", "port", port, "tag", "vlan_mode", "cvlans", "other_config", "--", "set", "port", port, *more]
            bench.switch.vsctl(*words[1:])
            bench.switch.appctl("fdb/flush", "br0")
        for tags in VLAN_TAGS:
            theirs, ours = (bench.switch.appctl("ofproto/trace", "br0", "in_port=1", tagged(tags)) for bench in plain_ports)
            theirs, ours = (sent(tags, re.search(r"^Datapath actions: (.*)$", text, re.MULTILINE)[1]) for text in (theirs, ours))
            assert ours == theirs, (egress, priorities, tags)


ORDERED = {
    "mod_tp_dst:9,mod_nw_src:1.2.3.4,mod_dl_src:02:00:00:00:00:99,push_vlan:0x8100,set_field:5->pkt_mark,2": "tcp,nw_src=10.0.0.1,tp_dst=80",
    "set_queue:3,mod_vlan_vid:9,mod_tp_dst:9,mod_nw_src:1.2.3.4,mod_dl_src:02:00:00:00:00:99,2": "tcp,dl_vlan=4,dl_vlan_pcp=5,nw_src=10.0.0.1,tp_dst=80",
    "mod_vlan_pcp:2,mod_dl_src:02:00:00:00:00:99,2": "tcp,dl_vlan=4,dl_vlan_pcp=5",
    "set_field:1.1.1.1->arp_spa,mod_dl_src:02:00:00:00:00:99,set_field:2->arp_op,2": "arp,arp_op=1",
    "mod_tp_dst:9,set_field:7->ipv6_label,set_field:1::1->ipv6_dst,mod_nw_tos:4,2": "tcp6,ipv6_src=fe80::1,tp_dst=80",
}


@pytest.mark.parametrize("actions", ORDERED)
def test_changes_of_headers_have_an_order(benches, actions):
    packet = ORDERED[actions]
    for bench in benches:
        bench.flows(f"{packet.split(',')[0]},actions={actions}", version="OpenFlow13")
    theirs, ours = (bench.switch.appctl("ofproto/trace", "br0", f"in_port=1,{packet}") for bench in benches)
    theirs, ours = (re.search(r"^Datapath actions: .*$", text, re.MULTILINE)[0] for text in (theirs, ours))
    assert ours == theirs


def frame(number, vlan=None):
    """A frame of a connection with this number, in this VLAN."""
    tag = Dot1Q(vlan=vlan) if vlan else None
    ethernet = Ether(src=f"02:00:00:00:01:{number:02x}", dst=B)
    rest = IP(src=f"10.0.0.{number}", dst="10.0.1.1") / TCP(sport=1, dport=2, flags="A")
    return bytes(ethernet / tag / rest if tag else ethernet / rest)


# Flows and groups, and frames that have a cached flow each in Open vSwitch.
WIDER = {
    "a field that is overwritten": ("ip,actions=set_field:02:00:00:00:00:99->eth_src,2", [frame(n) for n in range(1, 21)]),
    "tags that no flow looks at": ("in_port=1,actions=2", [frame(1, vlan) for vlan in range(1, 21)]),
    "buckets on copies": ("ip,actions=group:1,LOCAL", [frame(n) for n in range(1, 21)]),
}


@pytest.mark.parametrize("kind", WIDER)
def test_cached_flows_that_are_wider(benches, kind):
    """docs/compatibility/cached-flows.md."""
    flow, frames = WIDER[kind]
    counts = []
    for bench in benches:
        bench.switch.ofctl("-OOpenFlow13", "--may-create", "mod-group", "br0", "group_id=1,type=all,bucket=set_field:1.2.3.4->ip_src,2,bucket=1")
        bench.flows(flow, version="OpenFlow13")
        bench.switch.appctl("revalidator/purge")
        for each in frames:
            bench.receive("p1", each)
        lines = bench.switch.appctl("dpctl/dump-flows").splitlines()
        counts.append(sum("in_port(1)" in line or "in_port(p1)" in line for line in lines))
    assert counts == [len(frames), 1]


LABEL = "in_port=1,mpls,mpls_label=5,mpls_tc=3,mpls_ttl=64,dl_src=50:54:00:00:00:01,mpls_bos="
# Flows, and packets: Open vSwitch prints the same actions for them.
HEADERS_AS_ONE = [
    ("in_port=1,mpls,actions=set_field:7->mpls_label,output:2", LABEL + "1"),
    ("in_port=1,mpls,actions=set_field:7->mpls_label,output:2", LABEL + "0"),
    ("in_port=1,mpls,actions=dec_mpls_ttl,output:2", LABEL + "1"),
    ("in_port=1,mpls,actions=set_field:7->mpls_label,set_field:1->mpls_tc,set_mpls_ttl(3),output:2", LABEL + "1"),
    ("in_port=1,mpls,actions=set_field:3->mpls_label,push_mpls:0x8847,output:2", LABEL + "1"),
    ("in_port=1,icmp,actions=set_field:1->icmp_type,output:2", "in_port=1,icmp,icmp_type=8,icmp_code=0"),
    ("in_port=1,icmp,actions=set_field:1->icmp_code,output:2", "in_port=1,icmp,icmp_type=8,icmp_code=0"),
    ("in_port=1,icmp6,actions=set_field:1->icmpv6_code,output:2", "in_port=1,icmp6,icmpv6_type=128,icmpv6_code=0"),
    ("in_port=1,ip,actions=set_field:02:00:00:00:00:01->eth_src,push_mpls:0x8847,output:2", "in_port=1,tcp,nw_ttl=5"),
    ("in_port=1,ip,actions=push_mpls:0x8847,set_field:02:00:00:00:00:01->eth_src,output:2", "in_port=1,tcp,nw_ttl=5"),
    ("in_port=1,ip,actions=push_mpls:0x8847,set_field:9->mpls_label,output:2", "in_port=1,tcp,nw_ttl=5"),
    ("in_port=1,mpls,actions=pop_mpls:0x8847,set_field:02:00:00:00:00:01->eth_src,output:2", LABEL + "0"),
    ("in_port=1,mpls,actions=set_field:02:00:00:00:00:01->eth_src,pop_mpls:0x8847,output:2", LABEL + "0"),
    ("in_port=1,ip,actions=set_field:1.2.3.4->ip_src,set_field:02:00:00:00:00:01->eth_src,push_mpls:0x8847,output:2", "in_port=1,tcp,nw_ttl=5"),
    ("in_port=1,ip,actions=controller", "in_port=1,tcp"),
    ("in_port=1,ip,actions=controller,controller(max_len=5,id=3),2", "in_port=1,tcp"),
    ("cookie=7,in_port=1,ip,actions=dec_ttl,controller,2", "in_port=1,tcp,nw_ttl=5"),
]


@pytest.mark.parametrize("flow, packet", HEADERS_AS_ONE)
def test_printed_actions(benches, flow, packet):
    for options in ([], ["-generate"]):
        answers = []
        for bench in benches:
            bench.flows(flow, version="OpenFlow13")
            trace = bench.switch.appctl("ofproto/trace", "br0", packet, *options)
            answers.append(re.sub(r"recirc_id=[1-9]\d*", "recirc_id=N", re.search("Datapath actions: .*", trace)[0]))
        assert answers[1] == answers[0], options


@pytest.mark.parametrize("flow", ["in_port=1,actions=mod_vlan_vid:5,2", "in_port=1,actions=push_vlan:0x8100,2", "in_port=1,ip,vlan_tci=0,actions=2",
                                  "in_port=1,ip,actions=pop_vlan,2", "actions=NORMAL"])
def test_megaflows_leave_out_absent_tags(benches, flow):
    for bench in benches:
        bench.flows(flow, version="OpenFlow13" if "push_vlan" in flow else "OpenFlow10")
    theirs, ours = (re.search("Megaflow: .*", bench.switch.appctl("ofproto/trace", "br0", "in_port=1,ip"))[0] for bench in benches)
    assert ours == theirs


def test_selection_by_dp_hash_is_traced(benches):
    group = "group_id=7,type=select,bucket=output:1,bucket=output:2"
    for bench in benches:
        bench.switch.ofctl("-OOpenFlow15", "add-group", "br0", group)
        bench.flows("in_port=1,actions=group:7", version="OpenFlow15")
        trace = bench.switch.appctl("ofproto/trace", "br0", "in_port=1,ip")
        assert "     -> selection method in use: dp_hash, recirculating\n" in trace
        bench.switch.ofctl("-OOpenFlow15", "del-groups", "br0")


def test_misses(benches):
    """In a table whose misses are dropped or sent to controllers, and in all tables, which continue up to the last one."""
    for table, miss in ((0, "drop"), (0, "controller"), ("all", "continue"), ("all", "controller")):
        traces = []
        for bench in benches:
            bench.flows()
            bench.switch.ofctl("-OOpenFlow11", "mod-table", "br0", table, miss)
            trace = bench.switch.appctl("ofproto/trace", "br0", "in_port=1,ip")
            # Tables before the last one are traced here, too.
            trace = re.sub(r" +\d+\. No match\.\n(?! +drop)", "", trace)
            # Open vSwitch has a number of its own for misses without a flow.
            traces.append(re.sub(r"recirc_id=[1-9]\d*", "recirc_id=N", trace).replace("reason=7", "reason=0"))
        assert traces[1] == traces[0], miss
    for bench in benches:
        bench.switch.ofctl("-OOpenFlow11", "mod-table", "br0", "all", "controller")
