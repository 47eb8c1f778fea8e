"""Hosts behind ports of every type: each has a namespace with an interface e0, and a name to add to a bridge."""

import contextlib
import json
import subprocess

from hosts import Host, Namespace, finish
from switch import run
from waiting import until

MTU = 9000
VID = 5
PORT = 6000


class End(Host):
    """A host behind a veth, over packet sockets, with addresses in four networks: 10.1 untagged and 10.5 tagged on
    both sides of a pair; in 10.6 the first of a pair is untagged, as behind an access port, and the second one
    tags; in 10.7 the other way round. While it is watched, it also has IPv6 addresses in the first two."""

    settings = ()

    def __init__(self, making, switch, number, bridge="br0"):
        self.making, self.switch, self.number, self.bridge = making, switch, number, bridge
        self.port = f"p{number}"
        self.mtu = MTU
        self.move_in()
        self.make_device()
        self.add_port()
        self.plug()

    def move_in(self):
        """Creates a new namespace."""
        Namespace.__init__(self, f"h{self.number}")
        self.making.namespaces.append(self)

    def make_device(self):
        """Creates devices that must exist before the port, if any."""
        mac = f"02:00:00:00:00:{self.number:02x}"
        run(
            ["ip", "link", "add", self.port, "netns", self.switch.namespace, "mtu", MTU, "type", "veth"]
            + ["peer", "name", "e0", "netns", self.name, "mtu", MTU, "address", mac]
        )
        run(["ip", "-n", self.switch.namespace, "link", "set", self.port, "up"])

    def add_port(self):
        words = ["add-port", self.bridge, self.port]
        words += ["--", "set", "interface", self.port, *self.settings] if self.settings else []
        self.switch.vsctl(*words)
        assert self.switch.vsctl("get", "interface", self.port, "error") == "[]"

    def plug(self):
        """Gives the host its interface, if that is created after the port."""
        self.run("ip", "link", "set", "e0", "mtu", MTU, "up")

    def delete_port(self):
        self.switch.vsctl("del-port", self.bridge, self.port)

    def delete_device(self):
        run(["ip", "-n", self.switch.namespace, "link", "delete", self.port])

    def delete_host(self):
        """Deletes the namespace, whose contents disappear a little later, and creates a new one."""
        self.delete()
        self.move_in()
        until(lambda: run(["ip", "-n", self.switch.namespace, "link", "show", self.port], check=False).code, "the device's end")

    def replug(self):
        """Restores the host after the port was removed and added again."""

    def revive(self):
        """Creates the device again."""
        self.make_device()
        until(lambda: self.switch.vsctl("get", "interface", self.port, "error") == "[]", f"{self.port} opened again")
        self.plug()

    def at(self, network):
        return f"10.{network}.0.{self.number}"

    def at6(self, network):
        return f"fd00:{network}::{self.number:x}"

    def settle(self, device, *networks):
        """Gives an interface its addresses."""
        for network in networks:
            self.run("ip", "addr", "add", f"{self.at(network)}/24", "dev", device)

    @contextlib.contextmanager
    def watched(self, first):
        """Watches received frames while the host has its addresses and its VLAN device; `seen` is the result at the
        end."""
        watch = self.start_python("watch.py", "e0", VID, f"e{VID}", stdin=subprocess.PIPE)
        server = self.start_python("transfer.py", "serve", PORT, stdin=subprocess.PIPE)
        self.run("ip", "link", "set", f"e{VID}", "mtu", MTU, "up")
        self.settle(f"e{VID}", 5, 7 if first else 6)
        self.settle("e0", 1, 6 if first else 7)
        for device, network in ((f"e{VID}", 5), ("e0", 1)):
            self.run("ip", "addr", "add", f"{self.at6(network)}/64", "dev", device, "nodad")
        try:
            yield
        finally:
            self.run("ip", "addr", "flush", "dev", "e0")
            finish(server)
            output = finish(watch).out
        self.seen = json.loads(output)


class AfXdp(End):
    settings = ("type=afxdp",)


class Native(End):
    settings = ("type=afxdp", "options:xdp-mode=native")


class Generic(End):
    """Large frames would arrive whole in this mode, and without the metadata for segmenting them."""

    settings = ("type=afxdp", "options:xdp-mode=generic")

    def plug(self):
        super().plug()
        self.run("ethtool", "-K", "e0", "tso", "off")


class Patched(End):
    """A veth on a bridge of its own, which a patch port connects to the others."""

    def add_port(self):
        if self.bridge == "br0":
            self.bridge = add_bridge(self.switch, self.number)
        super().add_port()


class Internal(End):
    """A device of the switch, moved to the host and renamed there, as containers are attached."""

    settings = ("type=internal", f"mtu_request={MTU}")

    def make_device(self):
        pass

    def plug(self):
        run(["ip", "-n", self.switch.namespace, "link", "set", self.port, "netns", self.name, "name", "e0"])
        super().plug()

    def replug(self):
        self.plug()

    def delete_device(self):
        self.run("ip", "link", "delete", "e0")

    def delete_host(self):
        self.delete()
        self.move_in()

    def revive(self):
        """The switch creates the device again, in its own namespace."""
        here = ["ip", "-n", self.switch.namespace, "link", "show", self.port]
        until(lambda: run(here, check=False).code == 0, "the device made again")
        super().revive()


class Local(Internal):
    """The local port of a bridge. The host's end is a macvlan on it, so that the device stays in its namespace."""

    def add_port(self):
        self.port = self.bridge = add_bridge(self.switch, self.number)
        self.switch.vsctl("set", "interface", self.port, f"mtu_request={MTU}")

    def plug(self):
        inside = ["ip", "-n", self.switch.namespace, "link"]
        run([*inside, "set", self.port, "up"])
        words = [*inside, "add", "link", self.port, "name", "e0", "netns", self.name, "type", "macvlan", "mode", "passthru"]
        # Only one can exist, and the kernel deletes that of a deleted namespace later.
        until(lambda: run(words, check=False).code == 0, "the host's interface")
        End.plug(self)

    def delete_port(self):
        self.switch.vsctl("del-br", self.bridge, "--", "del-port", "br0", f"from{self.number}")

    def delete_device(self):
        End.delete_device(self)


class Tap(End):
    """A tap device of another process, as of a virtual machine."""

    def make_device(self):
        inside, other = self.switch.namespace, f"o{self.number}"
        beside = Namespace.__new__(Host)
        beside.name = inside
        self.relay = beside.start_python("relay.py", self.port, other, stdin=subprocess.PIPE)
        run(["ip", "-n", inside, "link", "set", other, "netns", self.name, "name", "e0"])
        run(["ip", "-n", inside, "link", "set", self.port, "mtu", MTU, "up"])

    def delete_device(self):
        finish(self.relay)


def add_bridge(switch, number):
    """A bridge that a patch port connects to br0."""
    name, here, there = f"br{number}", f"to{number}", f"from{number}"
    words = ["add-br", name, "--", "set", "bridge", name, "datapath_type=netdev"]
    for bridge, port, peer in ((name, here, there), ("br0", there, here)):
        words += ["--", "add-port", bridge, port]
        words += ["--", "set", "interface", port, "type=patch", f"options:peer={peer}"]
    switch.vsctl(*words)
    return name


KINDS = {
    "system": End,
    "internal": Internal,
    "local": Local,
    "tap": Tap,
    "patch": Patched,
    "afxdp": AfXdp,
    "generic": Generic,
    "native": Native,
}
