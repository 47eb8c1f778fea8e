"""STP and RSTP: with the Linux bridge and with Open vSwitch at the other ends of two cables, over tunnels, and with frames on
dummy ports."""

import json

import pytest

import overlays
from dummies import Dummies
from hosts import Namespace
from switch import run
from test_monitors import Monitor
from waiting import until

# The shortest times that the standard allows.
STP = ["stp_enable=true", "other_config:stp-hello-time=1", "other_config:stp-max-age=6", "other_config:stp-forward-delay=4"]
RSTP = ["rstp_enable=true", "other_config:rstp-max-age=6", "other_config:rstp-forward-delay=4"]
GROUP = bytes.fromhex("0180c2000000")


def ports(switch, protocol, bridge="br0"):
    """The ports of a bridge, as its `show` has them in JSON."""
    shown = json.loads(switch.ours.appctl("--format", "json", f"{protocol}/show", bridge))
    return shown[bridge]["ports"]


def states(switch, protocol, *names, bridge="br0"):
    """The states of these ports, in lower case."""
    shown = ports(switch, protocol, bridge)
    return [shown[name]["state"].lower() if name in shown else None for name in names]


class LinuxBridge(Namespace):
    """A bridge of the kernel in a namespace of its own, which two cables join to c1 and c2 of a switch; with the address of a
    host."""

    CABLES = ("c1", "c2")

    def __init__(self, switch, priority):
        super().__init__("lb")
        self.switch = switch
        # Times are in hundredths of a second.
        times = ["stp_state", 1, "forward_delay", 400, "hello_time", 100, "max_age", 600, "priority", priority]
        self.ip("link", "add", "lb", "type", "bridge", *times)
        for name in self.CABLES:
            words = ["ip", "link", "add", name, "netns", switch.namespace, "type", "veth", "peer", "name", name]
            run([*words, "netns", self.name])
            run(switch.inside(["ip", "link", "set", name, "up"]))
            self.ip("link", "set", name, "master", "lb", "up")
        self.ip("addr", "add", "10.1.0.99/24", "dev", "lb")
        self.ip("link", "set", "lb", "up")

    def ip(self, *words):
        return run(["ip", "-n", self.name, *[str(word) for word in words]])

    def state(self, cable):
        """The kernel's state of the port: 0 disabled, 1 listening, 2 learning, 3 forwarding, 4 blocking."""
        return int(self.read(f"brif/{cable}/state"))

    def read(self, file):
        path = f"/sys/class/net/lb/{file}" if file.startswith("brif") else f"/sys/class/net/lb/bridge/{file}"
        return self.run("cat", path).out.strip()


def forward_one(bridge, switch, protocol):
    """One cable forwards at both ends, the other at one end at most; returns the one that does."""
    kernel = [bridge.state(cable) == 3 for cable in bridge.CABLES]
    ours = [state == "forwarding" for state in states(switch, protocol, *bridge.CABLES)]
    both = [a and b for a, b in zip(kernel, ours)]
    return bridge.CABLES[both.index(True)] if both.count(True) == 1 and kernel.count(True) + ours.count(True) == 3 else None


@pytest.mark.parametrize("protocol, settings", [("stp", STP), ("rstp", RSTP)])
@pytest.mark.parametrize("priority", [0x1000, 0xF000])
def test_a_loop_with_the_linux_bridge(making, protocol, settings, priority):
    """The kernel's bridge has STP only. It is the root if its priority is the lower number."""
    switch = making.switch(start="kernel")
    host = making.host(switch, 1)
    bridge = LinuxBridge(switch, priority)
    making.namespaces.append(bridge)
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", *settings)
    for port in (*bridge.CABLES, host.port):
        switch.vsctl("add-port", "br0", port)
    until(lambda: forward_one(bridge, switch, protocol), "one cable that forwards")
    is_root = bridge.read("root_id") == bridge.read("bridge_id")
    assert is_root == (priority == 0x1000)
    column, key = ("status", "stp_designated_root") if protocol == "stp" else ("rstp_status", "rstp_root_id")
    root = switch.vsctl("get", "bridge", "br0", f"{column}:{key}").strip('"\n').replace(".", "")
    assert root == bridge.read("root_id").replace(".", ""), (root, bridge.read("root_id"))
    host.ping("10.1.0.99")
    assert "DUP" not in host.ping("10.1.0.99", "-c", "5").out
    # The other cable takes over.
    cable = forward_one(bridge, switch, protocol)
    [other] = set(bridge.CABLES) - {cable}
    bridge.ip("link", "set", cable, "down")
    until(lambda: bridge.state(other) == 3 and states(switch, protocol, other) == ["forwarding"], f"{other} forwards")
    host.ping("10.1.0.99")
    bridge.ip("link", "set", cable, "up")
    until(lambda: forward_one(bridge, switch, protocol), "one cable that forwards again")
    host.ping("10.1.0.99")
    assert ports(switch, protocol)[other]["error"] == 0


@pytest.mark.parametrize("protocol, settings", [("stp", STP), ("rstp", RSTP)])
@pytest.mark.parametrize("root", ["ours", "theirs"])
def test_a_loop_with_open_vswitch(making, protocol, settings, root):
    switch, peer = making.switch(start="kernel"), making.switch(start="kernel", maker=making.peers)
    host, far = making.host(switch, 1), making.host(peer, 2)
    cables = ("c1", "c2")
    for cable in cables:
        words = ["ip", "link", "add", cable, "netns", switch.namespace, "type", "veth", "peer", "name", cable]
        run([*words, "netns", peer.namespace])
    for one, own_host, priority in ((switch, host, root == "ours"), (peer, far, root == "theirs")):
        key = f"other_config:{protocol}-priority={4096 if priority else 61440}"
        one.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", *settings, key)
        for port in (*cables, own_host.port):
            if port in cables:
                run(one.inside(["ip", "link", "set", port, "up"]))
            one.vsctl("add-port", "br0", port)

    def of_peer(name):
        lines = [line.split() for line in peer.appctl(f"{protocol}/show", "br0").splitlines()]
        return next((words[2].lower() for words in lines if words and words[0] == name), None)

    def one_forwards():
        theirs = [of_peer(cable) == "forwarding" for cable in cables]
        ours = [state == "forwarding" for state in states(switch, protocol, *cables)]
        both = [a and b for a, b in zip(theirs, ours)]
        return cables[both.index(True)] if both.count(True) == 1 and theirs.count(True) + ours.count(True) == 3 else None

    cable = until(one_forwards, "one cable that forwards")
    assert ("This bridge is the root" in switch.appctl(f"{protocol}/show", "br0")) == (root == "ours")
    host.ping(far.address)
    assert "DUP" not in host.ping(far.address, "-c", "5").out
    [other] = set(cables) - {cable}
    run(switch.inside(["ip", "link", "set", cable, "down"]))
    until(lambda: of_peer(other) == "forwarding" and states(switch, protocol, other) == ["forwarding"], f"{other} forwards")
    host.ping(far.address)
    run(switch.inside(["ip", "link", "set", cable, "up"]))
    until(one_forwards, "one cable that forwards again")
    host.ping(far.address)


def test_a_loop_of_tunnels(making):
    """Two VXLAN tunnels between the same switches form a loop, and BPDUs pass through them."""
    one, two = overlays.join(making)
    for site, address in ((one, overlays.outer(2)), (two, overlays.outer(1))):
        for key in (1, 2):
            words = ["type=vxlan", f"options:remote_ip={address}", f"options:key={key}"]
            site.switch.vsctl("add-port", overlays.BRIDGE, f"t{key}", "--", "set", "interface", f"t{key}", *words)
        site.switch.vsctl("set", "bridge", overlays.BRIDGE, "rstp_enable=true")
        site.switch.ofctl("add-flow", overlays.BRIDGE, "actions=normal")

    def one_is_blocked():
        all_states = [states(site.switch, "rstp", "t1", "t2", bridge=overlays.BRIDGE) for site in (one, two)]
        return sorted(sum(all_states, [])) == ["discarding", "forwarding", "forwarding", "forwarding"]

    until(one_is_blocked, "one end of a tunnel that discards")
    assert "DUP" not in one.host.ping(two.host.address, "-c", "5").out


def bpdu(root, flags=0x3C):
    """An RST BPDU of a designated port of the root."""
    identifier = root.to_bytes(8, "big")
    body = bytes([0, 0, 2, 2, flags]) + identifier + bytes(4) + identifier + bytes.fromhex("80010000140002000f0000")
    return GROUP + bytes.fromhex("020000000009") + (len(body) + 3).to_bytes(2, "big") + b"\x42\x42\x03" + body


def plain(source, destination):
    return bytes.fromhex(f"50540000000{destination}50540000000{source}1234") + bytes(46)


def test_a_blocked_port_neither_learns_nor_forwards_but_hears_bpdus(making):
    switch = making.switch()
    dummies = Dummies(switch, "br0", "p1", "p2", "p3")
    switch.ofctl("add-flow", "br0", "actions=normal")
    switch.vsctl("set", "bridge", "br0", "rstp_enable=true")
    # The root is behind p1, and p2 leads there, too.
    better, worse = bpdu(1), bytearray(bpdu(1))
    worse[14 + 3 + 25 + 1] = 2
    switch.ours.appctl("time/stop")

    def seconds(count):
        for _ in range(count):
            for port, frame in (("p1", better), ("p2", bytes(worse))):
                dummies.receive(port, frame)
            switch.ours.appctl("time/warp", "1000", "500")

    seconds(10)
    assert [port["role"] for port in ports(switch, "rstp").values()] == ["Root", "Alternate", "Designated"]
    assert states(switch, "rstp", "p1", "p2", "p3") == ["forwarding", "discarding", "forwarding"]

    def learned():
        return [line.split()[2] for line in switch.ours.appctl("fdb/show", "br0").splitlines()[1:]]

    def receivers(frame):
        return [port for port in ("p1", "p2", "p3") if frame in [bytes(sent) for sent in dummies.all_frames(port)]]

    # The frames of the other ports arrive after that of the blocked one, and nothing is ever sent to that one.
    blocked, one, other = plain(1, 2), plain(3, 2), plain(4, 2)
    before = ports(switch, "rstp")["p2"]["rx"]
    dummies.receive("p2", blocked, bytes(worse))
    dummies.receive("p3", one)
    dummies.receive("p1", other)
    until(lambda: (receivers(one), receivers(other)) == (["p1"], ["p3"]), lambda: [receivers(one), receivers(other)])
    assert receivers(blocked) == [] and sorted(learned()) == ["50:54:00:00:00:03", "50:54:00:00:00:04"]
    # BPDUs are never forwarded, and are heard on the blocked port.
    until(lambda: ports(switch, "rstp")["p2"]["rx"] > before, "a BPDU on the blocked port")
    assert receivers(bytes(worse)) == []
    assert "slow_path(stp)" in switch.ours.appctl("dpctl/dump-flows")
    # The information of p1 expires, and p2 takes over.
    for _ in range(10):
        dummies.receive("p2", bytes(worse))
        switch.ours.appctl("time/warp", "1000", "500")
    assert states(switch, "rstp", "p1", "p2") == ["forwarding", "forwarding"]
    assert ports(switch, "rstp")["p2"]["role"] == "Root"
    # Without the protocol, frames pass, and BPDUs follow the tables.
    switch.vsctl("set", "bridge", "br0", "rstp_enable=false")
    dummies.receive("p1", plain(5, 6))
    until(lambda: receivers(plain(5, 6)) == ["p2", "p3"], "a frame at all other ports")


def test_addresses_age_by_the_time_of_rstp(making):
    """Open vSwitch stores rstp-ageing-time without effect. In both, mac-aging-time counts if it is set."""
    kept = []
    for maker in (making.peers, None):
        switch = making.switch(maker=maker)
        dummies = Dummies(switch, "br0", "p1", "p2")
        switch.ofctl("add-flow", "br0", "actions=normal")
        for port in dummies.ports:
            switch.vsctl("set", "port", port, "other_config:rstp-port-admin-edge=true")
        switch.appctl("time/stop")
        switch.vsctl("set", "bridge", "br0", "rstp_enable=true")
        switch.appctl("time/warp", "40000", "1000")

        def seconds(settings, switch=switch, dummies=dummies):
            """How many seconds an address is kept with these settings, in steps of five; at most 200."""
            switch.vsctl("clear", "bridge", "br0", "other_config")
            if settings:
                switch.vsctl("set", "bridge", "br0", *(f"other_config:{setting}" for setting in settings))
            dummies.receive("p1", plain(1, 2))
            is_learned = lambda: "50:54:00:00:00:01" in switch.appctl("fdb/show", "br0")
            until(is_learned, "the address learned")
            age = 0
            while age < 200 and is_learned():
                switch.appctl("time/warp", "5000", "1000")
                age += 5
            switch.appctl("fdb/flush", "br0")
            return age

        cases = [["mac-aging-time=50"], ["mac-aging-time=50", "rstp-ageing-time=25"], ["rstp-ageing-time=9"], ["rstp-ageing-time=25"]]
        kept.append([seconds(case) for case in cases])
    theirs, ours = kept
    # Addresses are looked through every now and then.
    assert all(abs(one - other) <= 5 for one, other in zip(theirs[:3], ours[:3])), (theirs, ours)
    assert 50 <= ours[0] <= 60 and ours[2] == 200 and theirs[3] == 200 and 25 <= ours[3] <= 35, (theirs, ours)


def test_a_controller_excludes_a_port(making):
    """NO_STP takes effect at once, and is undone at once; Open vSwitch stores it without effect."""
    switch = making.switch()
    Dummies(switch, "br0", "p1", "p2")
    switch.vsctl("set", "bridge", "br0", "stp_enable=true")
    until(lambda: states(switch, "stp", "p1", "p2") == ["listening", "listening"], "ports that listen")
    switch.ofctl("mod-port", "br0", "p1", "no-stp")
    assert states(switch, "stp", "p1", "p2") == [None, "listening"]
    assert "STP" not in [line for line in switch.ofctl("show", "br0").splitlines() if "state" in line][0]
    switch.ofctl("mod-port", "br0", "p1", "stp")
    assert states(switch, "stp", "p1", "p2") == ["listening", "listening"]


def test_controllers_see_the_states_of_ports(making):
    switch = making.switch()
    Dummies(switch, "br0", "p1")
    switch.ours.appctl("time/stop")
    monitor = Monitor(switch.peers, 0, "65534")
    switch.vsctl("set", "bridge", "br0", "stp_enable=true")
    for _ in range(16):
        switch.ours.appctl("time/warp", "2000", "500")

    seen = [line for line in monitor.events() if "STP_" in line]
    assert [line.split(":")[-1].strip() for line in seen] == ["STP_LEARN", "STP_FORWARD"]
    monitor.end()
    until(lambda: "stp_state=forwarding" in switch.vsctl("get", "port", "p1", "status"), "the state in the database")
