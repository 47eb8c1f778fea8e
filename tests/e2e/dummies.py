"""Dummy ports: injecting frames, and reading the frames that each port sent."""

import itertools
import re

import pcap
from waiting import until

# Each marker has an Ethernet type of its own, since every cached flow matches that field: a flow in a cache for an
# earlier marker, which no revalidation has removed yet, never handles a later one.
MARKER_TYPES = range(0xB000, 0xC000)

_markers = itertools.count(1)


class Dummies:
    """The dummy ports of one bridge, p1, p2, ... by OpenFlow number."""

    def __init__(self, switch, bridge, *ports):
        self.switch = switch
        self.bridge = bridge
        self.ports = ports
        switch.add_dummy_bridge(bridge, *ports)
        self.seen = {port: 0 for port in ports}

    def receive(self, port, *frames):
        """The port receives the frames (scapy packets or bytes)."""
        self.switch.appctl("netdev-dummy/receive", port, *[bytes(frame).hex() for frame in frames])

    def flows(self, *flows, version="OpenFlow10"):
        """Replaces the flows of the bridge."""
        text = "".join(f"{line}\n" for line in ["delete", *(f"add {flow}" for flow in flows)])
        self.switch.ofctl("-O", version, "add-flows", self.bridge, "-", input=text)

    def all_frames(self, port):
        """All frames that the port ever sent."""
        return pcap.packets(self.switch.directory / f"{port}-tx.pcap")

    def sent(self, port, count):
        """Waits for `count` new frames on a port and returns them."""
        until(
            lambda: len(self.new_frames(port)) >= count,
            lambda: f"{count} frames out of {port}, only {[frame.hex() for frame in self.new_frames(port)]}",
        )
        frames = self.new_frames(port)
        self.seen[port] += len(frames)
        return frames

    def new_frames(self, port):
        """Frames that the port sent since the last `sent` or `exchange`."""
        return self.all_frames(port)[self.seen[port] :]

    def exchange(self, port, *frames):
        """Has the port receive frames and returns the frames that each port sent for them, {port: [bytes]}.

        A marker frame follows, which a flow of the highest priority sends to all ports: after it, a silent port is
        known to have sent nothing."""
        number = next(_markers)
        ether_type = MARKER_TYPES[number % len(MARKER_TYPES)]
        marker = bytes.fromhex("ffffffffffff0200000000ee") + ether_type.to_bytes(2, "big") + number.to_bytes(46, "big")
        marking = f"priority=65535,dl_type={ether_type:#x}"
        outputs = ",".join([*map(str, range(1, len(self.ports) + 1)), "in_port"])
        self.switch.ofctl("add-flow", self.bridge, f"{marking},actions={outputs}")
        self.receive(port, *frames)
        self.receive(port, marker)
        until(
            lambda: all(any(is_marker(frame, number) for frame in self.new_frames(each)) for each in self.ports),
            f"the marker out of {', '.join(self.ports)}",
        )
        self.switch.ofctl("--strict", "del-flows", self.bridge, marking)
        result = {}
        for each in self.ports:
            new = self.new_frames(each)
            self.seen[each] += len(new)
            if frames_of_it := [frame for frame in new if not is_marker(frame)]:
                result[each] = frames_of_it
        return result

    def traced_outputs(self, port, frame, bridge=None):
        """The output ports of a frame by ofproto/trace, sorted, once for each output; the local port of a bridge has
        no capture file and is left out."""
        number = self.ports.index(port) + 1
        text = self.switch.appctl("ofproto/trace", bridge or self.bridge, f"in_port={number}", bytes(frame).hex())
        actions = re.search(r"^Datapath actions: (.*)$", text, re.MULTILINE).group(1)
        numbers = re.findall(r"(?<![\w(=/.:])(\d+)(?![\w=/.:])", re.sub(r"\([^()]*(\([^()]*\)[^()]*)*\)", "()", actions))
        names = [self.port_names()[int(number)] for number in numbers]
        return sorted(name for name in names if not name.startswith("br"))

    def port_names(self):
        """Datapath port numbers and their ports."""
        text = self.switch.appctl("dpif/show")
        return {int(number): name for name, number in re.findall(r"^\s+(\S+) \S+/(\d+):", text, re.MULTILINE)}


def on_both(making, *ports):
    """Dummy ports of the bridge br0, on Debian's switch and on ours."""
    return [Dummies(making.switch(maker=maker), "br0", *ports) for maker in (making.peers, None)]


def is_marker(frame, number=None):
    """Whether this is a marker frame, or the marker of that number."""
    if int.from_bytes(frame[12:14], "big") not in MARKER_TYPES:
        return False
    return number is None or int.from_bytes(frame[14:60], "big") == number
