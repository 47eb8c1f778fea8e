"""Verifies the frames that a host receives, and provides its VLAN device: a program for the hosts' namespaces.

usage: watch.py DEVICE VID NAME        until standard input ends, then prints the result as JSON

It verifies the checksums of every IP packet received on DEVICE, whatever the metadata claims: complete checksums
must be right, and partial ones (virtio-net header, NEEDS_CSUM) must have the right offsets and contain the
pseudo-header's sum. None of the switch's own code takes part in that.

Frames tagged with VID go to a tap device NAME, with their metadata, and frames that the host sends there leave
tagged, large frames whole: some kernels of test machines have no VLAN devices.
"""

import contextlib
import fcntl
import json
import os
import select
import socket
import struct
import sys

SOL_PACKET, PACKET_AUXDATA, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING, SO_RCVBUFFORCE = 263, 8, 15, 23, 33
ETH_P_ALL = 3
VLAN_VALID = 1 << 4
TUNSETIFF, TUNSETOFFLOAD, SIOCSIFHWADDR, SIOCGIFHWADDR = 0x400454CA, 0x400454D0, 0x8924, 0x8927
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 2, 0x1000, 0x4000
# Partial checksums; TCP over IPv4, over IPv6, with ECN.
TUN_OFFLOADS = 1 | 2 | 4 | 8
VNET = struct.Struct("=BBHHHH")
NEEDS_CSUM = 1
FRAME_LEN_MAX = 1 << 17
BATCH = 64


def open_tap(name, offloads=TUN_OFFLOADS, flags=IFF_TAP | IFF_NO_PI | IFF_VNET_HDR):
    """A tap device with virtio-net headers; it ends with the descriptor."""
    tap = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", name.encode(), flags))
    fcntl.ioctl(tap, TUNSETOFFLOAD, offloads)
    return tap


def wrong(frame, vnet):
    """Returns an error in the checksums of a frame without VLAN tags, or None; and the kind of packet."""
    if frame[12:14] == b"\x08\x00" and len(frame) >= 34:
        header_len = (frame[14] & 15) * 4
        length, fragment, protocol = struct.unpack_from("!xxHxxHxB", frame, 14)
        if total(frame[14 : 14 + header_len]):
            return "IPv4 header checksum", "other"
        if fragment & 0x3FFF:
            return None, "fragments"
        kind, field = {6: ("tcp", 16), 17: ("udp", 6)}.get(protocol, ("other", None))
        return wrong_transport(frame, vnet, (14 + header_len, 14 + length), frame[26:34], protocol, kind, field)
    if frame[12:14] == b"\x86\xdd" and len(frame) >= 54:
        length, protocol = struct.unpack_from("!HB", frame, 18)
        if protocol == 44:
            return None, "fragments6"
        kind, field = {6: ("tcp6", 16), 17: ("udp6", 6), 58: ("icmp6", 2)}.get(protocol, ("other", None))
        return wrong_transport(frame, vnet, (54, 54 + length), frame[22:54], protocol, kind, field)
    return None, "other"


def wrong_transport(frame, vnet, place, addresses, protocol, kind, field):
    """The same for the contents of an IP packet: their range, and the position of the checksum."""
    flags, gso, _, _, start, offset = vnet
    if field is None:
        return None, kind
    at, end = place
    segment = frame[at:] if gso else frame[at:end]
    if (end > len(frame) and not gso) or len(segment) < field + 2:
        return "length", kind
    pseudo = total(addresses) + protocol + len(segment)
    (checksum,) = struct.unpack_from("!H", segment, field)
    if flags & NEEDS_CSUM:
        if (start, offset) != (at, field):
            return f"{kind} marked unfinished at {start}+{offset}, not {at}+{field}", kind
        return None if (pseudo - checksum) % 0xFFFF == 0 else f"sum of the pseudo-header for {kind}", kind
    if gso:
        return f"large {kind} frame without the mark for its checksum", kind
    if kind in ("udp", "udp6") and not checksum:
        return f"{kind} without a checksum", kind
    return None if (pseudo + total(segment)) % 0xFFFF == 0 else f"{kind} checksum", kind


def total(data):
    """The ones' complement sum, 0 for 0xffff."""
    return int.from_bytes(data + b"\0" * (len(data) % 2)) % 0xFFFF


class Watch:
    def __init__(self, device, vid, name):
        self.vid = int(vid)
        kinds = ("tcp", "udp", "fragments", "tcp6", "udp6", "icmp6", "fragments6", "other")
        self.seen = dict.fromkeys((*kinds, "unfinished", "large", "tagged", "tagged_large"), 0)
        self.bad = []
        self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        for option in (PACKET_VNET_HDR, PACKET_AUXDATA, PACKET_IGNORE_OUTGOING):
            self.socket.setsockopt(SOL_PACKET, option, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 1 << 25)
        self.socket.bind((device, ETH_P_ALL))
        self.tap = open_tap(name)
        # The VLAN device has its parent's address.
        request = fcntl.ioctl(self.socket, SIOCGIFHWADDR, struct.pack("40s", device.encode()))
        fcntl.ioctl(self.socket, SIOCSIFHWADDR, struct.pack("16s24s", name.encode(), request[16:]))

    def run(self):
        while True:
            ready = select.select([sys.stdin, self.socket, self.tap], [], [])[0]
            with contextlib.suppress(BlockingIOError):
                for _ in range(BATCH if self.socket in ready else 0):
                    self.take()
            with contextlib.suppress(BlockingIOError):
                for _ in range(BATCH if self.tap in ready else 0):
                    self.send(os.read(self.tap, FRAME_LEN_MAX))
            if sys.stdin in ready:
                return

    def take(self):
        data, extra, _, address = self.socket.recvmsg(FRAME_LEN_MAX, 256, socket.MSG_DONTWAIT)
        vnet, frame = VNET.unpack_from(data), data[VNET.size :]
        status, tci = 0, 0
        for _, kind, value in extra:
            if kind == PACKET_AUXDATA:
                status, tci = struct.unpack_from("=I12xH", value)
        tagged = bool(status & VLAN_VALID)
        problem, kind = wrong(frame, vnet)
        self.seen[kind] += 1
        self.seen["unfinished"] += vnet[0] & NEEDS_CSUM
        self.seen["large"] += vnet[1] != 0
        self.seen["tagged"] += tagged
        self.seen["tagged_large"] += tagged and vnet[1] != 0
        if problem and len(self.bad) < 5:
            self.bad.append(f"{problem}: {vnet} {frame[:74].hex()} of {len(frame)} bytes")
        if tagged and tci & 0xFFF == self.vid:
            # It may not be up yet.
            with contextlib.suppress(OSError):
                os.write(self.tap, data)

    def send(self, data):
        flags, gso, header_len, size, start, offset = VNET.unpack_from(data)
        start += 4 if flags & NEEDS_CSUM else 0
        at = VNET.size + 12
        tag = struct.pack("!HH", 0x8100, self.vid)
        header = VNET.pack(flags, gso, header_len and header_len + 4, size, start, offset)
        # A full queue may lose it, as with any device.
        with contextlib.suppress(OSError):
            self.socket.sendmsg([header, data[VNET.size : at], tag, data[at:]])


if __name__ == "__main__":
    watch = Watch(*sys.argv[1:])
    print("ready", flush=True)
    watch.run()
    print(json.dumps({**watch.seen, "bad": watch.bad}))
