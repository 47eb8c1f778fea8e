"""OVN over the switches and databases under test: the central half, chassis in a simulated underlay, and what all of them show.

Chassis have dummy datapaths; sockets join their underlay bridges to one switch, the underlay. OVN's own programs are those of
Debian, whoever made the databases and switches.
"""

import re
import signal
import subprocess
import time

import jsonrpc
import pcap
from databases import DatabaseServer, plain
from shown import MONITOR_MAC, hexes, microflow, normal, text_of
from switch import run
from waiting import until

# Addresses that OVN otherwise chooses by chance.
OPTIONS = {"mac_prefix": "0a:00:00", "svc_monitor_mac": MONITOR_MAC, "svc_monitor_mac_dst": "0a:00:00:ff:ff:02"}
# The address of health checks of network functions, where a scenario has some.
CHECKS_FROM = "169.254.100.10"
# OpenFlow ports below are those of tunnels, which the switch numbers.
FIRST_VIF = 100
# northd gives numbers to the rows that these commands make. If it finds several new rows at once, as after a kill, their order is
# any; so each of these commands waits for northd.
NUMBERED = {"ls-add", "lr-add", "lsp-add", "lrp-add", "lrp-set-gateway-chassis"}

# What switches may take to apply a change of flows to those that they have cached.
CACHES_S = 0.05
TUNNELS = ("geneve", "vxlan")
# If no address has been learned for so long, packets have taught all that they do.
LEARNING_S = 0.4
# Warnings that ovn-controller logs only if events come in a certain order: two controllers insert the same learned address at the same
# time; a controller reads the binding of a port before the row of the chassis to which it needs a tunnel. And two that northd logs:
# it reads a network function that has no monitor yet, or one that is not bound. Which function it reads first is up to UUIDs.
RACES = (
    "Transaction causes multiple rows in",
    "Failed to locate tunnel to reach main chassis",
    "Service_monitor is not found for network_function:",
    "invalid service monitor",
)


class Process:
    """One of OVN's daemons, in the foreground, with a log file."""

    def __init__(self, program, words, directory, environment, prefix=()):
        self.program = program
        self.name = program.name
        self.log = directory / f"{self.name}.log"
        self.control = directory / f"{self.name}.ctl"
        self.words = [*prefix, program, *words, f"--log-file={self.log}", f"--unixctl={self.control}", "-vconsole:off"]
        self.environment = environment
        self.process = None

    def start(self):
        self.process = subprocess.Popen(
            [str(word) for word in self.words], env=self.environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def kill(self, with_signal=signal.SIGKILL):
        """Ends the process and waits until it is gone."""
        self.process.send_signal(with_signal)
        self.process.wait(timeout=60)
        self.process = None

    def exit(self, *words):
        """Ends the daemon by its command; with `--restart`, the flows of ovn-controller stay."""
        self.control_command("exit", *words)
        self.process.wait(timeout=60)
        self.process = None

    def control_command(self, *words):
        """Runs a control command of the daemon, and returns its output."""
        return jsonrpc.control(self.control, *words)

    def await_control(self):
        """Waits until the daemon answers commands."""

        def answers():
            try:
                return self.control_command("version")
            except jsonrpc.RequestError:
                return None

        until(answers, f"an answer of {self.name}")

    def stop(self):
        """Ends the process, if it was started, and returns what was wrong with it until then."""
        if self.process is None:
            return []
        code = self.process.poll()
        if code is None:
            self.process.terminate()
            try:
                self.process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                self.kill()
        self.process = None
        return [] if code is None else [f"{self.name} ended with {code}: {self.log.read_text(errors='replace')[-2000:]}"]


class Editor:
    """ovn-nbctl as a daemon, which knows the schema and the contents of the database already when a command comes."""

    def __init__(self, server, peers):
        self.server = server
        self.program = peers / "ovn-nbctl"
        self.control = server.directory / "nbctl.ctl"
        # The server's process when this one started.
        self.process = None

    def start(self):
        words = [f"--db={self.server.remote}", f"--unixctl={self.control}", "--detach", f"--log-file={self.server.directory / 'nbctl.log'}"]
        run([self.program, *words], env=self.server.environment)
        self.process = self.server.process

    def run(self, *words):
        # It may crash at a command that comes before it has seen that the server is a new one.
        if self.server.process not in (None, self.process):
            self.stop()
            self.start()
        try:
            return jsonrpc.control(self.control, "run", "--timeout=60", *words)
        except jsonrpc.RequestError as error:
            raise AssertionError(f"ovn-nbctl: {error}") from error

    def stop(self):
        if not self.control.exists():
            return
        try:
            jsonrpc.control(self.control, "exit")
            until(lambda: not self.control.exists(), "the end of ovn-nbctl")
        except jsonrpc.RequestError:
            self.control.unlink(missing_ok=True)


class Central:
    """The northbound and the southbound database on one server, and northd between them."""

    def __init__(self, programs, peers, directory):
        # Whether all chassis had confirmed the last change, and when that was.
        self.synchronised = True
        self.changed_s = 0.0
        # Kills daemons between the steps of a scenario.
        self.chaos = None
        schemas = [peers.parent / f"usr/share/ovn/ovn-{which}.ovsschema" for which in ("nb", "sb")]
        assert (peers / "ovn-northd").exists(), f"no ovn-northd in {peers}: run tests/peers/unpack.sh DIR ovn first"
        self.server = DatabaseServer(programs, peers, directory, schemas)
        self.peers = peers
        databases = [f"--ovn{which}-db={self.server.remote}" for which in ("nb", "sb")]
        self.northd = Process(peers / "ovn-northd", databases, directory, self.server.environment)
        self.editor = Editor(self.server, peers)

    def start(self):
        self.server.start()
        self.editor.start()
        self.nbctl("init", "--", "set", "NB_Global", ".", *(f'options:{name}="{value}"' for name, value in OPTIONS.items()))
        self.northd.start()

    def run(self, program, *words, **options):
        """Runs one of OVN's programs with a database, and returns its `Output`."""
        return self.server.run(program, "--timeout=60", f"--db={self.server.remote}", *words, **options)

    def nbctl(self, *words):
        if not NUMBERED.isdisjoint(words) and not str(words[0]).startswith("--wait"):
            words = ("--wait=sb", *words)
        return self.chaos.change(words, self._nbctl) if self.chaos else self._nbctl(*words)

    def _nbctl(self, *words):
        self.synchronised = "--wait=hv" in words
        text = self.editor.run(*words).rstrip("\n")
        self.changed_s = time.monotonic()
        return text

    def await_chassis(self):
        """Waits until all chassis have the last change, and their switches no cached flow of before: these go a moment later."""
        if not self.synchronised:
            self.sync()
        time.sleep(max(0, self.changed_s + CACHES_S - time.monotonic()))

    def sbctl(self, *words, **options):
        return self.run("ovn-sbctl", *words, **options).out.rstrip("\n")

    def sync(self):
        """Waits until the southbound database and all chassis have the northbound database's contents."""
        self.nbctl("--wait=hv", "sync")

    def trace(self, datapath, flow):
        """The part of ovn-trace's output that says where a packet goes."""
        words = [self.peers / "ovn-trace", "--timeout=60", f"--db={self.server.remote}", "--minimal", datapath, flow]
        text = run(words, env=self.server.environment).out
        return [line for line in text.splitlines() if not line.startswith("#")]

    def stop(self):
        wrong = self.northd.stop()
        self.editor.stop()
        self.server.stop()
        return wrong

    def select(self, **tables):
        """The rows of southbound tables, see `jsonrpc.select`."""
        return jsonrpc.select(self.server.socket, "OVN_Southbound", **tables)


class Chassis:
    """A hypervisor: a switch with `br-phys` and `br-int`, and ovn-controller."""

    def __init__(self, network, number):
        self.network = network
        self.number = number
        self.name = f"hv{number}"
        self.address = f"192.168.0.{number}"
        self.mac = f"aa:bb:cc:00:00:{number:02x}"
        self.switch = network.making.switch(start=False, maker=network.maker)
        self.vifs = {}
        # Control commands whose effects a switch forgets when it ends.
        self.configured = []
        environment = dict(self.switch.environment)
        environment |= {f"OVN_{what}DIR": str(self.switch.directory) for what in ("RUN", "LOG", "DB", "SYSCONF")}
        self.controller = Process(
            network.making.peers / "ovn-controller",
            [f"unix:{self.switch.socket}"],
            self.switch.directory,
            environment,
            prefix=self.switch.inside([]),
        )

    def start(self, encapsulation="geneve", **settings):
        """Starts the daemons; `settings` are further external_ids of the database's Open_vSwitch row."""
        one = self.switch
        one.create_database()
        one.start_database()
        words = {"system-id": self.name, "hostname": self.name, "ovn-remote": self.network.central.server.remote}
        words |= {"ovn-encap-type": encapsulation, "ovn-encap-ip": self.address}
        words |= {name.replace("_", "-"): value for name, value in settings.items()}
        # One transaction before the switch starts, which then finds everything.
        one.vsctl(
            *["--no-wait", "init", "--", "set", "Open_vSwitch", ".", *(f'external_ids:{name}="{value}"' for name, value in words.items())],
            *["--", "add-br", "br-phys", "--", "set", "bridge", "br-phys", f"other_config:hwaddr={self.mac}"],
            *["--", "add-port", "br-phys", "uplink", "--", "set", "interface", "uplink", f"options:stream=unix:{self.network.cable(self)}"],
            *[f"options:tx_pcap={self.file('uplink', 'tx')}", "ofport_request=1"],
            *["--", "add-br", "br-int", "--", "set", "bridge", "br-int", "fail-mode=secure", "other_config:disable-in-band=true"],
        )
        self.run_switch()
        self.address_underlay()
        self.controller.start()

    def run_switch(self):
        self.switch.start_switch("--enable-dummy=system", "--disable-system")

    def configure(self, *words):
        """Runs a control command of the switch, also when a killed switch has started again."""
        self.configured.append(words)
        self.switch.command(*words)

    def address_underlay(self):
        """Gives the underlay bridge its address, which a switch forgets when it ends."""
        self.switch.command("netdev-dummy/ip4addr", "br-phys", f"{self.address}/24")
        self.switch.command("ovs/route/add", f"{self.address}/24", "br-phys")

    def await_cable(self):
        until(lambda: "connected" in self.switch.command("netdev-dummy/conn-state", "uplink").split(), f"the cable of {self.name}")

    def start_switch(self):
        """Starts the switch's daemon again, behind a crash."""
        self.run_switch()
        # The bridge is there when the switch has found its database.
        shown = lambda: self.switch.peers.run("ovs-appctl", "--timeout=60", "fdb/show", "br-phys", check=False)
        until(lambda: shown().code == 0, lambda: f"br-phys: {shown()}")
        self.address_underlay()
        self.network.introduce_to(self)
        for words in self.configured:
            self.switch.command(*words)

    def add_vif(self, port, number=None):
        """Plugs a dummy device in for the logical port, which then is bound here."""
        self.plug({port: number or len(self.vifs) + 1})

    def add_vifs(self, *ports):
        """The same for several ports in one transaction."""
        self.plug({port: len(self.vifs) + at for at, port in enumerate(ports, 1)})

    def plug(self, numbers, check=True):
        """The same for {port: number}, by the command alone, which may be repeated. Returns its `Output`."""
        words = []
        for port, number in numbers.items():
            name = f"vif{self.number}{number}"
            self.vifs[port] = name
            self.network.places[port] = self
            files = [f"options:{which}_pcap={self.file(name, which)}" for which in ("tx", "rxq")]
            words += ["--", "--may-exist", "add-port", "br-int", name, "--", "set", "interface", name, f"external_ids:iface-id={port}"]
            words += [f"ofport_request={FIRST_VIF + number}", *files]
        return self.switch.peers.run("ovs-vsctl", "--timeout=60", *words, check=check)

    def add_tap(self, name, *settings):
        """A device on the integration bridge that belongs to no logical port."""
        words = ["set", "interface", name, f"options:tx_pcap={self.file(name, 'tx')}", *settings]
        self.switch.vsctl("add-port", "br-int", name, "--", *words)

    def tapped(self, name):
        """All frames that it has sent."""
        return pcap.packets(self.file(name, "tx"))

    def meters(self):
        return sorted(self._numbered("dump-meters", r"meter=(\d+) (.*)").values())

    def file(self, name, which):
        return self.switch.directory / f"{name}-{which}.pcap"

    def receive(self, port, *frames):
        """The device of the logical port receives frames."""
        self.switch.command("netdev-dummy/receive", self.vifs[port], *[bytes(frame).hex() for frame in frames])

    def sent(self, port):
        """All frames that the device of the logical port has sent so far."""
        return pcap.packets(self.file(self.vifs[port], "tx"))

    def flows(self, bridge="br-int"):
        """The flows of a bridge in a form that is the same in equal networks."""
        lines = self.switch.flows(bridge)
        used = lambda word: any(word in line for line in lines)
        groups = self._numbered("dump-groups", r"group_id=(\d+),(.*)") if used("group:") else {}
        meters = self._numbered("dump-meters", r"meter=(\d+) (.*)") if used("meter") else {}
        names = self._names(bridge)
        return sorted(normal(line, groups, meters, names) for line in lines)

    def _names(self, bridge):
        """What stands for the numbers of ports that the switch chooses: the names of patch ports, and the ends of tunnels."""
        tables = self.switch.rows(Bridge=("name", "ports"), Port=("_uuid", "interfaces"), Interface=("_uuid", "name", "type", "options", "ofport"))
        (ports,) = (listed(row["ports"]) for row in tables["Bridge"] if row["name"] == bridge)
        own = {uuid[1] for row in tables["Port"] if row["_uuid"] in ports for uuid in listed(row["interfaces"])}
        ends = lambda options: "-".join(options.get(f"{end}_ip", "") for end in ("local", "remote"))
        names, tunnels = {}, {}
        for row in tables["Interface"]:
            number = row["ofport"]
            if row["type"] in TUNNELS:
                tunnels[str(number)] = f"<{row['type']} {ends(dict(row['options'][1]))}>"
            elif row["_uuid"][1] in own and isinstance(number, int) and 0 < number < FIRST_VIF:
                names[str(number)] = row["name"]
        return names | tunnels

    def has_tunnels(self):
        """Returns true if there are tunnels, and the switch has made all of them."""
        rows = self.switch.rows(Interface=("type", "ofport"))["Interface"]
        numbers = [row["ofport"] for row in rows if row["type"] in TUNNELS]
        return bool(numbers) and all(isinstance(number, int) for number in numbers)

    def interfaces(self):
        """The interfaces, with what ovn-controller and the switch write about them, {name: values}; of several tunnels to a chassis,
        ovn-controller numbers the second and later in the order of a hash table, so that they are named by their addresses."""
        columns = ("name", "type", "options", "external_ids", "bfd", "admin_state", "link_state", "error", "mtu")
        found = {}
        for row in self.switch.rows(Interface=columns)["Interface"]:
            # Times, and files in directories of the test.
            for column in ("external_ids", "options", "bfd"):
                row[column] = {key: value for key, value in row[column][1] if key != "ovn-installed-ts" and "/" not in value}
            name = row.pop("name")
            if row["options"].get("local_ip"):
                name = f"{re.sub('-[0-9]+$', '', name)} {row['options']['local_ip']} {row['options'].get('remote_ip')}"
            found[name] = row
        return found

    def _numbered(self, command, pattern):
        """The groups or meters of the integration bridge by their numbers."""
        text = self.switch.ofctl("-OOpenFlow15", command, "br-int").replace("\nbands=\n", " ")
        return dict(re.findall(pattern, text))

    def stop(self):
        return self.controller.stop()


def listed(value):
    """The elements of a set of a database."""
    return value[1] if value[0] == "set" else [value]


class External:
    """A machine outside of OVN, on a port of the underlay."""

    def __init__(self, switch, name, vlan, directory):
        self.switch = switch
        self.name = name
        self.file = directory / f"{name}-tx.pcap"
        switch.vsctl("add-port", "n1", name, f"tag={vlan}", "--", "set", "interface", name, f"options:tx_pcap={self.file}")

    def receive(self, _port, *frames):
        self.switch.command("netdev-dummy/receive", self.name, *[bytes(frame).hex() for frame in frames])

    def sent(self, _port):
        return pcap.packets(self.file)


class Network:
    """Central, underlay and chassis, with the databases and switches of one maker: ours, or those of Debian with `maker`."""

    def __init__(self, making, maker=None):
        self.making = making
        self.maker = maker
        self.chassis = {}
        # The chassis of each logical port that is plugged in.
        self.places = {}
        # Set by scenarios where select groups choose among several buckets: the makers' switches have other hash functions.
        self.chooses_by_hash = False
        # Set by scenarios that end daemons: what their peers then warn of depends on which of them notices first.
        self.ends_daemons = False
        # Set by scenarios that repeat frames until an answer comes: each different frame counts once.
        self.repeats = False
        # Set by scenarios: patterns of flows, of parts of them and of MAC bindings that depend on moments, and so are not compared behind
        # kills.
        self.varying = []
        # Set by scenarios whose state lasts only while packets come, such as answers to health checks: sends these until the network
        # has that state.
        self.refresh = lambda: None
        # What scenarios have found besides, {title: value}.
        self.remarks = {}
        # Kills daemons between the steps of a scenario, and daemons that the scenario has added to the victims.
        self.chaos = None
        self.victims = []
        self.networks = {"the network": self}
        # The machines outside.
        self.externals = {}
        # The chassis that have a port of the underlay.
        self.cabled = set()
        directory = making.tmp_path_factory.mktemp("central")
        self.central = Central(maker or making.programs, making.peers, directory)
        # From where on the log of the underlay, which earlier networks have used, is this network's.
        self.underlay, self.underlay_begins = making.underlays.take(maker)

    def start(self, chassis=2, **settings):
        self.central.start()
        numbers = range(1, chassis + 1)
        cables = [word for number in numbers for word in self._cable(f"hv{number}", number)]
        self.underlay.vsctl("add-br", "n1", *cables)
        for number in numbers:
            self.add_chassis(number, **settings)
        self.introduce()
        for one in self.chassis.values():
            one.await_cable()
        if chassis > 1:
            self.await_tunnels()
        return self

    def await_tunnels(self):
        """Waits until all chassis have tunnels: a controller warns of a port that is bound where none leads."""
        until(lambda: len(self.rows("Chassis", "name")) == len(self.chassis), "all chassis in the database")
        self.central.sync()
        until(lambda: all(one.has_tunnels() for one in self.chassis.values()), "the ports of tunnels")

    def share_underlay(self, other):
        """Uses the underlay of another network, before both start."""
        self.making.underlays.give_back(self.underlay)
        self.underlay, self.underlay_begins = other.underlay, other.underlay_begins

    def restart_switch(self, name, how):
        """Stops a chassis's ovs-vswitchd by the command `exit`, or kills it, and starts it again with its routes and neighbours."""
        chassis = self.chassis[name]
        one = chassis.switch
        if how == "exit":
            pid = one.pid("ovs-vswitchd")
            one.appctl("exit")
            one.wait_gone(pid)
        else:
            one.kill("ovs-vswitchd")
        chassis.run_switch()
        chassis.address_underlay()
        chassis.await_cable()
        self.introduce()

    def introduce(self):
        """Tells all chassis the addresses of all others: Open vSwitch drops packets until it has learned them."""
        for one in self.chassis.values():
            self.introduce_to(one)

    def introduce_to(self, chassis):
        """Tells one chassis the addresses of all others."""
        for other in self.chassis.values():
            if chassis is not other:
                chassis.switch.command("tnl/neigh/set", "br-phys", other.address, other.mac)

    def add_chassis(self, number, **settings):
        chassis = Chassis(self, number)
        self.chassis[chassis.name] = chassis
        chassis.start(**settings)
        return chassis

    def cable(self, chassis):
        """Returns the socket of the underlay that a chassis's underlay bridge connects to, and adds its port if it is not there yet."""
        if chassis.name not in self.cabled:
            self.underlay.vsctl(*self._cable(chassis.name, chassis.number)[1:])
        return self._socket(chassis.name)

    def _socket(self, name):
        return self.central.server.directory / f"{name}.cable"

    def _cable(self, name, number):
        """The commands that add the underlay's port for a chassis."""
        self.cabled.add(name)
        options = [f"options:pstream=punix:{self._socket(name)}", f"ofport_request={number}"]
        return ["--", "add-port", "n1", name, "--", "set", "interface", name, *options]

    def add_external(self, name, vlan):
        """A machine in a VLAN of the underlay, whose frames `receive` and `sent` exchange like those of a logical port."""
        self.externals[name] = External(self.underlay, name, vlan, self.central.server.directory)

    def place(self, port):
        return self.externals.get(port) or self.places[port]

    def add_host(self, port, chassis, *addresses):
        """Adds the host pNH to switch N, on a chassis that is not that of its number."""
        addresses = addresses or [f"00:00:00:00:0{port[1]}:0{port[2]} 10.0.{port[1]}.{port[2]}"]
        self.nbctl("--wait=sb", "lsp-add", f"s{port[1]}", port, "--", "lsp-set-addresses", port, *addresses)
        self.chassis[chassis].add_vif(port)
        self.settle()

    def nbctl(self, *words):
        return self.central.nbctl(*words)

    def sbctl(self, *words, **options):
        return self.central.sbctl(*words, **options)

    def receive(self, port, *frames):
        self.central.await_chassis()
        if self.chaos:
            self.chaos.packet()
        self.place(port).receive(port, *frames)

    def sent(self, port):
        return self.place(port).sent(port)

    def settle(self):
        """Waits until all logical ports that are plugged in are up, and all chassis have what the databases say."""
        until(lambda: self.are_up(self.places), lambda: f"{list(self.places)} up: {self.rows('Port_Binding', 'logical_port', 'up')}")
        self.central.sync()

    def are_up(self, ports):
        return {port for port, up in self.rows("Port_Binding", "logical_port", "up") if up == "true"} >= set(ports)

    def is_up(self, port):
        return self.are_up([port])

    # What a network shows. Equal networks show equal values: UUIDs, times and numbers that are chosen by chance are left out.

    def bindings(self):
        """The bindings of ports, {port: (type, chassis, up, tunnel key)}."""
        names = dict(self.rows("Chassis", "_uuid", "name"))
        rows = self.rows("Port_Binding", "logical_port", "type", "chassis", "up", "tunnel_key")
        return {port: (kind, names.get(chassis), up, key) for port, kind, chassis, up, key in rows}

    def mac_bindings(self):
        return sorted(self.rows("MAC_Binding", "logical_port", "ip", "mac"))

    def learned(self):
        """The MAC addresses that switches have learned, and their ports."""
        ports = {(datapath, key): port for port, datapath, key in self.rows("Port_Binding", "logical_port", "datapath", "tunnel_key")}
        keys = dict(self.rows("Datapath_Binding", "tunnel_key", "_uuid"))
        return sorted((mac, ports.get((keys.get(datapath), port))) for mac, datapath, port in self.rows("FDB", "mac", "dp_key", "port_key"))

    def rows(self, table, *columns):
        """The rows of a southbound table as tuples of text."""
        rows = self.central.select(**{table: columns})[table]
        return [tuple(text_of(plain(row[column])) for column in columns) for row in rows]

    def connections(self, chassis):
        """The connections that a chassis tracks, without zones and times, and without health checks: these come by timers."""
        text = self.chassis[chassis].switch.command("dpctl/dump-conntrack")
        lines = [line for line in text.splitlines() if f"src={CHECKS_FROM}," not in line]
        return sorted(re.sub(r",?(zone|timeout|id)=\d+", "", line) for line in lines)

    def recompute(self):
        """Has the daemons compute all flows anew: which ones a controller leaves behind depends on how changes of the databases met."""
        for process in (self.central.northd, *(chassis.controller for chassis in self.chassis.values())):
            if process.process:
                process.control_command("inc-engine/recompute")
        self.central.sync()

    def shown(self):
        """All of these, and all flows."""
        self._await_learned()
        self.recompute()
        found = {"bindings": self.bindings(), "MAC bindings": self.mac_bindings(), "FDB": self.learned()}
        for name, chassis in self.chassis.items():
            found[f"flows of {name}"] = chassis.flows()
            found[f"interfaces of {name}"] = chassis.interfaces()
            if self.chooses_by_hash:
                continue
            found[f"connections of {name}"] = self.connections(name)
            found[f"frames of {name}"] = {port: self._hexes(chassis.sent(port)) for port in chassis.vifs}
        if not self.chooses_by_hash:
            found["frames outside"] = {name: self._hexes(each.sent(name)) for name, each in self.externals.items()}
        ports = [*self.places, *self.externals]
        if self.chooses_by_hash:
            found["frames in all"] = {"count": sum(len(hexes(self.sent(port))) for port in ports)}
        if not self.ends_daemons:
            found["complaints"] = self.complaints()
        return found | self.remarks

    def _await_learned(self):
        """Waits until no more addresses are learned: ovn-controller writes the address of a packet to the database up to 50 ms after it
        comes, and later on a loaded machine."""
        before, now = None, (self.mac_bindings(), self.learned())
        while now != before:
            time.sleep(LEARNING_S)
            before, now = now, (self.mac_bindings(), self.learned())

    def complaints(self):
        """What daemons have warned of, each text once."""
        logs = {"northd": self.central.northd.log}
        for name, chassis in self.chassis.items():
            logs |= {f"ovn-controller of {name}": chassis.controller.log, f"switch of {name}": chassis.switch.directory / "ovs-vswitchd.log"}
        texts = {name: path.read_text(errors="replace") for name, path in logs.items()}
        texts["underlay"] = self.underlay.log()[self.underlay_begins :]
        found = {}
        for name, text in texts.items():
            lines = text.splitlines()
            parts = [line.split("|", 4) for line in lines if "|WARN|" in line or "|ERR|" in line]
            # A loaded machine delays daemons, and they say so.
            parts = [part for part in parts if len(part) == 5 and part[2] not in ("timeval", "poll_loop")]
            parts = [part for part in parts if not any(words in part[4] for words in RACES)]
            found[name] = sorted({f"{part[2].split('(')[0]}|{part[4]}" for part in parts})
        return found

    def _hexes(self, frames):
        frames = hexes(frames)
        return sorted(set(frames)) if self.repeats else sorted(frames, key=microflow)

    def stop(self):
        wrong = [line for chassis in self.chassis.values() for line in chassis.stop()]
        wrong += self.central.stop()
        self.making.underlays.give_back(self.underlay)
        assert not wrong, "\n".join(wrong)


class Underlays:
    """Switches between the chassis of networks. One network after the other uses a switch, whose bridge `n1` goes with the network."""

    def __init__(self, making):
        self.making = making
        self.unused = {}

    def take(self, maker):
        """Returns a switch without bridges, and the length of its log."""
        unused = self.unused.setdefault(maker, [])
        if unused:
            one = unused.pop()
        else:
            one = self.making.switch(start=False, maker=maker)
            one.create_database()
            one.start_database()
            one.vsctl("--no-wait", "init")
            one.start_switch("--enable-dummy=system", "--disable-system")
            one.maker = maker
        return one, len(one.log())

    def give_back(self, one):
        one.vsctl("--if-exists", "del-br", "n1")
        if one not in self.unused[one.maker]:
            self.unused[one.maker].append(one)
