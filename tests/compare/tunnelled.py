#!/usr/bin/env python3
"""Sends the same random packets through tunnels of Open vSwitch and of Flowstone, and compares what comes out.

usage: tunnelled.py PEERS BINARY [--cases N] [--seed N] [--case N] [--jobs N] [--verbose]

As sequences.py, of which it has the arguments: a seed and the number of a case fix all of it, `--case N --verbose` repeats one
step by step. Each case draws tunnel ports, maps of options and a flow table (overlays.py), and then does some dozens of steps
with both makers' switches at once: packets of tunnels arrive at the port of the underlay, right ones and others, packets of
hosts at the ports of the overlay, ports and flows change. After each step the frames that left by each port must be equal,
every few steps the tunnels, statistics of flows and cached flows that the commands show, and traces.
"""

import random
import re
import subprocess
import sys

import frames
import overlays
import sequences
import tracked
import tunnel_frames

# Packets of this type tell that the ones before them have been processed, see tracked.py; they leave by all ports. Only for them is
# the source address read.
MARKER = f"table=0,priority=65535,dl_type=0x{tracked.MARKER_TYPE},actions=resubmit(,99)"
MARKERS = {
    "br0": [MARKER, "table=99,in_port=1,actions=in_port,9", "table=99,in_port=9,actions=1"],
    "br1": [MARKER, "table=99,in_port=9,actions=2,3,4", "table=99,actions=2,3,4,in_port,9"],
}
for marker_flows in MARKERS.values():
    marker_flows.append("table=99,priority=65535,dl_src=02:00:00:00:00:00,actions=drop")
UNDERLAY = ["table=0,priority=1,in_port=1,actions=local", "table=0,priority=1,in_port=local,actions=1"]


class Programs(tracked.Programs):
    def bridges(self):
        words = []
        for bridge, numbers in (("br0", (1,)), ("br1", (2, 3, 4))):
            words += ["--", "add-br", bridge, "--", "set", "bridge", bridge, "datapath-type=dummy", "fail-mode=secure"]
            words += [f"other-config:hwaddr=aa:55:aa:55:00:0{bridge[2:]}"]
            for number in numbers:
                name = overlays.PORTS[number]
                words += ["--", "add-port", bridge, name, "--", "set", "interface", name, "type=dummy", f"ofport_request={number}"]
                words += [f"options:tx_pcap={name}.pcap"]
            if bridge == "br0":
                # In the peer, a datapath port like ip6gre_sys has the number in its name: 6 is the first free one now.
                words += ["--", "add-port", bridge, "d5", "--", "set", "interface", "d5", "type=dummy"]
            words += ["--", "add-port", bridge, f"x{bridge}", "--", "set", "interface", f"x{bridge}", "type=patch", "ofport_request=9"]
            words += [f"options:peer=x{'br1' if bridge == 'br0' else 'br0'}"]
        return words[1:]


class Switch(tracked.Switch):
    captured = overlays.PORTS
    # Without devices and routes of the machine.
    command_line = ("unshare", "-n", "ovs-vswitchd", "--enable-dummy")

    def start(self):
        super().start()
        commands = [["netdev-dummy/ip4addr", "br0", "1.1.2.88/24"], ["netdev-dummy/ip6addr", "br0", "2001:cafe::88/64"]]
        commands += [["tnl/egress_port_range", "50000", "50000"], ["tnl/neigh/aging", "3600"]]
        for address, mac in overlays.NEIGHBOURS.items():
            commands.append(["tnl/neigh/set", "br0", address, ":".join(re.findall("..", mac))])
        self.commands(*commands)

    def add_flows(self, bridge, lines):
        (self.home / "flows").write_text("\n".join([*lines, *MARKERS[bridge], ""]))
        self.programs.run(self.home, "ovs-ofctl", "add-flows", bridge, "flows")

    def ofctl(self, *words):
        return self.programs.run(self.home, "ovs-ofctl", *words)

    def vsctl(self, *words):
        """What ovs-vsctl prints, or the first line of what it complains of."""
        try:
            return self.programs.run(self.home, "ovs-vsctl", "--timeout=15", *words)
        except tracked.Refused as refused:
            return str(refused).split("\n", 1)[0].replace(str(self.home), "HOME")


class Case(sequences.Case):
    """One case with its switches, the peer's first."""

    programs, switch = Programs, Switch

    def __init__(self, seed, number, makers):
        self.number, self.makers = number, makers
        self.rng = random.Random(f"tunnels-{seed}-{number}")
        self.listing, self.verbose, self.received = [], False, 0
        self.overlay = overlays.Overlay(self.rng)
        self.kind = self.overlay.kind

    def both(self, what, action, shown=lambda text: text):
        """Does something with both switches whose results must be equal."""
        theirs, ours = (shown(text) for text in self.each(action))
        self.equal(what, repr, theirs, ours)
        return theirs

    def steps(self):
        overlay = self.overlay
        for flow in overlay.flows:
            self.note(f"  {flow}")
        self.each(lambda switch: switch.add_flows("br0", UNDERLAY))
        if overlay.options:
            self.note(f"  {overlay.map()}")
            self.each(lambda switch: switch.ofctl("add-tlv-map", "br1", overlay.map()))
        for tunnel in overlay.tunnels:
            self.add(tunnel)
        self.each(lambda switch: switch.add_flows("br1", overlay.flows))
        due = 0
        for step in range(self.rng.randint(20, 45)):
            self.note(f"-- step {step}")
            self.step()
            if step >= due:
                self.state()
                due = step + self.rng.randint(2, 6)
        self.state()

    def add(self, tunnel):
        self.note(f"  {' '.join(tunnel.words())}")
        self.both("ovs-vsctl", lambda switch: switch.vsctl(*tunnel.words()))
        words = ("get", "interface", tunnel.name, "ofport", "error")
        self.both(f"{tunnel.name}: ofport and error", lambda switch: switch.vsctl(*words))

    def step(self):
        chance = self.rng.random()
        if chance < 0.5:
            again = self.overlay.received and self.rng.random() < 0.4
            kind, inner, settings = self.overlay.variant() if again else self.overlay.outer()
            frame = tunnel_frames.built(kind, inner, **settings)
            shown = " ".join(f"{name}={value}" for name, value in settings.items())
            self.send(1, frame, f"{kind} {shown} around {frames.describe(inner)}")
        elif chance < 0.88:
            frame = self.overlay.inner()
            self.send(self.rng.choice([2, 3, 4]), frame, frames.describe(frame))
        elif chance < 0.93:
            self.trace()
        elif chance < 0.97:
            self.note("cached flows are purged")
            self.both("revalidator/purge", lambda switch: switch.command("revalidator/purge"))
        else:
            self.change()

    def change(self):
        """A tunnel gets another key, or goes and comes back."""
        tunnel = self.rng.choice(self.overlay.tunnels)
        if tunnel.type != "srv6" and self.rng.random() < 0.5:
            tunnel.options.pop("in_key", None), tunnel.options.pop("out_key", None)
            tunnel.options["key"] = self.rng.choice(["flow", "1", "5", "77"])
        self.note(f"{tunnel.name} is removed and added")
        # What cached flows have counted for a port is lost with it.
        self.each(lambda switch: switch.command("revalidator/wait"))
        self.each(lambda switch: switch.vsctl("del-port", tunnel.name))
        self.add(tunnel)
        # Some cached flows remain, and which depends on their masks.
        self.each(lambda switch: switch.command("revalidator/purge"))

    def send(self, port, frame, text):
        self.received += 1
        self.note(f"{overlays.PORTS[port]} receives {text}\n      {frame.hex()}")
        self.each(lambda switch: switch.begin(port, [frame]))
        (theirs, wrong), (ours, wrong_too) = self.outputs()
        for number, sent in theirs.items():
            for each in sent:
                self.note(f"    {overlays.PORTS[number]} sends {each.hex()}")
        self.equal("errors", repr, wrong, wrong_too)
        for number in theirs:
            # A copy that was recirculated may be behind later ones.
            a, b = (sorted(map(tunnel_frames.comparable, sent[number])) for sent in (theirs, ours))
            if a != b:
                self.note_cached()
            self.equal(f"frames out of {overlays.PORTS[number]}", listed, a, b)

    def note_cached(self):
        """Notes what both have cached and logged."""
        for maker, flows in zip(("peer", "ours"), self.each(lambda switch: switch.command("dpctl/dump-flows"))):
            for flow in flows.splitlines()[1:]:
                if tracked.MARKER_TYPE not in flow:
                    self.note(f"    {maker} has cached {flow}")
        for maker, switch in zip(("peer", "ours"), self.switches):
            for line in switch.log()[-3:]:
                self.note(f"    {maker} has logged {line}")

    def trace(self):
        # In the peer, the trace of a packet in bytes takes a sequence number of a tunnel.
        flow = f"in_port={self.rng.choice([2, 3, 4])},{self.overlay.flow_of_packet()}"
        self.note(f"ofproto/trace br1 {flow}")
        self.both(f"ofproto/trace br1 {flow}", lambda switch: switch.command("ofproto/trace", "br1", flow), of_trace)

    def state(self):
        """Compares what the commands show."""
        self.each(lambda switch: switch.command("revalidator/wait"))
        for words, shown in (
            (["ofproto/list-tunnels"], lines), (["tnl/neigh/show"], lines), (["dpctl/dump-flows"], cached),
        ):
            self.same(" ".join(words), *(shown(text) for text in self.each(lambda switch, words=words: switch.command(*words))))
        theirs, ours = map(statistics, self.each(lambda switch: switch.ofctl("dump-flows", "br1")))
        self.same("flows of br1", without_outer_bytes(theirs, ours), ours)

    def same(self, what, theirs, ours):
        """Lists of lines that must be equal."""
        if theirs != ours:
            only = [line for line in theirs if line not in ours], [line for line in ours if line not in theirs]
            self.equal(f"{what} (lines of one only)", lambda found: "".join(f"\n      {line}" for line in found), *only)


def lines(text):
    return sorted(text.splitlines())


def cached(text):
    """The headers that cached flows push. Each maker has its own way to find masks, and to change inner packets."""
    return sorted(set(re.findall(r"tnl_push\(.*?\),out_port\(\d+\)\)", text)))


def statistics(text):
    """The flows with what they matched."""
    found = [line for line in text.splitlines()[1:] if f"0x{tracked.MARKER_TYPE}" not in line and "table=99" not in line]
    return sorted(re.sub(r"cookie=0x0, duration=[^,]*, |(idle|hard)_age=\d+, ", "", line) for line in found)


def without_outer_bytes(theirs, ours):
    """The peer's flows as ours are where it counts outer headers: in flows that packets take after their output to a tunnel."""
    bytes_of = re.compile(r"(?<=n_bytes=)\d+")
    alike = lambda a, b: bytes_of.sub("", a) == bytes_of.sub("", b) and a.startswith(" table=1")
    counts_more = lambda a, b: all(map(bytes_of.search, (a, b))) and int(bytes_of.search(a)[0]) > int(bytes_of.search(b)[0])
    if len(theirs) != len(ours):
        return theirs
    return [b if alike(a, b) and counts_more(a, b) else a for a, b in zip(theirs, ours)]


def of_trace(text):
    """The headers that a trace pushes, in order, and errors."""
    found = [line for line in text.splitlines() if line.startswith(("Datapath actions", "error"))]
    return re.findall(r"tnl_push\(.*?\),out_port\(\d+\)\)|error.*", "\n".join(found))


def listed(sent):
    return "".join(f"\n      {frame.hex()}" for frame in sent) or "nothing"


if __name__ == "__main__":
    if subprocess.run(["unshare", "-n", "true"], check=False).returncode:
        sys.exit("tunnelled.py needs root, for a network namespace")
    sys.exit(sequences.main(Case, "tunnelled", __doc__))
