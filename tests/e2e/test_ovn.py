"""OVN over our databases and switches, and over those of Open vSwitch: both networks do and show the same."""

from scapy.layers.inet import ICMP, IP
from scapy.layers.l2 import ARP, Ether

from logical import add_switches, arrives, ip, mac, packet


def test_two_switches_and_a_router(compared):
    def scenario(each):
        add_switches(each)
        each.receive("p11", packet("p11", "p12"))
        assert bytes(arrives(each, "p12")) == bytes(packet("p11", "p12"))
        each.receive("p11", packet("p11", "p21"))
        assert arrives(each, "p21")[IP].ttl == 63
        each.receive("p11", packet("p11", "p22"))
        assert arrives(each, "p22")[Ether].src == "00:00:00:00:ff:02"
        request = Ether(src=mac("p22"), dst="ff:ff:ff:ff:ff:ff") / ARP(psrc=ip("p22"), pdst="10.0.2.254", hwsrc=mac("p22"))
        each.receive("p22", request)
        assert arrives(each, "p22", 2)[ARP].hwsrc == "00:00:00:00:ff:02"
        echo = Ether(src=mac("p22"), dst="00:00:00:00:ff:02") / IP(src=ip("p22"), dst="10.0.1.254") / ICMP()
        each.receive("p22", echo)
        assert arrives(each, "p22", 3)[ICMP].type == 0

    compared(scenario)
