"""OVN over our databases and switches while daemons are killed at random moments: the network becomes what it is without that, and
nothing that was committed is lost. FLOWSTONE_CHAOS_SEEDS=4,5,6 gives other seeds, separated by commas."""

import os
import random
import re
import threading
import time

import pytest
from logical import arrives, ip, mac, packet, routed, send
from ovn import Network
from scapy.layers.inet import IP, UDP
from shown import difference
from waiting import until

SEEDS = [int(seed) for seed in os.environ.get("FLOWSTONE_CHAOS_SEEDS", "1,2,3").split(",")]
KILLS = 8
HOSTS = ("hv1", "hv2")
VIP = "10.0.9.9"


def changes():
    """The commands that make the network, each of which may be repeated: numbers of tunnels are requested, as others would depend on
    how northd's transactions met."""
    keyed = lambda table, name, column, key: ["--", "set", table, name, f"{column}:requested-tnl-key={key}"]
    made = [["--may-exist", "lr-add", "r0", *keyed("Logical_Router", "r0", "options", 9)]]
    for number in (1, 2):
        switch, own, peer = f"s{number}", f"s{number}-r0", f"r0-s{number}"
        made.append(["--may-exist", "ls-add", switch, *keyed("Logical_Switch", switch, "other_config", number)])
        made.append(
            ["--may-exist", "lrp-add", "r0", peer, f"00:00:00:00:ff:0{number}", f"10.0.{number}.254/24"]
            + keyed("Logical_Router_Port", peer, "options", number)
        )
        words = ["--may-exist", "lsp-add", switch, own, "--", "lsp-set-type", own, "router", "--", "lsp-set-addresses", own, "router"]
        words += ["--", "lsp-set-options", own, f"router-port={peer}"]
        made.append([*words, *keyed("Logical_Switch_Port", own, "options", 9)])
        for host in (1, 2, 3, 4):
            port = f"p{number}{host}"
            words = ["--may-exist", "lsp-add", switch, port, "--", "lsp-set-addresses", port, f"{mac(port)} {ip(port)}"]
            made.append([*words, *keyed("Logical_Switch_Port", port, "options", host)])
    made.append(["--may-exist", "acl-add", "s2", "to-lport", "1000", 'outport == "p21" && udp.dst == 7', "drop"])
    made.append(["--may-exist", "acl-add", "s2", "to-lport", "900", 'outport == "p21" && ip4', "allow-related"])
    made.append(["--may-exist", "acl-add", "s1", "from-lport", "1000", 'inport == "p11" && ip4', "allow-related"])
    made.append(["--may-exist", "lb-add", "lb0", f"{VIP}:53", "10.0.2.1:53", "udp"])
    made.append(["--may-exist", "ls-lb-add", "s1", "lb0"])
    return made


# The device of each logical port.
PLACES = {f"p{number}{host}": HOSTS[host % 2] for number in (1, 2) for host in (1, 2, 3, 4)}


class Shaker:
    """Kills a daemon again and again at random moments, and starts it again."""

    def __init__(self, each, rng):
        self.each, self.rng = each, rng
        self.killed = []
        self.over = threading.Event()
        self.wrong = None
        self.thread = threading.Thread(target=self._run)

    def _run(self):
        try:
            while len(self.killed) < KILLS and not self.over.wait(self.rng.uniform(0, 0.4)):
                victim = self.rng.choice([name for name in dir(self) if name.startswith("kill_")])
                self.killed.append(getattr(self, victim)())
        except BaseException as error:
            self.wrong = error

    def _chassis(self):
        return self.each.chassis[self.rng.choice(HOSTS)]

    def _pause(self):
        time.sleep(self.rng.uniform(0, 0.3))

    def kill_switch(self):
        chassis = self._chassis()
        chassis.switch.kill("ovs-vswitchd")
        self._pause()
        chassis.start_switch()
        return f"switch of {chassis.name}"

    def kill_database_of_switch(self):
        chassis = self._chassis()
        chassis.switch.kill("ovsdb-server")
        self._pause()
        chassis.switch.start_database()
        return f"database of {chassis.name}"

    def kill_controller(self):
        chassis = self._chassis()
        chassis.controller.kill()
        self._pause()
        chassis.controller.start()
        return f"controller of {chassis.name}"

    def kill_central(self):
        self.each.central.server.kill()
        self._pause()
        self.each.central.server.start()
        return "databases of the central"

    def kill_northd(self):
        self.each.central.northd.kill()
        self._pause()
        self.each.central.northd.start()
        return "northd"


def again(command):
    """Repeats a command until it succeeds: its server may be gone for a moment."""
    said = []
    succeeds = lambda: said.append(command(check=False)) or said[-1].code == 0
    until(succeeds, lambda: f"a command that succeeds: {said[-1]}", interval_s=0.1)


def make(each, rng):
    """Makes the network: ports are plugged in at random moments."""
    made, ports = changes(), list(PLACES)
    rng.shuffle(ports)
    at = {port: rng.randrange(len(made)) for port in ports}
    for number, words in enumerate(made):
        # It may wait for ever when its server is killed as it begins, of either maker.
        again(lambda words=words, **how: each.central.run("ovn-nbctl", "--timeout=10", *words, **how))
        for port in ports:
            if at[port] == number:
                again(lambda port=port, **how: each.chassis[PLACES[port]].plug({port: int(port[1:])}, **how))


def shown(each):
    """What the network shows, without the numbers of tunnels' ports, which depend on how often they were made."""
    found = each.shown()
    for title, lines in found.items():
        if title.startswith("flows"):
            lines[:] = sorted(re.sub(r"(output:|in_port=)\d{1,2}\b", r"\1TUNNEL", line) for line in lines)
    return {title: value for title, value in found.items() if title.startswith(("flows", "bindings"))}


@pytest.fixture(scope="module")
def undisturbed(module_making):
    """What the network shows without kills."""
    each = Network(module_making)
    each.start()
    make(each, random.Random(0))
    each.settle()
    yield shown(each)
    each.stop()


@pytest.mark.parametrize("seed", SEEDS)
def test_kills(network, undisturbed, seed):
    rng = random.Random(seed)
    each = network()
    each.start()
    shaker = Shaker(each, rng)
    shaker.thread.start()
    try:
        make(each, random.Random(seed))
    finally:
        shaker.thread.join(timeout=120)
        shaker.over.set()
        assert shaker.wrong is None, shaker.wrong
    print(f"seed {seed}: {', '.join(shaker.killed)}")
    each.settle()
    # A controller may confirm a change while it still gives a switch that it has found again its flows.
    differs = lambda: difference(shown(each), undisturbed)
    until(lambda: not differs(), lambda: f"after the kills of {shaker.killed}, the network without kills:\n{differs()}")
    # Packets pass as they should.
    send(each, "p12", packet("p12", "p11", UDP(sport=5, dport=6)), "p11")
    blocked, allowed = (packet("p11", "p21", UDP(sport=5, dport=port)) for port in (7, 8))
    each.receive("p11", blocked, allowed)
    found = lambda: [frame for frame in map(IP, (raw[14:] for raw in each.sent("p21"))) if UDP in frame]
    until(found, "a packet at p21")
    assert [frame[UDP].dport for frame in found()] == [8]
    each.receive("p12", routed("p12", VIP, UDP(sport=9, dport=53)))
    until(lambda: len(found()) == 2, "the balanced packet at p21")
    assert found()[-1].dst == ip("p21") and arrives(each, "p11")
