"""ovs-testcontroller: compared with Debian's on a simulated switch, and with real switches."""

import os
import re
import socket
import subprocess

import pytest
from scapy.all import ARP, ICMP, IP, TCP, UDP, Dot1Q, Ether, IPv6, Raw

from fake_switch import FakeSwitch
from hosts import unique
from pki import Authority
from switch import run
from test_hosts import connect
from waiting import until

A, B, C = (f"02:00:00:00:0a:0{n}" for n in (1, 2, 3))


class Running:
    """A controller in the background."""

    def __init__(self, program, directory, words, inside=lambda words: words):
        directory.mkdir(exist_ok=True)
        self.log = directory / "controller.log"
        environment = dict(os.environ, OVS_RUNDIR=str(directory), OVS_LOGDIR=str(directory), OVS_SYSLOG_METHOD="null")
        with open(self.log, "wb") as log:
            command = inside([str(program), *[str(word) for word in words]])
            self.process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(60)


def frames():
    """Packet-ins of a switch with hosts A and C on port 1, and B on port 2."""
    ip = IP(src="10.0.0.1", dst="10.0.0.2", tos=0xB9)
    yield 1, Ether(src=A, dst=B) / ip / UDP(sport=1000, dport=53) / Raw(b"x" * 20), {}
    to_a = Ether(src=B, dst=A)
    yield 2, to_a / ip / UDP(sport=1000, dport=53), {}
    yield 2, to_a / ip / TCP(sport=1, dport=80), {"buffer_id": 7}
    yield 2, to_a / ip / ICMP(), {}
    yield 2, to_a / IP(src="10.0.0.1", dst="10.0.0.2", proto=50) / Raw(b"y" * 20), {}
    yield 2, to_a / IP(src="10.0.0.1", dst="10.0.0.2", frag=100) / Raw(b"y" * 20), {}
    yield 2, to_a / IPv6(src="fe80::1", dst="fe80::2", tc=0x60) / UDP(sport=5, dport=6), {}
    yield 2, to_a / ARP(op=2, psrc="10.0.0.2", pdst="10.0.0.1", hwsrc=B, hwdst=A), {}
    yield 2, to_a / Dot1Q(vlan=5, prio=3) / ip / UDP(sport=9, dport=9), {}
    yield 2, Ether(src=B, dst=A, type=0x1234) / Raw(b"z" * 46), {"reason": 1}
    yield 2, Ether(src=B, dst=A, type=0x1234) / Raw(b"z" * 46), {}
    yield 2, Ether(src=B, dst=A, type=0x1234) / Raw(b""), {}
    yield 1, Ether(src=C, dst=A, type=0x1234) / Raw(b"z" * 46), {}
    yield 1, Ether(src=A, dst=C, type=0x1234) / Raw(b"z" * 46), {"buffer_id": 9}
    yield 1, Ether(src=A, dst="ff:ff:ff:ff:ff:ff") / ARP(psrc="10.0.0.1", pdst="10.0.0.2"), {}
    yield 1, Ether(src=A, dst="01:80:c2:00:00:0e", type=0x88CC) / Raw(b"l" * 46), {}
    yield 1, Ether(src=A, dst="01:00:0c:cc:cc:cc", type=0x2000) / Raw(b"l" * 46), {"buffer_id": 8}
    yield 1, Ether(src=A, dst="33:33:00:00:00:01", type=0x1234) / Raw(b"l" * 46), {}
    yield 1, Ether(src="03:00:00:00:00:01", dst=B, type=0x1234) / Raw(b"l" * 46), {}
    yield 3, Ether(src=A, dst=B, type=0x1234) / Raw(b"moved" * 10), {}
    yield 2, Ether(src=B, dst=A, type=0x1234) / Raw(b"z" * 46), {}


def conversation(program, directory, version, words, peers):
    """All messages of a controller, as texts."""
    path = directory / unique("c")
    names = ["OpenFlow10", "OpenFlow11", "OpenFlow12", "OpenFlow13", "OpenFlow14", "OpenFlow15"]
    with Running(program, directory, ["-O", names[version - 1], *words, f"punix:{path}"]) as controller:

        def connected():
            assert controller.process.poll() is None, controller.log.read_text()
            try:
                return FakeSwitch(path, version)
            except (FileNotFoundError, ConnectionRefusedError):
                return None

        switch = until(connected, lambda: controller.log.read_text())
        messages = [switch.hello, *switch.answers()]
        for port, frame, how in frames():
            switch.packet_in(port, bytes(frame), **how)
            messages += switch.answers()
        switch.close()
    every = directory / unique("messages")
    every.write_bytes(b"".join(messages))
    text = run([peers / "ovs-ofctl", "ofp-parse", every]).out
    # Transaction ids may differ between the programs.
    return re.sub(r"\(xid=[^)]*\)", "", text)


@pytest.mark.parametrize(
    "words",
    ["", "-n", "-H", "-H -n", "-w", "--wildcards=0x2000EC", "-q 3", "-q 3 -Q p1:7", "--max-idle=permanent", "--with-flows FLOWS"],
)
def test_messages_agree_with_debians(programs, peers, tmp_path, words):
    flows = tmp_path / "flows"
    flows.write_text("table=0,ip,actions=2\n# a comment\n\narp,reg1=5,actions=normal\n")
    words = [str(flows) if word == "FLOWS" else word for word in words.split()]
    for version in (1, 4, 2, 3, 5, 6):
        # Debian's does not request port descriptions in versions whose features lack them.
        if "-Q" in words and version >= 4:
            continue
        theirs = conversation(peers / "ovs-testcontroller", tmp_path, version, words, peers)
        ours = conversation(programs / "ovs-testcontroller", tmp_path, version, words, peers)
        assert ours == theirs, f"version {version}"
        assert "FLOW_MOD" in theirs or "-n" in words, theirs


@pytest.mark.parametrize("version", ["OpenFlow10", "OpenFlow13", "OpenFlow14"])
def test_hosts_of_our_switch(making, programs, version):
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number) for number in (1, 2)]
    connect(switch, *hosts)
    switch.vsctl("set", "bridge", "br0", f"protocols={version}", "fail-mode=secure")
    hosts[0].cannot_ping(hosts[1].address)
    words = ["-O", version, "--pidfile", "ptcp:6653:127.0.0.1"]
    with Running(programs / "ovs-testcontroller", switch.directory / "tc", words, switch.inside) as controller:
        switch.vsctl("set-controller", "br0", "tcp:127.0.0.1:6653")
        until(
            lambda: switch.vsctl("get", "controller", "br0", "is_connected") == "true",
            lambda: controller.log.read_text() + switch.log(),
        )
        hosts[0].ping(hosts[1].address)
        hosts[1].ping(hosts[0].address)
        flows = switch.flows("br0", "-O", version)
        for src, dst in ((0, 1), (1, 0)):
            match = f"dl_src={hosts[src].mac},dl_dst={hosts[dst].mac}"
            assert any(match in flow and f"actions=output:{dst + 1}" in flow and "icmp" in flow for flow in flows), flows
        pid = (switch.directory / "tc/ovs-testcontroller.pid").read_text()
        socket = switch.directory / f"tc/ovs-testcontroller.{pid.strip()}.ctl"
        assert "exit" in switch.appctl("-t", socket, "list-commands")


def test_debians_switch(making, peers, programs):
    switch = making.switch(maker=peers)
    words = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure"]
    for n in (1, 2):
        words += ["--", "add-port", "br0", f"p{n}", "--", "set", "interface", f"p{n}", "type=dummy", f"ofport_request={n}"]
    switch.vsctl(*words)
    path = switch.directory / "controller"
    with Running(programs / "ovs-testcontroller", switch.directory, [f"punix:{path}", "--max-idle=permanent"]) as controller:
        switch.vsctl("set-controller", "br0", f"unix:{path}")
        until(
            lambda: switch.vsctl("get", "controller", "br0", "is_connected") == "true",
            lambda: controller.log.read_text() + switch.log(),
        )
        for port, src, dst in (("p1", A, B), ("p2", B, A)):
            frame = Ether(src=src, dst=dst) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP() / Raw(b"i" * 20)
            switch.appctl("netdev-dummy/receive", port, bytes(frame).hex())
        found = f"in_port=p2,vlan_tci=0x0000/0x1fff,dl_src={B},dl_dst={A}"
        until(lambda: found in switch.ofctl("-OOpenFlow15", "dump-flows", "br0", "--names"), found)


def test_an_unresponsive_switch_delays_no_other(programs, tmp_path):
    path = tmp_path / "c"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        words = [*Authority(tmp_path / "pki").options("controller"), f"ssl:127.0.0.1:{silent.getsockname()[1]}", f"punix:{path}"]
        with Running(programs / "ovs-testcontroller", tmp_path / "run", words) as controller:
            until(path.exists, lambda: controller.log.read_text())
            # Its first messages arrive at once.
            switch = FakeSwitch(path, 1)
            assert switch.hello[1] == 0
            switch.close()
