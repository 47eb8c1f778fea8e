"""A VTEP gateway, driven by ovn-controller-vtep over a database of the schema hardware_vtep, and the packets that it exchanges."""

import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.layers.vxlan import VXLAN

import chaos
from databases import DatabaseServer
from logical import BROADCAST, add_switches, ip, mac, packet, send
from ovn import Process
from switch import TOP, run
from waiting import until

VTEP_ADDRESS = "192.168.0.101"
VTEP_MAC = "aa:bb:cc:00:01:01"
BEHIND = "00:00:00:00:0e:01"
SCHEMA = TOP / "crates/ovsdb/schemas/vtep.ovsschema"


class Vtep:
    """A VTEP's database, and ovn-controller-vtep."""

    def __init__(self, each, directory):
        self.each = each
        self.programs = each.maker or each.making.programs
        self.server = DatabaseServer(self.programs, each.making.peers, directory, [SCHEMA])
        databases = [f"--vtep-db={self.server.remote}", f"--ovnsb-db={each.central.server.remote}"]
        self.controller = Process(each.making.peers / "ovn-controller-vtep", databases, directory, self.server.environment)

    def ctl(self, *words):
        return self.each.chaos.change(words, self._ctl)

    def _ctl(self, *words):
        words = [self.programs / "vtep-ctl", "--timeout=60", f"--db={self.server.remote}", *words]
        return run(words, env=self.server.environment).out.rstrip("\n")

    def contents(self):
        """What the controller has written, in text without UUIDs."""
        lines = [self.ctl("list-remote-macs", "ls0"), self.ctl("list-local-macs", "ls0"), self.ctl("get", "Logical_Switch", "ls0", "tunnel_key")]
        return "\n".join(lines).splitlines()

    def start(self):
        self.server.start()
        self.ctl("add-ps", "br-vtep", "--", "set", "Physical_Switch", "br-vtep", f"tunnel_ips={VTEP_ADDRESS}")
        self.ctl("add-port", "br-vtep", "eth1", "--", "add-ls", "ls0", "--", "bind-ls", "br-vtep", "eth1", "100", "ls0")
        self.controller.start()
        # Daemons that may be killed.
        self.each.victims += [chaos.server("vtep-database", "br-vtep", self.server), chaos.process("vtep-controller", "br-vtep", self.controller)]

    def stop(self):
        wrong = self.controller.stop()
        self.server.stop()
        assert not wrong, "\n".join(wrong)


@pytest.fixture
def vtep(tmp_path_factory):
    made = []

    def make(each):
        made.append(Vtep(each, tmp_path_factory.mktemp("vtep")))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.stop()


def attach(each, gateway):
    """Attaches the VTEP's logical switch to s1."""
    until(lambda: "br-vtep" in each.sbctl("--bare", "--columns=name", "list", "Chassis").split(), "the chassis of the VTEP")
    words = ["lsp-add", "s1", "vt", "--", "lsp-set-type", "vt", "vtep", "--", "lsp-set-addresses", "vt", "unknown"]
    options = ["vtep-physical-switch=br-vtep", "vtep-logical-switch=ls0"]
    each.nbctl("--wait=hv", *words, "--", "lsp-set-options", "vt", *options)
    until(lambda: each.bindings()["vt"][1] == "br-vtep", "a bound port")
    until(lambda: "10.0.1.2" in gateway.ctl("list-remote-macs", "ls0") or mac("p12") in gateway.ctl("list-remote-macs", "ls0"), "addresses")
    each.central.sync()
    for chassis in each.chassis.values():
        chassis.configure("tnl/neigh/set", "br-phys", VTEP_ADDRESS, VTEP_MAC)


def tunnelled(frame):
    return VXLAN in frame


def from_vtep(each, inner, number=1):
    """The inner frame in a tunnel from the VTEP to a chassis."""
    key = int(each.vtep_key)
    outer = Ether(src=VTEP_MAC, dst=f"aa:bb:cc:00:00:0{number}") / IP(src=VTEP_ADDRESS, dst=f"192.168.0.{number}")
    return outer / UDP(sport=40000, dport=4789, chksum=0) / VXLAN(vni=key, flags=8) / inner


def test_a_vtep_gateway(compared, vtep):
    """The controller fills the VTEP's database; hosts of chassis and of the VTEP exchange frames in VXLAN tunnels."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        gateway = vtep(each)
        attach(each, gateway)
        each.add_external("v1", 0)
        each.vtep_key = gateway.ctl("get", "Logical_Switch", "ls0", "tunnel_key")
        gateway.ctl("add-ucast-local", "ls0", BEHIND, VTEP_ADDRESS)
        frame = Ether(src=mac("p11"), dst=BEHIND) / IP(src=ip("p11"), dst="10.0.1.101") / UDP(sport=5, dport=6)
        assert bytes(send(each, "p11", frame, "v1", tunnelled)[VXLAN].payload) == bytes(frame)
        back = Ether(src=BEHIND, dst=mac("p12")) / IP(src="10.0.1.101", dst=ip("p12")) / UDP(sport=6, dport=5)
        assert bytes(send(each, "v1", from_vtep(each, back, 2), "p12")) == bytes(back)
        # Broadcasts of hosts reach the VTEP, and its own reach the hosts of the chassis that gets them.
        request = Ether(src=mac("p12"), dst=BROADCAST) / ARP(hwsrc=mac("p12"), psrc=ip("p12"), pdst="10.0.1.101")
        send(each, "p12", request, "v1", lambda frame: VXLAN in frame and ARP in frame)
        asked = Ether(src=BEHIND, dst=BROADCAST) / ARP(hwsrc=BEHIND, psrc="10.0.1.101", pdst="10.0.1.77")
        send(each, "v1", from_vtep(each, asked), "p11", lambda frame: ARP in frame)
        send(each, "p11", packet("p11", "p12"), "p12", lambda frame: UDP in frame and frame[UDP].dport == 2000)
        each.remarks["VTEP"] = gateway.contents()
        # A port that leaves takes its addresses with it.
        each.nbctl("--wait=hv", "lsp-del", "p12")
        until(lambda: mac("p12") not in gateway.ctl("list-remote-macs", "ls0"), "the address of p12 gone")
        chassis = each.chassis["hv2"]
        chassis.switch.vsctl("del-port", chassis.vifs.pop("p12"))
        del each.places["p12"]
        each.remarks["VTEP later"] = gateway.contents()

    compared(scenario, encapsulation="geneve,vxlan")


def test_a_vtep_gateway_is_unbound(compared, vtep):
    """A VTEP's logical switch that is unbound leaves the gateway's chassis, and its controller exits without traces."""

    def scenario(each):
        add_switches(each, numbers=(1,))
        gateway = vtep(each)
        attach(each, gateway)
        switches = lambda: each.sbctl("--bare", "--columns=vtep_logical_switches", "find", "Chassis", "name=br-vtep").split()
        until(lambda: switches() == ["ls0"], "a logical switch")
        gateway.ctl("unbind-ls", "br-vtep", "eth1", "100")
        until(lambda: not switches(), "no logical switch")
        until(lambda: each.bindings()["vt"][1] is None, "an unbound port")
        gateway.ctl("bind-ls", "br-vtep", "eth1", "101", "ls0")
        until(lambda: each.bindings()["vt"][1] == "br-vtep", "a bound port")
        gateway.controller.exit()
        until(lambda: "br-vtep" not in each.sbctl("--bare", "--columns=name", "list", "Chassis").split(), "no chassis")
        each.remarks["VTEP"] = gateway.contents()

    compared(scenario, encapsulation="geneve,vxlan")
