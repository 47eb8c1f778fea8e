"""Packets and flow tables of tunnels between an overlay and an underlay bridge, for the benchmark `tunnels`.

Inner packets are those of `workload.py`, 60 bytes without frame check sequence (64 on a wire), one for each tunnel.
Tunnel I leads to a remote address and has a key of its own; all remotes are behind one gateway. The same name gives the
same bytes everywhere.
"""

import dataclasses
import pathlib
import random
import struct

import conversations
import workload

OVERLAY, UNDERLAY = "overlay", "underlay"
LOCAL = 0xAC10_0001  # 172.16.0.1
GATEWAY = 0xAC10_0002
REMOTES = 0xAC1E_0001  # 172.30.0.1
NETWORK, REMOTE_NETWORK = f"{workload.dotted(LOCAL)}/24", "172.30.0.0/16"
LOCAL_MAC, GATEWAY_MAC = 0x0100, 0x0200
FIRST_KEY = 100

# OpenFlow ports of the overlay: that of packets from memory, that which discards them, the same for plain forwarding, and
# the first of the tunnels.
IN, OUT, PLAIN, FIRST = 1, 2, 3, 10

ENCAPSULATION, DECAPSULATION = "encapsulation", "decapsulation"
# A Geneve option of 8 bytes, as OVN has it, and its value.
OPTION_CLASS, OPTION_TYPE, OPTION_VALUE = 0x0102, 0x80, 0x0001_0002
TLV_MAP = f"{{class={OPTION_CLASS:#x},type={OPTION_TYPE:#x},len=4}}->tun_metadata0"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A type of tunnel: its UDP port, and the bytes between UDP and the inner frame for a key."""

    name: str
    port: int
    header: object
    set_option: str = ""
    has_option: str = ""

    def overhead(self):
        return workload.ETHERNET_LEN + workload.IPV4_LEN + workload.UDP_LEN + len(self.header(0))


def vxlan_header(key):
    return struct.pack("!II", 0x0800_0000, key << 8)


def geneve_header(key):
    option = struct.pack("!HBBI", OPTION_CLASS, OPTION_TYPE, 1, OPTION_VALUE)
    return struct.pack("!BBHI", len(option) // 4, 0, 0x6558, key << 8) + option


VXLAN = Kind("vxlan", 4789, vxlan_header)
GENEVE = Kind(
    "geneve",
    6081,
    geneve_header,
    f"set_field:{OPTION_VALUE:#x}->tun_metadata0,",
    f",tun_metadata0={OPTION_VALUE:#x}",
)


@dataclasses.dataclass(frozen=True)
class Workload:
    """A capture file and its number of frames, and the flows of both bridges and of plain forwarding by the same
    matches."""

    played: pathlib.Path
    frames: int
    overlay: pathlib.Path
    underlay: pathlib.Path
    plain: pathlib.Path
    # The length of a frame that leaves.
    sent_len: int


def inner(i):
    """The inner packet of tunnel `i`."""
    return workload.Packet(workload.SOURCES + i, workload.DESTINATIONS + i, 1000, 2000)


def outer(kind, i):
    """The same packet as it comes in from the remote of tunnel `i`."""
    payload = kind.header(FIRST_KEY + i) + inner(i).frame()
    udp = struct.pack("!HHHH", 49152 + i % 16_384, kind.port, workload.UDP_LEN + len(payload), 0)
    ip_len = workload.IPV4_LEN + len(udp) + len(payload)
    start = struct.pack("!BBHHHBB", 0x45, 0, ip_len, 0, 0x4000, 64, workload.PROTOCOL_UDP)
    addresses = struct.pack("!II", REMOTES + i, LOCAL)
    ip = start + struct.pack("!H", workload.internet_checksum(start + addresses)) + addresses
    return workload.mac(LOCAL_MAC) + workload.mac(GATEWAY_MAC) + b"\x08\x00" + ip + udp + payload


def shuffled(frames, seed=1):
    """All frames in random order, again and again until there are `workload.PACKETS_MIN` at least."""
    rng = random.Random(seed)
    out = []
    while len(out) < workload.PACKETS_MIN:
        rng.shuffle(frames)
        out += frames
    return out


def flows(kind, direction, tunnels, flow_based):
    """The flows of the overlay, of the underlay, and of plain forwarding."""
    to = [f"in_port={IN},ip,nw_dst={workload.dotted(workload.DESTINATIONS + i)},actions=" for i in range(tunnels)]
    plain = [f"{flow}output:{PLAIN}" for flow in to]
    if direction == DECAPSULATION:
        ports = [FIRST] if flow_based else [FIRST + i for i in range(tunnels)]
        overlay = [f"in_port={port}{kind.has_option},actions=output:{OUT}" for port in ports]
        return overlay, [f"in_port={IN},actions=LOCAL"], plain
    overlay = []
    for i, flow in enumerate(to):
        remote = f"set_field:{workload.dotted(REMOTES + i)}->tun_dst,set_field:{FIRST_KEY + i}->tun_id,"
        port = FIRST if flow_based else FIRST + i
        overlay.append(f"{flow}{kind.set_option}{remote if flow_based else ''}output:{port}")
    return overlay, [f"in_port=LOCAL,actions=output:{OUT}"], plain


def contents(kind, direction, tunnels, flow_based=False):
    """The bytes of the capture file and of the three flow tables."""
    if direction == ENCAPSULATION:
        frames = [inner(i).frame() for i in range(tunnels)]
    else:
        frames = [outer(kind, i) for i in range(tunnels)]
    capture = conversations.pcap(shuffled(frames), len(frames[0]))
    return capture, *map(conversations.text, flows(kind, direction, tunnels, flow_based))


def write(directory, kind, direction, tunnels, flow_based=False):
    """Writes the packets and flows of so many tunnels."""
    whole = contents(kind, direction, tunnels, flow_based)
    paths = [directory / name for name in ("played.pcap", "overlay.flows", "underlay.flows", "plain.flows")]
    for path, content in zip(paths, whole):
        path.write_bytes(content)
    sent_len = workload.FRAME_LEN + (kind.overhead() if direction == ENCAPSULATION else 0)
    return Workload(paths[0], workload.packets_in(paths[0]), *paths[1:], sent_len)


def ports(kind, tunnels, flow_based=False):
    """Names, OpenFlow ports and options of the tunnel ports."""
    if flow_based:
        return [("flow0", FIRST, {"remote_ip": "flow", "key": "flow"})]
    return [
        (f"t{i}", FIRST + i, {"remote_ip": workload.dotted(REMOTES + i), "key": str(FIRST_KEY + i)})
        for i in range(tunnels)
    ]
