"""TCP connections as capture files and flow tables, for the benchmark `connections`: the handshakes, the packets of
established connections in both directions, whole connections one after another, and SYNs alone.

Frames have 60 bytes without frame check sequence (64 on a wire) and correct checksums. They all arrive at one port and
leave by port 2. The same name gives the same bytes everywhere.
"""

import dataclasses
import pathlib
import random
import struct

import workload

CLIENTS = workload.SOURCES
# The lower half of these addresses counts down where that of the clients' counts up (`new-addresses`).
SERVERS = workload.DESTINATIONS + 0xFFFF
ATTACKERS = CLIENTS + 0x0040_0000
TRANSLATED = 0xC000_0201  # 192.0.2.1
SERVER_PORT = 80
CLIENT_PORT, CLIENT_PORTS = 1024, 60_000

# The next packet of a connection follows this many of others: it may not arrive in the batch in which a packet
# before it is still to be committed.
CHUNK = 256

FIN, SYN, PSH, ACK = 1, 2, 8, 16
FRAME = struct.Struct("!12s H BBHHHBBHII HHIIBBHHH 6s")
PAYLOAD_LEN = 6


@dataclasses.dataclass(frozen=True)
class Connection:
    """The ends of a connection; servers answer to `seen_as`, which is an address that clients are translated to."""

    client: int
    server: int
    client_port: int
    seen_as: int | None = None


@dataclasses.dataclass(frozen=True)
class Step:
    """A packet of a connection: its direction, flags and numbers, relative to 1000 of the client and 5000 of the server."""

    from_client: bool
    flags: int
    sequence: int
    acknowledged: int
    payload_len: int = 0

    def frame(self, connection):
        there = (connection.client, connection.server, connection.client_port, SERVER_PORT)
        back = (connection.server, connection.seen_as or connection.client, SERVER_PORT, connection.client_port)
        source, destination, source_port, destination_port = there if self.from_client else back
        own, other = (1000, 5000) if self.from_client else (5000, 1000)
        sequence, acknowledged = own + self.sequence, other + self.acknowledged if self.flags & ACK else 0
        macs = (2, 1) if self.from_client else (1, 2)
        tcp_len = 20 + self.payload_len
        addresses = (source >> 16) + (source & 0xFFFF) + (destination >> 16) + (destination & 0xFFFF)
        ip_checksum = checksum(0x4500 + 20 + tcp_len + (64 << 8 | 6) + addresses)
        offset_flags, window = 0x5000 | self.flags, 0xFFFF
        ports = source_port + destination_port
        tcp_checksum = checksum(addresses + 6 + tcp_len + ports + sequence + acknowledged + offset_flags + window)
        macs = workload.mac(macs[0]) + workload.mac(macs[1])
        ip = (0x45, 0, 20 + tcp_len, 0, 0, 64, 6, ip_checksum, source, destination)
        tcp = (source_port, destination_port, sequence, acknowledged, 0x50, self.flags, window, tcp_checksum, 0)
        return FRAME.pack(macs, 0x0800, *ip, *tcp, bytes(PAYLOAD_LEN))


def checksum(total):
    """RFC 1071, of a sum of 16-bit words."""
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


HANDSHAKE = (Step(True, SYN, 0, 0), Step(False, SYN | ACK, 0, 1), Step(True, ACK, 1, 1))
DATA = (Step(True, PSH | ACK, 1, 1, PAYLOAD_LEN), Step(False, PSH | ACK, 1, 1, PAYLOAD_LEN))
# What follows the handshake and the client's data.
END = (Step(True, FIN | ACK, 7, 1), Step(False, FIN | ACK, 1, 8), Step(True, ACK, 8, 2))
WHOLE = (*HANDSHAKE, DATA[0], *END)


def connections(n, seen_as=None):
    """`n` connections of as many clients with 16 servers."""
    return [
        Connection(CLIENTS + i, SERVERS - i % 16, CLIENT_PORT + i % CLIENT_PORTS, seen_as) for i in range(n)
    ]


def renumbered(n, first=CLIENTS):
    """`n` connections between two addresses that become others each time they are played."""
    assert n <= CLIENT_PORTS
    return [Connection(first, SERVERS, CLIENT_PORT + i) for i in range(n)]


def in_order(steps, conversations):
    """The frames of these steps, connections side by side in chunks."""
    for start in range(0, len(conversations), CHUNK):
        for step in steps:
            for connection in conversations[start : start + CHUNK]:
                yield step.frame(connection)


def shuffled(conversations, seed=1):
    """Data of all connections in both directions, in random order, `workload.PACKETS_MIN` frames at least."""
    rng = random.Random(seed)
    frames = [step.frame(connection) for connection in conversations for step in DATA]
    times = -(-workload.PACKETS_MIN // len(frames))
    for _ in range(times):
        rng.shuffle(frames)
        yield from frames


def pcap(frames, frame_len=workload.FRAME_LEN):
    """The bytes of a capture file of frames of one length."""
    header = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    record = struct.pack("<IIII", 0, 0, frame_len, frame_len)
    return header + b"".join(record + frame for frame in frames)


# ---- Flow tables.

TRACKED = [
    "table=0,ip,ct_state=-trk,actions=ct(table=1)",
    "table=1,ip,ct_state=+trk+new,actions=ct(commit),output:2",
    "table=1,ip,ct_state=+trk+est,actions=output:2",
]
UNTRACKED = ["table=0,ip,actions=resubmit(,1)", "table=1,ip,actions=output:2"]
TO = workload.dotted(TRANSLATED)
NAT = [
    "table=0,ip,ct_state=-trk,actions=ct(table=1,nat)",
    f"table=1,ip,ct_state=+trk+new,actions=ct(commit,nat(src={TO})),output:2",
    "table=1,ip,ct_state=+trk+est,actions=output:2",
]
# As a logical router between two switches has them: clients pass zones 1, 2 (where they are translated) and 3,
# servers the same zones the other way.
OVN = [
    f"table=0,priority=10,ip,nw_dst={TO},ct_state=-trk,actions=ct(zone=3,table=4)",
    "table=0,priority=1,ip,ct_state=-trk,actions=ct(zone=1,table=1)",
    "table=1,ip,ct_state=+trk+new,actions=ct(commit,zone=1),ct(zone=2,nat,table=2)",
    "table=1,ip,ct_state=+trk+est,actions=ct(zone=2,nat,table=2)",
    f"table=2,ip,ct_state=+trk+new,actions=ct(commit,zone=2,nat(src={TO})),ct(zone=3,table=3)",
    "table=2,ip,ct_state=+trk+est,actions=ct(zone=3,table=3)",
    "table=3,ip,ct_state=+trk+new,actions=ct(commit,zone=3),output:2",
    "table=3,ip,ct_state=+trk+est,actions=output:2",
    "table=4,ip,ct_state=+trk+est,actions=ct(zone=2,nat,table=5)",
    "table=5,ip,ct_state=+trk+est,actions=ct(zone=1,table=6)",
    "table=6,ip,ct_state=+trk+est,actions=output:2",
]
# Established connections leave by port 2, the first packets of others by port 5.
APART = [flow.replace("ct(commit),output:2", "ct(commit),output:5") for flow in TRACKED]


@dataclasses.dataclass(frozen=True)
class Workload:
    """Capture files (of handshakes, and of what is then played), flows, and the number of connections in all zones."""

    handshakes: pathlib.Path | None
    played: pathlib.Path
    flows: pathlib.Path
    connections: int
    # The number of frames of `played`.
    frames: int


# Name, connections, the address that servers see, flows, and zones.
ESTABLISHED = {
    "ct-1000-plain": (1_000, None, UNTRACKED, 0),
    "ct-1000": (1_000, None, TRACKED, 1),
    "ct-100k": (100_000, None, TRACKED, 1),
    "ct-1m": (1_000_000, None, TRACKED, 1),
    "ct-nat-1000": (1_000, TRANSLATED, NAT, 1),
    "ct-ovn": (1_000, TRANSLATED, OVN, 3),
}


def contents(name):
    """The bytes of the handshakes, of the packets of the established connections, and of the flows."""
    n, seen_as, flows, _ = ESTABLISHED[name]
    conversations = connections(n, seen_as)
    return pcap(in_order(HANDSHAKE, conversations)), pcap(shuffled(conversations)), text(flows)


def text(flows):
    return "".join(f"{flow}\n" for flow in flows).encode("ascii")


def save(directory, name, handshakes, played, flows, n):
    """Writes these bytes as a workload of `n` connections; without `handshakes` if that is `None`."""
    directory = pathlib.Path(directory)
    paths = [directory / f"{name}{end}" for end in ("-handshakes.pcap", ".pcap", ".flows")]
    for path, content in zip(paths, (handshakes, played, flows)):
        if content is not None:
            path.write_bytes(content)
    frames = (len(played) - 24) // (16 + workload.FRAME_LEN)
    return Workload(paths[0] if handshakes is not None else None, paths[1], paths[2], n, frames)


def established(name, directory):
    """Writes a workload of `ESTABLISHED`."""
    n, _, _, zones = ESTABLISHED[name]
    return save(directory, name, *contents(name), n * zones)


def few(n, directory):
    """`n` connections in one zone."""
    conversations = connections(n)
    frames = pcap(shuffled(conversations))
    return save(directory, f"few-{n}", pcap(in_order(HANDSHAKE, conversations)), frames, text(TRACKED), n)


def openings(n, directory):
    """The handshakes of `n` connections, to be played with new addresses each time."""
    frames = pcap(in_order(HANDSHAKE, renumbered(n, ATTACKERS)))
    return save(directory, "openings", None, frames, text(TRACKED), 0)


def halves(n, directory):
    """`n` connections, and the packets of either half of them alone."""
    conversations = connections(n)
    parts = [conversations[: n // 2], conversations[n // 2 :]]
    frames = [pcap(shuffled(part)) for part in parts]
    whole = frames[0] + frames[1][24:]
    made = save(directory, f"halves-{n}", pcap(in_order(HANDSHAKE, conversations)), whole, text(TRACKED), n)
    paths = [pathlib.Path(directory) / f"half-{i}.pcap" for i in (0, 1)]
    for path, content in zip(paths, frames):
        path.write_bytes(content)
    return made, paths


def short(n, directory):
    """`n` connections from beginning to end, to be played with new addresses each time."""
    return save(directory, "ct-new", None, pcap(in_order(WHOLE, renumbered(n))), text(TRACKED), 0)


def flood(n, directory):
    """The SYNs of `n` connections, to be played with new addresses each time."""
    frames = pcap(in_order(HANDSHAKE[:1], renumbered(n, ATTACKERS)))
    return save(directory, "flood", None, frames, text(APART), 0)
