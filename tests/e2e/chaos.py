"""Scenarios of OVN on Flowstone's daemons, of which some are killed at random moments between the steps.

Steps are the changes of the northbound database and the packets that hosts send. The harness starts each killed daemon again. After a
change the scenario continues at once; before a packet the harness waits until the network has converged, as any switch loses packets
while it is not running. At the end the network shows what it shows without kills, except for state that a restart does not preserve.

FLOWSTONE_OVN_CHAOS=1,2 has all scenarios run with kills of these seeds in place of the comparison; without it, a few of them, always the
same ones, run with kills behind it, and none with FLOWSTONE_OVN_CHAOS=0.
"""

import os
import random
import re
import time
import zlib

from shown import difference
from waiting import until

KILLS = 4
# With kills behind a comparison: one scenario of so many, and fewer kills.
ONE_OF, FEW_KILLS, SEED = 50, 2, 1
PAUSE_S = 0.3
# Daemons by the names that the marker `spares` uses.
KINDS = ("northd", "central", "switch", "database", "controller")
# Prefixes of the parts of `Network.shown` that are not compared: earlier frames and connections, and warnings.
LOST = ("frames", "connections", "complaints")


def seeds():
    """The seeds that the environment names, or None."""
    text = os.environ.get("FLOWSTONE_OVN_CHAOS")
    return None if text is None else [int(word) for word in text.split(",") if word not in ("", "0")]


def sampled(name):
    """Returns the seed if the test is one of the few."""
    return SEED if seeds() is None and zlib.crc32(f"{SEED} {name}".encode()) % ONE_OF == 0 else None


class Chaos:
    """Counts the steps of a scenario, and kills a daemon at some of them."""

    def __init__(self, each, kills=(), rng=None, spared=()):
        self.each = each
        self.kills = set(kills)
        self.rng = rng
        self.spared = spared
        self.steps = 0
        self.killed = []
        self.busy = False
        # What has to come back before the next packet: the state of a moment ago.
        self.missing = None
        each.chaos = each.central.chaos = self

    def change(self, words, command):
        """A change of the northbound database by ovn-nbctl. The kill comes between the commit and its effects."""
        if not self._is_due():
            return command(*words)
        with self:
            before = self._lasting()
            waits = [word for word in words if str(word).startswith("--wait=")]
            rest = [word for word in words if word not in waits]
            text = "" if rest == ["sync"] else command(*rest)
            time.sleep(self.rng.choice((0, self.rng.uniform(0, 0.1))))
            if self._kill(f"behind {' '.join(map(str, words))[:80]}"):
                self.missing = before if self.missing is None else self.missing
            if waits:
                command(*waits, "sync")
            return text

    def packet(self):
        """A host is about to send a packet."""
        due = self._is_due()
        if self.busy or not (due or self.missing is not None):
            return
        with self:
            # Without a daemon that the scenario has ended, changes are not confirmed.
            if self.missing is not None and self._all_run():
                self._converge()
                self.missing = None
            if due and self._all_run():
                self._quiet()
                self._converge()
                before = self._state()
                if self._kill("before a packet"):
                    self._converge()
                    now = []
                    same = lambda: now.append(self._state()) or now[-1] == before
                    until(same, lambda: f"{self}: the network of before:\n{difference(now[-1], before)}", interval_s=0.2)

    def __str__(self):
        return f"kills of {'; '.join(self.killed)}"

    def __enter__(self):
        self.busy = True

    def __exit__(self, *_):
        self.busy = False

    def _is_due(self):
        if self.busy:
            return False
        self.steps += 1
        return self.steps in self.kills

    # Victims.

    def _all_run(self):
        """Returns false if the scenario has ended or paused a daemon itself: what works without it may not without a second one."""
        central, chassis = self.each.central, self.each.chassis.values()
        if not (central.server.process and central.northd.process and all(one.controller.process for one in chassis)):
            return False
        if not all(one.switch.runs() and one.switch.runs("ovsdb-server") for one in chassis):
            return False
        return "active" in central.northd.control_command("status")

    def _kill(self, when):
        """Kills a daemon and starts it again. Returns false if none may be killed now."""
        if not self._all_run():
            return False
        victims = [("northd", None), ("central", None)]
        for name, one in self.each.chassis.items():
            victims.append(("database", name))
            # Flows that packets have created (`learn`) are lost when the switch restarts, and a starting controller removes them.
            if not any("_timeout=" in flow for flow in one.flows()):
                victims.append(("controller", name))
                # Tracked connections are lost with the switch, too.
                if not self.each.connections(name):
                    victims.append(("switch", name))
        victims = [victim for victim in victims if victim[0] not in self.spared]
        if not victims:
            return False
        # Each kind is as probable as another one.
        kind = self.rng.choice(sorted({victim[0] for victim in victims}))
        victim = self.rng.choice([victim for victim in victims if victim[0] == kind])
        self.killed.append(f"{kind} of {victim[1] or 'the network'} at step {self.steps} {when}")
        central, one = self.each.central, self.each.chassis.get(victim[1])
        pause = lambda: time.sleep(self.rng.choice((0, self.rng.uniform(0, PAUSE_S))))
        match kind:
            case "northd":
                central.northd.kill()
                pause()
                central.northd.start()
                central.northd.await_control()
            case "central":
                central.server.kill()
                pause()
                central.server.start(*central.server.words)
            case "switch":
                one.switch.kill("ovs-vswitchd")
                pause()
                one.start_switch()
                self._release(one)
            case "database":
                one.switch.kill("ovsdb-server")
                pause()
                one.switch.start_database()
            case "controller":
                one.controller.kill()
                pause()
                one.controller.start()
                one.controller.await_control()
        return True

    def _release(self, one):
        """Has a switch forward that waits for its flows, when it has them. ovn-controller has it wait as soon as tunnels have BFD, and
        leaves it to the one that starts a switch to end that, as ovs-ctl does; otherwise chassis with Open vSwitch stay silent, too."""
        (row,) = one.switch.rows(Open_vSwitch=("other_config",))["Open_vSwitch"]
        if dict(row["other_config"][1]).get("flow-restore-wait") == "true":
            self._await_flows(one)
            one.switch.vsctl("remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait")

    # Convergence.

    def _await_flows(self, one):
        """A controller may confirm a change before it gives a switch that has started again its flows, all of them in one bundle."""
        until(lambda: len(one.switch.flows("br-int")) > 1, lambda: f"{self}: flows of {one.name}", interval_s=0.2)

    def _quiet(self):
        """Waits a moment until no frame is on its way any more."""
        ports = [*self.each.places, *self.each.externals]
        counts = lambda: [len(self.each.sent(port)) for port in ports]
        last, since, end = counts(), time.monotonic(), time.monotonic() + 3
        while time.monotonic() < min(since + 0.2, end):
            time.sleep(0.05)
            if (now := counts()) != last:
                last, since = now, time.monotonic()

    def _converge(self):
        """Waits until all daemons have found each other, and what was there before a kill is there again."""
        for one in self.each.chassis.values():
            one.await_cable()
            # The switch follows its database.
            one.switch.vsctl("set", "Open_vSwitch", ".", f"external_ids:chaos={self.steps}")
            self._await_flows(one)
        self.each.central.sync()
        if self.missing:
            lost = lambda: {key: value for key, value in self.missing.items() if self._lasting().get(key, value) != value}
            until(lambda: not lost(), lambda: f"{self}: what was there before: {lost()}, not {self._lasting()}", interval_s=0.2)
            self.each.central.sync()

    def _lasting(self):
        """The ports that are up, and the BFD sessions of tunnels: what comes back behind a kill, whatever the scenario changes meanwhile."""
        found = {}
        if not self._all_run():
            return found
        for port, (_, _, up, _) in self.each.bindings().items():
            if up == "true":
                found[f"port {port}"] = up
        for name, one in self.each.chassis.items():
            for row in one.switch.rows(Interface=("name", "bfd_status"))["Interface"]:
                if dict(row["bfd_status"][1]).get("state") == "up":
                    found[f"BFD of {row['name']} at {name}"] = "up"
        return found

    def _state(self):
        """What packets depend on."""
        found = {"bindings": self.each.bindings(), "lasting": self._lasting()}
        for name, one in self.each.chassis.items():
            found[f"flows of {name}"] = permanent(one.flows())
        return found


def permanent(flows):
    """Flows without those that packets make, and without the numbers of tunnels, which a controller counts on when it makes them anew."""
    return sorted(re.sub(r"load:0x[0-9a-f]+->NXM_NX_REG5", "load:TUNNEL->NXM_NX_REG5", flow) for flow in flows if "_timeout=" not in flow)


def lasting(shown):
    """What a network shows without all that a restart changes."""
    found = {title: value for title, value in shown.items() if not title.startswith(LOST)}
    for title, value in found.items():
        if title.startswith("flows"):
            found[title] = permanent(value)
    return found


def run(make, scenario, settings, seed, undisturbed, steps, kills=KILLS, spared=()):
    """Runs a scenario of so many steps with kills, and compares what it shows with what it shows undisturbed."""
    rng = random.Random(seed)
    each = make()
    chaos = Chaos(each, rng.sample(range(1, steps + 1), min(kills, steps)), rng, spared)
    try:
        with chaos:
            each.start(**settings)
        scenario(each)
        with chaos:
            chaos._converge()
            each.ends_daemons = True
            wanted, now = lasting(undisturbed), []
            same = lambda: now.append(lasting(each.shown())) or not difference(now[-1], wanted)
            until(same, lambda: f"the network without kills:\n{difference(now[-1], wanted)}", interval_s=0.5)
    except BaseException as error:
        logs = {name: str(one.switch.directory) for name, one in each.chassis.items()} | {"central": str(each.central.server.directory)}
        error.add_note(f"seed {seed}: {chaos}; logs in {logs}")
        raise
    print(f"seed {seed}: {chaos}")
