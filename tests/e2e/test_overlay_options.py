"""What flows of an overlay set and match in tunnel headers, and what the commands for tunnels show, as text and as JSON."""

import json

import pytest
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether

from overlays import BRIDGE, LOCAL, UPLINK, Capture, add_tunnels, join, outer
from waiting import until

OPTIONS = "{class=0x102,type=0x80,len=4}->tun_metadata0,{class=0x102,type=3,len=8}->tun_metadata5"


def counted(site, match):
    """Waits until a flow has matched packets."""
    until(lambda: site.switch.ours.n_packets(BRIDGE, match) > 0, lambda: f"{match}: {site.switch.ours.flows(BRIDGE)}")


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("maker", ["flowstone", "openvswitch"])
def test_geneve_options(making, peers, maker, version):
    """Options set at one end are matched at the other one, which answers with others."""
    one, two = join(making, peers if maker == "openvswitch" else None, offloads=maker == "flowstone")
    add_tunnels("geneve", version, ["key=flow"], one, two)
    for site in (one, two):
        site.switch.ofctl("add-tlv-map", BRIDGE, OPTIONS)
    there = "tun_id=77,tun_metadata0=0x11223344,tun_metadata5=0x5566"
    back = "tun_id=78,tun_metadata0=0x55667788/0xffffff00"
    one.flows(
        "priority=9,in_port=1,icmp,actions=set_field:77->tun_id,set_field:0x11223344->tun_metadata0,"
        "set_field:0x5566->tun_metadata5,2",
        f"priority=9,in_port=2,icmp,{back},actions=1",
        "priority=8,icmp,actions=drop",
        "priority=0,actions=normal",
    )
    two.flows(
        f"priority=9,in_port=2,icmp,{there},actions=1",
        "priority=9,in_port=1,icmp,actions=set_field:78->tun_id,set_field:0x55667799->tun_metadata0,2",
        "priority=8,icmp,actions=drop",
        "priority=0,actions=normal",
    )
    one.host.ping(two.host.address)
    counted(two, f"in_port=2,icmp,{there}")
    counted(one, f"in_port=2,icmp,{back}")
    pushed = "options({class=0x102,type=0x80,len=4,0x11223344}{class=0x102,type=0x3,len=8,0x5566})"
    flows = one.switch.appctl("dpctl/dump-flows")
    assert pushed in flows and "geneve({class=0x102,type=0x80,len=4,0x55667799/0xffffff00}" in flows, flows
    # Without the value that it matches, the other end drops them.
    one.flows("priority=9,in_port=1,icmp,actions=set_field:77->tun_id,set_field:1->tun_metadata0,2", "priority=0,actions=normal")
    one.host.cannot_ping(two.host.address)


def test_group_policies_and_other_fields(making):
    """VXLAN group policies, ERSPAN fields, flags, and tunnels whose remote address each flow sets."""
    one, two = join(making)
    here, there = outer(1), outer(2)
    cases = [
        ("vxlan", ["exts=gbp"], "set_field:0x123->tun_gbp_id,set_field:8->tun_gbp_flags", "tun_gbp_id=0x123,tun_gbp_flags=8"),
        ("erspan", ["erspan_ver=flow", "erspan_idx=flow"], "set_field:1->tun_erspan_ver,set_field:0x45->tun_erspan_idx",
         "tun_erspan_ver=1,tun_erspan_idx=0x45"),
        ("geneve", ["csum=true"], "set_field:oam->tun_flags", "tun_flags=+oam"),
    ]
    for kind, options, setting, match in cases:
        for site in (one, two):
            site.tunnel(kind, "remote_ip=flow", "key=flow", *options)
        go = lambda remote: f"set_field:{remote}->tun_dst,set_field:5->tun_id,{setting},2"
        one.flows(f"in_port=1,actions={go(there)}", "in_port=2,actions=1")
        two.flows(f"in_port=1,actions={go(here)}", f"in_port=2,tun_src={here},tun_id=5,{match},actions=1")
        one.host.ping(two.host.address)
        counted(two, f"in_port=2,tun_src={here}")
        for site in (one, two):
            site.switch.vsctl("del-port", BRIDGE, "t0")


def asked(site, *words):
    return json.loads(site.switch.ours.appctl("--format", "json", *words))


def test_commands(making):
    """Routes, neighbours, ports and cached flows as the commands show them, with the same contents as text and as JSON."""
    one, two = join(making)
    add_tunnels("vxlan", 4, ["key=7"], one, two)
    one.tunnel("geneve", f"remote_ip={outer(2, 6)}", f"local_ip={outer(1, 6)}", name="t1", ofport=3)
    one.host.ping(two.host.address)
    text = one.switch.ours.appctl
    # Tunnels.
    rows = asked(one, "ofproto/list-tunnels")
    first, second = sorted(rows, key=lambda row: row["name"])
    assert (first["name"], second["name"]) == ("t0", "t1")
    assert first["config"] == f"vxlan: ::->{outer(2)}, key=0x7, legacy_l2, dp port={first['port']}, ttl=64"
    assert [f"port {row['port']}: {row['name']} ({row['config']})" for row in rows] == text("ofproto/list-tunnels").splitlines()
    ports = asked(one, "tnl/ports/show")
    assert sorted((port["name"], port["udp_port"]) for port in ports) == [("genev_sys_6081", 6081), ("vxlan_sys_4789", 4789)]
    assert all(f"{port['name']} ({port['port']}) ref_cnt=1" in text("tnl/ports/show") for port in ports)
    (vxlan,) = (port for port in asked(one, "tnl/ports/show", "-v") if port["name"] == "vxlan_sys_4789")
    assert {outer(1), outer(1, 6)} <= {address["ip"] for address in vxlan["addresses"]}, vxlan
    # The neighbour, which the switch asked for.
    (neighbour,) = (row for row in asked(one, "tnl/neigh/show") if row["ip"] == outer(2))
    mac = two.switch.vsctl("get", "interface", LOCAL, "mac_in_use").strip('"')
    assert neighbour == {"ip": outer(2), "mac": mac, "bridge": LOCAL, "stale": False}
    assert text("tnl/arp/show") == text("tnl/neigh/show") and mac in text("tnl/neigh/show")
    # Routes of the kernel and of our own.
    text("ovs/route/add", "10.7.0.0/16", LOCAL, outer(2))
    routes = {(row["dst"], row["prefix"]): row for row in asked(one, "ovs/route/show")}
    assert routes["172.31.1.0", 24]["nexthops"] == [{"dev": LOCAL}] and not routes["172.31.1.0", 24]["user"]
    assert routes["10.7.0.0", 16]["user"] and routes["10.7.0.0", 16]["nexthops"] == [{"dev": LOCAL, "gateway": outer(2)}]
    assert asked(one, "ovs/route/lookup", "10.7.1.1") == {"src": outer(1), "gateway": outer(2), "dev": LOCAL}
    assert text("ovs/route/lookup", "10.7.1.1").splitlines() == [f"src {outer(1)}", f"gateway {outer(2)}", f"dev {LOCAL}"]
    text("ovs/route/del", "10.7.0.0/16")
    assert one.switch.ours.run("ovs-appctl", "ovs/route/lookup", "10.7.1.1", check=False).code != 0
    # Cached flows.
    shown = text("dpctl/dump-flows")
    one.host.ping(two.host.address, "-c", "3")
    flows = asked(one, "dpctl/dump-flows")
    push = next(flow["actions"] for flow in flows if "tnl_push" in flow["actions"] and flow["packets"])
    assert f"ipv4(src={outer(1)},dst={outer(2)},proto=17,tos=0,ttl=64,frag=0x4000)" in push and "vni=0x7" in push, push
    assert any("tunnel(tun_id=0x7," in flow["flow"] and f"src={outer(2)}" in flow["flow"] for flow in flows), flows
    assert any(flow["actions"] == f"tnl_pop({vxlan['port']})" for flow in flows), flows
    assert "tnl_push(" in shown and "tnl_pop(" in shown and "tunnel(tun_id=0x7," in shown
    # Status in the database.
    status = one.switch.vsctl("get", "interface", "t0", "status")
    assert f"tunnel_egress_iface={LOCAL}" in status and "tunnel_egress_iface_carrier=up" in status, status


def test_source_ports(making, tmp_path):
    """UDP source ports of outer headers are of the range, and differ between inner connections."""
    one, two = join(making)
    add_tunnels("vxlan", 4, ["key=7"], one, two)
    one.switch.ours.appctl("tnl/egress_port_range", 40000, 40999)
    assert "40000-40999" in one.switch.ours.appctl("tnl/egress_port_range")
    words = f"udp port 4789 and src host {outer(1)}"
    with Capture(two.namespace, UPLINK, tmp_path, words) as capture:
        one.host.ping(two.host.address)
        for port in range(7000, 7020):
            one.host.run("bash", "-c", f"echo {port} >/dev/udp/{two.host.address}/{port}")
        ports = lambda: {Ether(frame)[UDP].sport for frame in capture.frames()}
        until(lambda: len(ports()) > 10, "several source ports")
    assert all(40000 <= port <= 40999 for port in ports()), ports()
