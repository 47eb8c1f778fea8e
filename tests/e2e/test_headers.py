"""Headers pushed and popped, recirculated packets, and packets paused for a controller: for the same flows and
frames, Debian's switch and ours output the same frames."""

import re
import signal
import subprocess

import pytest
from dummies import on_both
from scapy.contrib.mpls import MPLS
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Dot1Q, Ether
from waiting import until

PORTS = ("p1", "p2", "p3")
HOSTS = {"src": "02:00:00:00:00:01", "dst": "02:00:00:00:00:02"}
INNER = IP(src="10.0.0.1", dst="10.0.0.2", ttl=64, tos=0x48) / TCP(sport=1000, dport=80) / b"payload"
INNER6 = IPv6(src="fe80::1", dst="fe80::2", hlim=9) / UDP(sport=7, dport=9) / b"payload"


def labelled(*labels, inner=INNER, ttl=5):
    frame = Ether(**HOSTS, type=0x8847)
    for n, label in enumerate(labels, 1):
        frame /= MPLS(label=label, cos=3, s=int(n == len(labels)), ttl=ttl)
    return frame / inner


def service(inner, kind=3, ttl=5, md=b"\x00" * 16):
    """A network service header with metadata of type 1 (RFC 8300)."""
    first = (ttl << 22 | 6 << 16 | 1 << 8 | kind).to_bytes(4, "big")
    return Ether(**HOSTS, type=0x894F) / (first + bytes([0, 1, 35, 9]) + md + bytes(inner))


PLAIN = Ether(**HOSTS) / INNER
PLAIN6 = Ether(**HOSTS) / INNER6
TAGGED = Ether(**HOSTS) / Dot1Q(vlan=7, prio=2) / INNER
FRAMES = [
    PLAIN,
    PLAIN6,
    TAGGED,
    Ether(**HOSTS) / IP(src="10.0.0.1", dst="10.0.0.9", ttl=1) / ICMP(),
    labelled(17),
    labelled(17, inner=INNER6),
    labelled(17, 18),
    labelled(17, 18, 19),
    labelled(17, 18, 19, 20),
    labelled(3, ttl=1),
    service(PLAIN),
    service(INNER, kind=1),
    service(PLAIN, ttl=1),
]

# Deviations of Open vSwitch: frames whose summary contains this are skipped.
LEFT_OUT = {
    # It sets the bottom-of-stack bit with the other fields, from the first packet of the flow.
    "labels change": "MPLS / MPLS",
    # It drops packets with more labels than its keys contain, and parses other headers as labels.
    "pop to another label": r"MPLS / MPLS / MPLS / MPLS|Ether / MPLS / IP",
    # It confuses labels under the Ethernet header with those in front of it.
    "label in front": "MPLS",
    # It skips all actions behind the copy if that recirculates.
    "pop in a copy": "MPLS",
    # It does not recognise the packet as IP any more.
    "packet out of a label": "MPLS",
}

# Flows of table 0 from priority 10 on, and flows of later tables for all of them.
LATER = [
    "table=1,priority=9,tcp,actions=dec_ttl,output:3",
    "table=1,priority=8,ipv6,actions=set_field:33->ip_dscp,output:3",
    "table=1,priority=7,mpls,actions=dec_mpls_ttl,output:3",
    "table=1,priority=1,actions=output:3",
    "table=2,priority=5,reg1=5,ip,nw_dst=10.0.0.2,actions=output:2,output:3",
    "table=2,priority=1,actions=write_actions(output:3)",
]
CASES = {
    "push": "ip,actions=push_mpls:0x8847,set_field:77->mpls_label,output:2",
    "push two": "actions=push_mpls:0x8847,set_field:5->mpls_label,push_mpls:0x8848,set_field:6->mpls_label,set_field:1->mpls_tc,output:2",
    "push and pop": "ip,actions=push_mpls:0x8847,output:2,pop_mpls:0x0800,output:3",
    "push behind a tag": "actions=mod_vlan_vid:9,push_mpls:0x8847,output:2,strip_vlan,output:3",
    "push on a changed packet": "ip,actions=mod_nw_ttl:9,push_mpls:0x8847,set_mpls_ttl(3),output:2",
    "pop": "mpls,actions=pop_mpls:0x0800,output:2",
    "pop and look": "mpls,actions=set_field:5->reg1,pop_mpls:0x0800,resubmit(,2),output:2",
    "pop and go on": "mpls,actions=pop_mpls:0x0800,goto_table:1",
    "pop to another label": "mpls,actions=pop_mpls:0x8847,goto_table:1",
    "pop, then change": "mpls,actions=pop_mpls:0x0800,mod_dl_src:02:00:00:00:00:77,dec_ttl,output:2",
    "pop in a copy": "mpls,actions=clone(pop_mpls:0x0800,dec_ttl,output:2),output:3",
    "pop, then a stack": "mpls,actions=push:NXM_OF_ETH_SRC[],pop_mpls:0x0800,dec_ttl,pop:NXM_OF_ETH_DST[],output:2",
    "labels change": "mpls,actions=set_field:4->mpls_label,set_field:2->mpls_tc,dec_mpls_ttl,output:2",
    "an action set": "mpls,actions=set_field:1->mpls_tc,write_actions(pop_mpls:0x0800,dec_ttl,output:2)",
    "decap": "actions=decap(),output:2",
    "decap and encap": "ip,actions=decap(),encap(ethernet),set_field:02:00:00:00:00:88->eth_dst,output:2",
    "service header": "ip,actions=encap(nsh(md_type=1)),set_field:0x1234->nsh_spi,set_field:0x11223344->nsh_c2,encap(ethernet),set_field:02:00:00:00:00:88->eth_dst,output:2",
    "service header, type 2": "actions=encap(nsh(md_type=2,tlv(0x1000,10,0x12345678),tlv(0x2000,20,0xfedcba9876543210))),encap(ethernet),output:2",
    "service header of a packet": "ip,actions=decap(),encap(nsh(md_type=1)),encap(ethernet),output:2",
    "out of a service header": "dl_type=0x894f,actions=decap(),decap(),goto_table:1",
    "out of it by type": "dl_type=0x894f,actions=decap(),decap(),resubmit(,3),resubmit(,1)",
    "time to live of a service": "dl_type=0x894f,actions=dec_nsh_ttl,set_field:8->nsh_si,output:2",
    "label in front": "actions=encap(mpls),set_field:9->mpls_label,encap(ethernet),set_field:02:00:00:00:00:88->eth_dst,output:2",
    "labels in front": "ip,actions=decap(),encap(mpls),set_field:9->mpls_label,encap(mpls_mc),set_field:8->mpls_label,encap(ethernet),output:2",
    "frame out of a label": "mpls,actions=decap(),decap(packet_type(ns=0,type=0)),output:2",
    "packet out of a label": "mpls,actions=decap(),decap(packet_type(ns=1,type=0x800)),encap(ethernet),goto_table:1",
    "copies with action sets": "actions=clone(load:5->NXM_NX_REG1[],resubmit(,2)),output:2",
}


@pytest.fixture(scope="module")
def benches(module_making):
    """Dummy ports on Debian's switch and on ours."""
    return on_both(module_making, *PORTS)


def outcome(bench, flow, frames):
    """The output of each port for the frames: the first time, and by cached flows."""
    later = [*LATER, "table=3,packet_type=(1,0x800),actions=encap(ethernet),output:2"]
    bench.flows(f"priority=10,{flow}", *later, version="OpenFlow13")
    # Open vSwitch may keep cached flows of deleted flows for half a second.
    bench.switch.appctl("revalidator/wait")
    bench.switch.appctl("revalidator/purge")
    rounds = [bench.exchange("p1", *frames) for _ in range(2)]
    return [{port: sorted(frame.hex() for frame in sent) for port, sent in each.items()} for each in rounds]


@pytest.mark.parametrize("case", CASES)
def test_both_switches_send_the_same_frames(benches, case):
    frames = [f for f in FRAMES if case not in LEFT_OUT or not re.search(LEFT_OUT[case], f.summary())]
    theirs, ours = (outcome(bench, CASES[case], frames) for bench in benches)
    assert ours == theirs, case


def test_frames_out_of_a_copy_and_out_of_labels(benches):
    _, bench = benches
    output = outcome(bench, CASES["pop in a copy"], [labelled(17)])
    changed = bytes(Ether(**HOSTS) / IP(src="10.0.0.1", dst="10.0.0.2", ttl=63, tos=0x48) / INNER.payload)
    assert output == [{"p2": [changed.hex()], "p3": [bytes(labelled(17)).hex()]}] * 2
    output = outcome(bench, CASES["packet out of a label"], [labelled(17, 18)])
    assert output == [{"p3": [(bytes(12) + changed[12:]).hex()]}] * 2
    output = outcome(bench, CASES["labels change"], [labelled(17, 18, ttl=9)])
    entries = "0000440800012709"
    assert all(each["p2"][0][28:44] == entries for each in output), output
    output = outcome(bench, "mpls,actions=pop_mpls:0x8847,dec_mpls_ttl,output:2", [labelled(1, 2, 3, 4, 5, ttl=9)])
    entries = "".join(f"{label << 12 | 3 << 9 | (label == 5) << 8 | (8 if label == 2 else 9):08x}" for label in (2, 3, 4, 5))
    assert all(each["p2"][0][28:60] == entries for each in output), output


def test_a_group_selects_by_the_hash_of_the_datapath(benches):
    _, bench = benches
    buckets = "bucket=weight:1,output:1,bucket=weight:3,output:2"
    bench.switch.ofctl("-O", "OpenFlow13", "add-group", "br0", f"group_id=1,type=select,{buckets}")
    bench.flows("ip,in_port=3,actions=set_field:3->reg1,group:1", version="OpenFlow13")
    frames = [Ether(**HOSTS) / IP(src=f"10.1.{n}.1", dst="10.0.0.2") / TCP(sport=n, dport=80) for n in range(1, 200)]
    first, again = (bench.exchange("p3", *frames) for _ in range(2))
    assert {port: sorted(frames) for port, frames in first.items()} == {p: sorted(frames) for p, frames in again.items()}
    share = len(first["p2"]) / len(frames)
    assert len(first["p1"]) + len(first["p2"]) == len(frames) and 0.6 < share < 0.9, share
    flows = bench.switch.appctl("dpctl/dump-flows").splitlines()
    assert any("hash(sym_l4(0)),recirc(" in flow for flow in flows)
    assert len([flow for flow in flows if "dp_hash(" in flow]) <= 16
    bench.switch.ofctl("-O", "OpenFlow13", "del-groups", "br0")


def test_a_packet_is_paused_for_its_controller(benches, tmp_path):
    for bench in benches:
        switch = bench.switch
        bench.flows(
            "ip,in_port=1,actions=set_field:7->reg2,push:NXM_NX_REG2[],resubmit(,1),output:2",
            "cookie=0x99,table=1,ip,actions=controller(pause,userdata=01.02),dec_ttl,pop:NXM_NX_REG4[],resubmit(,2),output:3",
            "table=2,ip,reg4=7,reg2=7,actions=mod_nw_tos:8,output:3",
            version="OpenFlow13",
        )
        control = switch.directory / "monitor.ctl"
        words = [switch.peers.directory / "ovs-ofctl", "monitor", "br0", "65534", "-P", "nxt_packet_in2", "resume"]
        with open(tmp_path / "monitor", "w+", encoding="ascii") as log:
            monitor = start(switch, [*words, f"--unixctl={control}", "-vsyslog:off"], log)
            try:
                until(control.exists, "the monitor")
                switch.appctl("-t", control, "ofctl/barrier")
                sent = bench.exchange("p1", PLAIN, PLAIN)
                until(lambda: b"NXT_RESUME" in (tmp_path / "monitor").read_bytes(), "the packet to be resumed")
                for port, count in (("p2", 2), ("p3", 4)):
                    until(
                        lambda port=port, count=count: len(sent.get(port, []) + bench.new_frames(port)) >= count,
                        f"{count} frames out of {port}",
                    )
                    frames = sent.get(port, []) + bench.sent(port, count - len(sent.get(port, [])))
                    assert {frame[22] for frame in frames} == {63}
            finally:
                monitor.send_signal(signal.SIGTERM)
                monitor.wait()
        output = (tmp_path / "monitor").read_text(encoding="ascii")
        assert re.search(r"NXT_PACKET_IN2 .*reg2=0x7,in_port=1 \(via action\)", output), output
        assert " userdata=01.02\n continuation.bridge=" in output


def start(switch, words, log):
    return subprocess.Popen(switch.inside(words), env=switch.environment, stdout=log, stderr=log)
