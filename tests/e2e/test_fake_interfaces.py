"""Fake interfaces of bonds (Port:bond_fake_iface), beside Open vSwitch's. Its userspace datapath has them only where all types are
dummies, so that the switches are started that way."""

import re

import pytest

from switch import run
from waiting import until

MEMBERS = ("p1", "p2", "p3")
BROADCAST = "dl_src=02:00:00:00:00:01,dl_dst=ff:ff:ff:ff:ff:ff"


class Bonded:
    """A switch with a bridge, to which a test adds a bond with a fake interface."""

    def __init__(self, switch):
        self.switch = switch
        switch.create_database()
        switch.start_database()
        switch.ours.vsctl("--no-wait", "init")
        switch.start_switch("--enable-dummy=override", "--disable-system")
        switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=standalone")

    def add_bond(self, *kinds):
        settings = []
        for number, (member, kind) in enumerate(zip(MEMBERS, kinds), 1):
            settings += ["--", "set", "interface", member, f"type={kind}", f"ofport_request={number}"]
        words = ["--fake-iface", "add-bond", "br0", "bond0", *MEMBERS[: len(kinds)], "bond_mode=active-backup", "other_config:bond-primary=p1"]
        self.switch.peers.run("ovs-vsctl", *words, *settings, check="nosuch" not in kinds)

    def add_member(self, name, number, *words):
        made = ["--id=@new", "create", "interface", f"name={name}", "type=dummy", f"ofport_request={number}"]
        self.switch.vsctl(*made, "--", "add", "port", "bond0", "interfaces", "@new", *words)

    def remove_member(self, name):
        row = self.switch.vsctl("--bare", "--columns=_uuid", "find", "interface", f"name={name}").strip()
        self.switch.vsctl("remove", "port", "bond0", "interfaces", row)

    def shown(self):
        """Ports of the datapath and of OpenFlow, and the interfaces of the database."""
        # Open vSwitch names the type that replaces `internal`.
        ports = re.findall(r"^ +(\S+) (\d+/\d+): \((\S+)\)$", self.switch.appctl("dpif/show"), re.M)
        ports = sorted((name, numbers, kind.removeprefix("dummy-")) for name, numbers, kind in ports)
        described = self.switch.ofctl("-O", "OpenFlow15", "dump-ports-desc", "br0")
        described = re.findall(r"^ (\S+)\((\S+)\): .*\n +config: +(.*)\n +state: +(.*)\n", described, re.M)
        counted = sorted(re.findall(r"port +(\w+):", self.switch.ofctl("dump-ports", "br0")))
        rows = sorted(self.switch.vsctl("--bare", "--columns=name", "list", "interface").split())
        return {"ports": ports, "described": sorted(described), "counted": counted, "rows": rows}

    def traced(self, port):
        trace = self.switch.appctl("ofproto/trace", "br0", f"in_port={port},{BROADCAST}")
        reasons = re.findall(r">>+ ?(.*?)(?: <<+)?$", trace, re.M)
        outputs = re.search(r"^Datapath actions: (.*)$", trace, re.M).group(1)
        return reasons, sorted(outputs.split(","))


@pytest.fixture
def both(making):
    return [Bonded(making.switch(start=False, maker=maker)) for maker in (making.peers, None)]


def same(both, look):
    theirs, ours = (look(each) for each in both)
    assert ours == theirs
    return ours


def has_fake(shown):
    return any(name == "bond0" for name, *_ in shown["ports"])


def test_a_bond_has_an_internal_port_with_its_name(both):
    for each in both:
        each.add_bond("dummy", "dummy")
    shown = same(both, Bonded.shown)
    assert ("bond0", "3/3", "internal") in shown["ports"]
    assert "3" in shown["counted"] and "bond0" not in shown["rows"]
    # NORMAL takes nothing from it and sends nothing to it. FLOOD and a number do.
    assert same(both, lambda each: each.traced("bond0"))[1] == ["drop"]
    assert same(both, lambda each: each.traced("LOCAL"))[1] == ["1"]
    for each in both:
        each.switch.ofctl("add-flow", "br0", "in_port=1,actions=flood,output:bond0")
        each.switch.ofctl("mod-port", "br0", "bond0", "no-receive")
    assert same(both, lambda each: each.traced("1"))[1] == ["100", "2", "3", "3"]
    assert any("NO_RECV" in config for *_, config, _ in same(both, Bonded.shown)["described"])


def test_the_port_follows_the_column_and_the_members(both):
    def set_column(value):
        for each in both:
            each.switch.vsctl("set", "port", "bond0", f"bond_fake_iface={value}")

    for each in both:
        each.add_bond("dummy", "dummy")
    set_column("false")
    assert not has_fake(same(both, Bonded.shown))
    for each in both:
        each.add_member("p3", 3, "--", "set", "port", "bond0", "bond_fake_iface=true")
    assert has_fake(same(both, Bonded.shown))
    for each in both:
        each.remove_member("p3")
    assert has_fake(same(both, Bonded.shown))
    for each in both:
        each.remove_member("p2")
    assert not has_fake(same(both, Bonded.shown))
    for each in both:
        each.add_member("p2", 2)
    assert has_fake(same(both, Bonded.shown))
    set_column("false")
    assert not has_fake(same(both, Bonded.shown))
    # Open vSwitch would make it when it opens a member the next time, ours does so at once.
    set_column("true")
    assert has_fake(both[1].shown())
    for each in both:
        each.switch.vsctl("del-port", "bond0")
    assert not has_fake(same(both, Bonded.shown))


def test_the_interface_is_a_device_of_the_kernel(kernel_switch):
    """A host can use it as it uses other internal ports, by flows."""
    switch = kernel_switch
    for name in ("a1", "a2"):
        run(["ip", "-n", switch.namespace, "link", "add", name, "type", "veth", "peer", "name", f"{name}p"])
        run(["ip", "-n", switch.namespace, "link", "set", name, "up"])
    has_device = lambda: run(["ip", "-n", switch.namespace, "link", "show", "bond0"], check=False).code == 0
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail-mode=secure")
    switch.vsctl("--fake-iface", "add-bond", "br0", "bond0", "a1", "a2", "bond_mode=active-backup")
    assert has_device()
    run(["ip", "-n", switch.namespace, "link", "set", "bond0", "up"])
    # Frames of its own, like those of IPv6's router solicitations, reach the flow tables.
    switch.ofctl("add-flow", "br0", "in_port=bond0,actions=drop")
    until(lambda: switch.peers.n_packets("br0", "in_port=bond0") > 0, "frames of the device")
    run(["ip", "-n", switch.namespace, "link", "del", "a2"])
    until(lambda: not has_device(), "the end of the device")
    switch.vsctl("del-br", "br0")


def test_members_that_cannot_be_opened_do_not_count(both):
    for each in both:
        each.add_bond("dummy", "nosuch")
    assert not has_fake(same(both, Bonded.shown))
    for each in both:
        each.switch.vsctl("set", "interface", "p2", "type=dummy")
    assert has_fake(same(both, Bonded.shown))
    for each in both:
        each.switch.vsctl("del-br", "br0")
        until(lambda each=each: "bond0" not in each.switch.appctl("dpif/show"), "the end of the interface")
