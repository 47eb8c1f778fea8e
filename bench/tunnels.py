"""Tunnels on one core, packets of 64 bytes from memory, in turns with Open vSwitch with DPDK (`overlay.py` describes the
packets), and TCP through VXLAN (`encapsulated_tcp.py`):

 - encapsulation and decapsulation of VXLAN and of Geneve with an option, with one tunnel and with 1,000, and beside
   encapsulation plain forwarding by the same switch, packets and matches;
 - encapsulation with 10,000 tunnel ports, and with one flow-based port to 10,000 remotes, beside ten of them: with packets
   for ten, and for all, which costs plain forwarding something, too.
"""

import contextlib
import pathlib
import re
import tempfile
import time

import common
import control
import encapsulated_tcp
import overlay
import replay
import workload
from overlay import DECAPSULATION, ENCAPSULATION, GENEVE, OVERLAY, UNDERLAY, VXLAN
from replay import OURS, PEER, Replay
from report import Report, Table, middle, ratio

PARTS = ("rates", "ports", "tcp")
KINDS = {kind.name: kind for kind in (VXLAN, GENEVE)}
COUNTS = (1, 1_000)
# The target of each rate as a multiple of the peer's, and of cycles that encapsulation costs over plain forwarding.
TIMES, OVER_PLAIN = 2.5, 60
# Ports and remotes of the second part, and the share of the rate with few that stays with many.
FEW, MANY, KEPT = 10, 10_000, 0.9
# A switch has this many seconds to add its tunnel ports.
PORTS_S = 500
# A smaller share of sent packets is remarked.
SENT_MIN = 0.99


def add_arguments(arguments):
    some = lambda of: {"nargs": "+", "choices": of, "default": of, "help": f"some of {' '.join(of)}"}
    arguments.add_argument("--tunnel-parts", metavar="PART", **some(PARTS))
    arguments.add_argument("--tunnel-types", metavar="TYPE", **some(list(KINDS)))
    arguments.add_argument("--through", metavar="SWITCH", **some(list(encapsulated_tcp.SWITCHES)))


def measure(options):
    common.need_programs("ip")
    tables, figures, notes = [], {}, []
    with tempfile.TemporaryDirectory(prefix="flowstone-bench-") as directory:
        bench = Bench(pathlib.Path(directory), options, notes)
        for part in PARTS:
            if part in options.tunnel_parts:
                table, figures[part] = getattr(bench, part)()
                tables.append(table)
    return Report(tables, figures, notes)


class Bench:
    """The parts; each returns its table and its figures."""

    def __init__(self, directory, options, notes):
        self.directory, self.options, self.notes = directory, options, notes

    def in_turns(self, what, turn):
        """For each switch the medians of what a turn returns, and every single figure."""
        turns = {which: [] for which in (PEER, OURS)}
        for number in range(self.options.rounds):
            for which, found in turns.items():
                found.append(turn(which))
                common.say(f"{what}, round {number + 1}, {which}: {found[-1]}")
        found = {which: {key: middle(one[key] for one in of) for key in of[0]} for which, of in turns.items()}
        for which, medians in found.items():
            if medians["sent"] is not None and medians["sent"] < SENT_MIN:
                self.notes.append(f"{what}: {which} sent {medians['sent']:.1%} of the packets.")
        return {"rounds": turns, **found}

    # ---- Rates beside the peer's.

    def rates(self):
        figures, rows = {}, []
        for name in self.options.tunnel_types:
            for direction in (ENCAPSULATION, DECAPSULATION):
                for count in COUNTS:
                    what = f"{name}, {direction}, {count:,} tunnel{'s' if count > 1 else ''}"
                    made = overlay.write(self.directory, KINDS[name], direction, count)
                    figures[what] = self.in_turns(what, lambda which: self.turn(which, made, KINDS[name], direction, count))
                    rows.append(self.rates_row(what, figures[what]))
        header = ["workload", "Open vSwitch, Mpps", "Flowstone, Mpps", "times", f"met ({TIMES})"]
        header += ["Open vSwitch, cycles", "Flowstone, cycles", "Open vSwitch, over plain", "Flowstone, over plain"]
        return Table("tunnels on one core, packets from memory", [*header, f"met ({OVER_PLAIN})"], rows), figures

    def rates_row(self, what, found):
        peer, ours = found[PEER], found[OURS]
        over = ours["over_plain"]
        found["ratio"] = ratio(ours["mpps"], peer["mpps"])
        met = {"ratio": found["ratio"] is not None and found["ratio"] >= TIMES}
        if over is not None:
            met["over_plain"] = over <= OVER_PLAIN
        found["met"] = met
        if not all(met.values()):
            self.notes.append(f"Not met: {what}.")
        words = {True: "yes", False: "no", None: None}
        row = [what, peer["mpps"], ours["mpps"], found["ratio"], words[met["ratio"]]]
        row += [one[key] for key in ("cycles_per_packet", "over_plain") for one in (peer, ours)]
        return [*row, words[met.get("over_plain")]]

    def turn(self, which, made, kind, direction, count, flow_based=False, ports=None):
        """The figures of one switch, of encapsulation with those of plain forwarding."""
        with switch(which, kind, ports or count, flow_based) as one:
            out = UNDERLAY if direction == ENCAPSULATION else OVERLAY
            into = OVERLAY if direction == ENCAPSULATION else UNDERLAY
            one.add_output(out)
            one.add_null("plain0", overlay.PLAIN)
            one.add_flows(made.overlay)
            one.add_flows(made.underlay, UNDERLAY)
            one.add_input(made.played, bridge=into)
            found = self.counted(one, made.frames, into, out, overlay.OUT, made.sent_len)
            found |= {"plain_mpps": None, "over_plain": None}
            if direction == ENCAPSULATION:
                # Replaces the flows, which have the same matches.
                one.add_flows(made.plain)
                plain = self.counted(one, made.frames, OVERLAY, OVERLAY, overlay.PLAIN, workload.FRAME_LEN)
                over = found["cycles_per_packet"] - plain["cycles_per_packet"]
                found |= {"plain_mpps": plain["mpps"], "over_plain": round(over, 1)}
            return found

    def counted(self, one, frames, into, out, number, sent_len):
        """Rate and cost of what comes in at port 1 of bridge `into` and leaves by a port of bridge `out`, which has to have
        a length."""
        replay.settle(one, 2 * frames)
        one.clear_stats()
        start_s = time.monotonic()
        before = counts(one, into, overlay.IN)[0], *counts(one, out, number)[1:]
        time.sleep(self.options.seconds)
        stats = one.stats()
        elapsed_s = time.monotonic() - start_s
        received, sent, sent_bytes = (
            now - then for now, then in zip((counts(one, into, overlay.IN)[0], *counts(one, out, number)[1:]), before)
        )
        if not sent:
            raise SystemExit(f"{one.which}: no packets came out ({received} came in)\n{one.switch.log_tail()}")
        if abs(sent_bytes / sent - sent_len) > 0.5:
            raise SystemExit(f"{one.which}: packets have {sent_bytes / sent} bytes and not {sent_len}")
        figures = replay.figures(one.which, stats, elapsed_s)
        return {key: figures[key] for key in ("mpps", "cycles_per_packet")} | {"sent": round(min(1.0, sent / received), 4)}

    # ---- Many ports, and many remotes of one port.

    def ports(self):
        # Tunnel ports, remotes that get packets, and whether one port has all remotes.
        cases = {
            f"{FEW} ports": (FEW, FEW, False),
            f"{MANY:,} ports, packets for {FEW}": (MANY, FEW, False),
            f"{MANY:,} ports, packets for all": (MANY, MANY, False),
            f"one port, {FEW} remotes": (1, FEW, True),
            f"one port, {MANY:,} remotes": (1, MANY, True),
        }
        figures, rows = {}, []
        for what, (ports, remotes, flow_based) in cases.items():
            made = overlay.write(self.directory, VXLAN, ENCAPSULATION, remotes, flow_based)
            turn = lambda which: self.turn(which, made, VXLAN, ENCAPSULATION, remotes, flow_based, ports)
            figures[what] = self.in_turns(what, turn)
            few = figures[f"one port, {FEW} remotes" if flow_based else f"{FEW} ports"]
            row = [what]
            for which in (PEER, OURS):
                found = figures[what][which]
                found["kept"] = ratio(found["mpps"], few[which]["mpps"])
                found["plain_kept"] = ratio(found["plain_mpps"], few[which]["plain_mpps"])
                row += [found[key] for key in ("mpps", "kept", "plain_kept")]
            if figures[what][OURS]["kept"] < KEPT:
                self.notes.append(f"Not met: {what} (at least {KEPT} of the rate with {FEW}).")
            rows.append(row)
        header = ["encapsulation by VXLAN"]
        for name in ("Open vSwitch", "Flowstone"):
            header += [f"{name}, Mpps", f"{name}, by {FEW}", f"{name}, plain by {FEW}"]
        return Table("many tunnels on one core, packets from memory", header, rows), figures

    # ---- TCP.

    def tcp(self):
        return encapsulated_tcp.measure(self.options, self.notes)


def counts(one, bridge, number):
    """Packets received, packets sent and bytes sent by a port."""
    text = one.switch("ovs-ofctl", "dump-ports", bridge, str(number))
    return tuple(map(int, re.search(r"rx pkts=(\d+).*\n +tx pkts=(\d+), bytes=(\d+)", text).groups()))


@contextlib.contextmanager
def switch(which, kind, tunnels, flow_based=False):
    """A switch with the bridge OVERLAY, which has the tunnel ports, and the bridge UNDERLAY, which has the local address, a
    route to the remotes and the gateway's MAC address."""
    replay.remove_devices(UNDERLAY)
    with Replay(which, bridge=OVERLAY) as one:
        hwaddr = workload.mac(overlay.LOCAL_MAC).hex(":")
        words = ["datapath_type=netdev", "fail-mode=secure", f'other-config:hwaddr="{hwaddr}"']
        one.vsctl("add-br", UNDERLAY, "--", "set", "Bridge", UNDERLAY, *words)
        common.run("ip", "addr", "add", overlay.NETWORK, "dev", UNDERLAY)
        common.run("ip", "link", "set", UNDERLAY, "up")
        gateway = workload.dotted(overlay.GATEWAY)
        common.run("ip", "route", "add", overlay.REMOTE_NETWORK, "via", gateway, "dev", UNDERLAY)
        one.appctl("tnl/neigh/set", UNDERLAY, gateway, workload.mac(overlay.GATEWAY_MAC).hex(":"))
        if kind is GENEVE:
            one.switch("ovs-ofctl", "add-tlv-map", OVERLAY, overlay.TLV_MAP)
        add_ports(one, kind, overlay.ports(kind, tunnels, flow_based))
        yield one


def add_ports(one, kind, ports):
    """Adds tunnel ports to OVERLAY, and waits until the switch has all of them. (`ovs-vsctl add-port` for each of many would take
    most of the time itself.)"""
    columns = lambda number, options: {"ofport_request": number, "options": ["map", list(options.items())]}
    operations = control.rows_of_ports(OVERLAY, [(name, kind.name, columns(number, options)) for name, number, options in ports])
    with contextlib.closing(control.Database(one.switch.dir / "db.sock")) as database:
        database.transact(*operations)
    one.switch("ovs-vsctl", f"--timeout={PORTS_S}", "set", "Open_vSwitch", ".", "external_ids:tunnels=added")
    name, number, _ = ports[-1]
    if one.vsctl("get", "Interface", name, "ofport").strip() != str(number):
        raise SystemExit(f"{one.which}: port {name} is not there\n{one.switch.log_tail()}")
