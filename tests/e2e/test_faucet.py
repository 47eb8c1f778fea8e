"""Faucet, unmodified: two VLANs with a route between them, access lists, and a restart without an interruption of
traffic."""

import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from hosts import TaggingHost, finish
from osken import PORT, Program
from test_hosts import connect, tcp_transfer
from waiting import until

OFFICE, GUEST = 100, 200
# Fewer flows than it ever sets for this configuration.
FLOWS_MIN = 20
# The addresses of TaggingHost for these VLANs.
NETWORKS = {OFFICE: "10.102.0", GUEST: "10.202.0"}
CONFIGURATION = """
    vlans:
        office:
            vid: 100
            faucet_mac: "0e:00:00:00:10:01"
            faucet_vips: ["10.102.0.254/24"]
        guest:
            vid: 200
            faucet_mac: "0e:00:00:00:20:01"
            faucet_vips: ["10.202.0.254/24"]
    routers:
        between:
            vlans: [office, guest]
    acls:
        no-web-to-guests:
            - rule:
                dl_type: 0x800
                nw_proto: 6
                tcp_dst: 8080
                ipv4_dst: 10.202.0.0/24
                actions: {allow: 0}
            - rule:
                dl_type: 0x800
                nw_proto: 1
                icmpv4_type: 8
                ipv4_dst: 10.102.0.2
                actions: {allow: 0}
            - rule:
                actions: {allow: 1}
    dps:
        sw1:
            dp_id: 1
            hardware: "Open vSwitch"
            interfaces:
                1: {native_vlan: office, acls_in: [no-web-to-guests]}
                2: {native_vlan: office}
                3: {native_vlan: guest}
                4: {tagged_vlans: [office, guest]}
"""


class Faucet(Program):
    """The controller with a configuration, its files beside those of the switch."""

    def __init__(self, switch, configuration):
        directory = switch.directory
        (directory / "faucet.yaml").write_text(textwrap.dedent(configuration))
        words = [Path(sys.executable).parent / "faucet", "--ryu-config-file", directory / "none.conf"]
        words += ["--ryu-ofp-listen-host", "127.0.0.1", "--ryu-ofp-tcp-listen-port", PORT, "--use-stderr"]
        super().__init__(
            switch,
            words,
            name="faucet",
            environment={
                "FAUCET_CONFIG": str(directory / "faucet.yaml"),
                "FAUCET_LOG": str(directory / "faucet-own.log"),
                "FAUCET_EXCEPTION_LOG": str(directory / "faucet-exceptions.log"),
                "FAUCET_PROMETHEUS_ADDR": "127.0.0.1",
            },
        )

    def own_log(self):
        """Its log about the switches."""
        path = self.switch.directory / "faucet-own.log"
        return path.read_text() if path.exists() else ""

    def errors(self):
        """Its exceptions, and errors sent by the switch."""
        exceptions = self.switch.directory / "faucet-exceptions.log"
        text = self.own_log() + self.log() + (exceptions.read_text() if exceptions.exists() else "")
        # Faucet logs "DP not up" as an error if a connection ended before Faucet handled its begin. The switch
        # connects again then, and the flows show whether Faucet configured it.
        return [
            line
            for line in text.splitlines()
            if re.search(r"Traceback|OFPError|ERROR|exception", line) and "send_flow_msgs: DP not up" not in line
        ]


def settle(host, address):
    """Adds an address in one of the networks and a route to the other through Faucet."""
    host.run("ip", "addr", "flush", "dev", "e0")
    host.run("ip", "addr", "add", f"{address}/24", "dev", "e0")
    host.run("ip", "route", "add", "default", "via", f"{address.rsplit('.', 1)[0]}.254")
    host.address = address


@pytest.fixture
def network(making):
    """Two hosts in the office, one guest, and a host with a tagged cable in both; the configured controller program,
    not yet started."""
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number) for number in (1, 2, 3)]
    tagged = making.host(switch, 4, kind=TaggingHost)
    connect(switch, *hosts, tagged)
    switch.vsctl(
        *["set", "bridge", "br0", "protocols=OpenFlow13", "fail-mode=secure"],
        *["other-config:datapath-id=0000000000000001", "other-config:disable-in-band=true"],
    )
    for host, vlan in zip(hosts, (OFFICE, OFFICE, GUEST)):
        settle(host, f"{NETWORKS[vlan]}.{host.number}")
    with Faucet(switch, CONFIGURATION) as faucet:
        faucet.control("br0")
        until(
            lambda: len(switch.flows("br0", "-OOpenFlow13")) > FLOWS_MIN, lambda: f"Faucet's flows\n{faucet.log()}"
        )
        yield switch, hosts, tagged, faucet


def test_two_vlans_with_a_route(network):
    switch, (one, two, guest), tagged, faucet = network
    # Within a VLAN, untagged and tagged.
    two.ping(one.address)
    in_office, in_guest = tagged.add_vlan(OFFICE), tagged.add_vlan(GUEST)
    assert (in_office, in_guest) == ("10.102.0.4", "10.202.0.4")
    two.ping(in_office)
    guest.ping(in_guest)
    # The routers' own addresses, then through them.
    one.ping("10.102.0.254")
    guest.ping("10.202.0.254")
    assert "ttl=63" in one.ping(guest.address).out
    assert "ttl=63" in guest.ping(two.address).out
    tcp_transfer(two, guest, guest.address, 1_000_000)
    # The access list: not in this direction; the other direction, other ports and other hosts pass.
    one.cannot_ping(two.address)
    tcp_transfer(one, two, two.address, 100_000)
    server = guest.start_python("transfer.py", "tcp-sink", guest.address, 8080)
    refused = one.run(
        sys.executable, "-c", f"import socket; socket.create_connection(('{guest.address}', 8080), 3)", check=False
    )
    assert refused.code != 0 and "timed out" in refused.err, str(refused)
    two.run(sys.executable, "-c", f"import socket; socket.create_connection(('{guest.address}', 8080), 60)")
    finish(server)
    tcp_transfer(one, guest, guest.address, 100_000)
    assert not faucet.errors(), "\n".join(faucet.errors())


def losses(ping):
    """Ends a running ping and returns the numbers of unanswered requests, without the last, which may be in transit."""
    ping.send_signal(signal.SIGINT)
    text = finish(ping, check=False).out
    sent = int(re.search(r"(\d+) packets transmitted", text).group(1))
    answered = {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", text)}
    return sorted(set(range(1, sent)) - answered)


def test_restart_of_the_controller(network):
    """Established connections continue without a loss while the controller is disconnected. When it reconnects it
    deletes all flows and sets them again, which costs a packet or two on any switch; connections survive that."""
    switch, (one, two, guest), _, faucet = network
    one.ping(guest.address)
    two.ping(one.address)
    guest.ping(two.address)
    echo = guest.start_python("transfer.py", "tcp-echo", guest.address, 6000)
    steady = two.start_python("transfer.py", "tcp-steady", guest.address, 6000, stdin=subprocess.PIPE)

    def pings(*words):
        return [two.start("ping", "-n", "-i", "0.05", *words, each.address) for each in (one, guest)]

    faucet.kill()
    until(lambda: switch.vsctl("get", "controller", "br0", "is_connected") == "false", "the connection lost")
    # Long enough for all state that depends on the controller to expire.
    for ping in pings("-c", "80"):
        assert " 0% packet loss" in finish(ping, check=False).out
    running = pings()
    faucet.start()
    faucet.wait_connected("br0")
    until(lambda: faucet.own_log().count("Cold start configuring DP") == 2, "all flows set anew")
    until(lambda: len(switch.flows("br0", "-OOpenFlow13")) > FLOWS_MIN, "Faucet's flows")
    one.ping(guest.address)
    guest.ping(two.address)
    two.ping(one.address)
    two.ping(guest.address)
    # The number of losses while there are no flows depends on the machine's speed.
    for ping in running:
        print(f"pings lost under the restart: {losses(ping)}")
    assert int(finish(steady).out.split()[0]) > 0
    finish(echo)
    assert not faucet.errors(), "\n".join(faucet.errors())
