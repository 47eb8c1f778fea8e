#!/usr/bin/env python3
"""Generates a datapath workload: packets in DIR/NAME.pcap, and their flow table in DIR/NAME.flows.

usage: bench/workload.py NAME DIR [--seed S]

A name is a kind and a size N, as in masks-200 or ip-100k (k: thousands, m: millions). The same name and seed give
the same bytes everywhere, so that figures of different switches and days can be compared.

  p2p-N      packets between N source and N destination addresses; one flow forwards all that comes in at port 1
  ip-N       the same packets; the flow wants a destination in 11.0.0.0/8, so a switch has to look at the address
  masks-N    N flows, each with lengths of source and destination prefix of its own: N masks in the cache
  normal-N   N pairs of MAC addresses; the switch learns and floods by itself (NORMAL)
  acl-N      N flows that deny by prefixes, protocol and port, in many priorities, over one that allows; 10,000 packets
  victim-N   three flows that allow by source address, by destination port and by source port; N packets that the first
             of them allows
  tse-N      the same flows and packets, and N more of an attacker: each differs from what the flows ask for at a bit
             position of its own in each of the three fields, so that each denial is another mask (tuple space explosion)
  mpls-N     N packets with an MPLS label; the flows pop the label, hash the packet for a group of eight buckets (group 1,
             GROUPS), and resubmit to the table that sends it: three passes through the datapath
  setups-N   a pipeline of ten tables with N/10 flows each, whose flows ask for every bit of both MAC addresses, both IP
             addresses and both ports; 200,000 packets, no two of which one cached flow can serve

Packets are UDP in IPv4 in Ethernet, 60 bytes without frame check sequence (64 on a wire), with correct checksums.
They arrive at OpenFlow port 1; forwarded packets leave by port 2.
"""

import argparse
import dataclasses
import itertools
import pathlib
import random
import re
import struct

# The minimum number of packets in the pcap; fewer distinct packets are repeated, in another order each time.
PACKETS_MIN = 4096
FRAME_LEN = 60

ETHERNET_LEN, IPV4_LEN, UDP_LEN = 14, 20, 8
PAYLOAD_LEN = FRAME_LEN - ETHERNET_LEN - IPV4_LEN - UDP_LEN
PROTOCOL_UDP = 17

SOURCES = 0x0A00_0000  # 10.0.0.0
DESTINATIONS = 0x0B00_0000  # 11.0.0.0
# The range of random ports: nothing below 1024, and not the last.
PORTS = (1024, 65535)


@dataclasses.dataclass(frozen=True)
class Packet:
    """One UDP packet by its variable fields; MAC addresses are given by number."""

    source: int
    destination: int
    source_port: int
    destination_port: int
    source_mac: int = 1
    destination_mac: int = 2
    label: int | None = None

    def frame(self):
        """The packet's bytes."""
        stack = b"" if self.label is None else struct.pack("!I", self.label << 12 | 0x140)
        payload_len = PAYLOAD_LEN - len(stack)
        udp_len = UDP_LEN + payload_len
        addresses = struct.pack("!II", self.source, self.destination)
        ports = struct.pack("!HHH", self.source_port, self.destination_port, udp_len)
        start = struct.pack("!BBHHHBB", 0x45, 0, IPV4_LEN + udp_len, 0, 0, 64, PROTOCOL_UDP)
        pseudo_header = addresses + struct.pack("!HH", PROTOCOL_UDP, udp_len)
        # In UDP a checksum of 0 means that there is none; all ones stand for a computed 0.
        udp_checksum = internet_checksum(pseudo_header + ports) or 0xFFFF
        return b"".join(
            (
                mac(self.destination_mac) + mac(self.source_mac) + (b"\x88\x47" if stack else b"\x08\x00") + stack,
                start + struct.pack("!H", internet_checksum(start + addresses)) + addresses,
                ports + struct.pack("!H", udp_checksum),
                bytes(payload_len),
            )
        )


@dataclasses.dataclass
class Workload:
    """Distinct packets, in the order of their generation, and flows in the syntax of ovs-ofctl."""

    packets: list
    flows: list


def mac(number):
    """A locally administered unicast address."""
    return struct.pack("!HI", 0x0200, number)


def internet_checksum(data):
    """RFC 1071, for an even number of bytes."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    total = (total & 0xFFFF) + (total >> 16)
    return ~(total + (total >> 16)) & 0xFFFF


def dotted(address):
    return ".".join(map(str, address.to_bytes(4, "big")))


def keep_first(bits, value, width=32):
    """`value` with all but its first `bits` bits cleared."""
    shift = max(0, width - bits)
    return value >> shift << shift


# The groups that flows of a kind refer to.
GROUPS = {"mpls": ["group_id=1,type=select," + ",".join(8 * ["bucket=resubmit(,2)"])]}


# ---- The kinds. Every draw from `rng` is part of a workload's definition: its order must not change.


def one_flow(flow):
    """A kind of N packets with random addresses under one flow."""

    def make(n, rng):
        packets = [Packet(SOURCES + rng.randrange(n), DESTINATIONS + rng.randrange(n), 1000, 2000) for _ in range(n)]
        return Workload(packets, [flow])

    return make


def masks(n, rng):
    lengths = range(9, 32)
    # Multiples of this odd number differ early, so that no prefix holds another of the same lengths.
    scatter = lambda i: (i + 1) * 2654435761 % 2**32
    packets, flows = [], []
    for i in range(n):
        source_len, destination_len = lengths[i % 23], lengths[i // 23 % 23]
        source = keep_first(source_len, scatter(i))
        destination = keep_first(destination_len, scatter(31 * i + 7))
        flows.append(
            f"priority=10,in_port=1,ip,nw_src={dotted(source)}/{source_len},"
            f"nw_dst={dotted(destination)}/{destination_len},actions=output:2"
        )
        for _ in range(max(1, PACKETS_MIN // n)):
            packets.append(
                Packet(
                    source | rng.getrandbits(32 - source_len),
                    destination | rng.getrandbits(32 - destination_len),
                    rng.randrange(*PORTS),
                    rng.randrange(*PORTS),
                )
            )
    return Workload(packets, flows)


def normal(n, _rng):
    first = 256
    packets = [
        Packet(SOURCES + 1 + i, DESTINATIONS + 1 + i, 1000, 2000, source_mac=first + i, destination_mac=first + n + i)
        for i in range(n)
    ]
    return Workload(packets, ["actions=NORMAL"])


def acl(n, rng):
    denied_sources = 0xAC10_0000  # 172.16.0.0/12
    flows = ["priority=1,actions=output:2"]
    for _ in range(n):
        source_len = rng.choice((16, 20, 24, 28, 32))
        destination_len = rng.choice((8, 16, 24, 32))
        protocol = rng.choice(("udp", "tcp"))
        priority = rng.randrange(10, 1000)
        source = denied_sources | keep_first(source_len, rng.getrandbits(20))
        destination = keep_first(destination_len, rng.getrandbits(32))
        flows.append(
            f"priority={priority},{protocol},nw_src={dotted(source)}/{source_len},"
            f"nw_dst={dotted(destination)}/{destination_len},tp_dst={rng.randrange(1, 1024)},actions=drop"
        )
    packets = [
        Packet(SOURCES + rng.randrange(2**16), rng.getrandbits(32), rng.randrange(*PORTS), rng.randrange(1, 65535))
        for _ in range(10_000)
    ]
    return Workload(packets, flows)


ALLOWED_SOURCE, ALLOWED_SOURCE_PORT, ALLOWED_DESTINATION_PORT = SOURCES + 10, 12345, 80


def victim(n, rng):
    flows = [
        f"priority=100,udp,nw_src={dotted(ALLOWED_SOURCE)},actions=output:2",
        f"priority=90,udp,tp_dst={ALLOWED_DESTINATION_PORT},actions=output:2",
        f"priority=80,udp,tp_src={ALLOWED_SOURCE_PORT},actions=output:2",
        "priority=1,actions=drop",
    ]
    packets = [
        Packet(ALLOWED_SOURCE, rng.getrandbits(32), rng.randrange(*PORTS), rng.randrange(*PORTS)) for _ in range(n)
    ]
    return Workload(packets, flows)


def tuple_space_explosion(n, rng):
    def differ_first_at(bit, width, value):
        """Agrees with `value` up to `bit` (0 is the first), differs there, and is random after it."""
        after = width - 1 - bit
        return keep_first(bit + 1, value ^ 1 << after, width) | rng.getrandbits(width) & ((1 << after) - 1)

    workload = victim(n, rng)
    positions = list(itertools.product(range(32), range(16), range(16)))
    rng.shuffle(positions)
    for in_source, in_destination_port, in_source_port in positions[:n]:
        workload.packets.append(
            Packet(
                differ_first_at(in_source, 32, ALLOWED_SOURCE),
                rng.getrandbits(32),
                differ_first_at(in_source_port, 16, ALLOWED_SOURCE_PORT),
                differ_first_at(in_destination_port, 16, ALLOWED_DESTINATION_PORT),
            )
        )
    return workload


SETUPS_PACKETS = 200_000


def mpls(n, _rng):
    packets = [Packet(SOURCES + i, DESTINATIONS + 7 * i, 1000 + i % 50_000, 2000, label=16 + i % 16) for i in range(n)]
    flows = ["table=0,mpls,actions=pop_mpls:0x0800,resubmit(,1)", "table=1,ip,actions=group:1", "table=2,actions=output:2"]
    return Workload(packets, flows)


def setups(n, rng):
    """Each packet picks a source host, a destination host, a source port and a destination port, and in each table
    one of the flows matches exactly one of these (or, in the table of denials, none)."""
    per_table = n // 10
    if not 30 <= per_table <= 10_000:
        raise ValueError("setups-N: N is from 300 to 100,000")
    source_macs, destination_macs = 256, 256 + per_table
    source_ports, destination_ports = 1024, 20_000
    text = lambda number: ":".join(f"{byte:02x}" for byte in mac(number))
    flows = ["table=4,priority=1,actions=goto_table:5"]
    for i in range(per_table):
        source, destination = dotted(SOURCES + 1 + i), dotted(DESTINATIONS + 1 + i)
        source_mac, destination_mac = text(source_macs + i), text(destination_macs + i)
        flows += [
            f"table=0,priority=10,in_port=1,dl_src={source_mac},actions=goto_table:1",
            f"table=1,priority=10,ip,dl_src={source_mac},nw_src={source},actions=goto_table:2",
            f"table=2,priority=10,udp,tp_src={source_ports + i},actions=goto_table:3",
            f"table=3,priority=10,udp,tp_dst={destination_ports + i},actions=goto_table:4",
            f"table=5,priority=10,dl_dst={destination_mac},actions=set_field:{i + 1}->reg0,goto_table:6",
            f"table=6,priority=10,ip,nw_dst={destination},actions=goto_table:7",
            f"table=7,priority=10,ip,dl_dst={destination_mac},nw_dst={destination},actions=goto_table:8",
            f"table=8,priority=10,reg0={i + 1},actions=goto_table:9",
            f"table=9,priority=10,ip,nw_dst={destination},actions=output:2",
        ]
        if i > 0:  # one place is taken by the flow that lets everything else pass
            flows.append(
                f"table=4,priority=10,tcp,nw_src={source},nw_dst={dotted(rng.getrandbits(32))},"
                f"tp_src={rng.randrange(*PORTS)},tp_dst={rng.randrange(1, 1024)},actions=drop"
            )
    chosen = {}
    while len(chosen) < SETUPS_PACKETS:
        chosen[tuple(rng.randrange(per_table) for _ in range(4))] = None
    packets = [
        Packet(
            SOURCES + 1 + source,
            DESTINATIONS + 1 + destination,
            source_ports + source_port,
            destination_ports + destination_port,
            source_mac=source_macs + source,
            destination_mac=destination_macs + destination,
        )
        for source, destination, source_port, destination_port in chosen
    ]
    return Workload(packets, flows)


KINDS = {
    "p2p": one_flow("in_port=1,actions=output:2"),
    "ip": one_flow("in_port=1,ip,nw_dst=11.0.0.0/8,actions=output:2"),
    "masks": masks,
    "normal": normal,
    "acl": acl,
    "victim": victim,
    "tse": tuple_space_explosion,
    "mpls": mpls,
    "setups": setups,
}


# ---- From a name to files.


def pcap(packets, rng):
    """The packets of a workload as a capture file: all of them in random order, again and again until there are enough."""
    frames = [packet.frame() for packet in packets]
    order = list(range(len(frames)))
    count = max(len(frames), PACKETS_MIN)
    records = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    written = 0
    while written < count:
        rng.shuffle(order)
        for i in order[: count - written]:
            records.append(struct.pack("<IIII", *divmod(written, 1_000_000), FRAME_LEN, FRAME_LEN))
            records.append(frames[i])
            written += 1
    return b"".join(records)


def packets_in(path):
    """The number of packets in a capture file in little-endian byte order."""
    data = pathlib.Path(path).read_bytes()
    count, at = 0, 24
    while at + 16 <= len(data):
        at += 16 + struct.unpack_from("<I", data, at + 8)[0]
        count += 1
    return count


def files(name, seed=1):
    """The bytes of NAME.pcap and of NAME.flows; ValueError for an unknown name."""
    parts = re.fullmatch(r"([a-z0-9]+)-([1-9][0-9]*)([km]?)", name)
    if parts is None or parts[1] not in KINDS:
        raise ValueError(f"no workload {name!r}: it is one of {', '.join(f'{kind}-N' for kind in KINDS)}")
    n = int(parts[2]) * {"": 1, "k": 1_000, "m": 1_000_000}[parts[3]]
    rng = random.Random(seed)
    workload = KINDS[parts[1]](n, rng)
    return pcap(workload.packets, rng), "".join(f"{flow}\n" for flow in workload.flows).encode("ascii")


def write(name, directory, seed=1):
    """Writes both files and returns their paths."""
    packets, flows = files(name, seed)
    directory = pathlib.Path(directory)
    directory.mkdir(parents=True, exist_ok=True)
    paths = directory / f"{name}.pcap", directory / f"{name}.flows"
    for path, content in zip(paths, (packets, flows)):
        path.write_bytes(content)
    return paths


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("name")
    arguments.add_argument("directory", metavar="DIR")
    arguments.add_argument("--seed", type=int, default=1)
    options = arguments.parse_args()
    try:
        write(options.name, options.directory, options.seed)
    except ValueError as error:
        arguments.error(str(error))


if __name__ == "__main__":
    main()
