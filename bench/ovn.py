"""OVN over Flowstone and over Open vSwitch with DPDK, in turns (`ovn_network.py`):

 - packets of 1,000 UDP flows, 64 bytes each, from memory, on one core of one chassis: a client at it sends to a load balancer,
   whose server is at another chassis; the packets pass two logical switches with stateful ACLs and a router, and leave by
   Geneve. And the server's answers, which arrive by Geneve;
 - TCP between two hosts over veth pairs (`ovn_tcp.py`);
 - OVN's databases with many simulated chassis (`ovn_sizes.py`);
 - the load of 200,000 OpenFlow flows by ovn-controller into a switch that has just started.
"""

import contextlib
import datetime
import pathlib
import random
import re
import struct
import tempfile
import time

import common
import ovn_network
import ovn_sizes
import ovn_tcp
import replay
import workload
from ovn_network import UPLINK, Central, Chassis, mac_of, read_pcap, write_pcap
from replay import OURS, PEER, Replay
from report import Report, Table, middle, ratio

PARTS = ("traffic", "tcp", "sizes", "load")
OUT, BACK = "to the load balancer, out by Geneve", "the answers, in by Geneve"
TIMES, LOAD_TIMES = 3, 2
FLOWS = 1_000
VIF = 101
# The other direction's packets a second, which keep connections known.
SLOW_PPS = 20_000
VIP, CLIENT, SERVER = "10.0.9.9", "10.0.1.1", "10.0.2.2"
CLIENT_MAC, SERVER_MAC = "00:00:00:00:01:01", "00:00:00:00:02:02"
SERVICE = 53
FIRST_PORT = 20_000
FRAME_LEN = 60
LOADED = 200_000


def add_arguments(arguments):
    arguments.add_argument("--ovn-parts", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=f"some of {' '.join(PARTS)}")
    sizes = list(ovn_sizes.SIZES)
    arguments.add_argument("--ovn-sizes", nargs="+", choices=sizes, default=sizes, metavar="SIZE", help=f"some of: {'; '.join(sizes)}")
    arguments.add_argument("--loaded", type=int, default=LOADED, metavar="N", help=f"OpenFlow flows of the part load ({LOADED})")


def measure(options):
    common.need_programs("cc", "ip")
    ovn_network.need_ovn()
    tables, figures, notes = [], {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        bench = Bench(pathlib.Path(directory), options, notes)
        for part in PARTS:
            if part in options.ovn_parts:
                found, figures[part] = getattr(bench, part)()
                tables += found if isinstance(found, list) else [found]
    return Report(tables, figures, notes)


class Bench:
    """The parts; each returns its table and its figures."""

    def __init__(self, directory, options, notes):
        self.directory, self.options, self.notes = directory, options, notes

    def fresh(self, name):
        """An empty folder."""
        return pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.directory))

    # ---- Packets on one core.

    def traffic(self):
        library = self.directory / "play.so"
        common.run("cc", "-O2", "-shared", "-fPIC", "-o", library, common.ROOT / "bench/play.c")
        played = self.recorded()
        turns = {direction: {PEER: [], OURS: []} for direction in (OUT, BACK)}
        for number in range(self.options.rounds):
            for which in (PEER, OURS):
                for direction, found in self.traffic_turn(which, library, played).items():
                    turns[direction][which].append(found)
                    common.say(f"{direction}, round {number + 1}, {which}: {found}")
        figures, rows = {}, []
        for direction, of in turns.items():
            medians = {which: {key: middle(one[key] for one in found) for key in found[0]} for which, found in of.items()}
            peer, ours = medians[PEER], medians[OURS]
            times = ratio(ours["mpps"], peer["mpps"])
            figures[direction] = {"rounds": of, **medians, "ratio": times}
            shares = [one["forwarded"] for one in (peer, ours)]
            rows.append([direction, peer["mpps"], ours["mpps"], times, *(one["cycles_per_packet"] for one in (peer, ours)), *shares])
            if times is None or times < TIMES:
                self.notes.append(f"Not met ({TIMES} times): {direction}.")
        header = ["packets", "Open vSwitch, Mpps", "Flowstone, Mpps", "times", "Open vSwitch, cycles", "Flowstone, cycles"]
        header += ["Open vSwitch, forwarded", "Flowstone, forwarded"]
        return Table("OVN on one core, packets from memory", header, rows), figures

    def recorded(self):
        """The capture files that the two ports of the measured chassis play: the client's packets, and the answers with their outer
        headers, which two chassis with dummy ports have sent."""
        with contextlib.ExitStack() as made:
            central = Central("ours", self.fresh("central"))
            made.callback(central.stop)
            chassis = []
            for number in (1, 2):
                switch = common.Switch("ours")
                made.callback(switch.stop)
                switch.start("--enable-dummy=system", "--disable-system")
                chassis.append(Chassis(central, switch, number))
            sockets = chassis[0].switch.dir / "cable"
            for one, option in zip(chassis, (f"pstream=punix:{sockets}", f"stream=unix:{sockets}")):
                words = ["add-port", "br-phys", "uplink", "--", "set", "Interface", "uplink", f"options:{option}", f"ofport_request={UPLINK}"]
                one.vsctl(*words, f"options:tx_pcap={one.switch.dir / 'uplink.pcap'}")
                one.switch("ovs-appctl", "netdev-dummy/ip4addr", "br-phys", f"{one.address}/24")
                one.switch("ovs-appctl", "ovs/route/add", f"{one.address}/24", "br-phys")
                other = 3 - one.number
                one.switch("ovs-appctl", "tnl/neigh/set", "br-phys", ovn_network.UNDERLAY_NET.format(other), mac_of(other))
                made.callback(one.stop)
                one.start()
            logical_network(central)
            for one, logical in zip(chassis, ("client", "server")):
                words = ["add-port", "br-int", "vif", "--", "set", "Interface", "vif", "type=dummy", f"ofport_request={VIF}"]
                one.vsctl(*words, f"options:tx_pcap={one.switch.dir / 'vif.pcap'}")
                one.bind("vif", logical)
            asked = [client_frame(FIRST_PORT + at) for at in range(FLOWS)]
            self.inject(chassis[0], asked)
            of_server = lambda: [frame for frame in read_pcap(chassis[1].switch.dir / "vif.pcap") if is_udp_to(frame, SERVICE)]
            common.wait_for(lambda: len(of_server()) >= FLOWS, "all packets at the server", patience_s=60)
            answers = [answer_to(frame) for frame in of_server()]
            self.inject(chassis[1], answers)
            outer = lambda: [frame for frame in read_pcap(chassis[1].switch.dir / "uplink.pcap") if is_udp_to(frame, 6081)]
            common.wait_for(lambda: len(outer()) >= FLOWS, "all answers at the underlay", patience_s=60)
            answered = outer()[-FLOWS:]
        random.Random(1).shuffle(asked)
        random.Random(2).shuffle(answered)
        return write_pcap(self.directory / "client.pcap", asked), write_pcap(self.directory / "answers.pcap", answered)

    def inject(self, chassis, frames):
        for at in range(0, len(frames), 50):
            some = [frame.hex() for frame in frames[at : at + 50]]
            chassis.switch("ovs-appctl", "netdev-dummy/receive", "vif", *some)

    def traffic_turn(self, which, library, played):
        """The figures of both directions for one switch."""
        found = {}
        for direction in (OUT, BACK):
            with contextlib.ExitStack() as made:
                central = Central("peer" if which == PEER else "ours", self.fresh("central"))
                made.callback(central.stop)
                one = made.enter_context(Replay(which, bridge="br-phys", preload=library))
                chassis = Chassis(central, one.switch, 1, "netdev")
                made.callback(chassis.stop)
                common.run("ip", "addr", "add", f"{chassis.address}/24", "dev", "br-phys")
                common.run("ip", "link", "set", "br-phys", "up")
                one.appctl("tnl/neigh/set", "br-phys", ovn_network.UNDERLAY_NET.format(2), mac_of(2))
                chassis.start()
                common.wait_for(lambda: "hv1" in central.sbctl("--bare", "--columns=name", "list", "Chassis"), "the chassis", patience_s=60)
                central.sbctl("chassis-add", "hv2", "geneve", ovn_network.UNDERLAY_NET.format(2))
                logical_network(central)
                central.sbctl("lsp-bind", "server", "hv2")
                rates = [0, SLOW_PPS] if direction == OUT else [SLOW_PPS, 0]
                words = ["add-port", "br-int", "vif", "--", "set", "Interface", "vif", f"ofport_request={VIF}"]
                one.vsctl(*words, *one.playing([played[0]], rate=rates[0]), "external_ids:iface-id=client")
                chassis.wait_for_up("client")
                # Packets that came before all flows were there have begun connections without translation; and an answer to a
                # connection that is not known yet would begin one of its own.
                one.appctl("dpctl/flush-conntrack")
                common.wait_for(lambda: one.connections() >= FLOWS, "all connections", patience_s=60)
                words = ["add-port", "br-phys", "uplink", "--", "set", "Interface", "uplink", f"ofport_request={UPLINK}"]
                one.vsctl(*words, *one.playing([played[1]], rate=rates[1]))
                found[direction] = self.counted(one, direction)
        return found

    def counted(self, one, direction):
        """Rate and cost of the packets of one direction, and the share that leaves by the other port."""
        ends = {OUT: ("br-int", VIF, "br-phys", UPLINK), BACK: ("br-phys", UPLINK, "br-int", VIF)}[direction]
        count = lambda: (one.port_counts(ends[0])[0][ends[1]][0], one.port_counts(ends[2])[0][ends[3]][1])
        replay.settle(one, 20 * FLOWS)
        one.clear_stats()
        started_s, before = time.monotonic(), count()
        time.sleep(self.options.seconds)
        stats, elapsed_s = one.stats(), time.monotonic() - started_s
        received, sent = (now - then for now, then in zip(count(), before))
        if not sent:
            raise SystemExit(f"{one.which}: {direction}: {received} packets came in and none left\n{one.appctl('dpctl/dump-flows')}")
        figures = replay.figures(one.which, stats, elapsed_s)
        return {"mpps": sent / elapsed_s / 1e6, "cycles_per_packet": figures["cycles_per_packet"], "forwarded": min(1.0, sent / received)}

    def tcp(self):
        return ovn_tcp.measure(self.options, self.notes)

    def sizes(self):
        return ovn_sizes.measure(self.options, self.notes)

    # ---- The load of a fresh switch.

    def load(self):
        turns = {PEER: [], OURS: []}
        for number in range(self.options.rounds):
            for which, found in turns.items():
                found.append(self.load_turn("peer" if which == PEER else "ours"))
                common.say(f"load, round {number + 1}, {which}: {found[-1]}")
        medians = {which: {key: middle(one[key] for one in found) for key in found[0]} for which, found in turns.items()}
        peer, ours = medians[PEER], medians[OURS]
        rows = []
        for key, text in LOAD_ROWS.items():
            a, b = (peer[key], ours[key]) if key != "flows" else (ours[key], peer[key])
            rows.append([text, peer[key], ours[key], ratio(a, b)])
        if peer["seconds"] < LOAD_TIMES * ours["seconds"]:
            self.notes.append(f"Not met: the load of a fresh switch ({LOAD_TIMES} times).")
        figures = {"rounds": turns, **medians, "ratio": ratio(peer["seconds"], ours["seconds"])}
        return Table("flows of ovn-controller in a fresh switch", ["", "Open vSwitch", "Flowstone", "times"], rows), figures

    def load_turn(self, which):
        with contextlib.ExitStack() as made:
            central = Central(which, self.fresh("central"))
            made.callback(central.stop)
            switch = common.Switch(which)
            made.callback(switch.stop)
            daemon = ["--enable-dummy=system", "--disable-system"]
            switch.start(*daemon)
            chassis = Chassis(central, switch, 1)
            made.callback(chassis.stop)
            chassis.start()
            central.nbctl("ls-add", "s1", "--", "lsp-add", "s1", "client", "--", "lsp-set-addresses", "client", f"{CLIENT_MAC} {CLIENT}")
            words = ["add-port", "br-int", "vif", "--", "set", "Interface", "vif", "type=dummy", f"ofport_request={VIF}"]
            chassis.vsctl(*words)
            chassis.bind("vif", "client")
            size = 5_000
            for at in range(0, self.options.loaded, size):
                addresses = ",".join(f'"{address(0x0B00_0000 + 2 * n)}"' for n in range(at, min(at + size, self.options.loaded)))
                name = f"set{at // size}"
                central.nbctl("create", "Address_Set", f"name={name}", f"addresses={addresses}")
                central.nbctl("acl-add", "s1", "to-lport", "1000", f"ip4.src == ${name}", "drop")
            central.nbctl("--wait=hv", "sync")
            count = lambda: int(re.search(r"flow_count=(\d+)", switch("ovs-ofctl", "dump-aggregate", "br-int"))[1])
            common.wait_for(lambda: count() >= self.options.loaded, "all flows", patience_s=120)
            wanted = count()
            before = ticks_s(chassis.controller.pid)
            switch.end(switch.daemon)
            ended_s = time.time()
            switch.start(*daemon)
            empty_bytes = switch.rss_bytes()
            common.wait_for(lambda: (switch.dir / "br-int.mgmt").exists(), "the bridge", patience_s=60)
            # The question waits for the switch as long as its control thread is busy with flows.
            common.wait_for(lambda: count() >= wanted, "all flows again", patience_s=300)
            seconds = time.time() - connected_s(switch.dir / "ovn-controller.log", ended_s)
            central.nbctl("--wait=hv", "sync")
            return {
                "flows": wanted,
                "seconds": round(seconds, 2),
                "switch_s": round(switch.cpu_s(), 2),
                "controller_s": round(ticks_s(chassis.controller.pid) - before, 2),
                "bytes": round((switch.rss_bytes() - empty_bytes) / wanted),
            }


LOAD_ROWS = {
    "flows": "OpenFlow flows",
    "seconds": "from the controller's connection to the last flow, s",
    "switch_s": "processor time of the switch, s",
    "controller_s": "processor time of ovn-controller, s",
    "bytes": "resident bytes a flow",
}


def connected_s(log, after_s):
    """When ovn-controller first connected to the integration bridge after this time, by its log, in seconds of the epoch: it tries
    once a second."""
    for line in log.read_text().splitlines():
        if line.endswith("br-int.mgmt: connected"):
            at_s = datetime.datetime.fromisoformat(line.split("|")[0].replace("Z", "+00:00")).timestamp()
            if at_s >= after_s:
                return at_s
    raise SystemExit("ovn-controller has not connected again")


def ticks_s(pid):
    """Processor time of a process, in seconds."""
    ticks = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()[11:13]
    return sum(map(int, ticks)) / 100


def logical_network(central):
    """A client's switch with a load balancer, a server's switch, a router between them, and ACLs that allow what belongs to
    connections."""
    nb = lambda *words: central.nbctl("--wait=sb", *words)
    nb("lr-add", "r0")
    for number, (name, port_mac, own) in enumerate((("client", CLIENT_MAC, CLIENT), ("server", SERVER_MAC, SERVER)), 1):
        switch = f"s{number}"
        nb("ls-add", switch)
        nb("lrp-add", "r0", f"r0-{switch}", f"00:00:00:00:ff:0{number}", f"10.0.{number}.254/24")
        words = ["lsp-add", switch, f"{switch}-r0", "--", "lsp-set-type", f"{switch}-r0", "router", "--", "lsp-set-addresses", f"{switch}-r0", "router"]
        nb(*words, "--", "lsp-set-options", f"{switch}-r0", f"router-port=r0-{switch}")
        nb("lsp-add", switch, name, "--", "lsp-set-addresses", name, f"{port_mac} {own}")
    for switch, direction, match, action in (
        ("s1", "from-lport", 'inport == "client" && ip4', "allow-related"),
        ("s1", "to-lport", 'outport == "client" && ip4', "drop"),
        ("s2", "to-lport", f'outport == "server" && udp.dst == {SERVICE}', "allow-related"),
    ):
        nb("acl-add", switch, direction, "1000", match, action)
    nb("lb-add", "lb0", f"{VIP}:{SERVICE}", f"{SERVER}:{SERVICE}", "udp", "--", "ls-lb-add", "s1", "lb0")


# ---- Frames.


def address(number):
    return ".".join(str(byte) for byte in struct.pack("!I", number))


def packed(text):
    return bytes(map(int, text.split(".")))


def udp_frame(macs, addresses, ports):
    """A frame of UDP over IPv4 without UDP checksum, as long as the shortest one of Ethernet."""
    payload = bytes(FRAME_LEN - 42)
    header = struct.pack("!BBHHHBBH4s4s", 0x45, 0, FRAME_LEN - 14, 0, 0x4000, 64, 17, 0, *map(packed, addresses))
    header = header[:10] + struct.pack("!H", workload.internet_checksum(header)) + header[12:]
    return b"".join(macs) + b"\x08\x00" + header + struct.pack("!HHHH", *ports, 8 + len(payload), 0) + payload


def client_frame(port):
    macs = bytes.fromhex("00000000ff01"), bytes.fromhex(CLIENT_MAC.replace(":", ""))
    return udp_frame(macs, (CLIENT, VIP), (port, SERVICE))


def answer_to(frame):
    """The server's answer to a frame that it has received."""
    source, destination = (address(struct.unpack_from("!I", frame, at)[0]) for at in (26, 30))
    ports = struct.unpack_from("!HH", frame, 34)
    return udp_frame((frame[6:12], frame[:6]), (destination, source), ports[::-1])


def is_udp_to(frame, port):
    """Whether a frame is UDP over IPv4 without options to a port."""
    return frame[12:14] == b"\x08\x00" and frame[23:24] == b"\x11" and frame[36:38] == struct.pack("!H", port)
