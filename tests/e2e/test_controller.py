"""Unmodified controllers decide about packets: os-ken's learning switches for each version of OpenFlow."""

import pytest

from osken import Application
from test_hosts import connect, tcp_transfer
from waiting import until

# The application, its OpenFlow version, and whether it sets a table-miss flow.
SWITCHES = [
    ("simple_switch", "OpenFlow10", False),
    ("simple_switch_13", "OpenFlow13", True),
    ("simple_switch_12", "OpenFlow12", False),
    ("simple_switch_14", "OpenFlow14", True),
    ("simple_switch_15", "OpenFlow15", True),
]


@pytest.mark.parametrize("name,version,sets_miss", SWITCHES)
def test_simple_switch(making, name, version, sets_miss):
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number) for number in (1, 2, 3)]
    connect(switch, *hosts)
    switch.vsctl("set", "bridge", "br0", f"protocols={version}", "fail-mode=secure")
    switch.ofctl("-O", version, "del-flows", "br0")
    hosts[0].cannot_ping(hosts[1].address)
    with Application(switch, name) as controller:
        controller.control("br0")
        for a in hosts:
            for b in hosts:
                if a is not b:
                    a.ping(b.address)
        tcp_transfer(hosts[0], hosts[1], hosts[1].address, 1_000_000)
        flows = switch.flows("br0", "-O", version)
        assert sets_miss == any("priority=0 actions=CONTROLLER:65535" in flow for flow in flows), flows
        learned = [flow for flow in flows if f"dl_dst={hosts[1].mac}" in flow]
        assert learned, flows
        assert "packet in" in controller.log()
        assert "is_connected: true" in switch.vsctl("show")
    until(lambda: switch.vsctl("get", "controller", "br0", "is_connected") == "false", "the connection lost")
    # In secure mode, flows stay when the controller disconnects.
    hosts[0].ping(hosts[1].address)
