"""Scenarios of OVN on Flowstone's daemons with kills of daemons at random moments between the steps.

Steps are changes of a database by a program, and packets that hosts send. The harness starts each killed daemon again. After a
change the scenario continues at once; before a packet the harness waits until the network has converged, as any switch loses packets
while it is not running. At the end the network shows what it shows without kills, except for state that a restart does not preserve.

FLOWSTONE_OVN_CHAOS=1,2 has all scenarios run with kills of these seeds in place of the comparison; without it, a few of them, always the
same ones, run with kills behind it, and none with FLOWSTONE_OVN_CHAOS=0. FLOWSTONE_OVN_VICTIMS=ic,relay kills daemons of these kinds only.
"""

import contextlib
import os
import random
import re
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from shown import difference
from waiting import until

KILLS = 4
# With kills behind a comparison: one scenario of so many, and fewer kills.
ONE_OF, FEW_KILLS, SEED = 50, 2, 1
PAUSE_S = 0.3
# Commands that only read, and so are no steps: scenarios repeat them while they wait.
READS = re.compile(r"(get|list|find|show)|[a-z0-9-]*-(list|get[a-z-]*)|list-[a-z-]*")
# Prefixes of the parts of `Network.shown` that are not compared: earlier frames and connections, and warnings.
LOST = ("frames", "connections", "complaints")


def seeds():
    """The seeds that the environment names, or None."""
    text = os.environ.get("FLOWSTONE_OVN_CHAOS")
    return None if text is None else [int(word) for word in text.split(",") if word not in ("", "0")]


def chosen(kind):
    """Returns true if the environment does not limit the kinds of daemons to others."""
    text = os.environ.get("FLOWSTONE_OVN_VICTIMS")
    return not text or kind in text.split(",")


def sampled(name):
    """Returns the seed if the test is one of the few."""
    return SEED if seeds() is None and zlib.crc32(f"{SEED} {name}".encode()) % ONE_OF == 0 else None


@dataclass
class Victim:
    """A daemon that may be killed, and how to start it again."""

    kind: str
    name: str
    directory: Path
    runs: Callable
    kill: Callable
    start: Callable

    def __str__(self):
        return f"{self.kind} of {self.name}"


def process(kind, name, one):
    """One of OVN's daemons (`ovn.Process`)."""

    def start():
        one.start()
        one.await_control()

    return Victim(kind, name, one.log.parent, lambda: one.process, one.kill, start)


def server(kind, name, one):
    """A database server (`DatabaseServer`)."""
    return Victim(kind, name, one.directory, lambda: one.process, one.kill, lambda: one.start(*one.words))


def database_of(kind, name, switch, start):
    """The database server of a switch."""
    return Victim(kind, name, switch.directory, lambda: switch.runs("ovsdb-server"), lambda: switch.kill("ovsdb-server"), start)


def switch_of(kind, name, switch, start):
    """The daemon of a switch."""
    return Victim(kind, name, switch.directory, switch.runs, lambda: switch.kill("ovs-vswitchd"), start)


class Chaos:
    """Counts the steps of a scenario, and kills a daemon at some of them. A scenario may consist of several networks."""

    def __init__(self, each, kills=(), rng=None):
        self.each = each
        self.networks = each.networks
        self.kills = set(kills)
        self.rng = rng
        # The kinds of daemons that are not killed now.
        self.spared = ()
        self.steps = 0
        self.killed = []
        self.busy = False
        # What has to come back before the next packet: the state of a moment ago.
        self.missing = None
        each.chaos = self
        for network in self.networks.values():
            network.chaos = network.central.chaos = self

    def change(self, words, command):
        """A change of a database, as of the northbound one by ovn-nbctl. The kill comes between the commit and its effects."""
        name = next((str(word) for word in words if not str(word).startswith("-")), "")
        if READS.fullmatch(name) or not self._is_due():
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
            if self.missing is not None and not self._all_run():
                self._await_switches()
            elif self.missing is not None:
                self._converge()
                self.missing = None
            if due and self._all_run():
                self._quiet()
                self._converge()
                # A controller gives a switch that restarts only the flows that it computes now, and none that earlier changes left behind.
                for network in self.networks.values():
                    network.recompute()
                self._refresh()
                before = self._state()
                if self._kill("before a packet"):
                    self._converge()
                    now = []
                    same = lambda: self._refresh() or now.append(self._state()) or now[-1] == before
                    until(same, lambda: f"{self}: the network of before:\n{difference(now[-1], before)}", interval_s=0.2)

    def _refresh(self):
        for network in self.networks.values():
            network.refresh()

    @contextlib.contextmanager
    def burst(self):
        """Counts several packets as one step, with a kill before the first of them at most."""
        self.packet()
        was, self.busy = self.busy, True
        try:
            yield
        finally:
            self.busy = was

    def spare(self, *kinds):
        """Kills no daemons of these kinds from now on."""
        self.spared = (*self.spared, *kinds)

    @contextlib.contextmanager
    def sparing(self, *kinds):
        """Kills no daemons of these kinds in this context."""
        was = self.spared
        self.spare(*kinds)
        try:
            yield
        finally:
            self.spared = was

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

    def _chassis(self):
        return {name: one for network in self.networks.values() for name, one in network.chassis.items()}

    def _all_run(self):
        """Returns false if the scenario has ended or paused a daemon itself: what works without it may not without a second one."""
        if not all(victim.runs() for victim in self._victims()):
            return False
        return all("active" in network.central.northd.control_command("status") for network in self.networks.values())

    def _victims(self):
        """All daemons."""
        found = self._further()
        for name, network in self.networks.items():
            found += [process("northd", name, network.central.northd), server("central", name, network.central.server)]
        for name, one in self._chassis().items():
            found.append(database_of("database", name, one.switch, one.switch.start_database))
            found.append(process("controller", name, one.controller))
            found.append(switch_of("switch", name, one.switch, lambda one=one: (one.start_switch(), self._release(one))))
        return found

    def _further(self):
        """The daemons that the scenario has added."""
        return [victim for part in dict.fromkeys((self.each, *self.networks.values())) for victim in part.victims]

    def _preserves(self, victim):
        """Returns false if the daemon has state of the scenario that a restart does not preserve."""
        if victim.kind not in ("controller", "switch"):
            return True
        one = self._chassis()[victim.name]
        # Flows that packets have created (`learn`) are lost when the switch restarts, and a starting controller removes them.
        if any("_timeout=" in flow for flow in one.flows()):
            return False
        # Tracked connections are lost with the switch, too.
        return victim.kind == "controller" or not one.network.connections(victim.name)

    def _kill(self, when):
        """Kills a daemon and starts it again. Returns false if none may be killed now."""
        if not self._all_run():
            return False
        allowed = lambda victim: chosen(victim.kind) and victim.kind not in self.spared
        victims = [victim for victim in self._victims() if allowed(victim) and self._preserves(victim)]
        if not victims:
            return False
        # Each kind is as probable as another one.
        kind = self.rng.choice(sorted({victim.kind for victim in victims}))
        victim = self.rng.choice([victim for victim in victims if victim.kind == kind])
        self.killed.append(f"{victim} at step {self.steps} {when}")
        victim.kill()
        time.sleep(self.rng.choice((0, self.rng.uniform(0, PAUSE_S))))
        victim.start()
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

    def _await_switches(self):
        """Waits until the switches that run have cables and, from a controller that runs, flows."""
        for one in self._chassis().values():
            if one.switch.runs():
                one.await_cable()
                if one.controller.process:
                    self._await_flows(one)

    def _quiet(self):
        """Waits a moment until no frame is on its way any more."""
        counts = lambda: [len(network.sent(port)) for network in self.networks.values() for port in (*network.places, *network.externals)]
        last, since, end = counts(), time.monotonic(), time.monotonic() + 3
        while time.monotonic() < min(since + 0.2, end):
            time.sleep(0.05)
            if (now := counts()) != last:
                last, since = now, time.monotonic()

    def _converge(self):
        """Waits until all daemons have found each other, and what was there before a kill is there again."""
        for one in self._chassis().values():
            one.await_cable()
            # The switch follows its database.
            one.switch.vsctl("set", "Open_vSwitch", ".", f"external_ids:chaos={self.steps}")
            self._await_flows(one)
        self._sync()
        if self.missing:
            lost = lambda: {key: value for key, value in self.missing.items() if self._lasting().get(key, value) != value}
            until(lambda: not lost(), lambda: f"{self}: what was there before: {lost()}, not {self._lasting()}", interval_s=0.2)
            self._sync()

    def _sync(self):
        for network in self.networks.values():
            network.central.sync()

    def _lasting(self):
        """The ports that are up, and the BFD sessions of tunnels: what comes back behind a kill, whatever the scenario changes meanwhile."""
        found = {}
        if not self._all_run():
            return found
        for where, network in self.networks.items():
            for port, (_, _, up, _) in network.bindings().items():
                if up == "true":
                    found[f"port {port} of {where}"] = up
        for name, one in self._chassis().items():
            for row in one.switch.rows(Interface=("name", "bfd_status"))["Interface"]:
                if dict(row["bfd_status"][1]).get("state") == "up":
                    found[f"BFD of {row['name']} at {name}"] = "up"
        return found

    def _state(self):
        """What packets depend on."""
        found = {f"bindings of {name}": network.bindings() for name, network in self.networks.items()} | {"lasting": self._lasting()}
        for name, one in self._chassis().items():
            found[f"flows of {name}"] = steady(permanent(one.flows()), one.network.varying)
        return found


def permanent(flows):
    """Flows without those that packets make, and without the numbers of tunnels, which a controller counts on when it makes them anew."""
    return sorted(re.sub(r"load:0x[0-9a-f]+->NXM_NX_REG5", "load:TUNNEL->NXM_NX_REG5", flow) for flow in flows if "_timeout=" not in flow)


def steady(lines, varying):
    """Lines without the parts that match one of the patterns; a line that matches as a whole is left out."""
    for pattern in varying:
        lines = [kept for line in lines if (kept := re.sub(pattern, "", line))]
    return lines


def lasting(shown, varying):
    """The shown state of networks without everything that a restart changes, and without the patterns of `Network.varying`."""
    found = {title: value for title, value in shown.items() if not title.startswith(LOST)}
    for title, value in found.items():
        if title.startswith("flows"):
            found[title] = steady(permanent(value), varying)
        elif title.startswith("MAC bindings"):
            found[title] = steady([" ".join(row) for row in value], varying)
    return found


def run(make, scenario, settings, seed, undisturbed, steps, kills=KILLS):
    """Runs a scenario of so many steps with kills, and compares what it shows with what it shows undisturbed."""
    rng = random.Random(seed)
    each = make()
    chaos = Chaos(each, rng.sample(range(1, steps + 1), min(kills, steps)), rng)
    try:
        with chaos:
            each.start(**settings)
        scenario(each)
        with chaos:
            chaos._converge()
            varying = [pattern for network in each.networks.values() for pattern in network.varying]
            for network in each.networks.values():
                network.ends_daemons = True
            wanted, now = lasting(undisturbed, varying), []
            same = lambda: chaos._refresh() or now.append(lasting(each.shown(), varying)) or not difference(now[-1], wanted)
            until(same, lambda: f"the network without kills:\n{difference(now[-1], wanted)}", interval_s=0.5)
    except BaseException as error:
        logs = {name: str(one.switch.directory) for name, one in chaos._chassis().items()}
        logs |= {f"central of {name}": str(network.central.server.directory) for name, network in each.networks.items()}
        logs |= {str(victim): str(victim.directory) for victim in chaos._further()}
        error.add_note(f"seed {seed}: {chaos}; logs in {logs}")
        raise
    print(f"seed {seed}: {chaos}")
