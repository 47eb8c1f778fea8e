"""Layer 2 and monitoring on one core, packets of 64 bytes from memory, in turns with Open vSwitch with DPDK: what bonds, a
mirror and sFlow cost over the same bridge without them, and packets for many multicast groups beside packets for a few.

The bridge forwards by NORMAL from 1,000 sources to one destination whose port it knows. Bonds have four members; the partner
of the one with LACP is a capture file. `failover.py` measures what the failure of a member loses.
"""

import pathlib
import random
import re
import struct
import tempfile
import time

import common
import replay
import workload
from replay import OURS, PEER, Replay
from report import Report, Table, middle, ratio

BRIDGE = "br0"
SOURCES = 1000
DESTINATION_MAC = 2
MEMBERS = 4
# Between two looks at the counters of ports, until flows are set up.
STEADY_S = 0.2
FEW_GROUPS, MANY_GROUPS = 10, 10_000
# Membership reports a second, each of which both switches translate: each of many groups is reported every five seconds.
REPORTS_PPS = 2_000
# Targets: cycles of a bond over one port; the rate that sFlow leaves; the rate with many groups beside a few.
BOND_CYCLES = 10
SAMPLED_KEPT = 0.98
GROUPS_KEPT = 0.9

ONE_PORT, MIRROR = "one port", "one port and a mirror"
OUTPUT, TWO_OUTPUTS = "output", "output to two ports"
SFLOW = "one port, sFlow of 1 in 1,000"
BONDS = {f"bond of {MEMBERS}, {mode}": mode for mode in ("active-backup", "balance-slb", "balance-tcp")}
# The bond as an action of the datapath, which saves packets a second pass.
LB_OUTPUT = f"bond of {MEMBERS}, balance-tcp, lb-output-action"
BONDS[LB_OUTPUT] = "balance-tcp"
FEW, MANY = (f"{count:,} multicast groups" for count in (FEW_GROUPS, MANY_GROUPS))
CASES = (ONE_PORT, *BONDS, OUTPUT, TWO_OUTPUTS, MIRROR, SFLOW, FEW, MANY)


def add_arguments(arguments):
    arguments.add_argument("--cases", nargs="+", choices=CASES, default=CASES, metavar="CASE", help=f"some of: {'; '.join(CASES)}")


def measure(options):
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        found = Measurement(pathlib.Path(directory), options).all()
    rows, notes = [], []
    for case, turns in found.items():
        rows.append([case])
        for which in (PEER, OURS):
            rows[-1] += [turns[which]["mpps"], turns[which]["cycles_per_packet"]]
        rows[-1].append(ratio(turns[OURS]["mpps"], turns[PEER]["mpps"]))
    header = ["bridge", "Open vSwitch, Mpps", "Open vSwitch, cycles", "Flowstone, Mpps", "Flowstone, cycles", "times"]
    costs, figures = costs_of(found, notes)
    tables = [Table("layer 2 on one core, packets from memory", header, rows)]
    tables.append(Table("what layer 2 adds", ["difference", "Open vSwitch", "Flowstone", "target", "met"], costs))
    return Report(tables, {"cases": found, "costs": figures}, notes)


def costs_of(found, notes):
    """Rows of differences between cases, those that were measured, and the same by name."""
    rows, figures = [], {}

    def add(what, value, target, is_met):
        pair = [value(which) for which in (PEER, OURS)]
        met = is_met(pair[1])
        figures[what] = {PEER: pair[0], OURS: pair[1], "target": target, "met": met}
        rows.append([what, *pair, target, "yes" if met else "no"])
        if not met:
            notes.append(f"Not met: {what}.")

    def over(case, base):
        return lambda which: round(found[case][which]["cycles_per_packet"] - found[base][which]["cycles_per_packet"], 1)

    def kept(case, base):
        return lambda which: ratio(found[case][which]["mpps"], found[base][which]["mpps"])

    for case in BONDS:
        if {case, ONE_PORT} <= found.keys():
            add(f"{case}: cycles over one port", over(case, ONE_PORT), BOND_CYCLES, lambda ours: ours <= BOND_CYCLES)
    if {MIRROR, ONE_PORT, OUTPUT, TWO_OUTPUTS} <= found.keys():
        second = over(TWO_OUTPUTS, OUTPUT)
        add("mirror: cycles over one port", over(MIRROR, ONE_PORT), second(OURS), lambda ours: ours <= second(OURS))
    if {SFLOW, ONE_PORT} <= found.keys():
        add("sFlow: part of the rate", kept(SFLOW, ONE_PORT), SAMPLED_KEPT, lambda ours: ours >= SAMPLED_KEPT)
    if {FEW, MANY} <= found.keys():
        add(f"{MANY} beside {FEW_GROUPS}: part of the rate", kept(MANY, FEW), GROUPS_KEPT, lambda ours: ours >= GROUPS_KEPT)
    return rows, figures


def counts_over(one, seconds):
    """The counters of ports before and after a time."""
    before, _ = one.port_counts()
    time.sleep(seconds)
    after, _ = one.port_counts()
    return before, after


def has_shares(before, after, ports):
    """Whether each of the `ports`, sets of numbers with a part of the packets, has sent this part of what port 1 received."""
    received = after[1][0] - before[1][0]
    sent = lambda together: sum(after[number][1] - before[number][1] for number in together)
    return received > 0 and all(abs(sent(together) / received - share) <= 0.05 for together, share in ports)


class Measurement:
    """The turns of all cases; their files are in a folder."""

    def __init__(self, directory, options):
        self.directory, self.options = directory, options
        self.library = directory / "play.so"
        common.need_programs("cc")
        common.run("cc", "-O2", "-shared", "-fPIC", "-o", self.library, common.ROOT / "bench/play.c")

    def all(self):
        """For each case and switch the medians, and the figures of each turn."""
        turns = {case: {PEER: [], OURS: []} for case in self.options.cases}
        for round_number in range(self.options.rounds):
            for case, of_case in turns.items():
                for which, of_switch in of_case.items():
                    of_switch.append(self.turn(which, case))
                    common.say(f"layer2, round {round_number + 1}, {case}, {which}: {of_switch[-1]}")
        return {
            case: {
                which: {key: middle(one[key] for one in of_switch) for key in of_switch[0]} | {"rounds": of_switch}
                for which, of_switch in of_case.items()
            }
            for case, of_case in turns.items()
        }

    def turn(self, which, case):
        with Replay(which, bridge=BRIDGE, preload=self.library) as one:
            one.switch("ovs-ofctl", "add-flow", BRIDGE, "actions=NORMAL")
            packets, ports = getattr(self, PREPARE.get(case, "unicast"))(one, case)
            one.play("in0", 1, [self.pcap("packets", packets)])
            replay.settle(one, 2 * len(packets))
            return self.counted(one, ports)

    def pcap(self, name, frames):
        path = self.directory / f"{name}.pcap"
        path.write_bytes(capture(frames))
        return path

    def counted(self, one, ports):
        """Rate and cost, once all packets leave by `ports`, each by `ports[number]` of them."""
        # Flows are set up until then, which a busy machine does slowly.
        try:
            common.wait_for(lambda: has_shares(*counts_over(one, STEADY_S), ports), "packets to leave by the right ports", 30)
        except SystemExit as error:
            raise SystemExit(f"{one.which}: {error}\n{one.switch.log_tail()}") from None
        one.clear_stats()
        start_s = time.monotonic()
        before, after = counts_over(one, self.options.seconds)
        stats = one.stats()
        elapsed_s = time.monotonic() - start_s
        if not has_shares(before, after, ports):
            raise SystemExit(f"{one.which}: packets left by other ports: {before}, then {after}\n{one.switch.log_tail()}")
        figures = replay.figures(one.which, stats, elapsed_s)
        return {key: figures[key] for key in ("mpps", "cycles_per_packet")}

    # ---- Each case adds its ports, and returns the frames and the numbers of the ports that send them, with the part of the
    # packets that these send together.

    def unicast(self, one, _case):
        one.add_null("out2", 2)
        know(one, "out2")
        return unicast_frames(), [((2,), 1)]

    def bond(self, one, case):
        mode = BONDS[case]
        members = [f"member{number}" for number in range(MEMBERS)]
        words = ["add-bond", BRIDGE, "bond0", *members, "--", "set", "Port", "bond0", f"bond_mode={mode}"]
        words += ["lacp=active"] * (mode == "balance-tcp") + ["other_config:lb-output-action=true"] * (case == LB_OUTPUT)
        for number, member in enumerate(members):
            if mode == "balance-tcp":
                options = one.playing([self.pcap(f"lacp{number}", [lacp_frame(number)])], rate=2)
            else:
                options = one.discarding(2 + number)
            words += ["--", "set", "Interface", member, f"ofport_request={2 + number}", *options]
        one.vsctl(*words)
        # The action of the datapath has a line of its own, which says enabled, too.
        enabled = lambda: len(re.findall(r"^member \S+: enabled", one.appctl("bond/show", "bond0"), re.MULTILINE)) == MEMBERS
        common.wait_for(enabled, f"{MEMBERS} members of a bond", patience_s=60)
        # By a member: Open vSwitch takes no name of a bond here.
        know(one, members[0])
        return unicast_frames(), [(range(2, 2 + MEMBERS), 1)]

    def rule(self, one, case):
        numbers = (2, 3) if case == TWO_OUTPUTS else (2,)
        for number in numbers:
            one.add_null(f"out{number}", number)
        one.switch("ovs-ofctl", "mod-flows", BRIDGE, f"actions={','.join(f'output:{number}' for number in numbers)}")
        return unicast_frames(), [((number,), 1) for number in numbers]

    def mirror(self, one, _case):
        one.add_null("out2", 2)
        one.add_null("out3", 3)
        words = ["--id=@out", "get", "Port", "out3", "--", "--id=@m", "create", "Mirror", "name=m", "select_all=true", "output_port=@out"]
        one.vsctl(*["--", *words, "--", "set", "Bridge", BRIDGE, "mirrors=@m"])
        know(one, "out2")
        return unicast_frames(), [((2,), 1), ((3,), 1)]

    def sflow(self, one, case):
        one.vsctl(
            *["--", "--id=@s", "create", "sFlow", "agent=lo", 'target="127.0.0.1:6343"', "header=128", "sampling=1000", "polling=10"],
            *["--", "set", "Bridge", BRIDGE, "sflow=@s"],
        )
        return self.unicast(one, case)

    def multicast(self, one, case):
        count = MANY_GROUPS if case == MANY else FEW_GROUPS
        one.vsctl(
            *["set", "Bridge", BRIDGE, "mcast_snooping_enable=true", "other_config:mcast-snooping-disable-flood-unregistered=true"],
            *["other_config:mcast-snooping-table-size=20000", "other_config:mcast-snooping-aging-time=3600"],
        )
        one.add_null("out2", 2)
        # The members' reports come in at another port than the one that the packets come from.
        one.play("out3", 3, [self.pcap("reports", [report_frame(group) for group in range(count)])], rate=REPORTS_PPS)
        joined = lambda: one.appctl("mdb/show", BRIDGE).count("239.") >= count
        common.wait_for(joined, f"{count} groups", patience_s=60)
        # Both cases have as many pairs of addresses, and so as many cached flows.
        pairs = ((at % SOURCES, at if count == MANY_GROUPS else at // SOURCES) for at in range(MANY_GROUPS))
        frames = [multicast_frame(source, group) for source, group in pairs]
        return frames, [((3,), 1)]


PREPARE = {case: "bond" for case in BONDS} | {
    OUTPUT: "rule",
    TWO_OUTPUTS: "rule",
    MIRROR: "mirror",
    SFLOW: "sflow",
    FEW: "multicast",
    MANY: "multicast",
}


def capture(frames):
    """The bytes of a capture file with these frames, which are mixed."""
    frames = list(frames)
    random.Random(1).shuffle(frames)
    records = [struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)]
    for frame in frames:
        records += [bytes(8), struct.pack("<II", len(frame), len(frame)), frame]
    return b"".join(records)


def text_of(number):
    """A MAC address in text."""
    return workload.mac(number).hex(":")


def know(one, port):
    """Enters the destination into the table of addresses."""
    one.appctl("fdb/add", BRIDGE, port, 0, text_of(DESTINATION_MAC))


def unicast_frames():
    """Packets of 1,000 sources, four each, with different ports."""
    packets = [
        workload.Packet(
            workload.SOURCES + at,
            workload.DESTINATIONS + 1,
            1024 + at * 7 + more,
            2000 + more,
            source_mac=256 + at,
            destination_mac=DESTINATION_MAC,
        )
        for at in range(SOURCES)
        for more in range(4)
    ]
    return [packet.frame() for packet in packets]


def group_address(group):
    """The address of a group, from 239.1.0.0 on."""
    return 0xEF01_0000 + group


def multicast_mac(address):
    """RFC 1112, section 6.4."""
    return struct.pack("!HI", 0x0100, 0x5E00_0000 | address & 0x7F_FFFF)


def multicast_frame(source, group):
    """A packet of a source for a group."""
    address = group_address(group)
    packet = workload.Packet(workload.SOURCES + source, address, 1000, 2000, source_mac=256 + source)
    return multicast_mac(address) + packet.frame()[6:]


def report_frame(group):
    """A membership report of IGMP version 2 (RFC 2236): IPv4 with the option Router Alert, TTL 1."""
    address = group_address(group)
    igmp = struct.pack("!BBHI", 0x16, 0, 0, address)
    igmp = igmp[:2] + struct.pack("!H", workload.internet_checksum(igmp)) + igmp[4:]
    header = struct.pack("!BBHHHBBHII", 0x46, 0xC0, 24 + len(igmp), 0, 0, 1, 2, 0, workload.SOURCES, address)
    header += bytes([0x94, 4, 0, 0])
    header = header[:10] + struct.pack("!H", workload.internet_checksum(header)) + header[12:]
    frame = multicast_mac(address) + workload.mac(3) + b"\x08\x00" + header + igmp
    return frame.ljust(workload.FRAME_LEN, b"\0")


def lacp_frame(number):
    """A LACPDU (IEEE 802.1AX, section 6.4.2.3) of a partner whose port is in synchronisation, collects and distributes."""
    state = 0x3D
    system = workload.mac(4)
    information = struct.pack("!H6sHHHB3x", 1, system, 1, 1, 1 + number, state)
    frame = bytes.fromhex("0180c2000002") + system + b"\x88\x09\x01\x01"
    for kind in (1, 2):
        frame += bytes([kind, 20]) + information
    return frame + bytes([3, 16]) + bytes(14) + bytes(2) + bytes(50)
