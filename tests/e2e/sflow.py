"""An sFlow collector (sFlow version 5) over UDP, in the namespace of a switch, and a reader of its datagrams."""

import socket
import struct
import subprocess
import sys
from pathlib import Path

from waiting import until

FLOW, COUNTERS = 1, 2


class Reader:
    """Values in the external data representation (RFC 4506)."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def word(self):
        (value,) = struct.unpack_from(">I", self.data, self.at)
        self.at += 4
        return value

    def hyper(self):
        return self.word() << 32 | self.word()

    def fixed(self, length):
        value = self.data[self.at : self.at + length]
        assert len(value) == length
        self.at += (length + 3) & ~3
        return value

    def opaque(self):
        return self.fixed(self.word())

    def address(self):
        family, length = {1: (socket.AF_INET, 4), 2: (socket.AF_INET6, 16)}[self.word()]
        return socket.inet_ntop(family, self.fixed(length))

    def end(self):
        assert self.at == len(self.data)


def words(*names):
    return lambda reader: {name: reader.word() for name in names}


def header(reader):
    fields = words("protocol", "frame_length", "stripped")(reader)
    return {**fields, "header": reader.opaque().hex()}


def labels(reader):
    return {"next_hop": reader.address(), "in": array(reader), "out": array(reader)}


def array(reader):
    return [reader.word() for _ in range(reader.word())]


def tunnel(length, family):
    def read(reader):
        fields = {"length": reader.word(), "protocol": reader.word()}
        fields |= {name: socket.inet_ntop(family, reader.fixed(length)) for name in ("src", "dst")}
        return {**fields, **words("sport", "dport", "flags", "tos")(reader)}

    return read


def interface(reader):
    fields = {**words("index", "type")(reader), "speed": reader.hyper(), **words("direction", "status")(reader)}
    fields |= {"in_octets": reader.hyper()}
    fields |= words("in_packets", "in_multicast", "in_broadcast", "in_discards", "in_errors", "in_unknown")(reader)
    fields |= {"out_octets": reader.hyper()}
    last = words("out_packets", "out_multicast", "out_broadcast", "out_discards", "out_errors", "promiscuous")
    return {**fields, **last(reader)}


def openflow_port(reader):
    return {"dpid": f"{reader.hyper():016x}", "port": reader.word()}


def resources(reader):
    fields = {**words("user_ms", "system_ms")(reader), "memory": reader.hyper(), "memory_max": reader.hyper()}
    return {**fields, **words("fds", "fds_max", "connections", "connections_max")(reader)}


def lacp(reader):
    fields = {name: reader.fixed(6).hex(":") for name in ("actor", "partner")}
    # Administrative and operational states of the actor, then of the partner.
    fields |= {"aggregator": reader.word(), "states": reader.fixed(4).hex()}
    received = words("rx", "rx_markers", "rx_marker_responses", "rx_unknown", "rx_illegal")(reader)
    return {**fields, **received, **words("tx", "tx_markers", "tx_marker_responses")(reader)}


RECORDS = {
    (FLOW, 1): ("header", header),
    (FLOW, 1001): ("switch", words("src_vlan", "src_priority", "dst_vlan", "dst_priority")),
    (FLOW, 1006): ("mpls", labels),
    (FLOW, 1023): ("tunnel_egress", tunnel(4, socket.AF_INET)),
    (FLOW, 1024): ("tunnel_ingress", tunnel(4, socket.AF_INET)),
    (FLOW, 1025): ("tunnel6_egress", tunnel(16, socket.AF_INET6)),
    (FLOW, 1026): ("tunnel6_ingress", tunnel(16, socket.AF_INET6)),
    (FLOW, 1029): ("vni_egress", words("vni")),
    (FLOW, 1030): ("vni_ingress", words("vni")),
    (COUNTERS, 1): ("interface", interface),
    (COUNTERS, 2): ("ethernet", lambda reader: [reader.word() for _ in range(13)]),
    (COUNTERS, 7): ("lacp", lacp),
    (COUNTERS, 1004): ("openflow_port", openflow_port),
    (COUNTERS, 1005): ("port_name", lambda reader: reader.opaque().decode()),
    (COUNTERS, 2203): ("resources", resources),
    (COUNTERS, 2207): ("datapath", words("hit", "missed", "lost", "mask_hit", "flows", "masks")),
}
HEADS = {
    FLOW: words("sequence", "source", "rate", "pool", "drops", "input", "output"),
    COUNTERS: words("sequence", "source"),
}


def datagram(data):
    """Reads a datagram: its fields, and its samples as (type, fields, {record: values})."""
    reader = Reader(data)
    assert reader.word() == 5 and len(data) <= 1400
    fields = {"agent": reader.address(), **words("sub_agent", "sequence", "uptime")(reader)}
    samples = []
    for _ in range(reader.word()):
        kind, sample = reader.word(), Reader(reader.opaque())
        head, records = HEADS[kind](sample), {}
        for _ in range(sample.word()):
            name, read = RECORDS[kind, sample.word()]
            record = Reader(sample.opaque())
            records[name] = read(record)
            record.end()
        sample.end()
        samples.append((kind, head, records))
    reader.end()
    return fields, samples


def serve(path):
    """Receives until killed, a line of hex digits for each datagram. The first line is the port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp, open(path, "w", encoding="ascii") as out:
        udp.bind(("127.0.0.1", 0))
        print(udp.getsockname()[1], file=out, flush=True)
        while True:
            print(udp.recv(65535).hex(), file=out, flush=True)


class Datagrams:
    """A collector in the namespace of a switch, which ends it."""

    def __init__(self, switch, name="datagrams"):
        self.path = switch.directory / name
        command = switch.inside([sys.executable, Path(__file__).resolve(), self.path])
        with open(switch.directory / f"{name}.log", "wb") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        until(lambda: self.path.exists() and self.path.read_text().endswith("\n"), "the collector's port")
        self.target = f"127.0.0.1:{self.path.read_text().split()[0]}"

    def received(self):
        """The datagrams so far, in order, as bytes."""
        text = self.path.read_text()
        return [bytes.fromhex(line) for line in text[: text.rindex("\n")].split("\n")[1:]]

    def samples(self, kind, count):
        """Waits for so many samples of a type, and returns all of them."""

        def found():
            return [s for data in self.received() for s in datagram(data)[1] if s[0] == kind]

        until(lambda: len(found()) >= count, lambda: f"{count} samples: {found()}")
        return found()


if __name__ == "__main__":
    serve(sys.argv[1])
