"""ACLs of OVN on both makers' switches: verdicts, answers of rejected packets, logs, port groups, address sets, tiers."""

from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import ICMPv6DestUnreach
from scapy.layers.l2 import Ether
from scapy.layers.sctp import SCTP, SCTPChunkAbort, SCTPChunkInit

from logical import add_switches, arrives, converse, frames, ip, ip6, mac, packet, reply, routed, send, syn
from waiting import until


def acls(each, *rows, entity="s1"):
    """Adds ACLs (direction, priority, match, action) and waits until all chassis have them."""
    for direction, priority, match, action in rows:
        each.nbctl("acl-add", entity, direction, priority, match, action)
    each.central.sync()


def udp(dport, sport=1000):
    return UDP(sport=sport, dport=dport)


def test_a_stateful_acl_lets_answers_back(compared):
    """Only connections that an allowed side begins pass, and their answers and related errors."""

    def scenario(each):
        add_switches(each)
        acls(
            each,
            ("from-lport", 1000, 'inport == "p11" && ip4', "allow-related"),
            ("to-lport", 1000, 'outport == "p11" && ip4', "drop"),
        )
        converse(each, "p11", "p12", packet("p11", "p12", syn(80)))
        asked = send(each, "p11", packet("p11", "p12", udp(53)), "p12")
        # Dropped; the answers after them are the next frames at p11.
        each.receive("p12", packet("p12", "p11", udp(54)))
        each.receive("p12", packet("p12", "p11", syn(22)))
        assert send(each, "p12", reply(asked), "p11")[UDP].sport == 53
        error = ICMP(type=3, code=3) / bytes(asked[IP])[:28]
        assert send(each, "p12", packet("p12", "p11", error), "p11")[ICMP].type == 3

    compared(scenario)


def test_stateless_and_stateful_acls_on_one_switch(compared):
    """A stateless ACL keeps its packets away from the tracker, beside stateful ones."""

    def scenario(each):
        add_switches(each)
        acls(
            each,
            ("from-lport", 2000, "udp.dst == 53", "allow-stateless"),
            ("from-lport", 2000, "udp.src == 53", "allow-stateless"),
            ("from-lport", 1000, "ip4", "allow-related"),
            ("to-lport", 1000, "udp.dst == 99", "drop"),
        )
        asked = send(each, "p11", packet("p11", "p12", udp(53)), "p12")
        send(each, "p12", reply(asked), "p11")
        each.receive("p11", packet("p11", "p12", udp(99)))
        converse(each, "p11", "p12", packet("p11", "p12", syn(80)))
        send(each, "p21", packet("p21", "p12", udp(53)), "p12")

    compared(scenario)


def test_rejected_packets_are_answered(compared):
    """ovn-controller answers rejected packets: TCP by a reset, all others by an ICMP error, in both directions."""

    def scenario(each):
        add_switches(each)
        acls(
            each,
            ("from-lport", 1000, 'inport == "p11" && ip4.dst == 10.0.1.2', "reject"),
            ("to-lport", 1000, 'outport == "p12" && ip4.src == 10.0.2.0/24', "reject"),
            ("to-lport", 900, 'outport == "p12"', "allow-related"),
        )
        assert send(each, "p11", packet("p11", "p12", syn(80)), "p11")[TCP].flags == "RA"
        error = send(each, "p11", packet("p11", "p12", udp(53)), "p11")
        assert (error[ICMP].type, error[ICMP].code) == (3, 3)
        assert send(each, "p21", packet("p21", "p12", syn(80)), "p21")[TCP].flags == "RA"
        assert send(each, "p22", packet("p22", "p12", udp(53)), "p22")[ICMP].type == 3
        echo = ICMP(type=8, id=7, seq=1) / b"echo"
        assert send(each, "p22", packet("p22", "p12", echo), "p22")[ICMP].type == 3
        assert not frames(each, "p12")

    compared(scenario)


def log_lines(each, chassis):
    """The messages of acl_log, without their times."""
    text = each.chassis[chassis].controller.log.read_text()
    return [line.split("|", 3)[3] for line in text.splitlines() if "|acl_log" in line]


def test_acls_write_a_log(compared):
    """ovn-controller logs packets of ACLs with their names, severities and verdicts."""
    found = []

    def scenario(each):
        add_switches(each)
        words = ["--log", "--severity=alert", "--name=web"]
        each.nbctl(*words, "acl-add", "s1", "from-lport", 1000, "tcp.dst == 80", "allow-related")
        each.nbctl("--log", "acl-add", "s1", "to-lport", 1000, "udp.dst == 53", "drop")
        each.nbctl("--log", "--severity=debug", "--name=no", "acl-add", "s1", "to-lport", 1001, "udp.dst == 54", "reject")
        each.nbctl("meter-add", "slow", "drop", 10, "pktps")
        each.nbctl("set", "ACL", "web", "meter=slow")
        each.central.sync()
        converse(each, "p11", "p12", packet("p11", "p12", syn(80)))
        each.receive("p11", packet("p11", "p12", udp(53)))
        send(each, "p11", packet("p11", "p12", udp(54)), "p11")
        until(lambda: len(log_lines(each, "hv1")) >= 1, "the line of web")
        until(lambda: len(log_lines(each, "hv2")) >= 2, "the lines of p12")
        found.append([log_lines(each, name) for name in each.chassis])

    compared(scenario)
    assert found[0] == found[1]


def test_port_groups_and_address_sets(compared):
    """ACLs of a port group match its ports and its addresses, and follow their changes."""

    def scenario(each):
        add_switches(each)
        each.nbctl("pg-add", "web", "p11", "p12")
        each.nbctl("create", "Address_Set", "name=good", 'addresses="10.0.2.1"')
        acls(
            each,
            ("to-lport", 1000, "outport == @web && ip4", "drop"),
            ("to-lport", 1001, "outport == @web && ip4.src == $good && udp.dst == {80, 443}", "allow-related"),
            ("to-lport", 1002, "outport == @web && ip4.src == $web_ip4 && udp", "allow"),
            entity="web",
        )
        send(each, "p21", packet("p21", "p12", udp(443)), "p12")
        each.receive("p22", packet("p22", "p12", udp(443)))
        send(each, "p11", packet("p11", "p12", udp(1)), "p12")
        each.nbctl("--wait=hv", "add", "Address_Set", "good", "addresses", '"10.0.2.2"')
        send(each, "p22", packet("p22", "p12", udp(80)), "p12")
        each.nbctl("--wait=hv", "pg-set-ports", "web", "p11")
        send(each, "p22", packet("p22", "p12", udp(5)), "p12")
        each.nbctl("--wait=hv", "remove", "Address_Set", "good", "addresses", '"10.0.2.1"')
        each.receive("p21", packet("p21", "p11", udp(443)))
        send(each, "p12", packet("p12", "p21"), "p21")

    compared(scenario)


def test_tiers_and_acls_after_load_balancing(compared):
    """A packet that one tier passes on is judged by the next; ACLs after load balancing see the backend."""

    def scenario(each):
        add_switches(each)
        each.nbctl("lb-add", "lb", "10.0.9.9:80", "10.0.1.2:8080", "udp")
        each.nbctl("ls-lb-add", "s1", "lb")
        each.nbctl("acl-add", "s1", "to-lport", 1000, "udp.dst == {8080, 81}", "pass")
        each.nbctl("acl-add", "s1", "to-lport", 900, "udp.dst == 82", "drop")
        each.nbctl("--", "--id=@a", "create", "ACL", "direction=to-lport", "priority=10", 'match="udp.dst == 81"', "action=drop", "tier=1",
                   "--", "add", "Logical_Switch", "s1", "acls", "@a")  # fmt: skip
        each.nbctl("--apply-after-lb", "acl-add", "s1", "from-lport", 1000, "udp.dst == 8081", "drop")
        each.nbctl("--apply-after-lb", "acl-add", "s1", "from-lport", 900, "ip4.dst == 10.0.1.2 && udp", "allow-related")
        each.central.sync()
        for dport in (81, 82, 8081):
            each.receive("p11", packet("p11", "p12", udp(dport)))
        vip = packet("p11", "p12", udp(80))
        vip[IP].dst = "10.0.9.9"
        assert send(each, "p11", vip, "p12")[UDP].dport == 8080
        send(each, "p12", reply(arrives(each, "p12")), "p11")

    compared(scenario)


def test_rejected_ipv6_and_sctp(compared):
    """IPv6 packets are rejected by ICMPv6 errors and resets, SCTP by an ABORT."""

    def scenario(each):
        add_switches(each, ipv6=True)
        acls(each, ("from-lport", 1000, 'inport == "p11" && (ip6.dst == fd00:2::1 || sctp)', "reject"), ("to-lport", 1000, "tcp.dst == 99", "reject"))
        assert ICMPv6DestUnreach in send(each, "p11", routed("p11", ip6("p21"), udp(9)), "p11")
        assert send(each, "p11", routed("p11", ip6("p21"), syn(80)), "p11")[TCP].flags == "RA"
        assert send(each, "p22", routed("p22", ip6("p12"), syn(99)), "p22")[TCP].flags == "RA"
        sctp = SCTP(sport=1000, dport=5000) / SCTPChunkInit(init_tag=77, n_out_streams=1, n_in_streams=1)
        assert SCTPChunkAbort in send(each, "p11", packet("p11", "p12", sctp), "p11")

    compared(scenario)


def test_connections_outlive_a_persistent_acl(compared):
    """Established connections of an ACL with persist-established pass although its match has changed; others do not."""

    def scenario(each):
        add_switches(each)
        acls(
            each,
            ("from-lport", 1000, "tcp.dst == 80", "allow-related"),
            ("from-lport", 1000, "tcp.dst == 81", "allow-related"),
            ("from-lport", 10, 'inport == "p11" && ip4', "drop"),
        )
        acl = lambda dport: each.nbctl("--bare", "--columns=_uuid", "find", "ACL", f'match="tcp.dst == {dport}"')
        found = {dport: acl(dport) for dport in (80, 81)}
        each.nbctl("--wait=hv", "set", "ACL", found[80], "options:persist-established=true")
        converse(each, "p11", "p12", packet("p11", "p12", syn(80)))
        converse(each, "p11", "p12", packet("p11", "p12", syn(81, sport=1001)))
        for dport, uuid in found.items():
            each.nbctl("--wait=hv", "set", "ACL", uuid, f'match="tcp.dst == {dport + 100}"')
        data = lambda dport, sport: packet("p11", "p12", TCP(sport=sport, dport=dport, flags="PA", seq=101, ack=5001) / b"data")
        each.receive("p11", data(81, 1001))
        each.receive("p11", packet("p11", "p12", syn(80, sport=1002)))
        assert send(each, "p11", data(80, 1000), "p12")[TCP].dport == 80

    compared(scenario)


def test_limits_of_connections(compared):
    """A switch's limit of tracked connections drops what exceeds it, until connections are gone."""

    def scenario(each):
        add_switches(each)
        each.nbctl("set", "Logical_Switch", "s1", "other_config:ct-zone-limit=2")
        acls(each, ("from-lport", 1000, "udp", "allow-related"))
        limits = lambda: each.chassis["hv1"].switch.appctl("dpctl/ct-get-limits")
        until(lambda: "limit=2" in limits(), lambda: f"a limit of 2: {limits()}")
        for sport in (1000, 1001, 1002):
            each.receive("p11", packet("p11", "p12", udp(53, sport)))
        send(each, "p21", packet("p21", "p22", udp(53)), "p22")
        each.receive("p11", packet("p11", "p12", udp(53, 1000)))
        each.nbctl("--wait=hv", "remove", "Logical_Switch", "s1", "other_config", "ct-zone-limit")
        until(lambda: "limit=2" not in limits(), lambda: f"no limit of 2: {limits()}")
        send(each, "p11", packet("p11", "p12", udp(53, 1003)), "p12", lambda frame: frame[UDP].sport == 1003)

    compared(scenario)


def test_fragments_pass_stateful_acls(compared):
    """Fragments are tracked together, and arrive as they were."""

    def scenario(each):
        add_switches(each, ipv6=True)
        acls(each, ("to-lport", 1000, "ip4.src == 10.0.1.1", "allow-related"), ("to-lport", 10, "ip", "drop"))
        for source, destination, ports in (("p11", "p12", udp(53)), ("p12", "p11", udp(1000, 53))):
            whole = IP(src=ip(source), dst=ip(destination), id=7) / ports / (bytes(range(256)) * 12)
            pieces = IP(bytes(whole)).fragment(1400)
            each.receive(source, *(Ether(src=mac(source), dst=mac(destination)) / piece for piece in pieces))
            until(lambda port=destination, count=len(pieces): len(frames(each, port)) == count, f"all fragments at {destination}")

    compared(scenario)


def test_conjunctions(compared):
    """ACLs with several sets are conjunctions of flows, and follow changes of each set."""

    def scenario(each):
        add_switches(each)
        near = " ".join(f'"10.0.{number}.1"' for number in range(2, 30)).replace(" ", ",")
        each.nbctl("create", "Address_Set", "name=near", f"addresses={near}")
        each.nbctl("create", "Address_Set", "name=ours", 'addresses="10.0.1.1","10.0.1.2","10.0.1.9"')
        each.nbctl("pg-add", "web", "p11", "p12")
        acls(
            each,
            ("to-lport", 1000, "outport == @web && ip4.src == $near && ip4.dst == $ours && udp.dst == {80, 443, 8000, 8080}", "allow-related"),
            ("to-lport", 1000, "outport == @web && ip4.src == $near && ip4.dst == $ours && tcp.dst == {80, 443}", "allow-related"),
            ("to-lport", 900, "outport == @web && ip4.src == $near && ip4.dst == $ours && udp.dst != {80, 443}", "reject"),
            ("to-lport", 10, "outport == @web && ip", "drop"),
            entity="web",
        )
        asked = send(each, "p21", packet("p21", "p12", udp(443)), "p12")
        send(each, "p12", reply(asked), "p21")
        send(each, "p21", packet("p21", "p11", syn(80)), "p11")
        assert ICMP in send(each, "p21", packet("p21", "p11", udp(9)), "p21")
        each.receive("p22", packet("p22", "p12", udp(443)))
        each.nbctl("--wait=hv", "add", "Address_Set", "near", "addresses", '"10.0.2.2"')
        send(each, "p22", packet("p22", "p12", udp(8000)), "p12")
        each.nbctl("--wait=hv", "remove", "Address_Set", "near", "addresses", '"10.0.2.1"')
        each.receive("p21", packet("p21", "p12", udp(8080)))
        each.nbctl("--wait=hv", "remove", "Address_Set", "ours", "addresses", '"10.0.1.2"')
        each.receive("p22", packet("p22", "p12", udp(8080)))
        send(each, "p22", packet("p22", "p11", udp(8080)), "p11")

    compared(scenario)


def test_many_acls(compared):
    """Many flows of ACLs are installed, changed and removed."""

    def scenario(each):
        add_switches(each)
        words = []
        for number in range(250):
            match = f'"ip4.src == 10.{number}.0.0/16 && udp.dst == {{{number + 1}, {number + 1001}, {number + 2001}}}"'
            words += ["--", f"--id=@a{number}", "create", "ACL", "direction=from-lport", f"priority={number + 1}", f"match={match}"]
            words += [f"action={'drop' if number % 2 else 'allow-related'}", "--", "add", "Logical_Switch", "s1", "acls", f"@a{number}"]
        each.nbctl("--wait=hv", *words)
        for dport in (1, 1001, 2001, 7):
            send(each, "p11", packet("p11", "p12", udp(dport)), "p12")
        each.receive("p11", packet("p11", "p12", udp(2)))
        each.nbctl("--wait=hv", "acl-del", "s1", "from-lport", 1, "ip4.src == 10.0.0.0/16 && udp.dst == {1, 1001, 2001}")
        each.nbctl("--wait=hv", "acl-add", "s1", "from-lport", 1000, "udp.dst == 1", "drop")
        each.receive("p11", packet("p11", "p12", udp(1)))
        send(each, "p11", packet("p11", "p12", udp(1001)), "p12")
        each.nbctl("--wait=hv", "acl-del", "s1")
        send(each, "p11", packet("p11", "p12", udp(1)), "p12")

    compared(scenario)
