"""sFlow and NetFlow: the same packets through Open vSwitch's daemon and ours give the same samples and records, and
Debian's collectors (nfcapd, sfcapd, nfdump) read ours."""

import difflib
import pprint
import socket
import struct
import subprocess

import pytest
from scapy.layers.inet import ICMP, IP, TCP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1Q, Ether
from scapy.packet import Raw

from dummies import Dummies
from sflow import COUNTERS, FLOW, Datagrams, datagram
from switch import run
from waiting import until

A, B = "50:54:00:00:00:05", "50:54:00:00:00:07"


def eth():
    return Ether(src=A, dst=B)


def ip(proto, **more):
    return IP(src="10.0.0.1", dst="10.0.0.2", proto=proto, **more)


FRAMES = {
    "tcp": eth() / ip(6, tos=0x29) / TCP(sport=8, dport=9, flags="SA"),
    "udp": eth() / ip(17) / UDP(sport=8, dport=9) / Raw(b"x" * 300),
    "vlan": eth() / Dot1Q(vlan=5, prio=3) / ip(17) / UDP(sport=8, dport=9),
    "icmp": eth() / ip(1) / ICMP(type=8, code=3),
    "gre": eth() / ip(47) / Raw(b"\0" * 30),
    "later fragment": eth() / ip(17, frag=2) / Raw(b"x" * 32),
    "arp": eth() / ARP(op=1, hwsrc=A, psrc="1.2.3.4", pdst="5.6.7.8"),
    "udp6": eth() / IPv6(src="fe80::1", dst="fe80::2") / UDP(sport=80, dport=8080),
    "short": Ether(src=A, dst=B, type=0x1234) / Raw(b"x"),
}
# Flows of OpenFlow 1.0.
ACTIONS = {
    "one": "2",
    "without an index": "3",
    "two": "2,3",
    "dropped": "drop",
    "another VLAN": "mod_vlan_vid:9,2",
    "no VLAN": "strip_vlan,2",
    "first with, then without": "2,strip_vlan,3",
    "to the controller": "controller",
    "in a clone": "clone(mod_vlan_vid:9,2)",
    "back": "in_port",
    "flooded": "normal",
}


class Monitored:
    """A bridge whose ports p1, p2 and local port have interface indices."""

    def __init__(self, switch):
        self.switch = switch
        self.dummies = Dummies(switch, "br0", "p1", "p2", "p3")
        switch.vsctl("set", "bridge", "br0", "other-config:datapath-id=fedcba9876543210")
        for port, index in (("br0", 1002), ("p1", 1004), ("p2", 1003)):
            switch.vsctl("set", "interface", port, f"options:ifindex={index}")
        self.datagrams = Datagrams(switch)

    def sflow(self, *columns):
        row = ["--id=@s", "create", "sflow", f'targets="{self.datagrams.target}"', "agent=127.0.0.1", *columns]
        self.switch.vsctl("--", *row, "--", "set", "bridge", "br0", "sflow=@s")

    def netflow(self, *columns, target=None):
        row = ["--id=@n", "create", "netflow", f'targets="{target or self.datagrams.target}"', *columns]
        self.switch.vsctl("--", *row, "--", "set", "bridge", "br0", "netflow=@n")

    def records(self, count):
        """Waits for so many records of NetFlow, and returns them without times, sorted."""

        def found():
            return [record for data in self.datagrams.received() for record in records_of(data)]

        until(lambda: len(found()) >= count, lambda: f"{count} records: {found()}")
        return sorted(found())


def records_of(data):
    """The records of a packet of NetFlow: addresses, interfaces, packets, bytes, ports, flags, protocol, type of service."""
    version, count = struct.unpack_from(">HH", data)
    assert version == 5 and len(data) == 24 + 48 * count
    for at in range(24, len(data), 48):
        src, dst, _, *fields = struct.unpack_from(">4s4s4sHHIIIIHHBBBBHHBBH", data, at)
        ends = socket.inet_ntoa(src), socket.inet_ntoa(dst)
        yield (*ends, *fields[:4], *fields[6:8], *fields[9:12])


@pytest.fixture
def both(making, peers):
    """Open vSwitch's daemon and ours, with the same ports."""
    return [Monitored(making.switch(maker=peers)), Monitored(making.switch())]


def alike(both, what):
    """Runs a function on both, and returns its result, which must be equal."""
    theirs, ours = (what(each) for each in both)
    lines = [pprint.pformat(result, width=60).splitlines() for result in (theirs, ours)]
    assert ours == theirs, "\n".join(difflib.unified_diff(*lines, "Open vSwitch", "ours", lineterm="", n=20))
    return ours


def test_samples_of_packets(both):
    def samples(each):
        each.sflow("sampling=1", "polling=0", "header=100")
        each.dummies.flows("in_port=1,actions=2")
        # In a batch, packets that hit cached flows are sampled before packets that miss.
        for count, frame in enumerate(FRAMES.values(), 1):
            each.dummies.receive("p1", frame)
            found = each.datagrams.samples(FLOW, count)
        return found

    found = alike(both, samples)
    assert [head["pool"] for _, head, _ in found] == list(range(1, len(FRAMES) + 1))
    assert found[1][2]["header"]["frame_length"] == len(FRAMES["udp"]) + 4
    assert len(found[1][2]["header"]["header"]) == 200


def test_samples_of_actions(both):
    def samples(each):
        each.sflow("sampling=1", "polling=0")
        for actions in ACTIONS.values():
            each.dummies.flows(f"in_port=1,actions={actions}")
            each.switch.appctl("revalidator/purge")
            each.dummies.receive("p1", FRAMES["vlan"])
        found = each.datagrams.samples(FLOW, len(ACTIONS))
        return {name: (head["output"], records["switch"]) for name, (_, head, records) in zip(ACTIONS, found)}

    outputs = alike(both, samples)
    assert outputs["dropped"][0] == 0x40000100 and outputs["two"][0] == 0x80000002


def test_counters(both):
    def counters(each):
        each.sflow("polling=1")
        each.dummies.flows("in_port=1,actions=2")
        each.dummies.receive("p1", *[FRAMES["udp"]] * 3)
        names = {"p1", "p2", "br0"}
        ports = {}

        def complete():
            for data in each.datagrams.received():
                for kind, _, records in datagram(data)[1]:
                    if kind == COUNTERS and "interface" in records:
                        ports[records["port_name"]] = records
            return ports.keys() == names and ports["p2"]["interface"]["out_packets"] == 3

        until(complete, lambda: f"counters of ports: {ports}")
        for records in ports.values():
            # Counters that Open vSwitch does not know of a dummy.
            for name in ("in_discards", "in_errors", "in_multicast", "out_discards", "out_errors"):
                records["interface"].pop(name)
        return ports

    ports = alike(both, counters)
    assert ports["p1"]["openflow_port"]["port"] == 1 and ports["p1"]["interface"]["in_packets"] == 3


def bonded(making, maker):
    """A switch with the bridge br0, whose ports are a bond with LACP of two cables to br1, a port with LACP, and one without."""
    switch = making.switch(start="kernel", maker=maker)
    for name in ("a1", "a2", "c1", "c2"):
        run(["ip", "-n", switch.namespace, "link", "add", name, "type", "veth", "peer", "name", f"{name}p"])
        for end in (name, f"{name}p"):
            run(["ip", "-n", switch.namespace, "link", "set", end, "up"])
    for number in (0, 1):
        settings = ["datapath_type=netdev", f"other_config:hwaddr=aa:66:aa:66:00:0{number}", f"other_config:datapath-id={number + 1:016x}"]
        switch.vsctl("add-br", f"br{number}", "--", "set", "bridge", f"br{number}", *settings)
    mode = ["bond_mode=balance-tcp", "other_config:lacp-time=fast"]
    switch.vsctl("add-bond", "br0", "bond0", "a1", "a2", *mode, "lacp=active", *key("a1", 11), *key("a2", 12))
    switch.vsctl("add-bond", "br1", "bond1", "a1p", "a2p", *mode, "lacp=passive", *key("a1p", 21), *key("a2p", 22))
    switch.vsctl("add-port", "br0", "c1", "lacp=passive", "--", "set", "interface", "c1", "ofport_request=13")
    switch.vsctl("add-port", "br0", "c2", "--", "set", "interface", "c2", "ofport_request=14")
    return switch


def key(interface, port):
    return ["--", "set", "interface", interface, f"ofport_request={port}", "other_config:lacp-aggregation-key=77"]


def test_counters_of_lacp(making):
    """Counter samples of members of a bond have the state of LACP. Counters of the kernel's devices are known."""

    def counters(maker):
        switch = bonded(making, maker)
        until(lambda: "active negotiated" in switch.appctl("lacp/show", "bond0"), "the end of the negotiation")
        datagrams = Datagrams(switch)
        row = ["--id=@s", "create", "sflow", f'targets="{datagrams.target}"', "agent=127.0.0.1", "sampling=400", "polling=1"]
        switch.vsctl("--", *row, "--", "set", "bridge", "br0", "sflow=@s")

        def ports():
            samples = [sample for data in datagrams.received() for sample in datagram(data)[1]]
            return {records["port_name"]: records for kind, _, records in samples if kind == COUNTERS and "interface" in records}

        def complete():
            found = ports()
            synchronized = [name for name in ("a1", "a2") if found.get(name, {}).get("lacp", {}).get("states") == "073f003e"]
            return found.keys() == {"a1", "a2", "br0", "c1", "c2"} and len(synchronized) == 2

        until(complete, lambda: f"counters of ports: {ports()}")
        shown = {}
        for name, records in ports().items():
            if "lacp" in records:
                sent, received = records["lacp"].pop("tx"), records["lacp"].pop("rx")
                assert (sent > 0, received > 0) == (name != "c1",) * 2, (name, sent, received)
            shown[name] = (list(records), {key: records.get(key) for key in ("ethernet", "lacp", "openflow_port")})
            shown[name] += tuple(records["interface"][key] for key in ("in_multicast", "in_errors", "direction", "status"))
        return shown

    theirs, ours = (counters(maker) for maker in (making.peers, None))
    assert ours == theirs
    assert ours["a1"][1]["lacp"]["aggregator"] == 77 and ours["c2"][1]["lacp"] is None
    assert ours["br0"][1]["ethernet"][:3] == [0, 0, 0xFFFFFFFF]


def test_sampling_at_random(making):
    each = Monitored(making.switch())
    each.sflow("sampling=10", "polling=0")
    each.dummies.flows("in_port=1,actions=2")
    each.switch.appctl("netdev-dummy/receive", "p1", *[bytes(FRAMES["udp"]).hex()] * 500)
    each.switch.appctl("netdev-dummy/receive", "p1", *[bytes(FRAMES["udp"]).hex()] * 500)
    found = each.datagrams.samples(FLOW, 50)
    # Within six standard deviations.
    until(lambda: each.switch.appctl("sflow/show", "br0").count("lost samples: 0") == 1, "no lost samples")
    assert 43 < len(found) < 160
    assert all(head["rate"] == 10 and head["pool"] == 10 * head["sequence"] for _, head, _ in found)


def test_records_of_netflow(both):
    def records(each):
        each.netflow("engine_id=5", "engine_type=6")
        each.dummies.flows("in_port=1,actions=2", "in_port=2,actions=1,3", "in_port=3,actions=drop")
        flags = [eth() / ip(6) / TCP(sport=8, dport=9, flags=flags) for flags in ("S", "A", "PA", "FA")]
        each.dummies.receive("p1", *flags, *FRAMES.values())
        each.dummies.receive("p2", FRAMES["icmp"], FRAMES["udp"])
        each.dummies.receive("p3", *[FRAMES["udp"]] * 3)
        each.switch.appctl("revalidator/purge")
        found = each.records(9)
        assert {data[20:22] for data in each.datagrams.received()} == {bytes([6, 5])}
        return found

    found = alike(both, records)
    assert len(found) == 9


def test_engines_in_interfaces(both):
    def records(each):
        each.netflow("engine_id=3", "add_id_to_interface=true")
        each.dummies.flows("in_port=1,actions=2", "in_port=3,actions=drop")
        for port in ("p1", "p3"):
            each.dummies.receive(port, FRAMES["udp"])
        each.switch.appctl("revalidator/purge")
        return each.records(2)

    assert [record[2:4] for record in alike(both, records)] == [(3 << 9 | 1, 3 << 9 | 2), (3 << 9 | 3, 3 << 9 | 0x1FD)]


def test_the_active_timeout(making):
    """Each packet is in one record, and sequence numbers count records."""
    each = Monitored(making.switch())
    each.netflow("active_timeout=1")
    each.dummies.flows("in_port=1,actions=2")

    def total():
        return sum(record[4] for data in each.datagrams.received() for record in records_of(data))

    for n in range(1, 4):
        each.dummies.receive("p1", *[FRAMES["udp"]] * 5)
        until(lambda n=n: total() == 5 * n, lambda: f"packets in records: {total()}")
    each.switch.vsctl("clear", "bridge", "br0", "netflow")
    expected = 0
    for data in each.datagrams.received():
        assert int.from_bytes(data[16:20], "big") == expected
        expected += int.from_bytes(data[2:4], "big")
    assert total() == 15


@pytest.mark.parametrize("program", ["nfcapd", "sfcapd"])
def test_collectors_of_debian(making, program):
    """nfcapd and sfcapd count the packets that were sent."""
    each = Monitored(making.switch())
    files = each.switch.directory / "captured"
    files.mkdir()
    command = [program, "-w", files, "-b", "127.0.0.1", "-p", "9995", "-t", "2"]
    with open(each.switch.directory / f"{program}.log", "wb") as log:
        process = subprocess.Popen(each.switch.inside(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until(lambda: list(files.iterdir()), "the collector's file")
        if program == "nfcapd":
            each.netflow(target="127.0.0.1:9995")
        else:
            each.switch.vsctl(
                *("--", "--id=@s", "create", "sflow", 'targets="127.0.0.1:9995"', "agent=127.0.0.1", "sampling=1", "polling=0"),
                *("--", "set", "bridge", "br0", "sflow=@s"),
            )
        each.dummies.flows("in_port=1,actions=2")
        frames = [eth() / ip(17) / UDP(sport=port, dport=53) / Raw(b"x" * 20) for port in range(1000, 1040)]
        each.dummies.receive("p1", *frames, *frames)
        each.switch.appctl("revalidator/purge")

        def captured():
            words = ["nfdump", "-q", "-N", "-R", files, "-o", "csv", "-A", "srcport", "dst ip 10.0.0.2"]
            return subprocess.run(words, capture_output=True, text=True, check=False).stdout

        def ports():
            return [port for port in range(1000, 1040) if f",{port}," in captured() or f" {port} " in captured()]

        until(lambda: len(ports()) == 40, lambda: captured() or (each.switch.directory / f"{program}.log").read_text())
    finally:
        process.terminate()
        process.wait(10)
