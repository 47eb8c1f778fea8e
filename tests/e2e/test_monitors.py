"""Flow monitors: the reports of flow changes to Debian's ovs-ofctl and ours in each version's format; reports of
group and meter changes; and groups that lead to themselves."""

import re
import socket
import struct
import subprocess

import pytest

from waiting import until

VERSIONS = ["OpenFlow10", "OpenFlow13", "OpenFlow14"]
REPLY = {"OpenFlow10": "NXST_FLOW_MONITOR", "OpenFlow13": "ONFST_FLOW_MONITOR", "OpenFlow14": "OFPST_FLOW_MONITOR"}
BARRIER = re.compile(r"OFPT_BARRIER_REPLY[^\n]*:?\n")


class Monitor:
    """`ovs-ofctl monitor` of one maker in the background, and its output."""

    def __init__(self, tools, number, *words):
        self.switch = tools.switch
        self.path = self.switch.directory / f"monitor{number}.log"
        self.control = self.switch.directory / f"monitor{number}.ctl"
        with open(self.path, "w", encoding="ascii") as log:
            words = [tools.directory / "ovs-ofctl", f"--unixctl={self.control}", "monitor", "br0", *words]
            self.process = subprocess.Popen(
                self.switch.inside(words), env=self.switch.environment, stdout=log, stderr=log
            )
        until(self.control.exists, lambda: f"the monitor: {self.path.read_text()}")

    def call(self, *words):
        return self.switch.peers.appctl("-t", self.control, *words)

    def send(self, message):
        self.call("ofctl/send", message.hex())

    def events(self):
        """All reports so far: headers and the lines after them, without transaction ids."""
        # Before its barrier reply, the switch has reported all earlier changes.
        before = len(BARRIER.findall(self.path.read_text()))
        self.call("ofctl/barrier")
        until(lambda: len(BARRIER.findall(self.path.read_text())) > before, "the answer to a barrier")
        text = re.sub(r"(?m)^send: .*\n(^[ \d].*\n)*", "", BARRIER.sub("", self.path.read_text()))
        lines = [re.sub(r" \(xid=0x[0-9a-f]+\):", "", line).strip() for line in text.splitlines()]
        return [re.sub(r"^event=", "", line) for line in lines if line and "INFO|" not in line]

    def end(self):
        self.process.kill()
        self.process.wait()


@pytest.fixture
def bridge(switch):
    switch.add_dummy_bridge("br0", "p1", "p2")
    return switch


@pytest.fixture
def monitor(bridge, tools):
    """Starts a monitor of the test's maker."""
    started = []

    def start(*words):
        started.append(Monitor(tools, len(started), *words))
        return started[-1]

    yield start
    for each in started:
        each.end()


@pytest.fixture
def ofctl(bridge):
    """Another controller: Debian's ovs-ofctl over OpenFlow 1.3."""

    def run(command, *words, strict=False):
        options = ["-O", "OpenFlow13", *(["--strict"] if strict else [])]
        return bridge.peers.ofctl(*options, command, "br0", *words)

    return run


def headers(version):
    suffix = "" if version == "OpenFlow10" else f" (OF{version[-2]}.{version[-1]})"
    return f"{REPLY[version]} reply{suffix}"


@pytest.mark.parametrize("version", VERSIONS)
def test_changes_are_reported(monitor, ofctl, bridge, version):
    ofctl("add-flow", "priority=1,cookie=0x5,actions=2")
    watch = monitor("-O", version, "watch:")
    first = "INITIAL" if version == "OpenFlow14" else "ADDED"
    header = headers(version)
    want = [header, f"{first} table=0 cookie=0x5 actions=output:2"]
    assert watch.events() == want
    ofctl("add-flow", "priority=3,in_port=1,idle_timeout=60,hard_timeout=70,actions=2")
    want += [header, "ADDED table=0 idle_timeout=60 hard_timeout=70 cookie=0 in_port=1 actions=output:2"]
    ofctl("add-flow", "priority=3,in_port=1,actions=1")
    want += [header, "ADDED table=0 cookie=0 in_port=1 actions=output:1"]
    ofctl("mod-flows", "in_port=1,actions=2")
    want += [header, "MODIFIED table=0 cookie=0 in_port=1 actions=output:2"]
    # Nothing changes.
    ofctl("mod-flows", "in_port=1,actions=2")
    ofctl("add-group", "group_id=7,type=all,bucket=actions=2")
    ofctl("add-flow", "table=4,ip,actions=group:7")
    want += [header, "ADDED table=4 cookie=0 ip actions=group:7"]
    ofctl("del-groups", "group_id=7")
    want += [header, "DELETED reason=group_delete table=4 cookie=0 ip actions=group:7"]
    bundle = bridge.directory / "bundle"
    bundle.write_text("flow add priority=20,actions=1\nflow modify_strict priority=20,actions=2\n")
    ofctl("bundle", bundle)
    want += [header, "ADDED table=0 cookie=0 actions=output:1", "MODIFIED table=0 cookie=0 actions=output:2"]
    assert watch.events() == want
    learn = "learn(table=7,priority=4,cookie=0x9,hard_timeout=1000,delete_learned,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[])"
    ofctl("add-flow", f"priority=30,in_port=2,actions={learn}")
    frame = "ffffffffffff50540000000a0806000108000604000150540000000ac0a80001000000000000c0a80002"
    bridge.appctl("netdev-dummy/receive", "p2", frame)
    learned = "ADDED table=7 hard_timeout=1000 cookie=0x9 dl_dst=50:54:00:00:00:0a"
    until(lambda: learned in watch.events(), "the learned flow")
    # It is deleted with the flow that learned it.
    ofctl("del-flows", "priority=30,in_port=2", strict=True)
    output = watch.events()
    assert output[len(want)].startswith(header) and "DELETED reason=delete table=7" in output[-1]
    ofctl("add-flow", "priority=40,hard_timeout=1,in_port=2,actions=1")
    expired = "DELETED reason=hard table=0 hard_timeout=1 cookie=0 in_port=2 actions=output:1"
    until(lambda: expired in watch.events(), "the end of a flow's time")


@pytest.mark.parametrize("version", VERSIONS)
def test_monitor_requests(monitor, ofctl, version):
    ofctl("add-flow", "priority=1,actions=2")
    ofctl("add-flow", "table=1,priority=1,ip,actions=1")
    quiet = monitor("-O", version, "watch:!initial,!modify,!actions,table=1")
    port = monitor("-O", version, "watch:out_port=2")
    two = monitor("-O", version, "watch:tcp,!initial", "watch:udp,!initial")
    group = monitor("-O", version, "watch:out_group=5,!initial")
    header = headers(version)
    for each in (quiet, two, group):
        assert set(each.events()) == {header}, "the answer is empty"
    assert len(port.events()) == 2
    ofctl("add-flow", "table=1,tcp,actions=1")
    ofctl("mod-flows", "table=1,tcp,actions=2")
    ofctl("del-flows", "table=1")
    output = quiet.events()[1:]
    assert output[:3] == [header, "ADDED table=1 cookie=0 tcp", header]
    assert sorted(output[3:]) == [f"DELETED reason=delete table=1 cookie=0 {what}" for what in ("ip", "tcp")]
    assert port.events()[2:] == [
        header,
        "MODIFIED table=1 cookie=0 tcp actions=output:2",
        header,
        "DELETED reason=delete table=1 cookie=0 tcp actions=output:2",
    ]
    assert len([event for event in two.events() if "tcp" in event]) == 3
    ofctl("add-group", "group_id=5,type=all")
    ofctl("add-flow", "table=9,actions=group:5")
    ofctl("add-flow", "table=9,ip,actions=1")
    # Before OpenFlow 1.4, the filter by groups is not in the request.
    output = [event for event in group.events() if "table=9" in event]
    assert len(output) == (1 if version == "OpenFlow14" else 2)


CHANGES = """
add-flow priority=1,actions=2
add-flow priority=2,in_port=1,cookie=0x5,actions=1,2
mod-flows in_port=1,cookie=0x7,actions=2
mod-flows cookie=0x5/-1,actions=drop
add-flow priority=2,in_port=1,idle_timeout=60,importance=3,actions=1
add-group group_id=7,type=all,bucket=actions=2
add-flow table=4,ip,actions=group:7
mod-flows table=4,actions=2
mod-flows table=4,actions=write_actions(group:7),goto_table:5
mod-group group_id=7,type=all,bucket=actions=1
del-groups group_id=7
add-meter meter=1,pktps,bands=type=drop,rate=1
add-flow table=5,ip,actions=meter:1,2
del-meters
add-flow table=6,dl_vlan=5,actions=pop_vlan,set_field:02:00:00:00:00:01->eth_dst,output:2
add-flow table=6,reg3=5,metadata=0x77/0xff,actions=learn(table=7,NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[]),resubmit(,8)
del-flows out_port=2
del-flows table=6
del-flows
"""
SPECS = ["watch:", "watch:!own,!actions,out_port=2", "watch:!add,table=4", "watch:!delete,!modify,in_port=1"]


@pytest.mark.parametrize("version", VERSIONS)
def test_open_vswitch_reports_the_same(making, version):
    """Debian's switch and ours, each monitored by Debian's ovs-ofctl."""
    output = []
    for maker in (None, making.peers):
        switch = making.switch(maker=maker)
        switch.add_dummy_bridge("br0", "p1", "p2")
        monitors = [Monitor(switch.peers, number, "-O", version, spec) for number, spec in enumerate(SPECS)]
        for line in CHANGES.strip().splitlines():
            command, *words = line.split()
            switch.ofctl("-O", "OpenFlow14", command, "br0", *words)
        output.append([monitor.events() for monitor in monitors])
        for monitor in monitors:
            monitor.end()
    ours, theirs = output
    for spec, one, other in zip(SPECS, ours, theirs):
        # The order of reports of several flows of one change is unspecified.
        assert by_message(one) == by_message(other), spec
        assert len(one) > 3, spec


def by_message(events):
    messages = []
    for event in events:
        if "FLOW_MONITOR" in event:
            messages.append([])
        messages[-1].append(event)
    return [[first, *sorted(rest)] for first, *rest in messages]


def test_own_changes_are_abbreviated(monitor, ofctl):
    watch = monitor("-O", "OpenFlow13", "watch:!own")
    flow_mod = struct.pack("!BBHI", 4, 14, 56, 0x1234) + struct.pack(
        "!QQBBHHHIIIHHHHI", 0, 0, 0, 0, 0, 0, 9, 0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 1, 4, 0
    )
    watch.send(flow_mod)
    assert watch.events()[-1] == "ABBREV xid=0x1234"
    ofctl("del-flows")
    assert watch.events()[-1] == "DELETED reason=delete table=0 cookie=0"


class Connection:
    """A raw connection to the bridge's management socket."""

    def __init__(self, switch, version):
        self.version = version
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(switch.management("br0")))
        self.send(0)
        self.receive()

    def send(self, kind, body=b"", xid=1):
        self.socket.sendall(struct.pack("!BBHI", self.version, kind, 8 + len(body), xid) + body)

    def receive(self):
        header = self._read(8)
        return header[1], header + self._read(int.from_bytes(header[2:4], "big") - 8)

    def _read(self, n):
        data = b""
        while len(data) < n:
            chunk = self.socket.recv(n - len(data))
            assert chunk, "the switch has closed the connection"
            data += chunk
        return data

    def until_barrier(self):
        """All messages before the reply to a barrier."""
        request = 18 if self.version == 1 else 20
        self.send(request, xid=0x7777)
        messages = []
        while True:
            kind, message = self.receive()
            if kind == request + 1:
                return messages
            messages.append(message)


def printed(switch, messages):
    path = switch.directory / "messages"
    path.write_bytes(b"".join(messages))
    return switch.peers.run("ovs-ofctl", "ofp-parse", path).out


def test_a_slow_reader_is_paused_and_resumed(bridge, ofctl):
    """Open vSwitch has the same limit for the queue before a pause."""
    connection = Connection(bridge, 5)
    match_all = struct.pack("!HHI", 1, 4, 0)
    monitor = struct.pack("!IIIHBB", 1, 0xFFFFFFFF, 0xFFFFFFFF, 0x1F, 0xFF, 0) + match_all
    connection.send(18, struct.pack("!HHI", 16, 0, 0) + monitor)
    flows = bridge.directory / "flows"
    flows.write_text("".join(f"tcp,nw_dst=10.0.{n >> 8}.{n & 255},actions=2\n" for n in range(12000)))
    ofctl("add-flows", flows)
    for n in (0, 11999):
        ofctl("del-flows", f"tcp,nw_dst=10.0.{n >> 8}.{n & 255}", strict=True)
    ofctl("mod-flows", "tcp,nw_dst=10.0.0.1,actions=1", strict=True)
    messages = [connection.receive()[1]]
    while b"\x00\x08\x00\x06\x00\x00\x00\x00" not in messages[-1][-8:]:
        messages.append(connection.receive()[1])
    text = printed(bridge, messages)
    before, after = text.split(" event=PAUSED\n")
    assert 1000 < before.count("event=ADDED") < 8000
    assert set(re.findall(r"event=(?!ADDED)\w+.*nw_dst=(\S+)", before)) == set()
    assert re.findall(r"event=DELETED .*nw_dst=(\S+)", after) == ["10.0.0.0"]
    assert re.findall(r"event=MODIFIED .*nw_dst=(\S+)", after) == ["10.0.0.1"]
    assert text.count("event=ADDED") == 11999
    assert after.endswith("event=RESUMED\n")


def test_changes_of_groups_and_meters_are_forwarded(bridge, ofctl):
    asked = struct.pack("!HHIHHI", 10, 8, 3, 11, 8, 3)
    listeners = {version: Connection(bridge, version) for version in (1, 4, 5)}
    for version, connection in listeners.items():
        connection.send(9, struct.pack("!HH", 0, 65535))
        if version >= 5:
            connection.send(28, asked)
        else:
            connection.send(4, struct.pack("!II", 0x2320, 27) + asked)
        assert connection.until_barrier() == []
    ofctl("add-group", "group_id=7,type=all,bucket=output:1")
    ofctl("add-meter", "meter=3,pktps,bands=type=drop,rate=5")
    names = {1: "NXT_REQUESTFORWARD", 4: "ONFT_REQUESTFORWARD (OF1.3)", 5: "OFPT_REQUESTFORWARD (OF1.4)"}
    for version, connection in listeners.items():
        text = printed(bridge, connection.until_barrier())
        assert f"{names[version]} (xid=0x0): reason=group_mod\n ADD group_id=7,type=all,bucket=" in text
        meter = f"{names[version]} (xid=0x0): reason=meter_mod ADD meter=3 pktps bands=\ntype=drop rate=5\n"
        assert (meter in text) == (version >= 4)


def test_a_loop_of_groups_is_refused(bridge):
    def refusal(command, text):
        done = bridge.peers.run("ovs-ofctl", "-O", "OpenFlow14", command, "br0", text, check=False)
        return re.search(r"OFPGMFC_\w+|$", done.err).group(0)

    assert refusal("add-group", "group_id=1,type=all,bucket=group:1") == "OFPGMFC_LOOP"
    assert refusal("add-group", "group_id=1,type=all,bucket=group:2") == ""
    assert refusal("add-group", "group_id=2,type=all,bucket=group:1") == "OFPGMFC_LOOP"
    assert refusal("add-group", "group_id=2,type=all,bucket=output:1") == ""
    assert refusal("mod-group", "group_id=2,type=all,bucket=output:1,bucket=group:1") == "OFPGMFC_LOOP"
