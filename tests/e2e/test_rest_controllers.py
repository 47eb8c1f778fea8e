"""os-ken's applications with a REST interface, unmodified: a router, and all of OpenFlow's statistics and changes."""

import pytest

from osken import Application
from test_hosts import connect, tcp_transfer
from waiting import until

WEST, EAST = "0000000000000001", "0000000000000002"


def give_address(host, address, gateway):
    """Sets the only address of a host, and its default gateway."""
    host.run("ip", "addr", "flush", "dev", "e0")
    host.run("ip", "addr", "add", address, "dev", "e0")
    host.run("ip", "route", "add", "default", "via", gateway)


@pytest.mark.parametrize("version", ["OpenFlow10", "OpenFlow12", "OpenFlow13"])
def test_rest_router(making, version):
    """Two routers with a network between them: REST calls set addresses and routes, and packets follow them."""
    switch = making.switch(start="kernel")
    west, east = (making.host(switch, number) for number in (1, 2))
    connect(switch, west, bridge="west")
    connect(switch, east, bridge="east")
    give_address(west, "172.16.20.10/24", "172.16.20.1")
    give_address(east, "172.16.30.10/24", "172.16.30.1")
    for name, peer, number in (("west", "east", WEST), ("east", "west", EAST)):
        switch.vsctl(
            *["set", "bridge", name, f"protocols={version}", "fail-mode=secure", f"other-config:datapath-id={number}"],
            *["--", "add-port", name, f"to-{peer}"],
            *["--", "set", "interface", f"to-{peer}", "type=patch", f"options:peer=to-{name}"],
        )
    with Application(switch, "rest_router") as router:
        router.control("west", "east")
        until(
            lambda: {each["switch_id"] for each in router.rest("GET", "/router/all")} == {WEST, EAST},
            "both routers",
        )

        def post(number, **body):
            (answer,) = router.rest("POST", f"/router/{number}", body)
            assert all(each["result"] == "success" for each in answer["command_result"]), answer
            return answer["command_result"]

        post(WEST, address="172.16.20.1/24")
        post(WEST, address="192.168.10.1/30")
        post(EAST, address="172.16.30.1/24")
        post(EAST, address="192.168.10.2/30")
        # The router answers for its own address, and has no route to the other network yet.
        west.ping("172.16.20.1")
        west.run("ping", "-c", "2", "-W", "2", "172.16.30.10", check=False)
        (answer,) = router.rest("GET", f"/router/{WEST}")
        networks = answer["internal_network"][0]
        assert {each["address"] for each in networks["address"]} == {"172.16.20.1/24", "192.168.10.1/30"}, answer
        assert "route" not in networks, answer
        post(WEST, destination="172.16.30.0/24", gateway="192.168.10.2")
        post(EAST, gateway="192.168.10.1")
        west.ping("172.16.30.10")
        east.ping("172.16.20.10")
        tcp_transfer(west, east, "172.16.30.10", 1_000_000)
        # Routers on the path: two, in OpenFlow versions that can decrement the TTL.
        output = west.ping("172.16.30.10").out
        assert "ttl=62" in output or version == "OpenFlow10", output
        (answer,) = router.rest("GET", f"/router/{WEST}")
        (route,) = answer["internal_network"][0]["route"]
        assert route["gateway"] == "192.168.10.2" and route["destination"] == "172.16.30.0/24", answer
        (answer,) = router.rest("DELETE", f"/router/{WEST}", {"route_id": str(route["route_id"])})
        assert answer["command_result"][0]["result"] == "success", answer
        until(lambda: west.run("ping", "-c", "1", "-W", "1", "172.16.30.10", check=False).code != 0, "no way any more")
        # The application refuses nonsense instead of passing it on.
        router.rest("POST", "/router/00000000000000ff", {"address": "1.1.1.1/8"}, status=404)


# Versions with instructions in the application's syntax, and ports with properties.
WITH_PROPERTIES = ("OpenFlow14", "OpenFlow15")


def flow(version, in_port, *actions, **more):
    """A flow in the application's syntax, which differs by version."""
    body = {"dpid": 1, "priority": 10, "match": {"in_port": in_port}, **more}
    if version in WITH_PROPERTIES:
        return {**body, "instructions": [{"type": "APPLY_ACTIONS", "actions": list(actions)}]}
    return {**body, "actions": list(actions)}


def output(port):
    return {"type": "OUTPUT", "port": port}


@pytest.mark.parametrize("version", ["OpenFlow10", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"])
def test_ofctl_rest(making, version):
    """Flows, groups, meters, ports and all statistics over REST, and packets that show their effect."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    connect(switch, one, two)
    switch.vsctl(
        *["set", "bridge", "br0", f"protocols={version}", "fail-mode=secure"],
        "other-config:datapath-id=0000000000000001",
    )
    with Application(switch, "ofctl_rest") as controller:
        controller.control("br0")
        until(lambda: controller.rest("GET", "/stats/switches") == [1], "the switch")

        def stats(what):
            return controller.rest("GET", f"/stats/{what}/1")["1"]

        # In OpenFlow 1.5, counters are in a list of their own, "stats".
        def in_ports():
            """The ingress ports of the present flows."""
            flows = stats("flow")
            return {each["match"]["in_port"] for each in flows}

        def forwards():
            one.ping(two.address)

        def blocks():
            until(lambda: one.run("ping", "-c", "1", "-W", "1", two.address, check=False).code == 1, "no answer any more")

        def change(command, *bodies):
            for body in bodies:
                controller.rest("POST", f"/stats/{command}", body)

        assert stats("desc")["mfr_desc"], stats("desc")
        assert in_ports() == set()
        blocks()
        change("flowentry/add", flow(version, 1, output(2)), flow(version, 2, output(1)))
        forwards()
        assert in_ports() == {1, 2}
        for each in stats("flow"):
            assert each.get("stats", each)["packet_count"] > 0, each
        (aggregate,) = stats("aggregateflow")
        aggregate = aggregate.get("stats", aggregate)
        assert aggregate["flow_count"] == 2 and aggregate["packet_count"] > 0, aggregate
        tables = {each["table_id"]: each for each in stats("table")}
        assert next(table for number, table in tables.items() if number in (0, "0"))["active_count"] == 2, tables
        ports = {each["port_no"]: each for each in stats("port")}
        assert ports[1]["rx_packets"] > 0 and ports[2]["tx_packets"] > 0, ports
        names = {each["name"] for each in stats("portdesc")}
        assert names == {"br0", one.port, two.port}
        assert stats("queue") == []
        change("flowentry/modify", flow(version, 1))
        blocks()
        change("flowentry/modify_strict", flow(version, 1, output(2)))
        forwards()
        change("flowentry/delete_strict", flow(version, 1))
        blocks()
        assert in_ports() == {2}
        if version != "OpenFlow10":
            groups_and_roles(version, change, stats, in_ports, forwards, blocks)
        if version not in ("OpenFlow10", "OpenFlow12"):
            meters(version, change, stats, forwards)
        controller.rest("DELETE", "/stats/flowentry/clear/1")
        until(lambda: in_ports() == set(), "no flows")
        change("flowentry/add", flow(version, 1, output(2)), flow(version, 2, output(1)))
        forwards()
        # A port that the controller closes and opens again.
        closed = 1  # OFPPC_PORT_DOWN
        port = {"dpid": 1, "port_no": 2, "mask": closed}
        if version in WITH_PROPERTIES:
            # Without these fields the application fails.
            port["properties"] = [{"type": "ETHERNET", "advertise": 0}]
        change("portdesc/modify", {**port, "config": closed})
        blocks()
        change("portdesc/modify", {**port, "config": 0})
        forwards()
        controller.rest("POST", "/stats/flowentry/add", {"dpid": 7}, status=404)
        assert controller.lives()


def groups_and_roles(version, change, stats, in_ports, forwards, blocks):
    """Features from OpenFlow 1.2 on."""
    group = {"dpid": 1, "type": "ALL", "group_id": 5}
    if version == "OpenFlow15":
        group["command_bucket_id"] = 0xFFFFFFFF  # OFPG_BUCKET_ALL
    change("groupentry/add", {**group, "buckets": [{"actions": [output(2)]}]})
    change("flowentry/add", flow(version, 1, {"type": "GROUP", "group_id": 5}))
    forwards()
    (described,) = stats("groupdesc")
    assert described["type"] == "ALL" and described["group_id"] == 5, described
    (counted,) = stats("group")
    assert counted["packet_count"] > 0 and counted["ref_count"] == 1, counted
    (features,) = stats("groupfeatures")
    assert set(features["types"]) >= {"ALL", "SELECT", "INDIRECT", "FF"}, features
    change("groupentry/modify", {**group, "buckets": []})
    blocks()
    change("groupentry/delete", group)
    until(lambda: stats("groupdesc") == [], "no group")
    assert in_ports() == {2}
    change("role", {"dpid": 1, "role": "MASTER"})
    until(lambda: stats("role")[0]["role"] == "MASTER", "the role")


def meters(version, change, stats, forwards):
    """Features from OpenFlow 1.3 on."""
    band = {"type": "DROP", "rate": 100_000}
    change("meterentry/add", {"dpid": 1, "flags": ["KBPS"], "meter_id": 3, "bands": [band]})
    if version != "OpenFlow15":  # whose answers to this the application does not take
        (meter,) = stats("meterconfig")
        assert meter["meter_id"] == 3 and meter["bands"][0]["rate"] == 100_000, meter
    to_meter = {"type": "METER", "meter_id": 3}
    if version == "OpenFlow14":
        metered = flow(version, 1, output(2))
        metered["instructions"].insert(0, to_meter)
        change("flowentry/add", metered)
    else:
        change("flowentry/add", flow(version, 1, to_meter, output(2)))
    forwards()
    (meter,) = stats("meter")
    assert meter.get("flow_count", meter.get("ref_count")) == 1 and meter["packet_in_count"] > 0, meter
    if version != "OpenFlow15":  # Open vSwitch answers with what OpenFlow 1.4 has, which the application does not read
        (features,) = stats("meterfeatures")
        assert features["max_meter"] > 0 and "DROP" in features["band_types"], features
    change("meterentry/delete", {"dpid": 1, "meter_id": 3})
    until(lambda: stats("meter") == [], "no meter")
    if version == "OpenFlow13":  # the application takes half a minute for those of later versions
        # The application gives up after a second, in which a busy machine does not decode so much.
        until(lambda: len(stats("tablefeatures")) == 254, "the features of all tables")
