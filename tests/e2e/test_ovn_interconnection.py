"""Two networks of OVN that ovn-ic joins by transit switches, over databases of both makers' servers."""

import pytest
from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import Ether

import chaos
from comparison import comparison
from databases import DatabaseServer
from logical import add_switches, ip6, join, packet, routed
from ovn import Process
from waiting import until

# The first tunnel key of transit switches.
GLOBAL_KEYS = 0xFF0000


class Zones:
    """Two networks with a chassis each, hv1 and hv2, in one underlay; the databases between them, and ovn-ic of each."""

    def __init__(self, network, making, maker, directory):
        self.networks = {"az1": network(maker), "az2": network(maker)}
        self.networks["az2"].share_underlay(self.networks["az1"])
        schemas = [making.peers.parent / f"usr/share/ovn/ovn-ic-{which}.ovsschema" for which in ("nb", "sb")]
        self.server = DatabaseServer(maker or making.programs, making.peers, directory, schemas)
        # Kills daemons between the steps of a scenario, these among them.
        self.chaos = None
        self.victims = [chaos.server("ic-database", "all zones", self.server)]
        self.daemons = []
        for name, network in self.networks.items():
            own = [f"--ovn{which}-db={network.central.server.remote}" for which in ("nb", "sb")]
            common = [f"--ic-{which}-db={self.server.remote}" for which in ("nb", "sb")]
            server = network.central.server
            self.daemons.append(Process(making.peers / "ovn-ic", [*own, *common], server.directory, server.environment))
            self.victims.append(chaos.process("ic", name, self.daemons[-1]))

    def start(self):
        self.server.start()
        for program in ("ovn-ic-nbctl", "ovn-ic-sbctl"):
            self.server.run(program, f"--db={self.server.remote}", "init")
        first, second = self.networks.values()
        first.start(chassis=1, ovn_is_interconn="true")
        second.central.start()
        second.add_chassis(2, ovn_is_interconn="true")
        one, other = first.chassis["hv1"], second.chassis["hv2"]
        one.configure("tnl/neigh/set", "br-phys", other.address, other.mac)
        other.configure("tnl/neigh/set", "br-phys", one.address, one.mac)
        for (name, network), daemon in zip(self.networks.items(), self.daemons):
            options = ["options:ic-route-adv=true", "options:ic-route-learn=true"]
            network.nbctl("set", "NB_Global", ".", f"name={name}", *options)
            daemon.start()
            until(lambda name=name: name in self.names("Availability_Zone"), f"the zone {name}")

    def names(self, table):
        words = ["--bare", "--columns=name", "list", table]
        return self.server.run("ovn-ic-sbctl", f"--db={self.server.remote}", *words).out.split()

    def nbctl(self, *words):
        return self.chaos.change(words, self._nbctl)

    def _nbctl(self, *words):
        return self.server.run("ovn-ic-nbctl", f"--db={self.server.remote}", *words).out.rstrip("\n")

    def sync(self):
        for network in self.networks.values():
            network.central.sync()

    def shown(self):
        found = {f"{title} in {name}": value for name, network in self.networks.items() for title, value in network.shown().items()}
        rows = self.server.contents("OVN_IC_Southbound", ("Availability_Zone", "Gateway", "Port_Binding", "Route", "Datapath_Binding"))
        # Rows name others by UUIDs, which `names` are instead.
        names = {uuid: row.get("name", row.get("transit_switch")) for table in rows.values() for uuid, row in table.items()}
        for table, contents in rows.items():
            found[f"rows of {table}"] = sorted(str(plain(row, names)) for row in contents.values())
        for name, network in self.networks.items():
            found[f"routes of {name}"] = sorted(routes(network).splitlines())
        return found

    def stop(self):
        wrong = [line for daemon in self.daemons for line in daemon.stop()]
        self.server.stop()
        assert not wrong, "\n".join(wrong)


def plain(row, names):
    """A row without UUIDs and times."""
    skipped = ("nb_ic_uuid", "encap", "encaps", "nb_ic_cfg", "external_ids")
    return {key: names.get(value[1], value) if isinstance(value, list) and value[0] == "uuid" else value for key, value in row.items() if key not in skipped}


@pytest.fixture
def joined(request, making, network, tmp_path_factory):
    """Runs a scenario on two joined networks of each maker, see `comparison`."""
    made = []

    def make(maker=None):
        made.append(Zones(network, making, maker, tmp_path_factory.mktemp("ic")))
        return made[-1]

    yield comparison(request.node, making.peers, make)
    for zones in made:
        zones.stop()


def connect(zones, ipv6=False):
    """Host p11 in the first network and p22 in the second, whose routers meet at the transit switch ts1."""
    # ovn-ic takes the next number when the server ends as it answers.
    with zones.chaos.sparing("ic-database"):
        zones.nbctl("ts-add", "ts1")
        for network in zones.networks.values():
            # The switch may have a number of its own network first, which the router then does not get.
            until(lambda network=network: has_global_key(network), "the transit switch")
    for number, network in enumerate(zones.networks.values(), 1):
        router = f"r{number}"
        add_switches(network, numbers=(number,), hosts=(number,), router=router, ipv6=ipv6)
        addresses = [f"169.254.100.{number}/24", *([f"fd00:100::{number}/64"] if ipv6 else [])]
        with zones.chaos.sparing("ic-database"):
            join(network, router, "ts1", f"00:00:00:00:fe:0{number}", *addresses)
            until(lambda number=number: len(ports(zones)) == number, "the port in the databases between the networks")
        network.nbctl("--wait=hv", "lrp-set-gateway-chassis", f"{router}-ts1", f"hv{number}")
    for number, network in enumerate(zones.networks.values(), 1):
        remote = lambda network=network: [row for row in network.bindings().values() if row[0] == "remote" and row[1]]
        until(remote, f"the port of the other network in az{number}")
        learned = lambda network=network, number=number: f"10.0.{3 - number}.0/24" in routes(network)
        until(learned, "a learned route")
    zones.sync()


def has_global_key(network):
    """Returns true if the only datapath of a network is the transit switch, with a number that both networks use."""
    return [int(key) >= GLOBAL_KEYS for (key,) in network.rows("Datapath_Binding", "tunnel_key")] == [True]


def routes(network):
    """The routes of a network's only router."""
    router = network.nbctl("--bare", "--columns=name", "list", "Logical_Router")
    return network.nbctl("lr-route-list", router)


def ports(zones):
    words = ["--bare", "--columns=logical_port", "list", "Port_Binding"]
    return zones.server.run("ovn-ic-sbctl", f"--db={zones.server.remote}", *words).out.split()


def between(zones, source, frame, port):
    """A frame of one network's host arrives at a host of the other network."""
    first, second = zones.networks.values()
    sender = first if source in first.places else second
    receiver = first if port in first.places else second
    before = len(receiver.sent(port))
    sender.receive(source, frame)
    until(lambda: len(receiver.sent(port)) > before, f"a frame at {port}")
    return Ether(receiver.sent(port)[-1])


def test_a_transit_switch(joined):
    """Hosts of two networks reach each other over routes that their routers have learned."""

    def scenario(zones):
        connect(zones)
        assert IP in between(zones, "p11", packet("p11", "p22"), "p22")
        assert between(zones, "p22", packet("p22", "p11"), "p11")[IP].ttl == 62

    joined(scenario)


def test_a_transit_switch_of_ipv6(joined):
    """Routes of both families are learned."""

    def scenario(zones):
        connect(zones, ipv6=True)
        first = zones.networks["az1"]
        until(lambda: "fd00:2::/64" in routes(first), "a learned route")
        until(lambda: "fd00:1::/64" in routes(zones.networks["az2"]), "a learned route")
        zones.sync()
        assert IPv6 in between(zones, "p11", routed("p11", ip6("p22")), "p22")

    joined(scenario)


def test_changes_of_routes(joined):
    """A network that is added is advertised, one that is filtered is not, and a transit switch that is deleted leaves no trace."""

    def scenario(zones):
        connect(zones)
        first, second = zones.networks.values()
        first.nbctl("lr-route-add", "r1", "10.0.77.0/24", "10.0.1.1")
        second.nbctl("set", "NB_Global", ".", "options:ic-route-denylist=10.0.88.0/24")
        first.nbctl("lr-route-add", "r1", "10.0.88.0/24", "10.0.1.1")
        first.nbctl("set", "NB_Global", ".", "options:ic-route-adv-default=true")
        until(lambda: "10.0.77.0/24" in routes(second), "the new route")
        zones.sync()
        between(zones, "p22", routed("p22", "10.0.77.5"), "p11")
        first.nbctl("lr-route-del", "r1", "10.0.77.0/24")
        until(lambda: "10.0.77.0/24" not in routes(second), "the route gone")
        zones.sync()

    joined(scenario)
