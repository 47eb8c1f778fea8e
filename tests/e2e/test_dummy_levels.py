"""`--enable-dummy` and its levels, compared with Open vSwitch's daemon with the same options."""

import re

import pytest

# The interface types of both makers at every level, without those that need a kernel device.
TYPES = ["dummy", "dummy-internal", "dummy-pmd"]
# Additional types where dummies replace all types.
OVERRIDDEN = ["", "system", "internal", "afxdp", "tap", "geneve", "vxlan", "bogus"]


def describe(switch, datapath, *types):
    """The state of a bridge of that datapath type, with a port of each interface type."""
    add = ["add-br", "br0", "--", "set", "bridge", "br0", f"datapath_type={datapath}", "fail-mode=secure"]
    for number, kind in enumerate(types, 1):
        add += ["--", "add-port", "br0", f"p{number}", "--", "set", "interface", f"p{number}", f'type="{kind}"']
        add += [f"ofport_request={number}"]
    # A port that cannot be opened makes the command fail, with either daemon.
    code = switch.peers.run("ovs-vsctl", *add, check=False).code
    interfaces = switch.vsctl("--format=csv", "--columns=name,type,ofport,error", "list", "interface")
    # The status of a dummy with queues differs between versions of Open vSwitch.
    shown = re.sub(r"\(dummy-pmd: .*\)", "(dummy-pmd)", switch.appctl("dpctl/show", f"{datapath}@ovs-{datapath}"))
    # Open vSwitch has a port for the datapath itself.
    ports = [line for line in shown.splitlines() if line.startswith("  port") and "ovs-" not in line]
    switch.vsctl("del-br", "br0")
    return code, sorted(interfaces.splitlines()), sorted(ports)


@pytest.mark.parametrize("disable", [(), ("--disable-system",)], ids=["", "no-system"])
@pytest.mark.parametrize("level", ["override", "system"])
def test_types_as_in_open_vswitch(making, peers, level, disable):
    answers = []
    for maker in (None, peers):
        switch = making.switch(start=False, maker=maker)
        switch.create_database()
        switch.start_database()
        switch.ours.vsctl("--no-wait", "init")
        switch.start_switch(f"--enable-dummy={level}", *disable)
        got = {"types": switch.vsctl("get", "open", ".", "datapath_types")}
        got["dummy"] = describe(switch, "dummy", *TYPES, "system")
        got["system"] = describe(switch, "system", *TYPES, "system", "internal")
        if level == "override":
            for datapath in ("dummy", "system", "netdev"):
                got[f"all on {datapath}"] = describe(switch, datapath, *TYPES, *OVERRIDDEN)
        answers.append(got)
    ours, theirs = answers
    assert ours == theirs
    assert "[dummy, netdev, system]" in ours["types"]


def test_an_unknown_level_is_refused(making, peers):
    answers = []
    for maker in (None, peers):
        switch = making.switch(start=False, maker=maker)
        done = switch.ours.run("ovs-vswitchd", "--enable-dummy=all", check=False)
        answers.append((done.code, done.err))
    assert answers[0] == answers[1]


def test_frames_cross_a_replaced_system_bridge(making):
    """Ports of type `system` on a bridge of type `system` are dummies: they take frames from a command."""
    switch = making.switch(start=False)
    switch.create_database()
    switch.start_database()
    switch.ours.vsctl("--no-wait", "init")
    switch.start_switch("--enable-dummy=system")
    switch.vsctl(
        *("add-br", "br0", "--", "set", "bridge", "br0", "fail-mode=secure"),
        *("--", "add-port", "br0", "p1", "--", "add-port", "br0", "p2"),
    )
    switch.ofctl("add-flow", "br0", "in_port=p1,actions=output:p2")
    switch.appctl("netdev-dummy/receive", "p1", "0200000000020200000000010800" + 46 * "00")
    switch.appctl("revalidator/wait")
    assert switch.peers.n_packets("br0", "in_port=p1") == 1
