"""Multicast in OVN: snooping of IGMP and MLD, queriers, relays, and ports that get everything."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.inet6 import ICMPv6MLReport2, ICMPv6MLDMultAddrRec, IPv6, IPv6ExtHdrHopByHop, RouterAlert
from scapy.layers.l2 import Ether
from scapy.utils import checksum

from logical import add_switches, arrives, ip, ip6, mac, send
from waiting import until

GROUP, GROUP_MAC = "239.1.1.7", "01:00:5e:01:01:07"
# Fields of the IP header of IGMP packets, with a router alert.
IGMP = {"ttl": 1, "proto": 2, "options": b"\x94\x04\x00\x00"}
GROUP6, GROUP6_MAC = "ff0e::7", "33:33:00:00:00:07"


def snoop(each, switch, *settings):
    each.nbctl("--wait=hv", "set", "Logical_Switch", switch, "other_config:mcast_snoop=true", *(f"other_config:{setting}" for setting in settings))


def igmp(kind, group):
    """A message with the group, or a report of version 3 with a record that excludes nothing from it."""
    address = bytes(map(int, group.split(".")))
    message = bytes([kind, 0, 0, 0]) + (b"\0\0\0\1\4\0\0\0" + address if kind == 0x22 else address)
    return message[:2] + checksum(message).to_bytes(2, "big") + message[4:]


def report(port, kind="v2", group=GROUP):
    """A host's report for a group."""
    match kind:
        case "v2":
            ether = Ether(src=mac(port), dst=GROUP_MAC) / IP(src=ip(port), dst=group, **IGMP)
            return ether / igmp(0x16, group)
        case "leave":
            ether = Ether(src=mac(port), dst="01:00:5e:00:00:02") / IP(src=ip(port), dst="224.0.0.2", **IGMP)
            return ether / igmp(0x17, group)
        case "v3":
            ether = Ether(src=mac(port), dst="01:00:5e:00:00:16") / IP(src=ip(port), dst="224.0.0.22", **IGMP)
            return ether / igmp(0x22, group)
        case "mld":
            ether = Ether(src=mac(port), dst="33:33:00:00:00:16") / IPv6(src=f"fe80::{port[1:]}", dst="ff02::16", hlim=1)
            records = [ICMPv6MLDMultAddrRec(rtype=4, dst=GROUP6)]
            return ether / IPv6ExtHdrHopByHop(options=[RouterAlert()]) / ICMPv6MLReport2(records=records)


def stream(port, group=GROUP, group_mac=GROUP_MAC, **fields):
    return Ether(src=mac(port), dst=group_mac) / IP(src=ip(port), dst=group, **fields) / UDP(sport=3, dport=4)


def stream6(port):
    return Ether(src=mac(port), dst=GROUP6_MAC) / IPv6(src=ip6(port), dst=GROUP6) / UDP(sport=3, dport=4)


def groups(each):
    """The groups that chassis have reported, with their ports."""
    ports = dict(each.rows("Port_Binding", "_uuid", "logical_port"))
    names = dict(each.rows("Chassis", "_uuid", "name"))
    found = []
    for address, chassis, members in each.rows("IGMP_Group", "address", "chassis", "ports"):
        found.append((address, names.get(chassis), sorted(name for uuid, name in ports.items() if uuid in members)))
    return sorted(found)


def spare_members(each):
    """Spares controllers from now on: these keep the members of groups, and forget them when they end."""
    each.chaos.spare("controller")


def is_stream(frame):
    return UDP in frame and frame[UDP].dport == 4


@pytest.mark.parametrize("kind", ["v2", "v3"])
def test_igmp_snooping(compared, kind):
    """Packets of a group reach its members on all chassis, and nobody else; after they leave, all hosts again."""

    def scenario(each):
        add_switches(each, numbers=(1,), hosts=(1, 2))
        each.add_host("p13", "hv2")
        snoop(each, "s1", "mcast_flood_unregistered=true")
        send(each, "p11", stream("p11"), "p13", is_stream)
        each.receive("p12", report("p12", kind))
        spare_members(each)
        until(lambda: any(row[0] == GROUP for row in groups(each)), lambda: f"a group, not {groups(each)}")
        each.central.sync()
        send(each, "p11", stream("p11"), "p12", is_stream)
        send(each, "p13", stream("p13"), "p12", is_stream)
        assert len([frame for frame in each.sent("p13") if is_stream(Ether(frame))]) == 1
        # Groups of a link are not snooped.
        send(each, "p11", stream("p11", "224.0.0.77", "01:00:5e:00:00:4d"), "p13", is_stream)
        each.remarks["groups"] = groups(each)
        if kind == "v2":
            each.receive("p12", report("p12", "leave"))
            until(lambda: not any(row[0] == GROUP for row in groups(each)), lambda: f"no group, not {groups(each)}")
            each.central.sync()
            send(each, "p11", stream("p11"), "p13", is_stream)

    compared(scenario)


def test_mld_snooping(compared):
    """Packets of an IPv6 group reach the hosts that have reported it by MLD."""

    def scenario(each):
        add_switches(each, numbers=(1,), hosts=(1, 2), ipv6=True)
        each.add_host("p13", "hv2")
        snoop(each, "s1", "mcast_flood_unregistered=false")
        each.receive("p12", report("p12", "mld"))
        spare_members(each)
        until(lambda: any(row[0] == GROUP6 for row in groups(each)), lambda: f"a group, not {groups(each)}")
        each.central.sync()
        send(each, "p11", stream6("p11"), "p12", is_stream)
        each.remarks["groups"] = groups(each)

    compared(scenario)


def test_unregistered_groups(compared):
    """Packets of groups without members are dropped, or flooded, or reach the ports with mcast_flood alone."""

    def scenario(each):
        add_switches(each, numbers=(1,), hosts=(1, 2))
        each.add_host("p13", "hv2")
        snoop(each, "s1")
        each.receive("p11", stream("p11"))
        snoop(each, "s1", "mcast_flood_unregistered=true")
        send(each, "p11", stream("p11", ttl=9), "p12", lambda frame: IP in frame and frame[IP].ttl == 9)
        each.nbctl("--wait=hv", "lsp-set-options", "p13", "mcast_flood=true", "mcast_flood_reports=true")
        snoop(each, "s1", "mcast_flood_unregistered=false")
        send(each, "p11", stream("p11", ttl=10), "p13", lambda frame: IP in frame and frame[IP].ttl == 10)
        # Reports reach the port that wants them.
        send(each, "p11", report("p11"), "p13", lambda frame: IP in frame and frame[IP].proto == 2)
        spare_members(each)
        until(lambda: any(row[0] == GROUP for row in groups(each)), "a group")
        each.central.sync()
        send(each, "p12", stream("p12"), "p11", is_stream)

    compared(scenario)


def test_a_querier(compared):
    """A switch asks its hosts for groups of both families, which time out if nobody answers."""

    def scenario(each):
        add_switches(each, numbers=(1,), hosts=(1, 2))
        addresses = ['mcast_eth_src="00:00:00:00:ff:aa"', "mcast_ip4_src=10.0.1.250", 'mcast_ip6_src="fe80::fa"']
        snoop(each, "s1", "mcast_querier=true", *addresses, "mcast_query_interval=1", "mcast_query_max_response=1", "mcast_idle_timeout=15")
        for port in ("p11", "p12"):
            until(lambda port=port: any(frame[12:14] == b"\x08\x00" and frame[23] == 2 for frame in each.sent(port)), f"a query of IGMP at {port}")
            until(lambda port=port: any(frame[12:14] == b"\x86\xdd" for frame in each.sent(port)), f"a query of MLD at {port}")
        each.receive("p11", report("p11", "v3"))
        spare_members(each)
        until(lambda: any(row[0] == GROUP for row in groups(each)), "a group")
        each.nbctl("--wait=hv", "set", "Logical_Switch", "s1", "other_config:mcast_querier=false")

    compared(scenario)


def test_a_relay(compared):
    """A router forwards packets of a group to switches with members, and to ports that get everything."""

    def scenario(each):
        add_switches(each, numbers=(1, 2), hosts=(1, 2))
        each.nbctl("set", "Logical_Router", "r0", "options:mcast_relay=true")
        each.nbctl("lsp-set-options", "p21", "mcast_flood=true")
        each.nbctl("--wait=hv", "set", "Logical_Router_Port", "r0-s2", "options:mcast_flood=true")
        for switch in ("s1", "s2"):
            snoop(each, switch, "mcast_flood_unregistered=false")
        each.receive("p22", report("p22", "v3"))
        spare_members(each)
        until(lambda: any(row[0] == GROUP for row in groups(each)), "a group")
        each.central.sync()
        relayed = send(each, "p11", stream("p11"), "p22", is_stream)
        assert relayed[IP].ttl == 63 and relayed.src == "00:00:00:00:ff:02"
        # A packet of the link stays there, as does one that has no hop left.
        each.receive("p11", stream("p11", ttl=1))
        other = stream("p11", "239.1.1.8", "01:00:5e:01:01:08")
        assert send(each, "p11", other, "p21", is_stream)[IP].dst == "239.1.1.8"
        arrives(each, "p22")
        each.remarks["groups"] = groups(each)

    compared(scenario)


def test_static_groups_of_a_flood(compared):
    """Without snooping, packets of groups reach all hosts of a switch but not those of others."""

    def scenario(each):
        add_switches(each, numbers=(1, 2), hosts=(1, 2), ipv6=True)
        send(each, "p11", stream("p11"), "p12", is_stream)
        send(each, "p11", stream6("p11"), "p12", lambda frame: IPv6 in frame and is_stream(frame))
        send(each, "p11", report("p11"), "p12", lambda frame: IP in frame and frame[IP].proto == 2)

    compared(scenario)
