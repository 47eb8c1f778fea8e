"""Network functions, forwarding groups, sampling of ACLs and control plane protection of OVN on both makers' switches."""

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.l2 import ARP, Ether

from collector import Collector
from logical import BROADCAST, add_switches, frames, ip, mac, packet, reply, send, sent_to_one_of, syn
from ovn import CHECKS_FROM
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
    plain = lambda one: IP in one and one[IP].src in (ip("p11"), ip("p12"), ip("p21"))
    seen = send(each, source, frame, first, plain)
    return send(each, second, seen, destination, plain)


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


def collect(each):
    """Collector sets 1 and 2 of IPFIX on both chassis; returns the programs that receive from them."""
    found = {}
    for name, chassis in each.chassis.items():
        switch = chassis.switch
        collectors = [Collector(switch, f"collector{number}") for number in (1, 2)]
        bridge = switch.vsctl("get", "Bridge", "br-int", "_uuid")
        for number, collector in enumerate(collectors, 1):
            words = ["--", "--id=@f", "create", "IPFIX", f'targets="{collector.target}"', "cache_max_flows=0"]
            switch.vsctl(*words, "--", "create", "Flow_Sample_Collector_Set", f"id={number}", f"bridge={bridge}", "ipfix=@f")
        found[name] = collectors
    return found


POINT = 138
# The id of the application that samples dropped packets.
DROPS = 44


def points(collector, count):
    """The observation domains and points of the first samples that a collector has received."""
    seen = []

    def enough():
        while collector.pending():
            for _, _, domain, sets in collector.read(1):
                for number, records in sets:
                    if number >= 256:
                        seen.extend((domain, dict(record)[POINT]) for record in records if POINT in dict(record))
        return len(seen) >= count

    until(enough, lambda: f"{count} samples: {seen}")
    # Points of dropped packets are cookies of flows, which are chosen by chance.
    return sorted((domain, "COOKIE" if domain >> 24 == DROPS else point) for domain, point in seen)


def test_acls_are_sampled(compared):
    """New and established connections of ACLs are sampled for their collectors."""
    found = []

    def scenario(each):
        add_switches(each)
        received = collect(each)
        for number, probability in ((1, 65535), (2, 65535)):
            each.nbctl("create", "Sample_Collector", f"id={number}", f"name=c{number}", f"set_id={number}", f"probability={probability}")
        each.nbctl("create", "Sampling_App", "type=acl-new", "id=42")
        each.nbctl("create", "Sampling_App", "type=acl-est", "id=43")
        each.nbctl("create", "Sampling_App", "type=drop", f"id={DROPS}")
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
        found.append([points(one, count) for one, count in zip(received["hv1"], (2, 3))])

    compared(scenario)
    assert found[0] == found[1]


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


def test_network_functions_fail_over(compared):
    """Health checks choose the network function of a group that answers; without any, fail-open lets packets pass."""

    def scenario(each):
        add_switches(each)
        network_function(each)
        for port, other in (("in2", "out2"), ("out2", "in2")):
            words = ["lsp-add", "s1", port, "--", "lsp-set-addresses", port, "unknown"]
            options = ["receive_multicast=false", "lsp_learn_mac=false", "is-nf=true", f"nf-linked-port={other}"]
            each.nbctl("--wait=sb", *words, "--", "lsp-set-options", port, *options)
            each.chassis["hv2"].add_vif(port)
        each.nbctl("nf-add", "f2", 2, "in2", "out2", "--", "nfg-add-nf", "g", "f2")
        options = ["options:interval=1", "options:timeout=1", "options:success_count=1", "options:failure_count=1"]
        functions = [each.nbctl("--bare", "--columns=_uuid", "find", "Network_Function", f"name={name}") for name in ("f", "f2")]
        checked = [word for uuid in functions for word in ("--", "set", "Network_Function", uuid, "health_check=@h")]
        each.nbctl("--id=@h", "create", "Network_Function_Health_Check", "name=h", *options, *checked)
        each.nbctl("set", "NB_Global", ".", f"options:svc_monitor_ip={CHECKS_FROM}", "options:svc_monitor_ip_dst=169.254.100.11")
        each.nbctl("acl-add", "s1", "from-lport", 1000, 'inport == "p11" && ip4 && udp', "allow-related", "g")
        each.settle()
        passed = {}

        def pass_on(*pairs):
            """The functions that live hand the checks on."""
            for port, other in pairs:
                seen = each.sent(port)
                for frame in seen[passed.get(port, 0) :]:
                    each.receive(other, Ether(frame))
                passed[port] = len(seen)

        def active(uuid, *pairs):
            pass_on(*pairs)
            return each.nbctl("--bare", "--columns=network_function_active", "list", "Network_Function_Group") == uuid

        def activate(uuid, *pairs):
            """Waits until this function is the active one, and has a kill wait for that as well: no check is answered meanwhile."""
            unseen = lambda: f"{uuid} active: {each.sbctl('list', 'Service_Monitor')}"
            each.refresh = lambda: until(lambda: active(uuid, *pairs), unseen) and None
            each.refresh()
            each.central.sync()

        activate(functions[1], ("in2", "out2"))
        through(each, "p11", packet("p11", "p12", udp()), "p12", "in2", "out2")
        activate(functions[0], ("in", "out"))
        each.repeats = True

    compared(scenario)


def test_health_checks_of_ports(compared):
    """ovn-controller pings a port's address, and the port is online while it answers."""

    def scenario(each):
        add_switches(each)
        each.nbctl("lsp-hc-add", "p12", "icmp", "10.0.1.253", ip("p12"))
        uuid = each.nbctl("--bare", "--columns=_uuid", "list", "Logical_Switch_Port_Health_Check")
        words = ["options:interval=1", "options:timeout=1", "options:success_count=1", "options:failure_count=1"]
        each.nbctl("--wait=hv", "set", "Logical_Switch_Port_Health_Check", uuid, *words)
        status = lambda: each.nbctl("--bare", "--columns=status", "list", "Logical_Switch_Port_Health_Check")
        answered = 0

        def answer():
            nonlocal answered
            pings = [frame for frame in frames(each, "p12") if ICMP in frame and frame[ICMP].type == 8]
            for ping in pings[answered:]:
                payload = ICMP(type=0, id=ping[ICMP].id, seq=ping[ICMP].seq) / bytes(ping[ICMP].payload)
                each.receive("p12", reply(ping, payload))
            answered = len(pings)
            return status() == "online"

        until(answer, lambda: f"online: {status()}")
        until(lambda: status() == "offline", lambda: f"offline: {status()}")
        each.central.sync()

    compared(scenario)
