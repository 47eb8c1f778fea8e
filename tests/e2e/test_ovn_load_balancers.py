"""OVN's load balancers on both makers' switches."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach, IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.layers.sctp import SCTP, SCTPChunkInit, SCTPChunkInitAck

from logical import (
    add_outside,
    add_switches,
    converse,
    frames,
    introduce,
    ip,
    ip6,
    join,
    mac,
    packet,
    reply,
    routed,
    send,
    sent_to_one_of,
    syn,
)
from waiting import until

VIP = "10.0.9.9"
VIP6 = "fd00:9::9"


def udp(dport=80, sport=1000):
    return UDP(sport=sport, dport=dport)


def balance(each, vip, backends, protocol="udp", switches=("s1",), routers=(), name="lb", options=()):
    """Adds a load balancer to switches and routers."""
    each.nbctl("lb-add", name, vip, backends, *([protocol] if protocol else []))
    if options:
        each.nbctl("set", "Load_Balancer", name, *options)
    for switch in switches:
        each.nbctl("ls-lb-add", switch, name)
    for router in routers:
        each.nbctl("lr-lb-add", router, name)
    each.central.sync()


def test_a_load_balancer_of_a_switch(compared):
    """Each connection goes to one backend, and all of its packets to the same."""

    def scenario(each):
        add_switches(each)
        balance(each, f"{VIP}:80", f"{ip('p12')}:8080", "tcp")
        asked, answered = converse(each, "p11", "p12", routed("p11", VIP, syn(80)))
        assert (asked[IP].dst, asked[TCP].dport, answered[IP].src, answered[TCP].sport) == (ip("p12"), 8080, VIP, 80)

    compared(scenario)


def test_backends_are_chosen_by_a_hash(compared):
    """All backends get some connections."""

    def scenario(each):
        each.chooses_by_hash = True
        add_switches(each)
        balance(each, f"{VIP}:80", ",".join(f"{ip(port)}:80" for port in ("p12", "p21", "p22")))
        chosen = {sent_to_one_of(each, "p11", routed("p11", VIP, udp(sport=sport)), ("p12", "p21", "p22"))[0] for sport in range(2000, 2024)}
        assert len(chosen) == 3

    compared(scenario)


def test_backends_are_chosen_by_selected_fields(compared):
    """With selection fields, all connections of an address go to one backend."""

    def scenario(each):
        each.chooses_by_hash = True
        add_switches(each)
        backends = ",".join(f"{ip(port)}:80" for port in ("p12", "p21", "p22"))
        balance(each, f"{VIP}:80", backends, options=["selection_fields=ip_src,ip_dst"])
        balance(each, f"{VIP}:90", backends, name="lb2", options=["selection_fields=ip_src,tp_src"])
        ports = ("p12", "p21", "p22")
        chosen = [sent_to_one_of(each, "p11", routed("p11", VIP, udp(sport=sport)), ports)[0] for sport in range(2000, 2006)]
        assert len(set(chosen)) == 1
        for sport in range(2000, 2012):
            sent_to_one_of(each, "p11", routed("p11", VIP, udp(90, sport)), ports)

    compared(scenario)


def learned(each, chassis):
    return [flow for flow in each.chassis[chassis].flows() if flow.startswith("table=78")]


def sticks(each, source, address, ports, chassis, first=2000):
    """The first packet of a client is dropped when the switch learns its backend; all others go to this backend."""
    each.receive(source, routed(source, address, udp(sport=first)))
    until(lambda: learned(each, chassis), "a learned choice")
    chosen = [sent_to_one_of(each, source, routed(source, address, udp(sport=sport)), ports)[0] for sport in range(first + 1, first + 8)]
    assert len(set(chosen)) == 1


def test_affinity_sends_a_client_to_one_backend(compared):
    """With an affinity timeout, a learned flow sends all connections of a client to the backend of the first."""

    def scenario(each):
        add_switches(each)
        ports = ("p12", "p21", "p22")
        backends = ",".join(f"{ip(port)}:80" for port in ports)
        balance(each, f"{VIP}:80", backends, options=["options:affinity_timeout=120"])
        sticks(each, "p11", VIP, ports, "hv1")
        each.nbctl("--wait=hv", "lb-del", "lb")
        assert not learned(each, "hv1")
        balance(each, f"{VIP}:80", f"{ip('p12')}:80", options=["options:affinity_timeout=120"])
        sticks(each, "p11", VIP, ("p12",), "hv1", first=3000)
        each.chooses_by_hash = True

    compared(scenario)


def test_affinity_ends_after_its_timeout(compared):
    """A learned choice is forgotten when no connection of the client has used it for the timeout."""

    def scenario(each):
        add_switches(each)
        balance(each, f"{VIP}:80", f"{ip('p12')}:80", options=["options:affinity_timeout=2"])
        # The choice would end behind a kill.
        with each.chaos.burst():
            sticks(each, "p11", VIP, ("p12",), "hv1")
        until(lambda: not learned(each, "hv1"), "the end of the learned choice")

    compared(scenario)


def test_affinity_on_a_router(compared):
    """A gateway router's load balancer with affinity learns the choice, too."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_outside(each)
        each.nbctl("set", "Logical_Router", "r0", "options:chassis=hv1")
        options = ["options:affinity_timeout=60"]
        balance(each, "172.16.0.100:80", f"{ip('p12')}:80", switches=(), routers=("r0",), options=options)
        introduce(each, "e1")
        sticks(each, "e1", "172.16.0.100", ("p12",), "hv1")

    compared(scenario)


def test_load_balancing_of_ipv6(compared):
    """IPv6 load balancers on a switch and on a router; one without backends rejects."""

    def scenario(each):
        add_switches(each, ipv6=True)
        balance(each, f"[{VIP6}]:80", f"[{ip6('p12')}]:8080", "tcp", routers=("r0",))
        asked, answered = converse(each, "p11", "p12", routed("p11", VIP6, syn(80)))
        assert (asked[IPv6].dst, answered[IPv6].src) == (ip6("p12"), VIP6)
        balance(each, "[fd00:9::a]:80", "", name="none", switches=("s1",), options=["options:reject=true", "protocol=udp"])
        answered = send(each, "p11", routed("p11", "fd00:9::a", udp()), "p11")
        assert answered[ICMPv6DestUnreach].code == 4

    compared(scenario)


def test_a_load_balancer_without_backends_rejects(compared):
    """With `reject`, packets to a load balancer without backends are answered; `event` reports them."""

    def scenario(each):
        add_switches(each)
        balance(each, f"{VIP}:80", "", "tcp", options=["options:reject=true"], routers=("r0",))
        assert send(each, "p11", routed("p11", VIP, syn(80)), "p11")[TCP].flags == "RA"
        # By the router, as the other switch has no load balancer.
        assert send(each, "p22", routed("p22", VIP, syn(80)), "p22")[TCP].flags == "RA"
        balance(each, f"{VIP}:81", "", name="events", options=["options:event=true"])
        each.receive("p11", routed("p11", VIP, udp(81)))
        event = lambda: each.sbctl("--bare", "--columns=event_info", "list", "Controller_Event")
        until(lambda: f"vip={VIP}:81" in event(), "an event")

    compared(scenario)


def test_hairpin(compared):
    """A backend that reaches itself by its load balancer sees the load balancer's address, and its answer comes back."""

    def scenario(each):
        add_switches(each, ipv6=True)
        balance(each, f"{VIP}:80", f"{ip('p11')}:8080", "tcp")
        balance(each, f"[{VIP6}]:80", f"[{ip6('p11')}]:8080", "udp", name="lb6")
        balance(each, f"{VIP}:53", f"{ip('p11')}:53", name="snat", options=["options:hairpin_snat_ip=10.0.1.77"])
        asked, answered = converse(each, "p11", "p11", routed("p11", VIP, syn(80)))
        assert (asked[IP].src, answered[IP].src) == (VIP, VIP)
        asked = send(each, "p11", routed("p11", VIP, udp(53)), "p11")
        assert asked[IP].src == "10.0.1.77"
        assert send(each, "p11", reply(asked), "p11")[IP].src == VIP
        asked = send(each, "p11", routed("p11", VIP6, udp()), "p11")
        send(each, "p11", reply(asked), "p11")

    compared(scenario)


def test_a_load_balancer_of_a_router(compared):
    """A load balancer on a distributed router's gateway port serves the outside, and hosts inside by the same address."""

    def scenario(each):
        add_switches(each)
        add_outside(each)
        each.nbctl("--wait=hv", "lrp-set-gateway-chassis", "r0-outside", "hv1", 10)
        balance(each, "172.16.0.100:80", f"{ip('p12')}:8080", "tcp", switches=(), routers=("r0",))
        introduce(each, "e1")
        asked, answered = converse(each, "e1", "p12", routed("e1", "172.16.0.100", syn(80)))
        assert (asked[IP].dst, answered[IP].src) == (ip("p12"), "172.16.0.100")
        each.nbctl("--wait=hv", "set", "Load_Balancer", "lb", "options:skip_snat=true")
        converse(each, "e1", "p12", routed("e1", "172.16.0.100", syn(80, sport=1001)))

    compared(scenario)


def test_a_load_balancer_answers_pings_and_fragments(compared):
    """A load balancer without ports balances all protocols."""

    def scenario(each):
        add_switches(each)
        balance(each, VIP, ip("p12"), None)
        echo = ICMP(type=8, id=3, seq=1) / b"echo"
        asked = send(each, "p11", routed("p11", VIP, echo), "p12")
        assert send(each, "p12", reply(asked, ICMP(type=0, id=3, seq=1) / b"echo"), "p11")[IP].src == VIP
        whole = IP(src=ip("p11"), dst=VIP, id=7) / udp() / (bytes(range(256)) * 12)
        ether = Ether(src=mac("p11"), dst="00:00:00:00:ff:01")
        pieces = [ether / piece for piece in IP(bytes(whole)).fragment(1400)]
        each.receive("p11", *pieces)
        until(lambda: len([one for one in frames(each, "p12") if one[IP].flags.MF or one[IP].frag]) == len(pieces), "all fragments")

    compared(scenario)


def test_templates(compared):
    """A template's variables have other values on each chassis."""

    def scenario(each):
        add_switches(each)
        for chassis, port in (("hv1", "p12"), ("hv2", "p11")):
            each.nbctl("--", "create", "Chassis_Template_Var", f"chassis={chassis}", f'variables={{vip="{VIP}",backends="{ip(port)}:8080"}}')
        each.nbctl("--template", "lb-add", "lb", "^vip:80", "^backends", "tcp", "ipv4")
        each.nbctl("--wait=hv", "ls-lb-add", "s1", "lb")
        assert send(each, "p11", routed("p11", VIP, syn(80)), "p12")[IP].dst == ip("p12")
        assert send(each, "p12", routed("p12", VIP, syn(80)), "p11")[IP].dst == ip("p11")

    compared(scenario)


def answer_checks(each, port, answered):
    """The backend's host answers all checks that it has not answered yet: TCP by an acknowledgement, UDP by nothing."""
    seen = frames(each, port)
    for frame in seen[answered:]:
        if TCP in frame and frame[TCP].flags == "S":
            each.receive(port, reply(frame))
        elif ARP in frame and frame[ARP].op == 1:
            arp = ARP(op=2, hwsrc=mac(port), psrc=frame[ARP].pdst, hwdst=frame[ARP].hwsrc, pdst=frame[ARP].psrc)
            each.receive(port, Ether(src=mac(port), dst=frame.src) / arp)
    return len(seen)


def test_health_checks(compared):
    """A backend that does not answer ovn-controller's checks gets no connections any more."""

    def scenario(each):
        add_switches(each)
        options = [f"ip_port_mappings:{ip(port)}={port}:10.0.1.253" for port in ("p11", "p12")]
        balance(each, f"{VIP}:80", f"{ip('p11')}:80,{ip('p12')}:80", "tcp", switches=("s2",), options=options)
        # No further check comes before the end.
        health = ["--", "--id=@h", "create", "Load_Balancer_Health_Check", f'vip="{VIP}:80"']
        health += ["options:interval=20", "options:timeout=2", "options:success_count=1", "options:failure_count=1"]
        each.nbctl(*health, "--", "add", "Load_Balancer", "lb", "health_check", "@h")
        answered = 0

        def status():
            nonlocal answered
            answered = answer_checks(each, "p12", answered)
            return dict(each.rows("Service_Monitor", "logical_port", "status"))

        until(lambda: status() == {"p11": "offline", "p12": "online"}, lambda: f"one backend online: {status()}")
        each.central.sync()
        for sport in range(3000, 3006):
            found = lambda frame, sport=sport: TCP in frame and frame[TCP].sport == sport
            send(each, "p21", routed("p21", VIP, syn(80, sport)), "p12", found)

    compared(scenario)


def test_removed_load_balancers_flush_their_connections(compared):
    """With ct_flush, ovn-controller removes the connections of a backend that is gone; others stay."""

    def scenario(each):
        add_switches(each)
        balance(each, f"{VIP}:80", f"{ip('p12')}:80", options=["options:ct_flush=true"])
        balance(each, f"{VIP}:81", f"{ip('p12')}:81", name="other")
        for dport in (80, 81):
            send(each, "p11", routed("p11", VIP, udp(dport)), "p12")
        assert len(balanced(each)) >= 2
        each.nbctl("--wait=hv", "lb-del", "lb")
        until(lambda: not any("dport=80)" in line for line in balanced(each)), lambda: f"no connections to port 80: {balanced(each)}")
        assert any("dport=81" in line for line in balanced(each))
        each.nbctl("--wait=hv", "lb-del", "other")
        balance(each, f"{VIP}:81", f"{ip('p22')}:81", name="new")
        send(each, "p11", routed("p11", VIP, udp(81, sport=1001)), "p22")

    def balanced(each):
        return [line for line in each.connections("hv1") if VIP in line]

    compared(scenario)


def test_distributed_load_balancing(compared):
    """A distributed load balancer of a router uses the backends of the packet's own chassis."""

    def scenario(each):
        add_switches(each)
        options = ["options:distributed=true", *(f"ip_port_mappings:{ip(port)}={port}" for port in ("p21", "p22"))]
        balance(each, f"{VIP}:80", f"{ip('p21')}:80,{ip('p22')}:80", "tcp", switches=(), routers=("r0",), options=options)
        for number in (1, 2):
            asked = send(each, f"p1{number}", routed(f"p1{number}", VIP, syn(80)), f"p2{number}")
            send(each, f"p2{number}", reply(asked), f"p1{number}")

    compared(scenario)


def test_groups_of_load_balancers(compared):
    """All load balancers of a group serve the switches and routers that use the group."""

    def scenario(each):
        add_switches(each)
        for number, port in ((1, "p12"), (2, "p22")):
            each.nbctl("lb-add", f"lb{number}", f"{VIP}:8{number}", f"{ip(port)}:80", "udp")
        lbs = [each.nbctl("--bare", "--columns=_uuid", "find", "Load_Balancer", f"name=lb{number}") for number in (1, 2)]
        words = ["--id=@g", "create", "Load_Balancer_Group", "name=group", f"load_balancer={','.join(lbs)}"]
        each.nbctl(*words, "--", "set", "Logical_Switch", "s1", "load_balancer_group=@g", "--", "set", "Logical_Router", "r0", "load_balancer_group=@g")
        each.central.sync()
        for number, port in ((1, "p12"), (2, "p22")):
            asked = send(each, "p11", routed("p11", VIP, udp(80 + number)), port)
            assert send(each, port, reply(asked), "p11")[IP].src == VIP

    compared(scenario)


def test_health_checks_of_udp(compared):
    """A UDP backend is online until an ICMP error answers a check."""

    def scenario(each):
        add_switches(each)
        balance(each, f"{VIP}:80", f"{ip('p12')}:80", options=[f"ip_port_mappings:{ip('p12')}=p12:10.0.1.253"])
        # The backend is online again when the check behind the refused one is over.
        health = ["--", "--id=@h", "create", "Load_Balancer_Health_Check", f'vip="{VIP}:80"']
        health += ["options:interval=4", "options:timeout=1", "options:success_count=1", "options:failure_count=1"]
        each.nbctl(*health, "--", "add", "Load_Balancer", "lb", "health_check", "@h")
        status = lambda: each.sbctl("--bare", "--columns=status", "list", "Service_Monitor")
        until(lambda: status() == "online", lambda: f"online: {status()}")
        is_check = lambda frame: UDP in frame and frame[IP].src == "10.0.1.253"
        refused = 0

        def refuse():
            nonlocal refused
            checks = [frame for frame in frames(each, "p12") if is_check(frame)]
            for check in checks[refused:]:
                error = ICMP(type=3, code=3) / bytes(check[IP])[:28]
                each.receive("p12", Ether(src=mac("p12"), dst=check.src) / IP(src=ip("p12"), dst="10.0.1.253") / error)
            refused = len(checks)
            return status() == "offline"

        until(refuse, lambda: f"offline: {status()}")
        each.central.sync()

    compared(scenario)


def test_sctp(compared):
    """SCTP associations are balanced, and all their packets go to one backend."""

    def scenario(each):
        add_switches(each)
        balance(each, f"{VIP}:80", f"{ip('p12')}:8080", "sctp")
        init = SCTP(sport=1000, dport=80) / SCTPChunkInit(init_tag=77, n_out_streams=1, n_in_streams=1)
        asked = send(each, "p11", routed("p11", VIP, init), "p12")
        assert asked[SCTP].dport == 8080
        answer = SCTP(sport=8080, dport=1000, tag=77) / SCTPChunkInitAck(init_tag=78, n_out_streams=1, n_in_streams=1)
        assert send(each, "p12", reply(asked, answer), "p11")[IP].src == VIP

    compared(scenario)


def test_fragments_are_balanced(compared):
    """Fragments of a packet to a load balancer with ports all go to its backend."""

    def scenario(each):
        add_switches(each)
        balance(each, f"{VIP}:80", f"{ip('p12')}:8080")
        whole = IP(src=ip("p11"), dst=VIP, id=7) / udp() / (bytes(range(256)) * 12)
        pieces = IP(bytes(whole)).fragment(1400)
        each.receive("p11", *(Ether(src=mac("p11"), dst="00:00:00:00:ff:01") / piece for piece in pieces))
        arrived = lambda: [frame for frame in frames(each, "p12") if frame[IP].frag or frame[IP].flags.MF]
        until(lambda: len(arrived()) == len(pieces), lambda: f"all fragments: {arrived()}")
        assert arrived()[0][UDP].dport == 8080

    compared(scenario)


def test_a_router_answers_for_its_load_balancers(compared):
    """The router answers questions for the addresses of its load balancers, also for those outside of its networks."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        add_outside(each)
        each.nbctl("--wait=hv", "lrp-set-gateway-chassis", "r0-outside", "hv2", 10)
        balance(each, "172.16.0.100:80", f"{ip('p11')}:80,{ip('p12')}:80", switches=(), routers=("r0",))
        balance(each, "172.31.0.1:80", f"{ip('p11')}:80", name="far", switches=(), routers=("r0",), options=["options:neighbor_responder=all"])
        introduce(each, "e1")
        introduce(each, "e1", "172.16.0.100")
        introduce(each, "e1", "172.31.0.1")

    compared(scenario)
