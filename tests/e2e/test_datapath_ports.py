"""Datapaths and ports made, changed and removed by hand (`dpctl/add-dp` and its relatives)."""

import re

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from dummies import Dummies
from waiting import until

FRAME = bytes(Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b") / IP(src="10.0.0.1", dst="10.0.0.2") / UDP() / bytes(30))


@pytest.fixture(name="dummies")
def _dummies(switch):
    return Dummies(switch, "br0", "p1", "p2", "p3")


def ports(switch, datapath):
    return re.findall(r"^  port (\d+): (\S+)", switch.appctl("dpctl/show", datapath), re.M)


def test_a_datapath_without_bridges_forwards_by_hand(switch):
    switch.appctl("dpctl/add-dp", "dummy@d", "a1,type=dummy", f"a2,type=dummy,tx_pcap={switch.directory}/a2.pcap")
    assert ports(switch, "dummy@d") == [("0", "d"), ("1", "a1"), ("2", "a2")]
    switch.appctl("dpctl/add-flow", "dummy@d", "in_port(1),eth_type(0x0800)", "2")
    switch.appctl("netdev-dummy/receive", "a1", FRAME.hex())
    until(lambda: "packets:1," in switch.appctl("dpctl/dump-flows", "dummy@d"), lambda: switch.appctl("dpctl/dump-flows", "dummy@d"))
    assert FRAME in (switch.directory / "a2.pcap").read_bytes()
    # Nothing answers misses.
    switch.appctl("netdev-dummy/receive", "a2", FRAME.hex())
    until(lambda: "hit:1 missed:0 lost:1" in switch.appctl("dpctl/show", "dummy@d"), lambda: switch.appctl("dpctl/show", "dummy@d"))
    assert "actions:a2" in switch.appctl("dpctl/dump-flows", "--names", "dummy@d")
    switch.appctl("dpctl/del-dp", "dummy@d")
    assert "dummy@d" not in switch.appctl("dpctl/dump-dps").split()


def test_a_bridge_follows_what_happens_to_its_ports(dummies, switch):
    dummies.flows("actions=flood")
    switch.appctl("dpctl/del-if", "dummy@ovs-dummy", "p2")
    until(lambda: "(p2)" not in switch.ofctl("show", "br0"), lambda: switch.ofctl("show", "br0"))
    dummies.receive("p1", FRAME)
    assert dummies.sent("p3", 1) == [FRAME] and not dummies.new_frames("p2")
    # The next configuration brings it back, with its number.
    switch.vsctl("set", "bridge", "br0", "external_ids:a=b")
    until(lambda: "2(p2)" in switch.ofctl("show", "br0"), lambda: switch.ofctl("show", "br0"))
    # Another number of the datapath is no other number of OpenFlow.
    switch.appctl("dpif-dummy/change-port-number", "ovs-dummy", "p2", "22")
    until(lambda: "p2 2/22:" in switch.appctl("dpif/show"), lambda: switch.appctl("dpif/show"))
    dummies.receive("p2", FRAME)
    assert dummies.sent("p1", 1) == [FRAME] and dummies.sent("p3", 1) == [FRAME]
    dummies.receive("p1", FRAME)
    assert dummies.sent("p2", 1) == [FRAME]
