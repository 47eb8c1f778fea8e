"""Services that OVN gives by itself: DHCP, DNS, neighbour discovery, router advertisements, and delegated prefixes."""

import ipaddress

import jsonrpc
from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.dhcp6 import (
    DHCP6_Advertise,
    DHCP6_InfoRequest,
    DHCP6_Reply,
    DHCP6_Request,
    DHCP6_Solicit,
    DHCP6OptClientId,
    DHCP6OptIA_NA,
    DHCP6OptIA_PD,
    DHCP6OptIAPrefix,
    DHCP6OptServerId,
    DUID_LL,
)
from scapy.layers.dns import DNS, DNSQR
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import (
    ICMPv6EchoReply,
    ICMPv6EchoRequest,
    ICMPv6ND_NA,
    ICMPv6ND_NS,
    ICMPv6ND_RA,
    ICMPv6ND_RS,
    ICMPv6NDOptDstLLAddr,
    ICMPv6NDOptPrefixInfo,
    ICMPv6NDOptSrcLLAddr,
    IPv6,
)
from scapy.layers.l2 import Ether
from scapy.utils6 import in6_getnsma, in6_getnsmac

from dhcp import bootp, dhcp_type, give_options
from logical import add_outside, add_switches, arrives, frames, ip, ip6, mac, packet, send
from waiting import until

ROUTER_MAC = "00:00:00:00:ff:01"


def test_dhcpv4_answers_for_a_server(compared):
    """Offers, acknowledgements and refusals carry the options of each type that the database has, at every chassis."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        give_options(
            *(each, 1, 4, "10.0.1.0/24"),
            **{"server_id": "10.0.1.254", "server_mac": '"00:00:00:00:ff:01"', "lease_time": 3600, "router": "10.0.1.254"},
            **{"dns_server": '"{10.0.1.53, 10.0.1.54}"', "mtu": 1400, "domain_name": r'"\"example.org\""'},
            **{"classless_static_route": '"{30.0.0.0/24,10.0.1.4, 0.0.0.0/0,10.0.1.254}"', "ip_forward_enable": 1},
            **{"ntp_server": '"{10.0.1.9}"', "netmask": "255.255.255.0", "T1": 1800, "tftp_server_address": "10.0.1.7"},
            **{"bootfile_name": r'"\"boot\""', "domain_search_list": r'"\"a.example.org,b.example.org\""'},
        )
        for port in ("p11", "p12"):
            each.receive(port, bootp(port, ("message-type", "discover")))
            assert dhcp_type(arrives(each, port)) == 2
            each.receive(port, bootp(port, ("message-type", "request"), ("requested_addr", ip(port))))
            assert dhcp_type(arrives(each, port, 2)) == 5
            each.receive(port, bootp(port, ("message-type", "request"), ("requested_addr", "10.0.1.77")))
            assert dhcp_type(arrives(each, port, 3)) == 6
            # A renewal comes from the address itself.
            renewal = bootp(port, ("message-type", "request"), src=ip(port), ciaddr=ip(port))
            each.receive(port, renewal)
            assert dhcp_type(arrives(each, port, 4)) == 5
            each.receive(port, bootp(port, ("message-type", "inform"), src=ip(port), ciaddr=ip(port)))
            arrives(each, port, 5)

    compared(scenario)


def test_dhcpv6_answers_for_a_server(compared):
    """Solicitations, requests and requests for information have answers; with dhcpv6_stateless only the last."""

    def scenario(each):
        add_switches(each, numbers=(1,), hosts=(1,), ipv6=True)
        options = {"server_id": '"00:00:00:00:ff:01"', "dns_server": '"{fd00::53,fd00::54}"', "domain_search": r'"\"example.org\""'}
        uuid = each.nbctl("create", "DHCP_Options", 'cidr="fd00:1::/64"', *(f"options:{key}={value}" for key, value in options.items()))
        each.nbctl("--wait=hv", "lsp-set-dhcpv6-options", "p11", uuid)

        def ask(message, count):
            ether = Ether(src=mac("p11"), dst="33:33:00:01:00:02") / IPv6(src="fe80::200:ff:fe00:101", dst="ff02::1:2")
            client = DHCP6OptClientId(duid=DUID_LL(lladdr=mac("p11")))
            each.receive("p11", ether / UDP(sport=546, dport=547) / message / client / DHCP6OptIA_NA(iaid=7))
            return arrives(each, "p11", count)

        assert DHCP6_Advertise in ask(DHCP6_Solicit(trid=1), 1)
        assert DHCP6_Reply in ask(DHCP6_Request(trid=2), 2)
        assert DHCP6_Reply in ask(DHCP6_InfoRequest(trid=3), 3)
        each.nbctl("--wait=hv", "set", "DHCP_Options", uuid, "options:dhcpv6_stateless=true")
        ask(DHCP6_InfoRequest(trid=4), 4)

    compared(scenario)


def test_dhcp_relay(compared):
    """A router relays requests to a server behind another switch, and its answers back."""

    def scenario(each):
        add_switches(each)
        relay = each.nbctl("create", "DHCP_Relay", "name=relay", "servers=10.0.2.2")
        each.nbctl("set", "Logical_Router_Port", "r0-s1", f"dhcp_relay={relay}")
        each.nbctl("--wait=hv", "set", "Logical_Switch", "s1", "other_config:dhcp_relay_port=s1-r0")
        each.nbctl("--wait=hv", "lrp-set-gateway-chassis", "r0-s1", "hv1")
        each.receive("p11", bootp("p11", ("message-type", "discover")))
        relayed = arrives(each, "p22")
        assert relayed[BOOTP].giaddr == "10.0.1.254"
        options = [("message-type", "offer"), ("server_id", "10.0.2.2"), ("router", "10.0.1.254"), ("subnet_mask", "255.255.255.0")]
        answer = BOOTP(op=2, chaddr=relayed[BOOTP].chaddr, xid=relayed[BOOTP].xid, giaddr="10.0.1.254", yiaddr=ip("p11"))
        ether = Ether(src=mac("p22"), dst="00:00:00:00:ff:02") / IP(src="10.0.2.2", dst="10.0.1.254")
        each.receive("p22", ether / UDP(sport=67, dport=67) / answer / DHCP(options=[*options, "end"]))
        assert dhcp_type(arrives(each, "p11")) == 2

    compared(scenario)


def test_dns(compared):
    """Queries for names and addresses in the database have answers; others, and those of other switches, do not."""

    def scenario(each):
        add_switches(each)
        records = {"host.example.org": "10.0.1.2 fd00:1::2", "only6.example.org": "fd00::13", "1.1.0.10.in-addr.arpa": "p11.example.org"}
        uuid = each.nbctl("create", "DNS", *(f'records:"{name}"="{value}"' for name, value in records.items()))
        each.nbctl("--wait=hv", "set", "Logical_Switch", "s1", f"dns_records={uuid}")
        # "unknown" goes to the server.
        for name, kind in (("host", "A"), ("HOST", "AAAA"), ("only6", "AAAA"), ("only6", "A"), ("host", "ALL"), ("host", "MX")):
            query = DNS(id=7, rd=1, qd=DNSQR(qname=f"{name}.example.org", qtype=kind))
            each.receive("p11", packet("p11", "p12", UDP(sport=5000, dport=53) / query))
        query = DNS(id=7, rd=1, qd=DNSQR(qname="1.1.0.10.in-addr.arpa", qtype="PTR"))
        each.receive("p11", packet("p11", "p12", UDP(sport=5000, dport=53) / query))
        arrives(each, "p11", 5)
        each.receive("p11", packet("p11", "p12", UDP(sport=5000, dport=53) / DNS(qd=DNSQR(qname="unknown.org"))))
        # The switches of other ports have no records.
        each.receive("p21", packet("p21", "p22", UDP(sport=5000, dport=53) / DNS(qd=DNSQR(qname="host.example.org"))))
        arrives(each, "p12")
        arrives(each, "p22")

    compared(scenario)


def solicitation(port, target, dst=None):
    """A neighbour solicitation for the target, by multicast unless the destination is given."""
    group = in6_getnsma(ipaddress.ip_address(target).packed)
    to, to_mac = dst or (ipaddress.ip_address(group).compressed, in6_getnsmac(group))
    ether = Ether(src=mac(port), dst=to_mac) / IPv6(src=ip6(port), dst=to, hlim=255)
    return ether / ICMPv6ND_NS(tgt=target) / ICMPv6NDOptSrcLLAddr(lladdr=mac(port))


def test_neighbour_discovery(compared):
    """Solicitations for hosts and routers have answers on the chassis of the host that asks; routers answer echoes."""

    def scenario(each):
        add_switches(each, numbers=(1,), ipv6=True)
        for count, target in enumerate(("fd00:1::2", "fd00:1::fe", "fe80::200:ff:fe00:ff01"), 1):
            each.receive("p11", solicitation("p11", target))
            assert ICMPv6ND_NA in arrives(each, "p11", count)
        each.receive("p11", solicitation("p11", "fd00:1::fe", ("fd00:1::fe", ROUTER_MAC)))
        assert arrives(each, "p11", 4)[ICMPv6NDOptDstLLAddr].lladdr == ROUTER_MAC
        echo = Ether(src=mac("p11"), dst=ROUTER_MAC) / IPv6(src=ip6("p11"), dst="fd00:1::fe") / ICMPv6EchoRequest(data=b"x" * 40)
        each.receive("p11", echo)
        assert ICMPv6EchoReply in arrives(each, "p11", 5)
        # An unused address is asked for at all ports.
        unused = lambda frame: ICMPv6ND_NS in frame and frame[ICMPv6ND_NS].tgt == "fd00:1::99"
        send(each, "p11", solicitation("p11", "fd00:1::99"), "p12", unused)

    compared(scenario)


def test_router_advertisements(compared):
    """A solicitation is answered by what is configured: prefixes, MTU, name servers and routes."""

    def scenario(each):
        settings = {"address_mode": "dhcpv6_stateful", "mtu": 1450, "rdnss": '"fd00::53"', "dnssl": '"example.org"'}
        settings |= {"route_info": '"HIGH-fd01::/64,LOW-fd02::/64"', "router_preference": "HIGH"}
        # Behind a clone that sends a packet to a controller, Open vSwitch forgets the actions for other hosts.
        add_switches(each, numbers=(1,), hosts=(1,), ipv6=True)
        each.nbctl("--wait=hv", "set", "Logical_Router_Port", "r0-s1", *(f"ipv6_ra_configs:{key}={value}" for key, value in settings.items()))
        ether = Ether(src=mac("p11"), dst="33:33:00:00:00:02") / IPv6(src="fe80::200:ff:fe00:101", dst="ff02::2", hlim=255)
        each.receive("p11", ether / ICMPv6ND_RS() / ICMPv6NDOptSrcLLAddr(lladdr=mac("p11")))
        advertised = arrives(each, "p11")
        assert advertised[ICMPv6ND_RA].M == 1 and advertised[ICMPv6NDOptPrefixInfo].prefix == "fd00:1::"
        each.nbctl("--wait=hv", "set", "Logical_Router_Port", "r0-s1", "ipv6_ra_configs:address_mode=slaac")
        each.receive("p11", ether / ICMPv6ND_RS() / ICMPv6NDOptSrcLLAddr(lladdr=mac("p11")))
        assert arrives(each, "p11", 2)[ICMPv6ND_RA].M == 0

    compared(scenario)


def test_periodic_router_advertisements(compared):
    """A router advertises itself to all hosts of its networks again and again."""

    def scenario(each):
        add_switches(each, ipv6=True)
        settings = {"address_mode": "slaac", "send_periodic": "true", "max_interval": 4, "min_interval": 3, "mtu": 1400}
        for port in ("r0-s1", "r0-s2"):
            each.nbctl("--wait=hv", "set", "Logical_Router_Port", port, *(f"ipv6_ra_configs:{key}={value}" for key, value in settings.items()))
        advertised = lambda port: [frame for frame in frames(each, port) if ICMPv6ND_RA in frame]
        for port in ("p11", "p12", "p21", "p22"):
            until(lambda port=port: len(advertised(port)) >= 2, f"advertisements at {port}", interval_s=0.2)
            assert advertised(port)[0][ICMPv6NDOptPrefixInfo].prefix == f"fd00:{port[1]}::"

    compared(scenario)


def test_prefix_delegation(compared):
    """A gateway asks a DHCPv6 server for a prefix, which the ports of the router that want one get."""

    def scenario(each):
        add_switches(each, ipv6=True)
        add_outside(each, ipv6=True)
        each.nbctl("lrp-set-gateway-chassis", "r0-outside", "hv1")
        each.nbctl("set", "Logical_Router_Port", "r0-s1", "options:prefix=true")
        each.nbctl("--wait=hv", "set", "Logical_Router_Port", "r0-outside", "options:prefix_delegation=true")
        answers = {DHCP6_Solicit: DHCP6_Advertise, DHCP6_Request: DHCP6_Reply}
        asked = {}
        seen = 0

        def serve():
            """Answers new questions: each is repeated with other numbers until an answer comes."""
            nonlocal seen
            new = frames(each, "e1")[seen:]
            seen += len(new)
            for request in new:
                for message, answer in answers.items():
                    if message in request:
                        asked.setdefault(message.__name__, f"{request.src} {request[IPv6].src} {request[IPv6].dst}")
                        each.receive("e1", delegate(request, request[message].trid, answer))
            (row,) = (row for row in northbound(each, "Logical_Router_Port", "name", "ipv6_prefix") if row["name"] == "r0-s1")
            return row["ipv6_prefix"] == "2001:db8:77::/64"

        until(serve, lambda: f"a prefix behind questions of {asked}")
        each.nbctl("--wait=hv", "remove", "Logical_Router_Port", "r0-outside", "options", "prefix_delegation")
        # Transactions have random numbers, and each question is repeated.
        each.remarks["frames outside"] = asked

    compared(scenario)


def delegate(request, number, answer):
    """The answer of the DHCPv6 server e1 to a request for a prefix."""
    ether = Ether(src=mac("e1"), dst=request.src) / IPv6(src="fe80::1", dst=request[IPv6].src) / UDP(sport=547, dport=546)
    prefix = DHCP6OptIAPrefix(preflft=3600, validlft=7200, plen=64, prefix="2001:db8:77::")
    delegated = DHCP6OptIA_PD(iaid=request[DHCP6OptIA_PD].iaid, T1=1800, T2=2880, iapdopt=[prefix])
    client = DHCP6OptClientId(duid=request[DHCP6OptClientId].duid)
    server = DHCP6OptServerId(duid=DUID_LL(lladdr=mac("e1")))
    return ether / answer(trid=number) / client / server / delegated


def northbound(each, table, *columns):
    """The rows of a northbound table."""
    return jsonrpc.select(each.central.server.socket, "OVN_Northbound", **{table: columns})[table]
