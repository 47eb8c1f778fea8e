"""Random conversations of two hosts, for sequences.py: what each end sends next, properly most of the time.

An end answers to what arrived at it: after NAT, the answers have the addresses that the other end saw.
"""

import struct

import frames
from frames import GRE, ICMP, ICMP6, SCTP, TCP, UDP
from pipelines import GATEWAY, INSIDE, OUTSIDE, SERVICE

OUT, BACK = "out", "back"


def other(direction):
    return BACK if direction == OUT else OUT


class Conversation:
    """`out` is the direction of the end that begins, which is at the port `begins`."""

    proto = None

    def __init__(self, rng, number, pipeline, tuple_=None, begins=None, family=None):
        self.rng, self.number = rng, number
        self.family = family or rng.choice([4, 4, 6])
        self.begins = begins or rng.choice([1, 1, 1, 1, 2])
        self.vlan = rng.choice([None] * 9 + [7])
        if self.family == 6 and pipeline.helper:
            # The peer's helpers take IPv6 behind a tag for IPv4.
            self.vlan = None
        self.nat_used, self.port_nat = pipeline.nat_used, pipeline.port_nat
        # Whether the last fragments were repeated, or lay over others.
        self.is_odd = False
        self.seen, self.sent = {}, []
        src, sport, dst, dport = tuple_ or self.addresses(pipeline)
        self.first = src, sport, dst, dport
        # The addresses and ports of packets in the direction `out`, as each side sees them.
        self.views = {port: self.first for port in (1, 2)}

    def addresses(self, pipeline):
        inside, outside = self.rng.choice(INSIDE[self.family]), self.rng.choice(OUTSIDE[self.family])
        sport, dport = 10000 + 7 * self.number + self.rng.randint(0, 6), self.server_port()
        if self.begins == 2:
            to = GATEWAY[self.family] if pipeline.source_nat and self.rng.random() < 0.5 else inside
            return outside, sport, to, dport
        to = SERVICE[self.family] if pipeline.destination_nat and self.rng.random() < 0.7 else outside
        return inside, sport, to, dport

    def server_port(self):
        return self.rng.choice([80, 80, 443, 5000 + self.number])

    def side(self, direction):
        return self.begins if direction == OUT else 3 - self.begins

    def ends(self, direction):
        """Source and destination of the packets that are sent in this direction, with ports."""
        src, sport, dst, dport = self.views[self.side(direction)]
        return (src, sport, dst, dport) if direction == OUT else (dst, dport, src, sport)

    def frame(self, direction, payload, **header):
        src, _, dst, _ = self.ends(direction)
        packet = frames.ip(src, dst, header.pop("proto", self.proto), payload, **header)
        return frames.ethernet(packet, self.side(direction), self.vlan)

    def learn(self, direction, outputs):
        """Takes note of what arrived at the other side."""
        port = self.side(other(direction))
        for frame in outputs[port]:
            parts = frames.Parts(frame)
            if parts.proto != self.proto or parts.fragment:
                continue
            self.seen[port] = frame
            if direction == OUT and (parts.sport is not None or self.proto not in frames.WITH_PORTS):
                self.views[port] = (parts.src, parts.sport, parts.dst, parts.dport)

    def next(self):
        """The next packets: a direction, and frames."""
        direction, payload, header = self.proper()
        chance = self.rng.random()
        if chance < 0.06 and self.sent:
            direction, payload = self.rng.choice(self.sent[-6:])
        elif chance < 0.09:
            return direction, [self.spoilt(self.frame(direction, payload))]
        elif chance < 0.12:
            header["bad"] = "ip"
        elif chance < 0.13:
            header["ttl"] = 1
        elif chance < 0.15 and self.family == 4:
            header["options"] = b"\x94\x04\0\0"
        elif chance < 0.15 and not self.nat_used:
            # The peer translates no checksum behind extension headers.
            header["extensions"] = struct.pack(">BBBBI", self.proto, 0, 1, 4, 0)
        self.sent.append((direction, payload))
        return direction, [self.frame(direction, payload, **header)]

    def spoilt(self, frame):
        """A frame with less than its headers promise, or with other lengths."""
        # The peer translates no checksum if the version in the header is not that of the Ethernet type.
        choice = self.rng.randint(0, 3 if self.nat_used else 4)
        start = 14 + 4 * (self.vlan is not None)
        if choice == 0:
            return frame[: self.rng.randint(start + 1, max(start + 1, len(frame) - 1))]
        if choice == 1:
            return frame + b"\xee" * self.rng.randint(1, 20)
        at = {2: start + (2 if self.family == 4 else 4), 3: start + (20 if self.family == 4 else 40) + 4, 4: start}[choice]
        if at >= len(frame):
            return frame
        value = (frame[at] ^ 1 << self.rng.randint(0, 7)) if choice != 2 else frame[at]
        frame = frame[:at] + bytes([value]) + frame[at + 1 :]
        if choice == 2:
            size = int.from_bytes(frame[at : at + 2], "big") + self.rng.choice([-9, -1, 1, 30])
            frame = frame[:at] + struct.pack(">H", size % 65536) + frame[at + 2 :]
        return frame

    def whole(self, direction, size):
        """A payload of IP that is worth cutting, or None."""
        return None

    def in_fragments(self):
        """A datagram in fragments: in order, or not; now and then some are missing, or lie over others."""
        direction = self.rng.choice([OUT, OUT, BACK])
        size = self.rng.choice([1400, 2600, 2600, 4000])
        whole = self.whole(direction, size)
        if whole is None:
            return self.next()
        src, _, dst, _ = self.ends(direction)
        piece = self.rng.choice([1280, 1280, 1208, 640, 400])
        made = frames.fragments(src, dst, self.proto, whole, range(piece, len(whole), piece), self.rng.randint(1, 65535))
        chance = self.rng.random()
        self.is_odd = 0.5 <= chance < 0.6
        if chance < 0.35:
            self.rng.shuffle(made)
        elif chance < 0.5:
            made.pop(self.rng.randrange(len(made)))
        elif chance < 0.55:
            made.insert(self.rng.randrange(len(made)), self.rng.choice(made))
        elif chance < 0.6:
            ident = self.rng.randint(1, 65535)
            made = frames.fragments(src, dst, self.proto, whole, range(piece, len(whole), piece), ident)
            made[1:1] = [frames.ip(src, dst, self.proto, whole[piece - 8 : piece + 8], ident=ident, fragment=piece - 8, more=True)]
        return direction, [frames.ethernet(packet, self.side(direction), self.vlan) for packet in made]

    def error(self):
        """An ICMP error about a packet that has arrived at an end, or None if there is no such packet."""
        if not self.seen:
            return None
        port = self.rng.choice(sorted(self.seen))
        parts = frames.Parts(self.seen[port])
        if not self.may_fail(parts):
            return None
        direction = OUT if port == self.begins else BACK
        src, dst = parts.dst, parts.src
        # If the translation changes no address, Flowstone leaves the one of a router too.
        is_same = all(self.views[1][n] == self.views[2][n] for n in (0, 2))
        if self.rng.random() < 0.2 and not (self.nat_used and is_same):
            src = {4: "172.16.0.1", 6: "fd09::1"}[self.family]
        about = parts.packet
        chance = self.rng.random()
        if self.is_kept_whole(parts):
            pass
        elif parts.proto == TCP and self.nat_used or chance < 0.4:
            about = about[: parts.size + 8]
        elif chance < 0.5:
            about = about[: parts.size + self.rng.randint(0, 12)]
        elif chance < 0.55:
            at = self.rng.randrange(len(about))
            about = about[:at] + bytes([about[at] ^ 4]) + about[at + 1 :]
        bad = self.rng.choice([""] * 9 + ["l4"])
        if self.family == 4:
            kind, code = self.rng.choice([(3, 0), (3, 1), (3, 3), (3, 4), (11, 0), (12, 0), (5, 1), (4, 0)])
            message, proto = frames.icmp(kind, code, 1400 if code == 4 else 0, about, bad), ICMP
        else:
            # The peer's translation spoils the size in the second kind.
            kind, code = self.rng.choice([(1, 0), (1, 4), (3, 0) if self.nat_used else (2, 0), (3, 0), (4, 1)])
            message, proto = frames.icmp6(src, dst, kind, code, 1400 if kind == 2 else 0, about, bad), ICMP6
        return direction, [frames.ethernet(frames.ip(src, dst, proto, message), self.side(direction), self.vlan)]


    def may_fail(self, parts):
        """Whether an error may be about this packet. The peer leaves checksums of TCP in translated errors as they were,
        and none is there if the packet is cut behind 8 bytes, which it refuses in ICMPv6."""
        return not (self.nat_used and parts.proto == TCP and (self.family == 6 or self.port_nat))

    def is_kept_whole(self, parts):
        """Returns true if ICMP errors have to quote the whole packet: the peer crashes when it translates the ports of a
        truncated quotation, and rejects ICMPv6 errors that quote less than the TCP or SCTP header."""
        return self.port_nat or (self.family == 6 and parts.proto in (TCP, SCTP))

    def interrupt(self):
        """Connections may have ended in the trackers."""


class Tcp(Conversation):
    """A connection from its handshake to its end, and then a new one of the same ports."""

    proto = TCP

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.again()

    def again(self):
        self.isn = {d: self.rng.choice([0, 2**32 - 100, self.rng.getrandbits(32)]) for d in (OUT, BACK)}
        self.seq = dict(self.isn)
        self.stage, self.fins = 0, set()
        self.scales = self.rng.choice([(None, None), (7, 7), (2, 14), (0, 0)])

    def segment(self, direction, flags, payload=b"", seq=None, ack=None, **more):
        src, sport, dst, dport = self.ends(direction)
        seq = self.seq[direction] if seq is None else seq
        ack = (self.seq[other(direction)] if "A" in flags else 0) if ack is None else ack
        if "S" in flags and "A" in flags:
            # If one end scales its windows and the answer says nothing, the peer takes the first window modulo 65536.
            more.setdefault("options", self.options(self.scales[direction == BACK]))
        more.setdefault("window", self.rng.choice([65535, 65535, 1000, 0, 8192]))
        return frames.tcp(src, dst, sport, dport, flags, seq, ack, payload, **more)

    def options(self, scale):
        options = b"\2\4" + struct.pack(">H", 1460)
        if self.rng.random() < 0.5:
            options += b"\4\2"
        return options + (b"" if scale is None else bytes([1, 3, 3, scale]))

    def proper(self):
        chance = self.rng.random()
        if chance < 0.2:
            return self.odd()
        stage, self.stage = self.stage, self.stage + 1
        if stage == 0:
            segment = self.segment(OUT, "S", options=self.options(self.scales[0]))
            self.seq[OUT] += 1
            return OUT, segment, {}
        if stage == 1:
            segment = self.segment(BACK, "SA", options=self.options(self.scales[1]))
            self.seq[BACK] += 1
            return BACK, segment, {}
        if stage == 2:
            return OUT, self.segment(OUT, "A"), {}
        if len(self.fins) == 2:
            direction = self.rng.choice([OUT, BACK])
            segment = self.segment(direction, "A")
            if self.rng.random() < 0.5:
                self.again()
            return direction, segment, {}
        return self.established()

    def established(self):
        direction = self.rng.choice([OUT, BACK])
        if direction in self.fins:
            return direction, self.segment(direction, "A"), {}
        chance = self.rng.random()
        if chance < 0.2:
            segment = self.segment(direction, "FA")
            self.seq[direction] += 1
            self.fins.add(direction)
            return direction, segment, {}
        if chance < 0.4:
            return direction, self.segment(direction, "A"), {}
        payload = self.payload(direction)
        segment = self.segment(direction, self.rng.choice(["A", "PA"]), payload)
        self.seq[direction] += len(payload)
        return direction, segment, {}

    def payload(self, direction):
        return bytes(self.rng.randrange(256) for _ in range(self.rng.choice([1, 7, 100, 1400])))

    def odd(self):
        """What a well-behaved end would not send."""
        direction = self.rng.choice([OUT, BACK])
        seq, ack = self.seq[direction], self.seq[other(direction)]
        far = self.rng.choice([-70000, -1, 1, 1000, 66000, 70000, 1 << 20, 1 << 31])
        segment = self.rng.choice(
            [
                lambda: self.segment(direction, "A", b"far", seq=seq + far),
                lambda: self.segment(direction, "A", b"far", ack=ack + far),
                lambda: self.segment(direction, "R"),
                lambda: self.segment(direction, "RA", seq=seq + self.rng.choice([0, far])),
                lambda: self.segment(direction, "".join(flag for flag in frames.FLAGS if self.rng.random() < 0.4)),
                lambda: self.segment(direction, "S", seq=seq + 5000, options=self.options(self.scales[0])),
                lambda: self.segment(direction, "S", seq=self.isn[direction]),
                lambda: self.segment(direction, "SA", seq=self.isn[direction], ack=self.isn[other(direction)] + 1),
                lambda: self.segment(direction, "A", b"bad", bad="l4"),
                lambda: self.segment(direction, "A", offset=self.rng.choice([0, 4, 6, 15])),
                lambda: self.segment(direction, "A", options=bytes([3, self.rng.choice([0, 1, 3, 9]), 2, 1])),
                lambda: self.segment(direction, "A", seq=seq - 1),
            ]
        )()
        if self.rng.random() < 0.1:
            self.again()
        return direction, segment, {}

    def whole(self, direction, size):
        if self.stage < 3 or direction in self.fins:
            return None
        payload = bytes(size)
        segment = self.segment(direction, "A", payload)
        self.seq[direction] += size
        return segment


class Udp(Conversation):
    proto = UDP

    def datagram(self, direction, payload, **more):
        src, sport, dst, dport = self.ends(direction)
        return frames.udp(src, dst, sport, dport, payload, **more)

    def proper(self):
        direction = self.rng.choice([OUT, OUT, BACK])
        bad = self.rng.choice([""] * 12 + ["l4", "none"])
        payload = bytes(self.rng.choice([0, 1, 30, 600]))
        length = self.rng.choice([None] * 20 + [0, 7, 9, 2000])
        return direction, self.datagram(direction, payload, bad=bad, length=length), {}

    def whole(self, direction, size):
        return self.datagram(direction, bytes(n % 251 for n in range(size)))


class Echo(Conversation):
    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        self.proto = {4: ICMP, 6: ICMP6}[self.family]
        self.sequence = 0

    def message(self, direction, payload=b"abcdefgh", **more):
        src, _, dst, _ = self.ends(direction)
        # NAT may have given the number another value, which is in what arrived.
        ident = 20000 + self.number
        if direction == BACK and (seen := self.seen.get(self.side(BACK))):
            parts = frames.Parts(seen)
            if len(parts.l4) >= 8:
                ident = int.from_bytes(parts.l4[4:6], "big")
        return frames.echo(src, dst, ident, self.sequence, direction == BACK, payload, **more)

    def proper(self):
        direction = self.rng.choice([OUT, BACK])
        self.sequence += direction == OUT
        if self.rng.random() < 0.1:
            kind, code = self.rng.choice([(13, 0), (14, 0), (17, 0), (0, 3), (42, 0), (8, 1)])
            src, _, dst, _ = self.ends(direction)
            if self.family == 6:
                kind = self.rng.choice([128, 129, 130, 133, 135, 136, 200])
                return direction, frames.icmp6(src, dst, kind, code, 0x4E200001, bytes(20)), {"ttl": 255}
            return direction, frames.icmp(kind, code, 0x4E200001, bytes(12)), {}
        bad = self.rng.choice([""] * 12 + ["l4"])
        return direction, self.message(direction, bad=bad), {}

    def whole(self, direction, size):
        # Zeros would leave a right checksum to the first fragment, and the peer then tracks it by itself.
        return self.message(direction, bytes(1 + n % 251 for n in range(size)))


class Association(Conversation):
    """SCTP: associations from INIT to SHUTDOWN COMPLETE, each with its own port. Nothing is lost, repeated or out of order:
    Flowstone checks verification tags and states, and lets a connection begin with fewer chunks than the peer does."""

    proto = SCTP

    def __init__(self, *words, **more):
        super().__init__(*words, **{**more, "begins": 1})
        self.begin()

    def begin(self):
        self.stage, self.tags = 0, {d: self.rng.getrandbits(32) | 1 for d in (OUT, BACK)}

    def interrupt(self):
        """Continues with another association."""
        self.begin()
        src, sport, dst, dport = self.first
        self.first = src, sport + 1000, dst, dport
        self.views = {port: self.first for port in (1, 2)}
        self.seen = {}

    def next(self):
        direction, payload, header = self.proper()
        return direction, [self.frame(direction, payload, **header)]

    def learn(self, direction, outputs):
        super().learn(direction, outputs)
        if self.stage == self.length:
            self.interrupt()

    def proper(self):
        stage, self.stage = self.stage, self.stage + 1
        first = lambda d: struct.pack(">IIHHI", self.tags[d], 65536, 1, 1, 1000)
        cookie = frames.chunk(7, b"", 0)[:0] + struct.pack(">HH", 7, 12) + b"cookie!!"
        script = [(OUT, 1, first(OUT)), (BACK, 2, first(BACK) + cookie), (OUT, 10, b"cookie!!"), (BACK, 11, b"")]
        data = struct.pack(">IHHI", 1000 + stage, 0, stage, 0) + b"data"
        sack = struct.pack(">IIHH", 1000 + stage, 65536, 0, 0)
        script += [(OUT, 0, data), (BACK, 3, sack), (BACK, 0, data), (OUT, 3, sack), (OUT, 4, b""), (BACK, 5, b"")]
        script += [(OUT, 7, struct.pack(">I", 1000)), (BACK, 8, b""), (OUT, 14, b"")]
        self.length = len(script)
        direction, kind, value = script[stage]
        tag = 0 if kind == 1 else self.tags[other(direction)]
        src, sport, dst, dport = self.ends(direction)
        flags = 3 if kind == 0 else 0
        return direction, frames.sctp(sport, dport, tag, frames.chunk(kind, value, flags)), {}


class Plain(Conversation):
    """A protocol without ports."""

    def __init__(self, *words, **more):
        super().__init__(*words, **more)
        # Not UDP-Lite, whose checksum Flowstone translates.
        self.proto = self.rng.choice([GRE, 50, 89, 253])

    def proper(self):
        return self.rng.choice([OUT, BACK]), bytes.fromhex("0000080045000014") + bytes(self.rng.choice([0, 8, 40])), {}


class Ftp(Tcp):
    """The control connection of FTP; `data` is the connection that its last message announced, for a conversation."""

    data = None

    def __init__(self, *words, **more):
        super().__init__(*words, **{**more, "begins": 1})

    def server_port(self):
        return 21

    def payload(self, direction):
        src, _, _, _ = self.ends(direction)
        port = 30000 + self.rng.randrange(2000) * 4 + self.number
        numbers = f"{src.replace('.', ',')},{port // 256},{port % 256}"
        if self.rng.random() < 0.3:
            # Flowstone reads commands of the client and replies of the server, the peer both of either.
            commands = [b"USER a\r\n", b"PORT 1,2,3\r\n", b"EPRT |1|x|5|\r\n", b"PORT 10,0,0,1,999,1\r\n"]
            return self.rng.choice(commands if direction == OUT else [b"230 ok\r\n", b"227 no\r\n"])
        self.data = direction, port
        if direction == OUT:
            extended = f"EPRT |{1 if self.family == 4 else 2}|{src}|{port}|\r\n"
            text = extended if self.family == 6 or self.rng.random() < 0.3 else f"PORT {numbers}\r\n"
        else:
            extended = f"229 Entering Extended Passive Mode (|||{port}|)\r\n"
            text = extended if self.family == 6 or self.rng.random() < 0.3 else f"227 Entering Passive Mode ({numbers}).\r\n"
        if self.rng.random() < 0.1:
            text = text.lower() if direction == OUT else text.replace("(", " ")
        return text.encode()

    def announced(self, number, pipeline):
        """The data connection that the last message announced."""
        (direction, port), self.data = self.data, None
        # Whoever did not announce the port connects to it: from what it saw of the control connection.
        begins = self.side(other(direction))
        src, _, dst, _ = self.ends(other(direction))
        sport = 20 if direction == OUT and self.rng.random() < 0.5 else 45000 + number
        return Tcp(self.rng, number, pipeline, (src, sport, dst, port), begins, self.family)


class Tftp(Udp):
    """Read requests; the server answers from another port."""

    data = None

    def __init__(self, *words, **more):
        super().__init__(*words, **{**more, "begins": 1})

    def server_port(self):
        return 69

    def proper(self):
        self.data = True
        # The peer expects an answer to any packet, Flowstone to requests.
        payload = self.rng.choice([b"\0\1file\0octet\0", b"\0\2file\0octet\0"])
        return OUT, self.datagram(OUT, payload), {}

    def whole(self, direction, size):
        return None

    def announced(self, number, pipeline):
        self.data = None
        src, _, dst, dport = self.ends(BACK)
        return Udp(self.rng, number, pipeline, (src, 47000 + number, dst, dport), 2, self.family)


def conversations(rng, pipeline):
    """A handful."""
    kinds = [Tcp, Tcp, Tcp, Udp, Udp]
    if not pipeline.port_nat:
        # The peer gives echo requests the port as their identifier.
        kinds += [Echo, Plain]
    if not pipeline.limited and not pipeline.port_nat and pipeline.kind not in ("of_forced", "of_cleared"):
        # Only where the connections of all associations are in the table.
        kinds.append(Association)
    chosen = [rng.choice(kinds) for _ in range(rng.randint(3, 7))]
    if pipeline.helper:
        # The peer with this datapath does not translate addresses in what FTP says.
        chosen += [Tftp] if pipeline.nat_used else [Ftp, Ftp, Tftp]
    return [kind(rng, number, pipeline) for number, kind in enumerate(chosen)]
