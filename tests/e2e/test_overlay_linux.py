"""A site of the switch and a host with Linux's own VXLAN device share an overlay: every byte between them is checked."""

import pytest

from overlays import LinuxEnd, Site, cable, exchange, inner6, outer, watched

# Headers in front of the inner Ethernet payload: outer IP, UDP, VXLAN, inner Ethernet.
OVERHEAD = {4: 20 + 8 + 8 + 14, 6: 40 + 8 + 8 + 14}
# The longest datagram with ICMP that IPv4 carries.
LARGEST = 65_507


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
    """Pings with packets of exactly the inner MTU, which nobody may fragment."""
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

