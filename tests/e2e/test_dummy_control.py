"""Messages of a bridge of dummy ports to a controller, and flow timeouts in stopped time."""

import os
import re
import signal
import subprocess

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from dummies import Dummies
from waiting import until

FRAME = bytes(Ether(src="02:00:00:00:00:0a", dst="02:00:00:00:00:0b") / IP(src="1.0.0.1", dst="1.0.0.2") / TCP() / Raw(b"x" * 40))


class Monitor:
    """`ovs-ofctl monitor` of one maker in the background, and its output."""

    def __init__(self, tools, bridge, *words):
        self.tools = tools
        self.path = tools.switch.directory / "monitor.log"
        with open(self.path, "wb") as log:
            command = [tools.directory / "ovs-ofctl", "monitor", bridge, *words]
            command += ["--detach", "--no-chdir", "--pidfile"]
            done = subprocess.run(
                tools.switch.inside(command), env=tools.switch.environment, stdout=log, stderr=log, timeout=60, check=False
            )
        assert done.returncode == 0, self.text()
        self.pid = int((tools.switch.directory / "ovs-ofctl.pid").read_text())

    def text(self):
        return self.path.read_text()

    def wait(self, pattern):
        """Waits until the output matches, and returns the match."""
        return until(lambda: re.search(pattern, self.text()), lambda: f"{pattern} in {self.text()}")

    def end(self):
        os.kill(self.pid, signal.SIGTERM)


@pytest.fixture
def monitor(tools):
    made = []

    def start(bridge, *words):
        made.append(Monitor(tools, bridge, *words))
        return made[-1]

    yield start
    for each in made:
        each.end()


@pytest.fixture
def dummies(switch):
    return Dummies(switch, "br0", "p1", "p2")


def test_packet_in(dummies, monitor):
    seen = monitor("br0", "65534")
    dummies.flows("in_port=1,actions=controller", "in_port=2,actions=controller(max_len=20),1")
    dummies.receive("p1", FRAME)
    length = len(FRAME)
    seen.wait(rf"PACKET_IN\S* .*total_len={length} in_port=1 \(via action\) data_len={length}")
    seen.wait(r"tcp,.*dl_src=02:00:00:00:00:0a,dl_dst=02:00:00:00:00:0b,nw_src=1.0.0.1,nw_dst=1.0.0.2.*tp_src=20,tp_dst=80")
    assert dummies.exchange("p2", FRAME) == {"p1": [FRAME]}
    seen.wait(rf"PACKET_IN\S* .*total_len={length} in_port=2 \(via action\) data_len={length} ")


def test_packet_in_of_a_miss(dummies, monitor):
    """A packet-in by the table-miss flow has that reason."""
    dummies.flows("priority=0,actions=controller", version="OpenFlow13")
    seen = monitor("br0", "65534", "-OOpenFlow13")
    dummies.receive("p2", FRAME)
    seen.wait(r"PACKET_IN\S* \(OF1\.3\).* in_port=2 \(via no_match\)")


def test_paused_packets_go_on_when_the_monitor_answers(dummies, monitor):
    dummies.flows("in_port=1,actions=controller(userdata=01.02,pause),2", "in_port=2,actions=controller,1")
    seen = monitor("br0", "resume")
    assert dummies.exchange("p1", FRAME) == {"p2": [FRAME]}
    seen.wait(rf"NXT_PACKET_IN2 .*total_len={len(FRAME)} in_port=1 \(via action\)")
    seen.wait(rf"send: NXT_RESUME \(xid=0x0\): .*total_len={len(FRAME)} in_port=1 \(via action\)")
    # A packet that does not wait needs no answer.
    assert dummies.exchange("p2", FRAME) == {"p1": [FRAME]}
    seen.wait(r"NXT_PACKET_IN2 .* in_port=2 ")
    assert seen.path.read_text().count("send: ") == 1


def test_packet_out(dummies, tools):
    dummies.flows("in_port=2,actions=in_port")
    tools.ofctl("packet-out", "br0", f"in_port=controller packet={FRAME.hex()} actions=1,2")
    assert dummies.sent("p1", 1) == [FRAME]
    assert dummies.sent("p2", 1) == [FRAME]
    tools.ofctl("packet-out", "br0", f"in_port=2 packet={FRAME.hex()} actions=table")
    assert dummies.sent("p2", 1) == [FRAME]
    tools.ofctl("packet-out", "br0", "none", "mod_dl_dst:02:00:00:00:00:01,2", FRAME.hex())
    assert dummies.sent("p2", 1) == [bytes.fromhex("020000000001") + FRAME[6:]]


def test_port_status(dummies, monitor):
    seen = monitor("br0", "65534")
    dummies.switch.vsctl("add-port", "br0", "p3", "--", "set", "interface", "p3", "type=dummy")
    seen.wait(r"PORT_STATUS.*: ADD: *\n? *\d+\(p3\)")
    dummies.switch.vsctl("del-port", "br0", "p3")
    seen.wait(r"PORT_STATUS.*: DEL: *\n? *\d+\(p3\)")


def test_timeouts_in_stopped_time(dummies, monitor):
    switch = dummies.switch
    seen = monitor("br0", "65534")
    switch.appctl("time/stop")
    dummies.flows(
        "send_flow_rem,hard_timeout=10,cookie=1,in_port=1,actions=2",
        "send_flow_rem,idle_timeout=10,cookie=2,in_port=2,actions=1",
        "cookie=3,priority=1,actions=drop",
    )
    # At 12 s, a packet at 6 s has kept the idle flow, but not the hard one.
    switch.appctl("time/warp", "6000")
    assert dummies.exchange("p2", FRAME) == {"p1": [FRAME]}
    assert dummies.exchange("p1", FRAME) == {"p2": [FRAME]}
    switch.appctl("time/warp", "6000")
    seen.wait(r"FLOW_REMOVED.*in_port=1 reason=hard .*cookie:0x1 .*duration1[0-2]\S* .*pkts1 bytes94")
    assert [flow.split(",")[0] for flow in switch.flows("br0")] == ["cookie=0x2", "cookie=0x3"]
    switch.appctl("time/warp", "30000", "1000")
    seen.wait(r"FLOW_REMOVED.*in_port=2 reason=idle .*cookie:0x2 ")
    assert [flow.split(",")[0] for flow in switch.flows("br0")] == ["cookie=0x3"]
    assert dummies.exchange("p2", FRAME) == {}
    switch.ofctl("add-flow", "br0", "send_flow_rem,cookie=4,in_port=1,actions=2")
    switch.ofctl("del-flows", "br0", "in_port=1")
    seen.wait(r"FLOW_REMOVED.*in_port=1 reason=delete .*cookie:0x4 ")


def test_fdb_ages_in_stopped_time(dummies):
    switch = dummies.switch
    dummies.flows("actions=normal")
    switch.vsctl("set", "bridge", "br0", "other-config:mac-aging-time=20")
    switch.appctl("time/stop")
    dummies.receive("p1", FRAME)
    assert dummies.sent("p2", 1) == [FRAME]
    until(lambda: "02:00:00:00:00:0a" in switch.appctl("fdb/show", "br0"), "the address learned")
    switch.appctl("time/warp", "30000", "1000")
    until(lambda: "02:00:00:00:00:0a" not in switch.appctl("fdb/show", "br0"), "the address forgotten")
