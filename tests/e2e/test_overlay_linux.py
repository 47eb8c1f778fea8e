"""A site of the switch and a host with Linux's own VXLAN device share an overlay: every byte between them is checked."""

import pytest

import losses
from overlays import LARGEST, LinuxEnd, Site, cable, exchange, inner6, outer, watched

# Headers in front of the inner Ethernet payload: outer IP, UDP, VXLAN, inner Ethernet.
OVERHEAD = {4: 20 + 8 + 8 + 14, 6: 40 + 8 + 8 + 14}


def join(making, version, mtu=1500, offloads=True, options=(), device=()):
    """Both ends with a tunnel whose inner packets just fit."""
    inner_mtu = mtu - OVERHEAD[version]
    site = Site(making, 1, mtu=mtu, inner_mtu=inner_mtu, offloads=offloads)
    linux = LinuxEnd(making, 2, mtu=mtu, inner_mtu=inner_mtu)
    cable(site, linux, offloads)
    site.tunnel("vxlan", f"remote_ip={outer(2, version)}", "key=7", *options)
    linux.tunnel("vxlan", "id", 7, "dstport", 4789, "remote", outer(1, version), "local", outer(2, version), *device)
    return site, linux


def whole_packets(one, two, mtu):
    """Pings with packets of exactly the inner MTU that forbid fragmentation."""
    one.ping(two.address, "-M", "do", "-s", mtu - 28)
    one.ping(inner6(two.number), "-M", "do", "-s", mtu - 48)


@pytest.mark.parametrize("offloads", [True, False], ids=["offloads", "plain"])
@pytest.mark.parametrize("mtu", [1500, 9000])
@pytest.mark.parametrize("version", [4, 6])
def test_vxlan(making, version, mtu, offloads):
    site, linux = join(making, version, mtu, offloads)
    lengths = (100, site.inner_mtu - 100, 3 * mtu)
    with watched(site.host, linux):
        for one, two in ((site.host, linux), (linux, site.host)):
            whole_packets(one, two, site.inner_mtu)
            exchange(one, two, *lengths)
            one.ping(two.address, "-s", LARGEST)
            one.ping(inner6(two.number), "-s", LARGEST)
    assert site.switch.appctl("tnl/neigh/show").count(outer(2, version)) == 1



@pytest.mark.parametrize("version", [4, 6])
def test_outer_checksums(making, version):
    """With checksums in both directions, the kernel finds no wrong one; over IPv6, it refuses packets without."""
    site, linux = join(making, version, options=["csum=true"], device=["udpcsum"] if version == 4 else [])
    exchange(site.host, linux, 100, 1300)
    counters = losses.of_namespace(linux.name)
    assert counters[linux.name, "Udp InCsumErrors" if version == 4 else "Udp6InCsumErrors"] == 0
    if version == 6:
        site.switch.vsctl("set", "interface", "t0", "options:csum=false")
        site.host.cannot_ping(linux.address)
        site.switch.vsctl("set", "interface", "t0", "options:csum=true")
        site.host.ping(linux.address)


RULES = """
table inet policies {
  chain incoming { type filter hook input priority 0; iif e0 icmp type echo-request meta mark & 0xffff == 0x123 accept
    iif e0 icmp type echo-request drop; }
  chain outgoing { type route hook output priority 0; oif e0 icmp type echo-reply meta mark set 0x456; }
}
"""


def test_group_policies(making):
    """The kernel sees the group of the packets as their mark, and sends its mark as the group."""
    site, linux = join(making, 4, options=["exts=gbp"], device=["gbp"])
    linux.run("nft", "-f", "-", input=RULES)
    site.flows(
        "priority=9,icmp,in_port=1,actions=set_field:0x123->tun_gbp_id,2",
        "priority=9,icmp,in_port=2,tun_gbp_id=0x456,actions=1",
        "priority=8,icmp,actions=drop",
        "priority=1,actions=normal",
    )
    site.host.ping(linux.address)
    site.flows("priority=9,icmp,in_port=1,actions=set_field:0x124->tun_gbp_id,2", "priority=1,actions=normal")
    site.host.cannot_ping(linux.address)


def test_one_port_for_many_networks(making):
    """Flows choose the network and the remote host of packets by one port; the kernel has a device for each network."""
    site, linux = join(making, 4, device=[])
    site.switch.vsctl("set", "interface", "t0", "options:remote_ip=flow", "options:key=flow")
    for vni in (8, 9):
        linux.run("ip", "link", "add", f"e{vni}", "type", "vxlan", "id", vni, "dstport", 4789, "remote", outer(1), "local", outer(2))
        linux.run("ip", "link", "set", f"e{vni}", "up")
        linux.run("ip", "addr", "add", f"10.{vni}.0.2/24", "dev", f"e{vni}")
        site.host.run("ip", "addr", "add", f"10.{vni}.0.1/24", "dev", "e0")
    flows = []
    for vni, network in ((7, "10.1.0.0/24"), (8, "10.8.0.0/24"), (9, "10.9.0.0/24")):
        go = f"set_field:{vni}->tun_id,set_field:{outer(2)}->tun_dst,2"
        flows += [f"in_port=1,arp,arp_tpa={network},actions={go}", f"in_port=1,ip,nw_dst={network},actions={go}"]
        flows += [f"in_port=2,tun_id={vni},tun_src={outer(2)},ip,nw_src={network},actions=1"]
        flows += [f"in_port=2,tun_id={vni},tun_src={outer(2)},arp,arp_spa={network},actions=1"]
    site.flows(*flows)
    for address in (linux.address, "10.8.0.2", "10.9.0.2"):
        site.host.ping(address)
        linux.ping(address[:-1] + "1")
