"""Quality of service and mirrors of OVN: meters, DSCP, queues; local, GRE, ERSPAN and logical mirrors."""

import pytest
from scapy.layers.inet import IP, UDP

from logical import add_switches, packet, send
from physical import add_physical_port, local_rows, map_networks
from shown import hexes
from waiting import until


def test_dscp_and_marks(compared):
    """Rules of both directions write DSCPs; the one of the highest priority wins."""

    def scenario(each):
        add_switches(each)
        each.nbctl("qos-add", "s1", "from-lport", "100", 'inport == "p11" && ip4', "dscp=10")
        each.nbctl("qos-add", "s1", "from-lport", "200", 'inport == "p11" && udp.dst == 2001', "dscp=48")
        each.nbctl("qos-add", "s1", "to-lport", "100", 'outport == "p11"', "dscp=63")
        each.nbctl("--wait=hv", "qos-add", "s2", "to-lport", "100", 'outport == "p22" && ip.dscp == 48', "dscp=1", "mark=7")
        for dport, target, dscp in ((2000, "p12", 10), (2001, "p12", 48), (2001, "p22", 1)):
            sent = send(each, "p11", packet("p11", target, UDP(sport=1, dport=dport)), target)
            assert sent[IP].tos >> 2 == dscp
        assert send(each, "p12", packet("p12", "p11"), "p11")[IP].tos >> 2 == 63

    compared(scenario)


@pytest.mark.parametrize("direction", ["from-lport", "to-lport"])
def test_rates_by_meters(compared, direction):
    """A rule's rate and burst limit what passes; other packets are not affected."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        where = 'inport == "p11"' if direction == "from-lport" else 'outport == "p12"'
        each.nbctl("--wait=hv", "qos-add", "s1", direction, "100", f"{where} && udp.dst == 7", "rate=1", "burst=8")
        limited = packet("p11", "p12", UDP(sport=1, dport=7) / bytes(158))
        each.receive("p11", *[limited] * 12)
        send(each, "p11", packet("p11", "p12"), "p12", lambda frame: frame[UDP].dport == 2000)
        # The burst is that of five packets of 200 bytes; a sixth one may find the tokens of some milliseconds.
        assert len(each.sent("p12")) in (6, 7)
        each.remarks["frames of hv2"] = sorted({frame.hex() for frame in each.sent("p12")})
        each.remarks["meters"] = each.chassis["hv1"].meters() + each.chassis["hv2"].meters()

    compared(scenario)


def test_queues_of_localnet_ports(compared):
    """Rates of ports become queues of the interface that leads to the physical network, and packets enter them."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        map_networks(each)
        add_physical_port(each, "s1", tag=20)
        for chassis in each.chassis.values():
            chassis.switch.vsctl("set", "Port", "uplink", "external_ids:ovn-egress-iface=true")
        options = ["qos_max_rate=30000000", "qos_burst=3000000", "qos_min_rate=20000000"]
        each.nbctl("--wait=hv", "set", "Logical_Switch_Port", "p11", *(f"options:{option}" for option in options))
        each.nbctl("--wait=hv", "set", "Logical_Switch_Port", "ln1", "options:qos_max_rate=1000000000")
        switch = each.chassis["hv1"].switch
        until(lambda: switch.vsctl("get", "Port", "uplink", "qos") != "[]", "queues")
        each.central.sync()
        send(each, "p11", packet("p11", "p12"), "p12")
        each.remarks["queues"] = local_rows(each, "Queue", "dscp", "external_ids", "other_config")
        each.remarks["QoS"] = local_rows(each, "QoS", "type", "external_ids", "other_config")
        each.nbctl("--wait=hv", "lsp-set-options", "p11")
        until(lambda: len(local_rows(each, "Queue", "other_config")["hv1"]) <= 1, "fewer queues")

    compared(scenario)


def mirrors(each):
    ports = local_rows(each, "Interface", "type", "options", "external_ids")
    found = {name: [row for row in rows if "gre" in row or "erspan" in row] for name, rows in ports.items()}
    return found, local_rows(each, "Mirror", "name", "select_all", "select_vlan", "external_ids")


@pytest.mark.parametrize("selected", ["from-lport", "to-lport", "both"])
def test_local_mirrors(compared, selected):
    """A mirror copies the packets of a port in each direction to an interface of the integration bridge."""

    def scenario(each):
        add_switches(each)
        chassis = each.chassis["hv1"]
        chassis.add_tap("tap1", "external_ids:mirror-id=spy")
        each.nbctl("mirror-add", "m1", "local", selected, "spy")
        each.nbctl("--wait=hv", "lsp-attach-mirror", "p11", "m1")
        until(lambda: chassis.switch.vsctl("--bare", "--columns=name", "list", "Mirror"), "a mirror")
        each.central.sync()
        send(each, "p11", packet("p11", "p22"), "p22")
        send(each, "p22", packet("p22", "p11"), "p11")
        send(each, "p21", packet("p21", "p11"), "p11")
        send(each, "p12", packet("p12", "p21"), "p21")
        expected = {"from-lport": 1, "to-lport": 2, "both": 3}
        until(lambda: len(chassis.tapped("tap1")) == expected[selected], lambda: f"{expected[selected]} copies, not {chassis.tapped('tap1')}")
        each.remarks["mirrors"] = mirrors(each)
        each.nbctl("--wait=hv", "lsp-detach-mirror", "p11", "m1")
        until(lambda: not chassis.switch.vsctl("--bare", "--columns=name", "list", "Mirror"), "no mirror")
        # The switch has applied the change before this one.
        chassis.switch.vsctl("set", "Open_vSwitch", ".", "external_ids:mirrors=none")
        # A packet without a cached flow: those of before may go on a while.
        send(each, "p11", packet("p11", "p12"), "p12")
        each.remarks["copies"] = [frame.hex() for frame in chassis.tapped("tap1")]

    compared(scenario)


@pytest.mark.parametrize("kind", ["gre", "erspan"])
def test_mirrors_over_tunnels(compared, kind):
    """A mirror copies packets of two ports to a machine in the underlay."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        each.add_external("v1", 0)
        for chassis in each.chassis.values():
            chassis.configure("tnl/neigh/set", "br-phys", "192.168.0.101", "aa:bb:cc:00:01:01")
        each.nbctl("mirror-add", "m1", kind, "7", "both", "192.168.0.101")
        for port in ("p11", "p12"):
            each.nbctl("--wait=hv", "lsp-attach-mirror", port, "m1")
        for chassis in each.chassis.values():
            until(lambda chassis=chassis: chassis.switch.vsctl("--bare", "--columns=name", "list", "Mirror"), "a mirror")
        each.central.sync()
        protocol = lambda frame: IP in frame and frame[IP].proto == 47
        send(each, "p11", packet("p11", "p12"), "v1", protocol)
        until(lambda: len([frame for frame in each.sent("v1") if frame[23] == 47]) == 2, "a copy of each chassis")
        # The underlay floods the packet, too; packets of several flows may overtake each other there.
        each.remarks["frames outside"] = sorted(hexes(each.sent("v1")))
        each.remarks["mirrors"] = mirrors(each)
        each.nbctl("--wait=hv", "mirror-del", "m1")
        for chassis in each.chassis.values():
            until(lambda chassis=chassis: not chassis.switch.vsctl("--bare", "--columns=name", "list", "Mirror"), "no mirror")

    compared(scenario)


def test_mirrors_to_logical_ports(compared):
    """A mirror with rules copies what they select to another logical port, also on another chassis."""

    def scenario(each):
        add_switches(each)
        each.nbctl("mirror-add", "m1", "lport", "both", "p22")
        each.nbctl("mirror-rule-add", "m1", "100", "ip4 && udp.dst == 2001", "skip")
        each.nbctl("mirror-rule-add", "m1", "50", "ip4", "mirror")
        each.nbctl("--wait=hv", "lsp-attach-mirror", "p11", "m1")
        # Whether a controller gives the mirror's port a zone of connections depends on what it learns first.
        _, _, _, key = each.bindings()["mp-s1-p22"]
        each.varying.append(rf"(?<=reg15={int(key):#x},metadata=0x2 actions=)load:ZONE->NXM_NX_REG13\[0\.\.15\],")
        send(each, "p11", packet("p11", "p12"), "p22")
        send(each, "p12", packet("p12", "p11", UDP(sport=1, dport=2001)), "p11")
        send(each, "p12", packet("p12", "p11", UDP(sport=1, dport=2002)), "p22")
        until(lambda: len(each.sent("p11")) == 2, "both packets at p11")
        until(lambda: len(each.sent("p12")) == 1, "the packet at p12")
        # The mirror's port and its target have flows with the same match, of which either may win.
        each.remarks["flows of hv2"] = [flow for flow in each.chassis["hv2"].flows() if "in_port=102 " not in flow]

    compared(scenario)
