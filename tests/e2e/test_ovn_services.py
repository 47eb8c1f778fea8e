"""Network functions, forwarding groups, sampling of ACLs and control plane protection of OVN on both makers' switches."""

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether

from logical import BROADCAST, add_switches, frames, ip, mac, packet, reply, send, sent_to_one_of, syn
from waiting import until


def udp(dport=2000, sport=1000):
    return UDP(sport=sport, dport=dport)


def network_function(each, chassis="hv1"):
    """A network function behind the ports in and out, on one chassis."""
    for port, other in (("in", "out"), ("out", "in")):
        words = ["lsp-add", "s1", port, "--", "lsp-set-addresses", port, "unknown"]
        options = ["receive_multicast=false", "lsp_learn_mac=false", "is-nf=true", f"nf-linked-port={other}"]
        each.nbctl("--wait=sb", *words, "--", "lsp-set-options", port, *options)
    for port in ("in", "out"):
        each.chassis[chassis].add_vif(port)
    each.nbctl("nf-add", "f", 1, "in", "out")
    each.nbctl("nfg-add", "g", 1, "inline", "f")
    each.settle()


def through(each, source, frame, destination, first, second):
    """Sends a frame that the network function gets at its port `first`, hands it on from `second`, and returns its arrival."""
    seen = send(each, source, frame, first)
    return send(each, second, seen, destination)


def test_a_network_function_is_in_the_way(compared):
    """Packets that an ACL redirects, and their answers, pass the network function before they reach their destination."""

    def scenario(each):
        add_switches(each)
        network_function(each)
        each.nbctl("--wait=hv", "acl-add", "s1", "from-lport", 1000, 'inport == "p11" && ip4 && tcp', "allow-related", "g")
        asked = through(each, "p11", packet("p11", "p12", syn(80)), "p12", "in", "out")
        assert bytes(asked) == bytes(packet("p11", "p12", syn(80)))
        through(each, "p12", reply(asked), "p11", "out", "in")
        # All other packets take the direct way.
        send(each, "p11", packet("p11", "p12", udp()), "p12")

    compared(scenario)


def test_a_network_function_on_another_chassis(compared):
    """The ports of the network function are on the chassis of the destination, and the ACL is that of its port."""

    def scenario(each):
        add_switches(each)
        network_function(each, "hv2")
        each.nbctl("--wait=hv", "acl-add", "s1", "to-lport", 1000, 'outport == "p12" && ip4 && udp', "allow-related", "g")
        asked = through(each, "p11", packet("p11", "p12", udp()), "p12", "out", "in")
        through(each, "p12", reply(asked), "p11", "in", "out")
        asked = through(each, "p21", packet("p21", "p12", udp(7)), "p12", "out", "in")
        through(each, "p12", reply(asked), "p21", "in", "out")

    compared(scenario)


@pytest.mark.parametrize("options", [(), ("--liveness",)], ids=["plain", "liveness"])
def test_forwarding_groups(compared, options):
    """A forwarding group answers for its address, and forwards to one of its ports; with liveness, to one that is reachable."""

    def scenario(each):
        each.chooses_by_hash = True
        add_switches(each, hosts=(1, 2, 3), numbers=(1,))
        each.nbctl(*options, "fwd-group-add", "group", "s1", "10.0.1.100", "00:00:00:00:01:99", "p12", "p13")
        each.central.sync()
        request = Ether(src=mac("p11"), dst=BROADCAST) / ARP(hwsrc=mac("p11"), psrc=ip("p11"), pdst="10.0.1.100")
        assert send(each, "p11", request, "p11", lambda frame: ARP in frame)[ARP].hwsrc == "00:00:00:00:01:99"
        for sport in range(2000, 2008):
            frame = Ether(src=mac("p11"), dst="00:00:00:00:01:99") / IP(src=ip("p11"), dst="10.0.1.100") / udp(sport=sport)
            sent_to_one_of(each, "p11", frame, ("p12", "p13"))

    compared(scenario, chassis=3)


def collectors(each):
    """Local sample collectors of both chassis, whose statistics count samples."""
    for chassis in each.chassis.values():
        bridge = chassis.switch.vsctl("get", "Bridge", "br-int", "_uuid")
        for number in (1, 2):
            words = ["--", "--id=@f", "create", "IPFIX", f'targets="127.0.0.1:{4738 + number}"']
            chassis.switch.vsctl(*words, "--", "create", "Flow_Sample_Collector_Set", f"id={number}", f"bridge={bridge}", "ipfix=@f")


def sampled(each, chassis):
    """How many packets each collector set has sampled."""
    text = each.chassis[chassis].switch.ofctl("dump-ipfix-flow", "br-int")
    return [" ".join(part.split()) for part in text.splitlines()]


def test_acls_are_sampled(compared):
    """New and established connections of ACLs are sampled for their collectors."""
    found = []

    def scenario(each):
        add_switches(each)
        collectors(each)
        for number, probability in ((1, 65535), (2, 65535)):
            each.nbctl("create", "Sample_Collector", f"id={number}", f"name=c{number}", f"set_id={number}", f"probability={probability}")
        each.nbctl("create", "Sampling_App", "type=acl-new", "id=42")
        each.nbctl("create", "Sampling_App", "type=acl-est", "id=43")
        each.nbctl("create", "Sampling_App", "type=drop", "id=44")
        each.nbctl("--name=web", "--log", "acl-add", "s1", "from-lport", 1000, "tcp.dst == 80", "allow-related")
        each.nbctl("--name=no", "--log", "acl-add", "s1", "from-lport", 1001, "udp.dst == 9", "drop")
        uuid = lambda name: each.nbctl("--bare", "--columns=_uuid", "find", "Sample_Collector", f"name={name}")
        one, two = uuid("c1"), uuid("c2")
        new = f"--id=@n create Sample collectors={one},{two} metadata=1001".split()
        established = f"--id=@e create Sample collectors={two} metadata=1002".split()
        each.nbctl(*new, "--", *established, "--", "set", "ACL", "web", "sample_new=@n", "sample_est=@e")
        each.nbctl(*"--id=@n create Sample".split(), f"collectors={one}", "metadata=1003", "--", "set", "ACL", "no", "sample_new=@n")
        each.nbctl("set", "NB_Global", ".", "options:debug_drop_collector_set=1", "options:debug_drop_domain_id=9")
        each.central.sync()
        asked = send(each, "p11", packet("p11", "p12", syn(80)), "p12")
        answered = send(each, "p12", reply(asked), "p11")
        third = packet("p11", "p12", syn(80))
        third[TCP].flags, third[TCP].seq, third[TCP].ack = "A", 101, answered[TCP].seq + 1
        send(each, "p11", third, "p12")
        each.receive("p11", packet("p11", "p12", udp(9)))
        send(each, "p11", packet("p11", "p12", udp(10)), "p12")
        found.append([sampled(each, name) for name in each.chassis])

    compared(scenario)
    assert found[0] == found[1], found


def test_control_plane_protection(compared):
    """Meters limit the packets that ovn-controller gets, by protocol."""

    def scenario(each):
        add_switches(each)
        each.nbctl("meter-add", "slow", "drop", 1, "pktps", 1)
        each.nbctl("meter-add", "fast", "drop", 1000, "kbps")
        for protocol in ("tcp-reset", "reject", "icmp4-error", "arp-resolve", "event-elb"):
            each.nbctl("copp-add", "policy", protocol, "slow")
        each.nbctl("copp-add", "policy", "arp", "fast")
        each.nbctl("lr-copp-add", "policy", "r0")
        each.nbctl("ls-copp-add", "policy", "s1")
        each.nbctl("acl-add", "s1", "from-lport", 1000, 'inport == "p11" && udp.dst == 9', "reject")
        each.central.sync()
        for _ in range(5):
            each.receive("p11", packet("p11", "p12", udp(9)))
        # One of them was answered, perhaps a second one after a second.
        send(each, "p11", packet("p11", "p12", udp(10)), "p12")
        error = lambda frame: ICMP in frame
        until(lambda: [frame for frame in frames(each, "p11") if error(frame)], "an answer")
        assert len(frames(each, "p11")) < 5
        each.repeats = True
        switch = each.chassis["hv1"].switch
        stats = switch.ofctl("-OOpenFlow13", "meter-stats", "br-int")
        assert "packet_count:5" in stats or "packet_in_count:5" in stats, stats

    compared(scenario)
