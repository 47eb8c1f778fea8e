"""DHCPv4 of OVN's hosts: their messages, and the options that OVN has for them."""

from scapy.layers.dhcp import BOOTP, DHCP
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from logical import BROADCAST, mac


def bootp(port, *options, xid=0x1234, **fields):
    """A DHCPv4 message of the host at the port."""
    chaddr = bytes.fromhex(mac(port).replace(":", "")) + bytes(10)
    ether = Ether(src=mac(port), dst=BROADCAST) / IP(src=fields.pop("src", "0.0.0.0"), dst="255.255.255.255")
    return ether / UDP(sport=68, dport=67) / BOOTP(chaddr=chaddr, xid=xid, **fields) / DHCP(options=[*options, "end"])


def dhcp_type(frame):
    return dict(option for option in frame[DHCP].options if isinstance(option, tuple) and len(option) == 2)["message-type"]


def give_options(each, switch, family, cidr, **options):
    """Makes DHCP options and gives them to ports 1 and 2 of the logical switch."""
    words = [f"options:{name}={value}" for name, value in options.items()]
    uuid = each.nbctl("create", "DHCP_Options", f'cidr="{cidr}"', *words)
    each.nbctl(f"lsp-set-dhcpv{family}-options", f"p{switch}1", uuid)
    each.nbctl("--wait=hv", f"lsp-set-dhcpv{family}-options", f"p{switch}2", uuid)
