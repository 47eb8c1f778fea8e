"""Bridges and their controllers: loss of controllers, in-band control, and asynchronous messages.

Tests on dummy ports also run on Debian's Open vSwitch, whose behaviour they expect."""

import os
import re
import subprocess

import pytest

from controllers import BARRIER_REPLY, BARRIER_REQUEST, ECHO_REQUEST, FEATURES_REQUEST, PACKET_IN, Controller
from switch import run
from test_dummy_control import FRAME
from test_hosts import connect as connect_hosts
from waiting import until


@pytest.fixture(params=["ours", "peers"])
def either(request, making):
    """A running switch: ours, then Debian's."""
    return making.switch(maker=making.programs if request.param == "ours" else making.peers)


@pytest.fixture
def controller(either):
    made = Controller(either.directory / "controller")
    yield made
    made.end()


def hidden(switch):
    """Matches and actions of hidden flows, by priority, highest first."""
    lines = switch.appctl("bridge/dump-flows", "br0").splitlines()
    found = [re.search(r"priority=(\d{6,}),(.*)", line) for line in lines]
    return sorted(((int(m.group(1)), m.group(2)) for m in found if m), reverse=True)


FAIL_OPEN = (15790320, "actions=NORMAL")


def status(switch, column="status"):
    return switch.vsctl("get", "controller", "br0", column)


def connect(switch, controller, *settings, mode="secure"):
    """A bridge of two dummy ports, connected to this controller; returns the connection."""
    controller.listen()
    switch.add_dummy_bridge("br0", "p1", "p2")
    switch.vsctl("set-fail-mode", "br0", mode)
    switch.vsctl("set-controller", "br0", controller.target)
    if settings:
        switch.vsctl("set", "controller", "br0", *settings)
    return controller.accept()


def receive(switch, port, count=1):
    switch.appctl("netdev-dummy/receive", port, *[FRAME.hex()] * count)


def test_standalone(either, controller):
    """A bridge out of reach of its controller forwards by itself, until the controller becomes active."""
    either.add_dummy_bridge("br0", "p1", "p2")
    either.vsctl("set-fail-mode", "br0", "standalone")
    either.vsctl("set-controller", "br0", controller.target, "--", "set", "controller", "br0", "inactivity_probe=1000")
    either.ofctl("add-flow", "br0", "in_port=1,actions=drop")
    until(lambda: hidden(either) == [FAIL_OPEN], lambda: f"the flow in {hidden(either)}")
    # All flows are gone. OpenFlow neither shows the new flow nor changes it.
    assert either.flows("br0") == []
    assert "active=0" in either.ofctl("dump-tables", "br0").split("table 1")[0]
    either.ofctl("del-flows", "br0")
    either.ofctl("add-flow", "br0", "in_port=2,actions=drop")
    receive(either, "p2")
    until(lambda: "n_packets=1, n_bytes=94, priority=15790320" in either.appctl("bridge/dump-flows", "br0"), "the packet")
    # A connection with its initial messages is not enough: the switch asks the controller to become active.
    controller.listen()
    silent = controller.accept(greets=False)
    assert hidden(either) == [FAIL_OPEN]
    until(lambda: silent.closed, "the end of a connection without HELLO")
    assert (status(either, "is_connected"), hidden(either)) == ("false", [FAIL_OPEN])
    connection = controller.accept()
    connection.send(FEATURES_REQUEST)
    first = connection.wait(PACKET_IN, 2)[0]
    # Apart from the datapath id's bits, a reverse ARP frame from the local port.
    assert first.body[:10].hex() == "ffffffff002afffe0000"
    assert first.body[10:16] == b"\xff" * 6 and first.body[22:32].hex() == "80350001080006040003"
    assert hidden(either) == [FAIL_OPEN]
    connection.send(BARRIER_REQUEST)
    connection.wait(BARRIER_REPLY)
    until(lambda: hidden(either) == [], lambda: f"no more of it in {hidden(either)}")
    assert either.flows("br0") == ["cookie=0x0, table=0, in_port=2 actions=drop"]
    # Lost again.
    controller.stop()
    connection.close()
    until(lambda: hidden(either) == [FAIL_OPEN], "the flow again")
    # A bridge switched to secure mode is secure at once.
    either.vsctl("set-fail-mode", "br0", "secure")
    assert hidden(either) == []
    either.vsctl("set-fail-mode", "br0", "standalone")
    until(lambda: hidden(either) == [FAIL_OPEN], "the flow once more")
    either.vsctl("del-controller", "br0")
    assert hidden(either) == []


REMOTES = [("10.1.1.2", 6653), ("10.1.1.3", 6654)]


def in_band_flows(*remotes, queue=""):
    """The hidden flows that Open vSwitch has for these remotes; the bridge's address is fixed."""
    flows = []
    if remotes:
        mac = "aa:55:aa:55:00:01"
        flows += [
            (180000, f"udp,in_port=LOCAL,dl_src={mac},tp_src=68,tp_dst=67"),
            (180001, f"arp,dl_dst={mac},arp_op=2"),
            (180002, f"arp,dl_src={mac},arp_op=1"),
        ]
    for address, port in remotes:
        flows += [
            (180005, f"arp,arp_tpa={address},arp_op=2"),
            (180006, f"arp,arp_spa={address},arp_op=1"),
            (180007, f"tcp,nw_dst={address},tp_dst={port}"),
            (180008, f"tcp,nw_src={address},tp_src={port}"),
        ]
    return sorted(((number, f"{match},actions={queue}NORMAL") for number, match in flows), reverse=True)


def test_in_band(either):
    either.add_dummy_bridge("br0", "p1", "p2")
    either.vsctl("set", "bridge", "br0", "other-config:hwaddr=aa:55:aa:55:00:01")

    def becomes(expected):
        until(lambda: hidden(either) == expected, lambda: f"{expected}, not {hidden(either)}")

    becomes([])
    either.vsctl("set-controller", "br0", *(f"tcp:{address}:{port}" for address, port in REMOTES))
    becomes(in_band_flows(*REMOTES))
    either.ofctl("del-flows", "br0")
    becomes(in_band_flows(*REMOTES))
    # DHCP replies also reach the local port, and nothing else does.
    def trace(source, destination):
        packet = f"in_port=1,udp,dl_dst=02:00:00:00:00:77,udp_src={source},udp_dst={destination}"
        text = either.appctl("ofproto/trace", "br0", packet)
        return re.search(r"Datapath actions: (.*)", text).group(1)

    local = re.search(r"br0 65534/(\d+):", either.appctl("dpif/show")).group(1)
    assert (trace(67, 68), trace(68, 67)) == (local, "drop")
    rows = either.vsctl("--columns=_uuid", "--bare", "find", "controller", 'target="tcp:10.1.1.3:6654"')
    either.vsctl("set", "controller", rows, "connection_mode=out-of-band")
    becomes(in_band_flows(REMOTES[0]))
    either.vsctl("set", "bridge", "br0", "other-config:disable-in-band=true")
    becomes([])
    assert trace(67, 68) == "drop"
    either.vsctl("set", "bridge", "br0", "other-config:disable-in-band=false", "other-config:in-band-queue=3")
    becomes(in_band_flows(REMOTES[0], queue="set_queue:3,"))
    either.vsctl("remove", "bridge", "br0", "other-config", "in-band-queue")
    becomes(in_band_flows(REMOTES[0]))
    either.vsctl("del-controller", "br0")
    becomes([])
    either.vsctl("set-manager", "tcp:10.1.1.9", "ptcp:0")
    becomes(in_band_flows(("10.1.1.9", 6640)))
    either.vsctl("del-manager")
    becomes([])


def counters(switch, kind):
    """bypassed, queued, dropped and backlog of packet-ins of a kind, as the database has them."""
    found = [re.search(rf'packet-in-{kind}-{name}="(\d+)"', status(switch)) for name in ("bypassed", "queued", "dropped", "backlog")]
    return [int(number.group(1)) for number in found] if all(found) else None


def test_packet_in_rate(either, controller):
    connection = connect(either, controller, "controller_rate_limit=100", "controller_burst_limit=30")
    either.ofctl("add-flow", "br0", "actions=controller")
    until(lambda: counters(either, "action") == [0, 0, 0, 0], lambda: f"counters in {status(either)}")
    # Some packet-ins are sent, some are delayed, and dropped ones are counted. None is delayed at a limit of 100
    # packets a second.
    count = queued = 0
    while not queued:
        receive(either, "p1", 100)
        count += 100
        until(lambda: sum(counters(either, "action")[:2]) == count, lambda: f"{count} packets in {status(either)}")
        bypassed, queued, dropped, backlog = counters(either, "action")
        assert bypassed >= 30 and backlog <= 30
    connection.wait(PACKET_IN, count - dropped)
    until(lambda: counters(either, "action")[3] == 0, "an empty queue")
    assert counters(either, "miss") == [0, 0, 0, 0]
    assert len(connection.of_type(PACKET_IN)) == count - counters(either, "action")[2]
    # The limit changes on the same connection, and is removed.
    either.vsctl("remove", "controller", "br0", "controller_rate_limit", "100")
    until(lambda: counters(either, "action") is None, "no counters")
    assert not connection.closed


def test_no_asynchronous_messages(either, controller):
    connection = connect(either, controller, "enable_async_messages=false")
    # Set before or after connecting, the option applies to the next connection.
    connection.close()
    connection = controller.accept()
    either.ofctl("add-flow", "br0", "in_port=1,actions=controller")
    either.ofctl("mod-port", "br0", "p2", "no-flood")
    receive(either, "p1", 3)
    until(lambda: either.peers.n_packets("br0", "in_port=1") == 3, "the packets")
    connection.send(BARRIER_REQUEST)
    connection.wait(BARRIER_REPLY)
    assert {message.type for message in connection.messages} <= {0, ECHO_REQUEST, BARRIER_REPLY}


def test_status(either, controller):
    controller.listen()
    either.add_dummy_bridge("br0", "p1")
    controller.stop()
    either.vsctl("set-controller", "br0", controller.target)
    until(lambda: 'last_error="No such file or directory"' in status(either), lambda: f"the error in {status(either)}")
    assert re.search(r"state=(BACKOFF|CONNECTING)", status(either))
    assert "sec_since" not in status(either)
    assert (status(either, "is_connected"), status(either, "role")) == ("false", "[]")
    controller.listen()
    connection = controller.accept()
    until(lambda: "state=ACTIVE" in status(either), lambda: f"the connection in {status(either)}")
    assert re.search(r'sec_since_connect="\d+"', status(either)) and "sec_since_disconnect" not in status(either)
    until(lambda: status(either, "role") == "other", "the role")
    # Nicira's role request, for a master.
    connection.send(4, bytes.fromhex("000023200000000a00000001"))
    until(lambda: status(either, "role") == "master", lambda: f"the role, {status(either, 'role')}")
    either.appctl("bridge/reconnect", "br0")
    until(lambda: connection.closed, "the end of the connection")
    connection = controller.accept()
    connection.send(BARRIER_REQUEST)
    connection.wait(BARRIER_REPLY)
    until(lambda: re.search(r'sec_since_disconnect="[1-9]\d*"', status(either)), lambda: f"the loss in {status(either)}")
    either.appctl("bridge/reconnect")
    until(lambda: connection.closed, "the end of the connection")
    refused = either.peers.run("ovs-appctl", "bridge/reconnect", "nonesuch", check=False)
    assert (refused.code, refused.err.splitlines()[0]) == (2, "Unknown bridge")


def lives(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_snoop(either, controller):
    either.add_dummy_bridge("br0", "p1")
    # No controller is configured.
    refused = either.peers.run("ovs-ofctl", "snoop", "br0", check=False, timeout=60)
    assert refused.code == 1
    # A snoop may wait for messages of a controller that is not connected yet.
    either.vsctl("set-controller", "br0", controller.target)
    log = either.directory / "snoop.log"
    words = ["snoop", "br0", "--detach", "--no-chdir", "--pidfile"]
    with open(log, "wb") as out:
        words = [either.peers.directory / "ovs-ofctl", *words]
        subprocess.run(either.inside(words), env=either.environment, stderr=out, stdout=out, timeout=60, check=True)
    snooper = int((either.directory / "ovs-ofctl.pid").read_text())
    controller.listen()
    connection = controller.accept()
    connection.send(FEATURES_REQUEST, xid=0x77)
    for what in (r"OFPT_FEATURES_REQUEST \(xid=0x77\)", r"OFPT_FEATURES_REPLY \(xid=0x77\)"):
        until(lambda what=what: re.search(what, log.read_text()), lambda: f"{what} in {log.read_text()}")
    # Without the controller, no messages follow.
    either.vsctl("del-controller", "br0")
    until(lambda: not lives(snooper), "the end of the snooper")


PORT = 6653


@pytest.fixture
def reached_through_the_bridge(making):
    """A switch whose only path to a host with a listening controller is its bridge, which forwards nothing."""
    switch = making.switch(start="kernel")
    host = making.host(switch, 1)
    connect_hosts(switch, host)
    switch.vsctl("set", "bridge", "br0", "fail-mode=secure")
    switch.ofctl("del-flows", "br0")
    run(["ip", "-n", switch.namespace, "link", "set", "br0", "up"])
    run(["ip", "-n", switch.namespace, "addr", "add", "10.1.0.77/24", "dev", "br0"])
    host.start_python("answering_controller.py", PORT)
    return switch, host


def test_in_band_reaches_a_controller(reached_through_the_bridge):
    switch, host = reached_through_the_bridge
    switch.vsctl("set-controller", "br0", f"tcp:{host.address}:{PORT}")
    until(lambda: status(switch, "is_connected") == "true", lambda: f"the connection: {status(switch)}")
    # There are no other flows: only control traffic passes.
    assert switch.flows("br0") == []
    run(switch.inside(["ping", "-c", "1", "-W", "1", host.address]), check=False)
    # The neighbour is resolved by now: its ARP passes as well.
    until(
        lambda: (180003, f"arp,dl_dst={host.mac},arp_op=2,actions=NORMAL") in hidden(switch),
        lambda: f"the next hop in {hidden(switch)}",
    )
    assert (180004, f"arp,dl_src={host.mac},arp_op=1,actions=NORMAL") in hidden(switch)
    # Out-of-band, there is no path.
    switch.vsctl("set", "controller", "br0", "connection_mode=out-of-band", "inactivity_probe=1000")
    until(lambda: hidden(switch) == [], "no more flows")
    until(lambda: status(switch, "is_connected") == "false", lambda: f"the loss: {status(switch)}")


def test_class_of_control_traffic(reached_through_the_bridge):
    """Packets to a controller have the class of network control, unless the row says otherwise (RFC 2474)."""
    switch, host = reached_through_the_bridge
    switch.vsctl("set", "bridge", "br0", "other-config:disable-in-band=true")
    for dscp in (48, 10):
        words = [] if dscp == 48 else ["--", "set", "controller", "br0", f"other-config:dscp={dscp}"]
        switch.vsctl("del-controller", "br0", "--", "set-controller", "br0", f"tcp:{host.address}:{PORT}", *words)
        # A new controller empties the tables.
        flows = f"add arp,actions=normal\nadd in_port=1,actions=local\nadd in_port=local,ip,nw_tos={dscp << 2},actions=1\n"
        switch.ofctl("add-flows", "br0", "-", input="delete\n" + flows)
        until(lambda: status(switch, "is_connected") == "true", lambda: f"the connection: {status(switch)}")
