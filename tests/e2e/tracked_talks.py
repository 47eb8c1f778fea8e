"""Conversations of two hosts for test_kernel_conntrack.py, of either version of IP.

A conversation is a generator of steps: a name, the port of the sender, and frames, which are several if they are fragments
of one datagram. No two conversations have the same addresses and ports.
"""

import random
import struct

import frames
from frames import ICMP, ICMP6, SCTP, TCP, UDP, chunk, ethernet

INSIDE = {4: "10.0.0.1", 6: "fd00::1"}
OUTSIDE = {4: "192.168.0.1", 6: "fd01::1"}
ROUTER = {4: "172.16.0.1", 6: "fd09::1"}
# The ports of the host that begins, which is inside, and of the other one.
OUT, BACK = 1, 2


class Talk:
    """Two hosts of one version of IP, and the ports of one conversation."""

    numbers = iter(range(1, 50000))

    def __init__(self, family, port=80):
        self.family = family
        self.sport, self.dport = 10000 + next(Talk.numbers), port

    def ends(self, port):
        here, there = INSIDE[self.family], OUTSIDE[self.family]
        return (here, there, self.sport, self.dport) if port == OUT else (there, here, self.dport, self.sport)

    def frame(self, port, proto, payload, **header):
        src, dst, *_ = self.ends(port)
        return ethernet(frames.ip(src, dst, proto, payload, **header), port)

    def udp(self, port, data=b"data", **more):
        return self.frame(port, UDP, frames.udp(*self.ends(port), data, **more))

    def echo(self, port, reply=False, **more):
        src, dst, *_ = self.ends(port)
        proto = ICMP if self.family == 4 else ICMP6
        return self.frame(port, proto, frames.echo(src, dst, self.sport, 1, reply, **more))

    def sctp(self, port, tag, *chunks, **more):
        return self.frame(port, SCTP, frames.sctp(*self.ends(port)[2:], tag, *chunks, **more))

    def error(self, port, about, kind="port", router=False, bad="", size=None):
        """An ICMP error that the host behind the port, or a router there, sends about a frame."""
        src, dst, *_ = self.ends(port)
        src = ROUTER[self.family] if router else src
        about = about[14:][:size]
        if self.family == 4:
            type_, code = {"port": (3, 3), "time": (11, 0), "big": (3, 4), "redirect": (5, 1), "quench": (4, 0)}[kind]
            message, proto = frames.icmp(type_, code, 1400 if kind == "big" else 0, about, bad), ICMP
        else:
            type_, code = {"port": (1, 4), "time": (3, 0), "big": (2, 0), "parameter": (4, 1)}[kind]
            message, proto = frames.icmp6(src, dst, type_, code, 1400 if kind == "big" else 0, about, bad), ICMP6
        return ethernet(frames.ip(src, dst, proto, message), port)


class Tcp(Talk):
    """A connection; `seq` has the next sequence number of each end."""

    def __init__(self, family, port=80, isn=(1000, 2**32 - 50)):
        super().__init__(family, port)
        self.seq = dict(zip((OUT, BACK), isn))

    def segment(self, port, flags, data=b"", seq=0, ack=0, **more):
        """A segment `seq` away from the next one, which acknowledges all that the other end has sent, and `ack` more. It
        moves the sequence number if it is the next one."""
        acknowledged = self.seq[3 - port] + ack if "A" in flags else 0
        made = frames.tcp(*self.ends(port), flags, self.seq[port] + seq, acknowledged, data, **more)
        if seq == 0 and not {"bad", "offset"} & set(more) and "R" not in flags:
            self.seq[port] += len(data) + len(set(flags) & set("SF"))
        return self.frame(port, TCP, made)

    def steps(self, prefix, *words, **more):
        """Steps of words such as `>SA` or `<A:5`: direction, flags, and the number of bytes."""
        for n, word in enumerate(words):
            port, (flags, _, size) = OUT if word[0] == ">" else BACK, word[1:].partition(":")
            yield f"{prefix}: {n} {word}", port, [self.segment(port, flags, bytes(int(size or 0)), **more)]

    def open(self, prefix, options=b""):
        yield from self.steps(f"{prefix}, open", ">S", "<SA", options=options)
        yield from self.steps(f"{prefix}, open", ">A")


def tcp_whole(family):
    closings = {
        "by client": [">FA", "<A", "<A:10", "<FA", ">A"],
        "by server": ["<FA", ">A", ">A:10", ">FA", "<A"],
        "at once": [">FA", "<FA", "<A", ">A"],
        "both in one": [">FA", "<FA", ">A"],
        "without acknowledgement": [">FA", "<FA"],
        "reset by client": [">R"],
        "reset by server": ["<RA"],
    }
    for name, closing in closings.items():
        tcp, prefix = Tcp(family), f"tcp close {name}"
        yield from tcp.open(prefix)
        yield from tcp.steps(f"{prefix}, data", ">PA:100", "<A", "<PA:1400", ">A", ">PA:1", "<PA:7", ">A")
        yield from tcp.steps(prefix, *closing)
        if "reset" not in name:
            yield f"{prefix}: last ACK again", OUT, [tcp.segment(OUT, "A")]
        yield f"{prefix}: keep-alive behind the end", BACK, [tcp.segment(BACK, "A", seq=-1)]
        tcp.seq = {OUT: 500_000, BACK: 900_000}
        yield from tcp.open(f"{prefix}, again")
        yield from tcp.steps(f"{prefix}, again", ">PA:10", "<A")


def tcp_opening(family):
    tcp = Tcp(family)
    yield from tcp.steps("tcp refused", ">S", "<RA", ">S")
    tcp = Tcp(family)
    yield "tcp retransmission: SYN", OUT, [tcp.segment(OUT, "S")]
    yield "tcp retransmission: SYN again", OUT, [tcp.segment(OUT, "S", seq=-1)]
    yield "tcp retransmission: SYN, ACK", BACK, [tcp.segment(BACK, "SA")]
    yield "tcp retransmission: SYN behind SYN, ACK", OUT, [tcp.segment(OUT, "S", seq=-1)]
    yield "tcp retransmission: SYN, ACK again", BACK, [tcp.segment(BACK, "SA", seq=-1)]
    yield from tcp.steps("tcp retransmission", ">A", ">PA:10")
    yield "tcp retransmission: data again", OUT, [tcp.segment(OUT, "PA", bytes(10), seq=-10)]
    yield from tcp.steps("tcp retransmission, answer", "<A", "<PA:20")
    yield "tcp retransmission: SYN, ACK late", BACK, [tcp.segment(BACK, "SA", seq=-21, ack=-10)]
    tcp = Tcp(family)
    yield from tcp.steps("tcp both open", ">S", "<S")
    yield "tcp both open: SYN, ACK", OUT, [tcp.segment(OUT, "SA", seq=-1)]
    yield "tcp both open: SYN, ACK back", BACK, [tcp.segment(BACK, "SA", seq=-1)]
    yield from tcp.steps("tcp both open, data", ">PA:5", "<A")
    tcp = Tcp(family)
    yield from tcp.steps("tcp with other SYN", ">S")
    tcp.seq[OUT] += 70_000
    yield from tcp.steps("tcp with other SYN", ">S", "<SA", ">A")
    tcp = Tcp(family)
    yield from tcp.open("tcp SYN in established")
    yield "tcp SYN in established", OUT, [tcp.segment(OUT, "S", seq=5000)]
    yield "tcp SYN in established: challenge", BACK, [tcp.segment(BACK, "A")]
    yield from tcp.steps("tcp SYN in established", ">PA:10", "<A")
    for flags in ("SA", "R", "RA", "FA", "F", "A", "PA", "", "P"):
        for port in (OUT, BACK):
            tcp = Tcp(family)
            yield f"tcp first {flags or 'no flags'} from {port}", port, [tcp.segment(port, flags)]
            yield f"tcp second behind {flags or 'no flags'} from {port}", 3 - port, [tcp.segment(3 - port, "A", b"data")]


def tcp_mid_stream(family):
    tcp = Tcp(family)
    yield from tcp.steps("tcp mid-stream", ">PA:10", ">PA:10", "<A", "<PA:100", ">A", "<FA", ">FA", "<A")
    tcp = Tcp(family)
    yield from tcp.steps("tcp mid-stream, big", ">A:1000", "<A:1400")
    tcp.seq[BACK] += 100_000
    yield from tcp.steps("tcp mid-stream, far", "<A:10", ">A")


def tcp_windows(family):
    scaled = b"\2\4\5\xb4\3\3\7\1"
    for name, options in (("", b""), (", scaled", scaled)):
        window = 65535 if not options else 60000
        for far in (-70_000, -1, 1000, 66_000, 70_000, 5_000_000, 9_000_000, 1 << 30):
            for port in (OUT, BACK):
                prefix = f"tcp window{name}, {far} from {port}"
                tcp = Tcp(family)
                yield from tcp.open(prefix, options)
                yield from tcp.steps(f"{prefix}, data", ">PA:10", "<A", "<PA:10", ">A", window=window)
                yield f"{prefix}: data", port, [tcp.segment(port, "PA", b"far", seq=far, window=window)]
                yield f"{prefix}: ACK", port, [tcp.segment(port, "A", b"", ack=far, window=window)]
                yield f"{prefix}: proper data", port, [tcp.segment(port, "PA", b"near", window=window)]
                yield f"{prefix}: RST", port, [tcp.segment(port, "R", seq=far)]
                yield f"{prefix}: proper answer", 3 - port, [tcp.segment(3 - port, "A", window=window)]
    tcp = Tcp(family)
    yield from tcp.open("tcp zero window")
    yield "tcp zero window: ACK", BACK, [tcp.segment(BACK, "A", window=0)]
    yield "tcp zero window: probe", OUT, [tcp.segment(OUT, "A", b"1", seq=-1)]
    yield "tcp zero window: data in front", OUT, [tcp.segment(OUT, "PA", b"1")]


def tcp_random(family):
    """Proper segments in a random order of the directions, with retransmissions."""
    for number in range(60):
        rng = random.Random(f"{family}-{number}")
        tcp, prefix = Tcp(family, isn=(rng.getrandbits(32), rng.getrandbits(32))), f"tcp random {number}"
        yield from tcp.open(prefix, rng.choice([b"", b"\2\4\5\xb4\3\3\7\1"]))
        sent, ended = [], set()
        for n in range(rng.randint(5, 25)):
            port = rng.choice([OUT, BACK])
            if sent and rng.random() < 0.2:
                port, frame = rng.choice(sent[-4:])
            elif port in ended or rng.random() < 0.3:
                frame = tcp.segment(port, "A")
            elif rng.random() < 0.15:
                frame = tcp.segment(port, "FA")
                ended.add(port)
            else:
                frame = tcp.segment(port, rng.choice(["A", "PA", "AU"]), bytes(rng.choice([1, 100, 1400])))
            sent.append((port, frame))
            yield f"{prefix}: {n}", port, [frame]


def tcp_spoilt(family):
    with_syn = ["SF", "SR", "SFA", "SRA", "SA", "SAU", "SP", "SAP", "SU", "SEC"]
    for flags in [*with_syn, "FR", "F", "", "FSRPAU", "FPU", "U", "FRA", "AEC"]:
        yield f"tcp flags {flags or 'none'}, first", OUT, [Tcp(family).segment(OUT, flags)]
        tcp = Tcp(family)
        yield from tcp.open(f"tcp flags {flags or 'none'}")
        yield f"tcp flags {flags or 'none'}, established", OUT, [tcp.segment(OUT, flags)]
    for name, more in {"checksum": {"bad": "l4"}, "offset 4": {"offset": 4}, "offset 15": {"offset": 15}}.items():
        yield f"tcp {name}, first", OUT, [Tcp(family).segment(OUT, "S", **more)]
        tcp = Tcp(family)
        yield from tcp.open(f"tcp {name}")
        yield f"tcp {name}, established", BACK, [tcp.segment(BACK, "A", b"data", **{"seq": 0, **more})]
        yield from tcp.steps(f"tcp {name}, behind", ">A")
    tcp = Tcp(family)
    whole = tcp.segment(OUT, "S")[14:]
    head = 20 if family == 4 else 40
    yield "tcp cut to 12 bytes", OUT, [tcp.frame(OUT, TCP, whole[head : head + 12])]


def datagrams(family):
    udp = Talk(family, 53)
    for n, port in enumerate([OUT, OUT, BACK, OUT, BACK, BACK, OUT]):
        yield f"udp: {n}", port, [udp.udp(port)]
    yield "udp: bad checksum", OUT, [udp.udp(OUT, bad="l4")]
    yield "udp: empty", OUT, [udp.udp(OUT, b"")]
    udp = Talk(family, 53)
    yield "udp first bad checksum", OUT, [udp.udp(OUT, bad="l4")]
    yield "udp first behind a bad one", OUT, [udp.udp(OUT)]
    yield "udp first without checksum", OUT, [Talk(family, 53).udp(OUT, bad="none")]
    for length in (0, 7, 8, 11, 13, 65535):
        yield f"udp first of length {length} for 12", OUT, [Talk(family, 53).udp(OUT, length=length)]
    udp = Talk(family, 53)
    yield "udp cut to 6 bytes", OUT, [udp.frame(OUT, UDP, b"\x30\1\0\x35\0\6")]
    other = Talk(family)
    for name, proto in (("protocol 253", 253), ("IPIP", 4)):
        for n, port in enumerate([OUT, OUT, BACK, OUT]):
            yield f"{name}: {n}", port, [other.frame(port, proto, b"some data")]
    for port in (OUT, BACK):
        echo = Talk(family)
        back = 3 - port
        request, reply, other_request = (port, False), (back, True), (back, False)
        for n, (sender, is_reply) in enumerate([request, request, reply, request, reply, other_request]):
            yield f"echo from {port}: {n} {'reply' if is_reply else 'request'}", sender, [echo.echo(sender, is_reply)]
        yield f"echo from {port}: bad checksum", port, [echo.echo(port, bad="l4")]
        yield f"echo reply first from {port}", port, [Talk(family).echo(port, True)]
        yield f"echo bad checksum first from {port}", port, [Talk(family).echo(port, bad="l4")]
    other = Talk(family, 53)
    more = {"options": b"\1\1\1\0"} if family == 4 else {"extensions": struct.pack(">BBBBI", UDP, 0, 1, 4, 0)}
    for n, port in enumerate([OUT, BACK, OUT]):
        payload = frames.udp(*other.ends(port), b"data")
        yield f"udp behind options: {n}", port, [other.frame(port, UDP, payload, **more)]
    if family == 4:
        for kind, answer in ((13, 14), (15, 16), (17, 18), (10, 9), (42, 43), (6, 0)):
            query = frames.icmp(kind, 0, 5 << 16 | 1, bytes(12))
            reply = frames.icmp(answer, 0, 5 << 16 | 1, bytes(12))
            yield f"icmp type {kind}", OUT, [other.frame(OUT, ICMP, query)]
            yield f"icmp type {answer} to {kind}", BACK, [other.frame(BACK, ICMP, reply)]
        yield "icmp cut to 6 bytes", OUT, [other.frame(OUT, ICMP, b"\x08\0\0\0\0\0")]
    else:
        for kind in (139, 130, 133, 135, 143, 200):
            src, dst, *_ = other.ends(OUT)
            yield f"icmp6 type {kind}", OUT, [other.frame(OUT, ICMP6, frames.icmp6(src, dst, kind, 0, 0, bytes(16)))]


def errors(family):
    kinds = ["port", "time", "big", *(["redirect", "quench"] if family == 4 else ["parameter"])]
    makers = {"udp": lambda talk, port: talk.udp(port), "echo": lambda talk, port: talk.echo(port, port == BACK)}
    for name, make in makers.items():
        talk = Talk(family, 53)
        out, back = make(talk, OUT), make(talk, BACK)
        yield f"error about unknown {name}", BACK, [talk.error(BACK, out)]
        yield f"error about {name}: out", OUT, [out]
        for kind in kinds:
            yield f"error about {name}, {kind}, behind first", BACK, [talk.error(BACK, out, kind)]
        yield f"error about {name}: back", BACK, [back]
        for kind in kinds:
            yield f"error about {name}, {kind}", BACK, [talk.error(BACK, out, kind)]
            yield f"error about {name}, {kind}, of a router", BACK, [talk.error(BACK, out, kind, router=True)]
            yield f"error about answer of {name}, {kind}", OUT, [talk.error(OUT, back, kind)]
        yield f"error about {name}, bad checksum", BACK, [talk.error(BACK, out, bad="l4")]
        yield f"error about {name}, from the wrong side", OUT, [talk.error(OUT, out)]
        head = 20 if family == 4 else 40
        for size in (head + 8, head + 4, head, head - 8):
            yield f"error about {name}, {size} bytes", BACK, [talk.error(BACK, out, size=size)]
        yield f"error about an error about {name}", OUT, [talk.error(OUT, talk.error(BACK, out))]
        yield f"error about {name}: out again", OUT, [out]
    tcp = Tcp(family)
    syn = tcp.segment(OUT, "S")
    yield "error about unknown tcp", BACK, [tcp.error(BACK, syn)]
    yield "error about tcp: SYN", OUT, [syn]
    yield "error about SYN", BACK, [tcp.error(BACK, syn)]
    yield "error about tcp: SYN, ACK", BACK, [tcp.segment(BACK, "SA")]
    yield "error about tcp: ACK", OUT, [tcp.segment(OUT, "A")]
    data = tcp.segment(OUT, "PA", bytes(100))
    yield "error about tcp: data", OUT, [data]
    yield "error about tcp", BACK, [tcp.error(BACK, data)]
    yield "error about tcp, 8 bytes", BACK, [tcp.error(BACK, data, size=28 if family == 4 else 48)]
    yield "error about tcp out of window", BACK, [tcp.error(BACK, tcp.segment(OUT, "PA", b"far", seq=1 << 30))]
    yield "error about tcp: data again", OUT, [data]


def fragments(family):
    def cut(talk, port, proto, payload, order=None, ident=None):
        src, dst, *_ = talk.ends(port)
        made = frames.fragments(src, dst, proto, payload, [1280, 2560], ident or next(Talk.numbers))
        return [ethernet(made[n], port) for n in order or range(len(made))]

    data = bytes(range(256)) * 12
    for name, order in (("in order", [0, 1, 2]), ("in reverse", [2, 1, 0]), ("mixed", [1, 0, 2])):
        udp = Talk(family, 53)
        for n, port in enumerate([OUT, OUT, BACK, OUT]):
            yield f"udp fragments {name}: {n}", port, cut(udp, port, UDP, frames.udp(*udp.ends(port), data), order)
        yield f"udp fragments {name}: unfragmented", OUT, [udp.udp(OUT)]
        bad = frames.udp(*udp.ends(OUT), data, bad="l4")
        yield f"udp fragments {name}: bad checksum", OUT, cut(udp, OUT, UDP, bad, order)
    tcp = Tcp(family)
    yield from tcp.open("tcp fragments")
    head = 14 + (20 if family == 4 else 40)
    yield "tcp fragments: data", OUT, cut(tcp, OUT, TCP, tcp.segment(OUT, "PA", data)[head:])
    yield from tcp.steps("tcp fragments", "<A")
    echo, proto = Talk(family), ICMP if family == 4 else ICMP6
    for n, (port, reply) in enumerate([(OUT, False), (BACK, True)]):
        yield f"echo fragments: {n}", port, cut(echo, port, proto, echo.echo(port, reply, payload=data)[head:])


def transfers(family):
    """Data connections of FTP, which the control connection announces."""
    tcp = Tcp(family, 21)
    yield from tcp.open("ftp control")

    def line(port, text):
        return [tcp.segment(port, "PA", text.encode() + b"\r\n")]

    yield "ftp control: greeting", BACK, line(BACK, "220 ready")
    yield "ftp control: user", OUT, line(OUT, "USER anonymous")
    yield "ftp control: welcome", BACK, line(BACK, "230 welcome")
    here, there = INSIDE[family], OUTSIDE[family]
    if family == 4:
        active = f"PORT {here.replace('.', ',')},{30001 // 256},{30001 % 256}"
        passive, answer = "PASV", f"227 Entering Passive Mode ({there.replace('.', ',')},{30002 // 256},{30002 % 256})."
    else:
        active, passive, answer = f"EPRT |2|{here}|30001|", "EPSV", "229 Entering Extended Passive Mode (|||30002|)"
    yield "ftp active: command", OUT, line(OUT, active)
    yield "ftp active: answer", BACK, line(BACK, "200 fine")
    data = Tcp(family)
    data.sport, data.dport = 30001, 20
    yield from data.steps("ftp active data", "<S", ">SA", "<A", "<PA:100", ">A", "<FA", ">FA", "<A")
    yield "ftp passive: command", OUT, line(OUT, passive)
    yield "ftp passive: answer", BACK, line(BACK, answer)
    data = Tcp(family, 30002)
    yield "ftp passive data: SYN", OUT, [data.segment(OUT, "S")]
    yield "ftp passive data: SYN again", OUT, [data.segment(OUT, "S", seq=-1)]
    yield from data.steps("ftp passive data", "<SA", ">A", "<PA:100", ">A", "<FA", ">FA", "<A")
    data = Tcp(family, 30002)
    yield from data.steps("ftp behind the data", ">S", "<SA")
    tftp = Talk(family, 69)
    yield "tftp: request", OUT, [tftp.udp(OUT, b"\0\1file\0octet\0")]
    tftp.dport = 40000
    yield "tftp: data", BACK, [tftp.udp(BACK, b"\0\3\0\1data")]
    yield "tftp: data again", BACK, [tftp.udp(BACK, b"\0\3\0\1data")]
    yield "tftp: acknowledgement", OUT, [tftp.udp(OUT, b"\0\4\0\1")]
    yield "tftp: last data", BACK, [tftp.udp(BACK, b"\0\3\0\2data")]


def associations(family):
    init = chunk(1, struct.pack(">IIHHI", 77, 65535, 1, 1, 1))
    init_ack = chunk(2, struct.pack(">IIHHI", 88, 65535, 1, 1, 1))
    data = chunk(0, struct.pack(">IHHI", 1, 0, 0, 0) + b"data", 3)
    steps = [
        (OUT, 0, init), (BACK, 77, init_ack), (OUT, 88, chunk(10, b"cook")), (BACK, 77, chunk(11)), (OUT, 88, data),
        (BACK, 77, chunk(3, bytes(12))), (BACK, 99, data), (OUT, 88, chunk(7, bytes(4))), (BACK, 77, chunk(8)),
        (OUT, 88, chunk(14)),
    ]
    sctp = Talk(family, 5000)
    for n, (port, tag, part) in enumerate(steps):
        yield f"sctp: {n} chunk {part[0]} tag {tag}", port, [sctp.sctp(port, tag, part)]
    yield "sctp bad checksum", OUT, [Talk(family, 5000).sctp(OUT, 0, init, bad="l4")]
    for kind in (0, 2, 6, 10, 14):
        yield f"sctp first chunk {kind}", OUT, [Talk(family, 5000).sctp(OUT, 88, chunk(kind, bytes(16)))]


CONVERSATIONS = [
    tcp_whole, tcp_opening, tcp_mid_stream, tcp_windows, tcp_random, tcp_spoilt, datagrams, errors, fragments, transfers,
    associations,
]
