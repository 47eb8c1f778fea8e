"""Builds frames, and describes them: Ethernet, VLAN, IPv4 and IPv6 with fragments, TCP, UDP, SCTP, ICMP and ICMPv6.

Addresses are text, payloads bytes. A checksum is right unless `bad` names its layer ("ip", "l4").
"""

import ipaddress
import struct
import sys

ICMP, TCP, UDP, GRE, ICMP6, SCTP = 1, 6, 17, 47, 58, 132
WITH_PORTS = (TCP, UDP, SCTP)
FRAGMENT6 = 44
FLAGS = {"F": 1, "S": 2, "R": 4, "P": 8, "A": 16, "U": 32, "E": 64, "C": 128}
MACS = {1: "020000000001", 2: "020000000002", 3: "020000000003"}


def version(address):
    return 6 if ":" in address else 4


def packed(address):
    return ipaddress.ip_address(address).packed


def internet_checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f">{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return total ^ 0xFFFF


def _table():
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
        yield n


_CRC32C = list(_table())


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _CRC32C[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def ethernet(payload, port=1, vlan=None, kind=None):
    """A frame that a host behind `port` sends; the version of IP says the type, unless `kind` does."""
    kind = kind or (0x86DD if payload[0] >> 4 == 6 else 0x0800)
    tag = b"" if vlan is None else struct.pack(">HH", 0x8100, vlan)
    return bytes.fromhex("0200000000aa" + MACS[port]) + tag + struct.pack(">H", kind) + payload


def ip(src, dst, proto, payload, bad="", **header):
    """A packet of IPv4 or IPv6, whichever the addresses belong to."""
    if version(src) == 4:
        return ipv4(src, dst, proto, payload, bad=bad, **header)
    return ipv6(src, dst, proto, payload, **header)


def ipv4(src, dst, proto, payload, ttl=64, ident=0, fragment=0, more=False, df=False, options=b"", bad="", length=None, tos=0):
    """`fragment` is the offset in bytes."""
    assert fragment % 8 == 0 and len(options) % 4 == 0
    size = 20 + len(options)
    bits = fragment // 8 | more << 13 | df << 14
    total = size + len(payload) if length is None else length
    start = struct.pack(">BBHHHBB", 0x40 | size // 4, tos, total, ident, bits, ttl, proto)
    addresses = packed(src) + packed(dst) + options
    checksum = internet_checksum(start + b"\0\0" + addresses) ^ (0x1111 if bad == "ip" else 0)
    return start + struct.pack(">H", checksum) + addresses + payload


def ipv6(src, dst, proto, payload, ttl=64, ident=0, fragment=0, more=False, extensions=b"", length=None, tos=0, **_):
    """Packets with an offset or with more fragments have a fragment header. `extensions` are headers whose last one names
    `proto` itself; they begin with a hop-by-hop header."""
    if fragment or more:
        payload = struct.pack(">BBHI", proto, 0, fragment | more, ident) + payload
        proto = FRAGMENT6
    if extensions:
        payload, proto = extensions + payload, 0
    size = len(payload) if length is None else length
    return struct.pack(">IHBB", 6 << 28 | tos << 20, size, proto, ttl) + packed(src) + packed(dst) + payload


def pseudo(src, dst, proto, size):
    if version(src) == 4:
        return packed(src) + packed(dst) + struct.pack(">BBH", 0, proto, size)
    return packed(src) + packed(dst) + struct.pack(">II", size, proto)


def _with_checksum(src, dst, proto, segment, at, bad):
    checksum = internet_checksum(pseudo(src, dst, proto, len(segment)) + segment)
    if proto == UDP:
        checksum = checksum or 0xFFFF
    if bad == "l4":
        checksum ^= 0x2222
    if bad == "none":
        checksum = 0
    return segment[:at] + struct.pack(">H", checksum) + segment[at + 2 :]


def tcp(src, dst, sport, dport, flags, seq=0, ack=0, payload=b"", window=65535, options=b"", bad="", offset=None):
    """A segment; `flags` are letters of FLAGS."""
    options += b"\1" * (-len(options) % 4)
    words = 5 + len(options) // 4 if offset is None else offset
    bits = words << 12 | sum(FLAGS[flag] for flag in flags)
    header = struct.pack(">HHIIHHHH", sport, dport, seq % 2**32, ack % 2**32, bits, window, 0, 0)
    return _with_checksum(src, dst, TCP, header + options + payload, 16, bad)


def udp(src, dst, sport, dport, payload=b"", bad="", length=None):
    size = 8 + len(payload) if length is None else length
    return _with_checksum(src, dst, UDP, struct.pack(">HHHH", sport, dport, size, 0) + payload, 6, bad)


def icmp(kind, code, rest, payload=b"", bad=""):
    """`rest` is the second word of the header."""
    message = struct.pack(">BBHI", kind, code, 0, rest) + payload
    checksum = internet_checksum(message) ^ (0x2222 if bad == "l4" else 0)
    return message[:2] + struct.pack(">H", checksum) + message[4:]


def icmp6(src, dst, kind, code, rest, payload=b"", bad=""):
    return _with_checksum(src, dst, ICMP6, struct.pack(">BBHI", kind, code, 0, rest) + payload, 2, bad)


def echo(src, dst, ident, sequence, reply=False, payload=b"abcdefgh", bad=""):
    """The ICMP or ICMPv6 message of an echo request or reply."""
    rest = ident << 16 | sequence
    if version(src) == 4:
        return icmp(0 if reply else 8, 0, rest, payload, bad)
    return icmp6(src, dst, 129 if reply else 128, 0, rest, payload, bad)


def sctp(sport, dport, tag, *chunks, bad=""):
    """A packet of chunks (see `chunk`) with this verification tag."""
    header, body = struct.pack(">HHI", sport, dport, tag), b"".join(chunks)
    crc = crc32c(header + b"\0\0\0\0" + body) ^ (0x2222 if bad == "l4" else 0)
    return header + struct.pack("<I", crc) + body


def chunk(kind, value=b"", flags=0):
    return struct.pack(">BBH", kind, flags, 4 + len(value)) + value + b"\0" * (-len(value) % 4)


def fragments(src, dst, proto, payload, cuts, ident, **header):
    """The fragments of one datagram; `cuts` are offsets, in multiples of eight bytes."""
    ends = [*cuts, len(payload)]
    return [
        ip(src, dst, proto, payload[a:b], ident=ident, fragment=a, more=b < len(payload), **header)
        for a, b in zip([0, *cuts], ends)
    ]


class Parts:
    """The headers of a frame that has IP; attributes are None where it has none."""

    def __init__(self, frame):
        self.src = self.dst = self.proto = self.sport = self.dport = None
        self.version, self.fragment, self.more, self.l4 = None, 0, False, b""
        at = 12
        self.vlan = None
        if frame[at : at + 2] == b"\x81\0":
            self.vlan = int.from_bytes(frame[at + 2 : at + 4], "big")
            at += 4
        self.kind = int.from_bytes(frame[at : at + 2], "big")
        self.packet = packet = frame[at + 2 :]
        if self.kind == 0x0800 and len(packet) >= 20:
            self._ipv4(packet)
        elif self.kind == 0x86DD and len(packet) >= 40:
            self._ipv6(packet)
        if self.proto in WITH_PORTS and not self.fragment and len(self.l4) >= 8:
            self.sport, self.dport = struct.unpack_from(">HH", self.l4)

    def _ipv4(self, packet):
        self.version, self.size = 4, packet[0] % 16 * 4
        total, self.ident, bits, self.ttl, self.proto = struct.unpack_from(">HHHBB", packet, 2)
        self.fragment, self.more = bits % 0x2000 * 8, bool(bits & 0x2000)
        self.src, self.dst = (str(ipaddress.ip_address(packet[a : a + 4])) for a in (12, 16))
        self.header_right = internet_checksum(packet[: self.size]) == 0
        self.l4 = packet[self.size : total]

    def _ipv6(self, packet):
        self.version, self.header_right, self.ident = 6, True, 0
        size, self.proto, self.ttl = struct.unpack_from(">HBB", packet, 4)
        self.src, self.dst = (str(ipaddress.ip_address(packet[a : a + 16])) for a in (8, 24))
        at, end = 40, 40 + size
        while self.proto in (0, 43, 60, FRAGMENT6) and len(packet) >= at + 8:
            kind, self.proto = self.proto, packet[at]
            if kind == FRAGMENT6:
                bits, self.ident = struct.unpack_from(">HI", packet, at + 2)
                self.fragment, self.more, at = bits & 0xFFF8, bool(bits & 1), at + 8
            else:
                at += 8 + 8 * packet[at + 1]
        self.size, self.l4 = at, packet[at:end]

    def checksum_right(self):
        """Whether the checksum of the transport header holds; fragments have none of their own."""
        if self.fragment or self.more:
            return True
        if self.proto == SCTP and len(self.l4) >= 12:
            return crc32c(self.l4[:8] + b"\0\0\0\0" + self.l4[12:]) == struct.unpack_from("<I", self.l4, 8)[0]
        if self.proto == ICMP:
            return internet_checksum(self.l4) == 0
        if self.proto == UDP and self.version == 4 and self.l4[6:8] == b"\0\0":
            return True
        if self.proto in (TCP, UDP, ICMP6):
            return internet_checksum(pseudo(self.src, self.dst, self.proto, len(self.l4)) + self.l4) == 0
        return True


def is_fragment(frame):
    parts = Parts(frame)
    return bool(parts.fragment or parts.more)


def describe(frame):
    """A frame in one line: addresses, ports, flags, and what is wrong with its checksums."""
    if len(frame) < 14:
        return f"{len(frame)} bytes: {frame.hex()}"
    parts = Parts(frame)
    macs = f"{frame[6:12].hex()}>{frame[:6].hex()}"
    tag = "" if parts.vlan is None else f" vlan {parts.vlan % 4096}"
    if parts.proto is None:
        return f"{macs}{tag} type {parts.kind:#06x}, {len(frame)} bytes: {frame[14:60].hex()}"
    wrong = ["", " BAD-IP-CHECKSUM"][not parts.header_right]
    wrong += ["", " BAD-CHECKSUM"][not parts.checksum_right()]
    if parts.fragment or parts.more:
        wrong += f" fragment {parts.ident:#x}: {parts.fragment}+{len(parts.l4)}{'+' if parts.more else ''}"
    return f"{macs}{tag} {describe_packet(parts)}{wrong}, {len(frame)} bytes"


def describe_packet(parts):
    l4 = parts.l4
    if parts.sport is None:
        text = f"{parts.src}>{parts.dst} ttl {parts.ttl} proto {parts.proto}"
        if parts.proto in (ICMP, ICMP6) and not parts.fragment and len(l4) >= 8:
            kind, code, _, rest = struct.unpack_from(">BBHI", l4)
            text += f" type {kind} code {code} rest {rest:#x}"
            if kind in ((3, 4, 5, 11, 12) if parts.proto == ICMP else (1, 2, 3, 4)):
                inner = l4[8:]
                text += f" about [{describe(ethernet(inner))[26:]}]" if inner else ""
        return text
    name = {TCP: "tcp", UDP: "udp", SCTP: "sctp"}[parts.proto]
    text = f"{name} {parts.src}:{parts.sport}>{parts.dst}:{parts.dport} ttl {parts.ttl}"
    if parts.proto == TCP and len(l4) >= 20:
        seq, ack, bits, window = struct.unpack_from(">IIHH", l4, 4)
        flags = "".join(flag for flag, bit in FLAGS.items() if bits & bit) or "-"
        text += f" {flags} seq {seq} ack {ack} win {window} opts {l4[20 : (bits >> 12) * 4].hex()}"
        payload = l4[(bits >> 12) * 4 :]
        return text + (f" data {len(payload)} {payload[:60]!r}" if payload else "")
    if parts.proto == SCTP and len(l4) >= 16:
        return text + f" tag {l4[4:8].hex()} chunk {l4[12]}"
    return text + f" data {len(l4) - 8} {l4[8:48]!r}"


def from_words(port, kind, *words):
    """The frame of a line of a scenario: `udp SRC DST SPORT DPORT [DATA]`, `tcp SRC DST SPORT DPORT FLAGS SEQ ACK [DATA]`,
    `echo SRC DST ID SEQUENCE`, `reply SRC DST ID SEQUENCE`, or `error SRC DST TYPE CODE` and the words of the packet that
    the error is about. With `bad ip` or `bad l4` before them, a checksum is wrong; with `piece NUMBER COUNT IDENT`, it is
    that fragment of a long datagram."""
    bad, piece = "", None
    if kind == "bad":
        bad, kind, *words = words
    if kind == "piece":
        *piece, kind = words[:4]
        words = words[4:]
    src, dst, *words = words
    if not piece:
        proto, payload = payload_from_words(port, kind, src, dst, words, bad)
        return ethernet(ip(src, dst, proto, payload, bad=bad), int(port))
    number, count, ident = map(int, piece)
    size = 1280
    proto, payload = payload_from_words(port, kind, src, dst, [*words, "x" * (size * count - 8)], bad)
    return ethernet(fragments(src, dst, proto, payload, range(size, size * count, size), ident, bad=bad)[number], int(port))


def payload_from_words(port, kind, src, dst, words, bad):
    """The protocol, and the transport header with what follows."""
    numbers = [int(word) if word.isdigit() else word for word in words]
    if kind == "udp":
        return UDP, udp(src, dst, *numbers[:2], *[word.encode() for word in words[2:]], bad=bad)
    if kind == "tcp":
        data = [word.encode().decode("unicode_escape").encode() for word in words[5:]]
        return TCP, tcp(src, dst, *numbers[:5], *data, bad=bad)
    if kind == "error":
        about = from_words(port, *words[2:])[14:]
        if version(src) == 4:
            return ICMP, icmp(*numbers[:2], 0, about, bad)
        return ICMP6, icmp6(src, dst, *numbers[:2], 0, about, bad)
    return ICMP if version(src) == 4 else ICMP6, echo(src, dst, *numbers[:2], reply=kind == "reply", bad=bad)


if __name__ == "__main__":
    print(from_words(*sys.argv[1:]).hex())
