"""OVN with an emulated VTEP: ovn-controller-vtep joins ports of a physical switch to a logical switch of OVN. The same
with all of Open vSwitch's programs, compared."""

import signal

import pytest
from scapy.layers.l2 import Ether

import chaos
import pcap
from comparison import comparison
from ovn import Network, Process
from vteps import NAME, VtepHost, address, underlay_mac
from waiting import until

HOST = "02:00:00:00:05:01"
ALL = "ff:ff:ff:ff:ff:ff"
VTEP = 5


class Gateway:
    """A network of OVN with two chassis, and a VTEP host in its underlay."""

    def __init__(self, making, maker=None):
        self.network = Network(making, maker)
        self.networks = {"the network": self.network}
        self.chaos = None
        self.victims = []
        self.host = VtepHost(making, VTEP, maker)
        databases = [f"--vtep-db=unix:{self.host.switch.socket}", f"--ovnsb-db={self.network.central.server.remote}"]
        environment = dict(self.host.switch.environment)
        environment |= {f"OVN_{what}DIR": str(self.host.switch.directory) for what in ("RUN", "LOG", "DB", "SYSCONF")}
        program = making.peers / "ovn-controller-vtep"
        self.controller = Process(
            program, databases, self.host.switch.directory, environment, prefix=self.host.switch.inside([])
        )

    def start(self):
        self.network.start(encapsulation="vxlan")
        host, underlay = self.host, self.network.underlay
        host.start()
        socket = underlay.directory / "vtep.cable"
        words = ["add-port", "n1", "vtep", "--", "set", "interface", "vtep", f"options:pstream=punix:{socket}"]
        underlay.vsctl(*words, f"ofport_request={VTEP}")
        host.add_uplink(f"options:stream=unix:{socket}")
        self.settle_underlay()
        for chassis in self.network.chassis.values():
            chassis.configure("tnl/neigh/set", "br-phys", address(VTEP), underlay_mac(VTEP))
        host.emulator.start()
        self.controller.start()
        self.victims += [
            chaos.database_of("vtep-database", NAME, host.switch, host.start_database),
            chaos.switch_of("vtep-switch", NAME, host.switch, self.start_switch),
            chaos.Victim("emulator", NAME, host.switch.directory, host.emulator.lives, lambda: host.emulator.stop(signal.SIGKILL), host.emulator.start),
            chaos.process("vtep-controller", NAME, self.controller),
        ]
        return self

    def settle_underlay(self):
        self.host.settle_underlay(1, 2)

    def start_switch(self):
        """Starts the VTEP's switch again, behind a crash."""
        self.host.start_switch()
        shown = lambda: self.host.switch.peers.run("ovs-appctl", "--timeout=60", "fdb/show", "br-phys", check=False)
        until(lambda: shown().code == 0, lambda: f"br-phys: {shown()}")
        self.settle_underlay()

    def shown(self):
        """What the VTEP shows at the end of the scenario; what hosts have sent depends on how often they had to."""
        shown = self.host.shown()
        # The comparison leaves out local addresses, which may have expired.
        shown["rows"].pop("unicast Local")
        return shown

    def stop(self):
        wrong = self.controller.stop()
        log = self.host.emulator.log()
        wrong += [line for line in log.splitlines() if "panicked" in line or "|EMER|" in line or "Traceback" in line]
        self.host.emulator.stop()
        self.network.stop()
        assert not wrong, "\n".join(wrong)


@pytest.fixture
def gateways(request, making):
    """Runs a scenario on a network with a VTEP of each maker, see `comparison`."""
    made = []

    def make(maker=None):
        made.append(Gateway(making, maker))
        return made[-1]

    yield comparison(request.node, making.peers, make, attempts=1)
    for each in made:
        each.stop()


def scenario(gateway):
    """Frames between two chassis and the VTEP."""
    network, host = gateway.network, gateway.host
    network.nbctl("ls-add", "s0")
    macs = {}
    for number in (1, 2):
        port, macs[number] = f"p{number}", f"00:00:00:00:01:0{number}"
        network.nbctl("lsp-add", "s0", port, "--", "lsp-set-addresses", port, f"{macs[number]} 10.0.0.{number}")
        network.chassis[f"hv{number}"].add_vif(port)
    options = [f"vtep-physical-switch={NAME}", "vtep-logical-switch=v0"]
    network.nbctl("lsp-add", "s0", "gw", "--", "lsp-set-type", "gw", "vtep", "--", "lsp-set-options", "gw", *options,
                  "--", "lsp-set-addresses", "gw", "unknown")  # fmt: skip
    network.settle()
    until(lambda: host.vtep("list-ports", NAME).split() == ["p1", "p2"], "the ports of the physical switch")
    host.vtep("add-ls", "v0", "--", "bind-ls", NAME, "p1", "0", "v0")
    numbers = iter(range(1000))

    def goes(send, seen, header):
        """Sends frames until one of them is seen."""

        def attempt():
            payload = b"frame%08d" % next(numbers)
            send(header / (payload + bytes(40)))
            arrived = lambda: any(payload in frame for frame in seen())
            try:
                return until(arrived, "the frame", deadline_s=1.5)
            except AssertionError:
                return False

        until(attempt, lambda: f"{header.summary()} arrives")

    from_host = lambda frame: host.receive("p1", frame)
    at_host = lambda: pcap.packets(host.ports["p1"])
    for number in (1, 2):
        goes(from_host, lambda number=number: network.sent(f"p{number}"), Ether(src=HOST, dst=ALL))
        goes(from_host, lambda number=number: network.sent(f"p{number}"), Ether(src=HOST, dst=macs[number]))
        goes(lambda frame, number=number: network.receive(f"p{number}", frame), at_host, Ether(src=macs[number], dst=HOST))
        goes(lambda frame, number=number: network.receive(f"p{number}", frame), at_host, Ether(src=macs[number], dst=ALL))

    def learned():
        from_host(Ether(src=HOST, dst=ALL) / bytes(46))
        return host.local_macs() == [("v0", HOST)]

    until(learned, "the learned address", interval_s=0.3)
    # OVN reports the addresses of its ports.
    expected = [("v0", macs[number], address(number)) for number in (1, 2)]
    until(lambda: host.rows()["unicast Remote"] == expected, lambda: f"the addresses of OVN: {host.rows()}")
    until(lambda: all("enabled" in tunnel[3] for tunnel in host.rows()["tunnels"]), "the status of tunnels")


def test_ports_of_a_physical_switch_join_a_logical_switch(gateways):
    gateways(scenario)
