"""ovs-vtep: two emulated VTEPs, driven by vtep-ctl, with frames between their ports; and the same with all of Open
vSwitch's programs, compared: rows, bridges, ports, and where frames go."""

import signal

import pytest
from scapy.layers.l2 import Dot1Q, Ether

from databases import DatabaseServer
from overlays import BRIDGE, LinuxEnd, Site, cable, outer
from vteps import NAME, Emulator, Vteps, address, vtep_schema
from waiting import until

MAC1, MAC2, MAC3, FAR = "02:00:00:00:01:01", "02:00:00:00:01:02", "02:00:00:00:02:01", "02:00:00:00:09:09"
ALL = "ff:ff:ff:ff:ff:ff"
KEY = 33
# The Ethernet type of local experiments (IEEE 802, section 9.2.4).
EXPERIMENTAL = 0x88B5


@pytest.fixture
def vteps(making):
    made = []

    def make(maker=None, count=2, started=True):
        made.append(Vteps(making, maker, count))
        made[-1].start()
        if started:
            made[-1].start_emulators()
        return made[-1]

    yield make
    wrong = [line for each in made for line in each.stop()]
    assert not wrong, "\n".join(wrong)


def tagged(source, destination, vlan):
    return Ether(src=source, dst=destination) / Dot1Q(vlan=vlan, type=EXPERIMENTAL)


def shows(host, check, what):
    """Waits until what the host shows satisfies the check."""
    last = {}

    def satisfied():
        nonlocal last
        last = host.shown()
        return check(last)

    until(satisfied, lambda: f"{what}: {last}")


def learns(host, logical, frames):
    """Has the host learn exactly these addresses of a logical switch, by frames {MAC: (send, header)}, which repeat as
    addresses expire."""
    expected = [(logical, mac) for mac in sorted(frames)]

    def attempt():
        for send, header in frames.values():
            send(header / bytes(46))
        found = [row for row in host.local_macs() if row[0] == logical]
        return found == expected

    until(attempt, lambda: f"{expected}, only {host.local_macs()}", interval_s=0.3)


def is_complete(shown):
    """Whether BFD is set at all tunnels, for which Open vSwitch's script needs several commands."""
    ports = shown["bridges"]["vtep_bfd"][2]
    return all("bfd_remote_dst_mac" in bfd for kind, _, _, bfd in ports if kind == "vxlan") and all(
        "enabled" in tunnel[3] and "bfd_dst_mac" in tunnel[2] for tunnel in shown["rows"]["tunnels"]
    )


def connect(pair, mode=None):
    """A logical switch over both hosts: p1 untagged and VLAN 7 of p2 of the first one, p1 of the second one."""
    for host, other in ((pair.one, pair.two), (pair.two, pair.one)):
        until(lambda host=host: host.vtep("list-ports", NAME).split() == ["p1", "p2"], "the ports of the physical switch")
        host.vtep("add-ls", "ls0", "--", "set", "Logical_Switch", "ls0", f"tunnel_key={KEY}")
        host.vtep("bind-ls", NAME, "p1", "0", "ls0")
        host.vtep("add-mcast-remote", "ls0", "unknown-dst", other.address)
        if mode:
            host.vtep("set-replication-mode", "ls0", mode)
    pair.one.vtep("bind-ls", NAME, "p2", "7", "ls0")


def scenario(pair, record):
    """What both makers' emulators do alike; `record` notes what the hosts show."""
    one, two = pair.one, pair.two
    first, second = (lambda frame: one.receive("p1", frame)), (lambda frame: one.receive("p2", frame))
    remote = lambda frame: two.receive("p1", frame)
    connect(pair)

    def note(step, *hosts):
        for host in hosts:
            shows(host, is_complete, "settings and status of BFD")
        shown = [host.shown() for host in hosts]
        # These expire while the test runs.
        for each in shown:
            del each["rows"]["unicast Local"]
        record(step, shown)

    # Broadcasts and unknown destinations go to all ports but their own, with the tags of their VLANs.
    with_tag, without = pair.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", "h2.p1")
    assert Ether(with_tag)[Dot1Q].vlan == 7 and Dot1Q not in Ether(without)
    pair.goes(second, tagged(MAC2, ALL, 7), "h1.p1", "h2.p1")
    pair.goes(remote, Ether(src=MAC3, dst=ALL), "h1.p1", "h1.p2")
    pair.goes(first, Ether(src=MAC1, dst=FAR), "h1.p2", "h2.p1")
    # Tags that are not bound.
    pair.goes(second, tagged(MAC2, ALL, 8))
    pair.goes(second, Ether(src=MAC2, dst=ALL))
    # VLAN 0 stands for all other frames, too, which keep their tags where no other takes its place.
    replaced, kept = pair.goes(first, tagged(MAC1, ALL, 8), "h1.p2", "h2.p1")
    assert Ether(replaced)[Dot1Q].vlan == 7 and Ether(kept)[Dot1Q].vlan == 8

    # Learned addresses are reported; known ones have their frames alone.
    learn = {
        MAC1: (first, Ether(src=MAC1, dst=ALL)),
        MAC2: (second, tagged(MAC2, ALL, 7)),
        MAC3: (remote, Ether(src=MAC3, dst=ALL)),
    }
    learns(one, "ls0", {mac: learn[mac] for mac in (MAC1, MAC2)})
    learns(two, "ls0", {MAC3: learn[MAC3]})
    pair.goes(first, Ether(src=MAC1, dst=MAC2), "h1.p2")
    one.vtep("add-ucast-remote", "ls0", MAC3, two.address)
    two.vtep("add-ucast-remote", "ls0", MAC1, one.address)
    pair.goes(first, Ether(src=MAC1, dst=MAC3), "h2.p1")
    pair.goes(remote, Ether(src=MAC3, dst=MAC1), "h1.p1")

    # An endpoint without a switch, to which a remote address moves.
    one.vtep("add-ucast-remote", "ls0", FAR, address(9))
    pair.goes(first, Ether(src=MAC1, dst=FAR), f"{address(9)}/{KEY}")
    pair.goes(lambda frame: one.receive_tunnelled(9, KEY, frame), Ether(src=FAR, dst=MAC1), "h1.p1")
    pair.goes(lambda frame: one.receive_tunnelled(9, KEY + 1, frame), Ether(src=FAR, dst=MAC1))
    one.vtep("add-ucast-remote", "ls0", FAR, address(8))
    pair.goes(first, Ether(src=MAC1, dst=FAR), f"{address(8)}/{KEY}")
    for host in pair.hosts:
        endpoints = 3 - host.number
        shows(host, lambda shown, n=endpoints: len(shown["rows"]["tunnels"]) == n, f"{endpoints} tunnels")
    note("connected", one, two)

    # All endpoints of unknown destinations receive copies, in one of the modes.
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    one.vtep("set-replication-mode", "ls0", "source_node")
    pair.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", "h2.p1", f"{address(9)}/{KEY}")
    pair.goes(lambda frame: one.receive_tunnelled(9, KEY, frame), Ether(src=FAR, dst=ALL), "h1.p1", "h1.p2")
    one.vtep("set-replication-mode", "ls0", "service_node")
    one.vtep("del-mcast-remote", "ls0", "unknown-dst", two.address)
    pair.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    one.vtep("del-mcast-remote", "ls0", "unknown-dst", address(9))
    pair.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2")

    # A second logical switch takes a binding.
    one.vtep("add-ls", "ls1", "--", "set", "Logical_Switch", "ls1", f"tunnel_key={KEY + 1}")
    rebound = ["unbind-ls", NAME, "p2", "7", "--", "bind-ls", NAME, "p2", "7", "ls1", "--", "bind-ls", NAME, "p1", "9", "ls1"]
    one.vtep(*rebound)
    pair.goes(first, Ether(src=MAC1, dst=ALL))
    pair.goes(first, tagged(MAC1, ALL, 9), "h1.p2")
    [frame] = pair.goes(second, tagged(MAC2, ALL, 7), "h1.p1")
    assert Ether(frame)[Dot1Q].vlan == 9
    learns(one, "ls1", {MAC2: learn[MAC2]})

    # Bindings, ports and logical switches are removed.
    one.vtep("unbind-ls", NAME, "p1", "9")
    pair.goes(second, tagged(MAC2, ALL, 7))
    one.vtep("unbind-ls", NAME, "p2", "7")
    shows(one, lambda shown: "ls1" not in shown["bridges"], "no bridge of ls1")
    one.vtep("unbind-ls", NAME, "p1", "0", "--", "clear-remote-macs", "ls0")
    shows(one, lambda shown: "ls0" not in shown["bridges"] and not shown["rows"]["tunnels"], "no bridge of ls0")
    shows(one, lambda shown: not shown["rows"]["unicast Local"], "no local addresses")
    one.vtep("del-ls", "ls1")
    one.switch.vsctl("del-port", "p2")
    one.add_port("p3")
    shows(one, lambda shown: [port[0] for port in shown["rows"]["ports"]] == ["p1", "p3"], "the port p3 in the place of p2")
    note("disconnected", one)


def test_both_emulators_do_the_same(making, vteps):
    recorded = []
    for maker in (making.peers, None):
        steps = {}
        scenario(vteps(maker), steps.__setitem__)
        recorded.append(steps)
    theirs, ours = recorded
    different = []
    for step, shown in theirs.items():
        for number, (their, our) in enumerate(zip(shown, ours[step]), 1):
            for title in ("rows", "bridges"):
                keys = their[title].keys() | our[title].keys()
                both = [(key, their[title].get(key), our[title].get(key)) for key in sorted(keys)]
                different += [f"{step}, host {number}, {key}:\n  {a}\n  {b}" for key, a, b in both if a != b]
    assert not different, "theirs, ours:\n" + "\n".join(different)


def bind(made):
    """Adds a logical switch over p1, untagged, and VLAN 7 of p2, and returns the host."""
    one = made.one
    until(lambda: one.vtep("list-ports", NAME).split() == ["p1", "p2"], "the ports of the physical switch")
    one.vtep("add-ls", "ls0", "--", "set", "Logical_Switch", "ls0", f"tunnel_key={KEY}")
    one.vtep("bind-ls", NAME, "p1", "0", "ls0", "--", "bind-ls", NAME, "p2", "7", "ls0")
    return one


def start_single(vteps):
    """One VTEP with such a logical switch."""
    made = vteps(count=1)
    return made, bind(made)


def test_bfd_chooses_the_service_node(vteps):
    made = vteps()
    one, two = made.hosts
    connect(made)
    for host in made.hosts:
        host.vtep("add-mcast-remote", "ls0", "unknown-dst", address(8))
    first = lambda frame: one.receive("p1", frame)
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", "h2.p1")

    def enable(host, other):
        """Enables BFD on the tunnel to the other host."""
        locator = host.vtep("--bare", "--columns=_uuid", "find", "Physical_Locator", f"dst_ip={other.address}")
        tunnel = until(lambda: host.vtep("--bare", "--columns=_uuid", "find", "Tunnel", f"remote={locator}"), "a tunnel")
        host.vtep("set", "Tunnel", tunnel, "bfd_params:enable=true", "bfd_params:min_rx=200")

    def status(host, other):
        return next((tunnel[3] for tunnel in host.rows()["tunnels"] if tunnel[1] == other.address), {})

    # A node that does not answer is passed over.
    enable(one, two)
    until(lambda: status(one, two).get("state") == "down", lambda: f"a session that is down: {status(one, two)}")
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(8)}/{KEY}")
    enable(two, one)
    for host, other in ((one, two), (two, one)):
        up = {"enabled": "true", "state": "up", "forwarding": "true", "remote_state": "up"}
        is_up = lambda host=host, other=other: up.items() <= status(host, other).items()
        until(is_up, lambda host=host, other=other: f"a session that is up: {status(host, other)}")
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", "h2.p1")


def test_a_moved_address_is_found(vteps):
    made, one = start_single(vteps)
    first, second = (lambda frame: one.receive("p1", frame)), (lambda frame: one.receive("p2", frame))
    made.goes(second, tagged(MAC2, ALL, 7), "h1.p1")
    made.goes(first, Ether(src=MAC1, dst=MAC2), "h1.p2")
    learns(one, "ls0", {MAC1: (first, Ether(src=MAC1, dst=ALL)), MAC2: (second, tagged(MAC2, ALL, 7))})
    # To another endpoint, while frames to it keep the learned flow in use, and back.
    one.vtep("add-ucast-remote", "ls0", MAC2, address(9))
    made.goes(first, Ether(src=MAC1, dst=MAC2), f"{address(9)}/{KEY}")
    until(lambda: ("ls0", MAC2) not in one.local_macs(), "no local address")
    made.goes(second, tagged(MAC2, ALL, 7), "h1.p1")
    made.goes(first, Ether(src=MAC1, dst=MAC2), "h1.p2")
    learns(one, "ls0", {MAC1: (first, Ether(src=MAC1, dst=ALL)), MAC2: (second, tagged(MAC2, ALL, 7))})
    # Without a port, it is local no longer.
    one.vtep("unbind-ls", NAME, "p2", "7")
    made.goes(first, Ether(src=MAC1, dst=MAC2), f"{address(9)}/{KEY}")
    until(lambda: ("ls0", MAC2) not in one.local_macs(), "no local address")


def test_statistics_are_those_of_the_ports(vteps):
    made, one = start_single(vteps)
    made.goes(lambda frame: one.receive("p2", frame), tagged(MAC2, ALL, 7), "h1.p1")

    def counters():
        found = one.tables("hardware_vtep", "Physical_Port", "Logical_Binding_Stats")
        port = next(row for row in found["Physical_Port"].values() if row["name"] == "p2")
        row = found["Logical_Binding_Stats"][dict((vlan, uuid[1]) for vlan, uuid in port["vlan_stats"][1])[7]]
        return row["packets_from_local"], row["bytes_from_local"], row["packets_to_local"]

    def are_counted():
        packets, size, back = counters()
        # As the switch counts, at their arrival, with the tag.
        return packets > 0 and size == packets * 71 and back == 0

    until(are_counted, lambda: f"counted frames: {counters()}")


def test_the_emulator_is_restarted(vteps):
    made, one = start_single(vteps)
    first = lambda frame: one.receive("p1", frame)
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    learns(one, "ls0", {MAC1: (first, Ether(src=MAC1, dst=ALL))})

    def identities():
        bridges = one.tables("Open_vSwitch", "Bridge", "Port")
        macs = one.tables("hardware_vtep", "Ucast_Macs_Local", "Mcast_Macs_Local", "Tunnel")
        return {table: sorted(rows) for table, rows in (bridges | macs).items()}

    before = identities()
    for number in (signal.SIGTERM, signal.SIGKILL):
        one.emulator.stop(number)
        made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
        one.emulator.start()
        made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
        assert identities() == before
    # What changed meanwhile is found.
    one.emulator.stop()
    one.vtep("unbind-ls", NAME, "p2", "7")
    one.switch.ofctl("add-flow", NAME, "priority=300,in_port=p1,actions=drop")
    one.emulator.start()
    made.goes(first, Ether(src=MAC1, dst=ALL), f"{address(9)}/{KEY}")
    # A flow that is added later is another program's.
    one.switch.ofctl("add-flow", NAME, "priority=300,in_port=p1,actions=drop")
    one.vtep("bind-ls", NAME, "p2", "7", "ls0")
    shows(one, lambda shown: len(shown["bridges"]["ls0"][2]) == 4, "the port of the binding")
    made.goes(first, Ether(src=MAC1, dst=ALL))


def test_the_switch_is_restarted(vteps):
    made, one = start_single(vteps)
    first = lambda frame: one.receive("p1", frame)
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    learns(one, "ls0", {MAC1: (first, Ether(src=MAC1, dst=ALL))})
    one.switch.kill("ovs-vswitchd")
    one.start_switch()
    made.settle_underlay()
    until(lambda: one.local_macs() == [], "no local address")
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    learns(one, "ls0", {MAC1: (first, Ether(src=MAC1, dst=ALL))})


def test_the_database_server_is_restarted(vteps):
    made, one = start_single(vteps)
    first = lambda frame: one.receive("p1", frame)
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2")
    one.switch.kill("ovsdb-server")
    one.start_database()
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    # Columns that are lost with the server are written again.
    shows(one, lambda shown: [tunnel[3] for tunnel in shown["rows"]["tunnels"]] == [{"enabled": "false"}], "the status of BFD")


def test_rows_of_other_endpoints(vteps):
    made, one = start_single(vteps)
    first = lambda frame: one.receive("p1", frame)
    learns(one, "ls0", {MAC1: (first, Ether(src=MAC1, dst=ALL))})
    # Another switch in the database has rows of its own; rows of an endpoint that no switch has are removed.
    one.vtep("add-ps", "other", "--", "set", "Physical_Switch", "other", "tunnel_ips=192.0.2.1")
    one.vtep("add-ucast-local", "ls0", MAC2, "192.0.2.1", "--", "add-ucast-local", "ls0", MAC3, "192.0.2.2")
    one.vtep("add-ls", "ls1", "--", "add-mcast-local", "ls1", "unknown-dst", "192.0.2.1")
    one.vtep("add-ls", "ls2", "--", "add-mcast-local", "ls2", "unknown-dst", "192.0.2.2")

    def rows(*wanted):
        def are_there():
            first(Ether(src=MAC1, dst=ALL) / bytes(46))
            shown = one.rows()
            unknown = [(name, locators) for name, _, locators in shown["multicast Local"]]
            return shown["unicast Local"] + unknown == list(wanted)

        until(are_there, lambda: f"{wanted}: {one.rows()}", interval_s=0.3)

    theirs = [("ls0", MAC2, "192.0.2.1")], [("ls1", ["192.0.2.1"])]
    rows(("ls0", MAC1, one.address), *theirs[0], ("ls0", [one.address]), *theirs[1])
    # The endpoint of the switch changes.
    one.vtep("set", "Physical_Switch", NAME, f"tunnel_ips={address(7)}")
    rows(("ls0", MAC1, address(7)), *theirs[0], ("ls0", [address(7)]), *theirs[1])
    # As does a tunnel key.
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    one.vtep("set", "Logical_Switch", "ls0", f"tunnel_key={KEY + 1}")
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY + 1}")
    one.vtep("clear", "Logical_Switch", "ls0", "tunnel_key")
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2")


def test_it_continues_where_the_script_ended(making, vteps):
    made = vteps(count=1, started=False)
    one = made.one
    theirs, ours = Emulator(one.switch, making.programs, making.peers, making.peers), one.emulator
    one.emulator = theirs
    one.emulator.start()
    bind(made)
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    first = lambda frame: one.receive("p1", frame)
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    shows(one, is_complete, "settings and status of BFD")
    theirs.stop()
    before = one.shown()
    one.emulator = ours
    ours.start()
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    shows(one, lambda shown: shown == before, f"what the script left: {before}")


def test_it_works_with_the_daemons_of_open_vswitch(making, vteps):
    made = vteps(making.peers, count=1, started=False)
    made.one.emulator = Emulator(made.one.switch, making.programs, making.peers)
    made.start_emulators()
    one = bind(made)
    first = lambda frame: one.receive("p1", frame)
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    _, with_tag = made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    assert Ether(with_tag)[Dot1Q].vlan == 7
    learns(one, "ls0", {MAC1: (first, Ether(src=MAC1, dst=ALL))})


def test_a_second_emulator_waits(making, vteps):
    made, one = start_single(vteps)
    second = Emulator(one.switch, making.programs, making.peers)
    second.pidfile, second.log_file = one.switch.directory / "second.pid", one.switch.directory / "second.log"
    words = [f"--pidfile={second.pidfile}", f"--log-file={second.log_file}", f"--unixctl={one.switch.directory}/second.ctl"]
    second.start(*words)
    until(lambda: "another ovs-vtep is running" in second.log(), "a waiting emulator")
    one.emulator.stop()
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    made.goes(lambda frame: one.receive("p1", frame), Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(9)}/{KEY}")
    second.stop()


def logical_row(one):
    return one.vtep("--bare", "--columns=_uuid", "find", "Logical_Switch", "name=ls0")


def keyed(number, key):
    """Words of vtep-ctl that add the locator @l of an endpoint, with a tunnel key of its own."""
    locator = ["encapsulation_type=vxlan_over_ipv4", f"dst_ip={address(number)}", f"tunnel_key={key}"]
    return ["--id=@l", "create", "Physical_Locator", *locator]


def faults(one):
    """The faults of the switch, and those of its ports by name."""
    found = one.tables("hardware_vtep", "Physical_Switch", "Physical_Port")
    texts = lambda value: sorted([value] if isinstance(value, str) else value[1])
    [switch] = [texts(row["switch_fault_status"]) for row in found["Physical_Switch"].values()]
    return switch, {row["name"]: texts(row["port_fault_status"]) for row in found["Physical_Port"].values()}


def reports(one, switch, ports):
    """Waits until these are all faults."""
    expected = (switch, {"p1": [], "p2": [], **ports})
    until(lambda: faults(one) == expected, lambda: f"faults {expected}, not {faults(one)}; {one.emulator.log()[-1500:]}")


def test_unsupported_configuration_is_reported(vteps):
    made, one = start_single(vteps)
    one.vtep("add-ucast-remote", "ls0", MAC3, "fd00::1", "--", "add-ucast-remote", "ls0", "nonsense", address(9))
    one.vtep("add-mcast-remote", "ls0", MAC3, address(9))
    one.vtep("add-lr", "lr0")
    one.vtep("--id=@e", "create", "ACL_entry", "sequence=1", "direction=ingress", "action=deny", "--",
             "--id=@a", "create", "ACL", "acl_name=a", "acl_entries=@e", "--", "set", "Physical_Port", "p1", "acl_bindings:0=@a")  # fmt: skip
    for line in (
        f'logical switch ls0: remote address {MAC3}: locator "fd00::1": not an IPv4 address',
        "logical switch ls0: remote address nonsense is not a unicast address",
        f"logical switch ls0: remote address {MAC3} is not a multicast address",
        "logical router lr0 is not supported",
        "physical port p1: access control lists are not supported",
    ):
        until(lambda line=line: one.emulator.log().count(line) == 1, lambda line=line: f"{line} in {one.emulator.log()}")
    reports(one, ["unspecified_fault"], {"p1": ["invalid_ACL_binding"]})
    # The rest is in effect.
    made.goes(lambda frame: one.receive("p1", frame), Ether(src=MAC1, dst=ALL), "h1.p2")
    # Faults go with their reasons.
    one.vtep("clear-remote-macs", "ls0", "--", "clear", "Physical_Port", "p1", "acl_bindings")
    reports(one, [], {})
    one.vtep("set", "Logical_Router", "lr0", f'switch_binding:"10.0.0.1/24"={logical_row(one)}')
    reports(one, ["lr_support_fault"], {})
    one.vtep("del-lr", "lr0")
    one.vtep("clear", "Logical_Switch", "ls0", "tunnel_key", "--", "add-ucast-remote", "ls0", MAC3, address(9))
    reports(one, ["unspecified_fault"], {})
    one.vtep("set", "Logical_Switch", "ls0", f"tunnel_key={KEY}")
    reports(one, [], {})


def test_failures_of_the_switch_are_reported(vteps):
    made, one = start_single(vteps)
    vsctl = one.switch.vsctl
    reports(one, [], {})
    # A tunnel that another bridge has already.
    options = [f"options:remote_ip={address(9)}", f"options:key={KEY}"]
    vsctl("add-br", "other", "--", "add-port", "other", "t9", "--", "set", "interface", "t9", "type=vxlan", *options)
    one.vtep("add-ucast-remote", "ls0", MAC3, address(9))
    reports(one, ["tunnel_exhaustion"], {})
    vsctl("del-br", "other")
    reports(one, [], {})
    # A patch port whose name another bridge has.
    one.vtep("unbind-ls", NAME, "p2", "7")
    shows(one, lambda shown: len(shown["bridges"]["ls0"][2]) == 3, "one binding")
    vsctl("add-br", "other", "--", "add-port", "other", "0007-p2-l", "--", "set", "interface", "0007-p2-l", "type=dummy")
    one.vtep("bind-ls", NAME, "p2", "7", "ls0")
    reports(one, [], {"p2": ["invalid_vlan_map"]})
    vsctl("del-br", "other")
    reports(one, [], {})
    # A flow table without room. Learned addresses and the flows of the emulator itself fit.
    bridge = vsctl("--bare", "--columns=name", "find", "Bridge", "external_ids:logical_switch_name=ls0")
    vsctl("--", "--id=@t", "create", "Flow_Table", "flow_limit=4", "--", "set", "Bridge", bridge, "flow_tables:1=@t")
    for number in range(1, 6):
        one.vtep("add-ucast-remote", "ls0", f"02:00:00:00:08:0{number}", address(9))
    reports(one, ["mac_table_exhaustion"], {})
    vsctl("clear", "Bridge", bridge, "flow_tables")
    reports(one, [], {})


def test_multicast_addresses_have_endpoints_of_their_own(vteps):
    made, one = start_single(vteps)
    first = lambda frame: one.receive("p1", frame)
    group, other = "01:00:5e:00:00:05", "01:00:5e:00:00:06"
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(9))
    one.vtep("add-mcast-remote", "ls0", group, address(8), "--", "add-mcast-remote", "ls0", group, address(9))
    made.goes(first, Ether(src=MAC1, dst=group), "h1.p2", f"{address(8)}/{KEY}")
    made.goes(first, Ether(src=MAC1, dst=other), "h1.p2", f"{address(9)}/{KEY}")
    one.vtep("set-replication-mode", "ls0", "source_node")
    made.goes(first, Ether(src=MAC1, dst=group), "h1.p2", f"{address(8)}/{KEY}", f"{address(9)}/{KEY}")
    made.goes(lambda frame: one.receive_tunnelled(8, KEY, frame), Ether(src=FAR, dst=group), "h1.p1", "h1.p2")
    one.vtep("del-mcast-remote", "ls0", group, address(9))
    made.goes(first, Ether(src=MAC1, dst=group), "h1.p2", f"{address(8)}/{KEY}")
    one.vtep("del-mcast-remote", "ls0", group, address(8))
    made.goes(first, Ether(src=MAC1, dst=group), "h1.p2", f"{address(9)}/{KEY}")
    reports(one, [], {})


def test_locators_have_keys_of_their_own(vteps):
    made, one = start_single(vteps)
    first = lambda frame: one.receive("p1", frame)
    one.vtep("add-mcast-remote", "ls0", "unknown-dst", address(8))
    logical = f"logical_switch={logical_row(one)}"
    one.vtep(*keyed(8, 7), "--", "create", "Ucast_Macs_Remote", f'MAC="{FAR}"', logical, "locator=@l")
    made.goes(first, Ether(src=MAC1, dst=FAR), f"{address(8)}/7")
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2", f"{address(8)}/{KEY}")
    for key in (7, KEY):
        made.goes(lambda frame, key=key: one.receive_tunnelled(8, key, frame), Ether(src=FAR, dst=ALL), "h1.p1", "h1.p2")
    # One session of BFD for the endpoint, and no key for the others.
    shows(one, lambda shown: [tunnel[1] for tunnel in shown["rows"]["tunnels"]] == [address(8)], "one tunnel")
    one.vtep("clear", "Logical_Switch", "ls0", "tunnel_key")
    made.goes(first, Ether(src=MAC1, dst=ALL), "h1.p2")
    made.goes(first, Ether(src=MAC1, dst=FAR), f"{address(8)}/7")
    reports(one, ["unspecified_fault"], {})


def test_a_switch_that_cannot_be_emulated(vteps):
    one = vteps(count=1, started=False).one
    run = one.emulator.run
    words = ["-vconsole:off", "--unixctl=none"]

    def refused(*arguments):
        output = run(*words, *arguments)
        assert output.code == 1 and not output.out
        return output.err.rstrip("\n")

    assert refused("other") == "ovs-vtep: no physical switch named other in database hardware_vtep"
    one.vtep("add-ps", "other", "--", "set", "Physical_Switch", "other", "tunnel_ips=192.0.2.1")
    assert refused("other") == "ovs-vtep: couldn't find OVS bridge other"
    one.vtep("clear", "Physical_Switch", NAME, "tunnel_ips")
    assert refused(NAME) == "ovs-vtep: exactly one 'tunnel_ips' should be set"
    one.vtep("set", "Physical_Switch", NAME, "tunnel_ips=192.0.2.1,192.0.2.2")
    assert refused(NAME) == "ovs-vtep: exactly one 'tunnel_ips' should be set"
    one.vtep("set", "Physical_Switch", NAME, 'tunnel_ips="fd00::1"')
    assert refused(NAME) == 'ovs-vtep: tunnel_ips: "fd00::1" is not an IPv4 address, which VXLAN tunnels need'
    assert refused() == "ovs-vtep: the name of the physical switch is required; use --help for usage"
    assert refused("a", "b") == "ovs-vtep: only one physical switch is accepted; use --help for usage"
    assert refused("a/b") == "ovs-vtep: a/b: not the name of a bridge"
    assert refused("--db=nonsense", NAME).startswith("ovs-vtep: nonsense: ")
    assert "unrecognized option '--nonsense'" in run("--nonsense").err
    assert "PS-NAME" in run("--help").out and "(Open vSwitch) 4.0" in run("--version").out


def test_the_control_socket(vteps):
    one = vteps(count=1).one
    appctl = lambda *words: one.switch.appctl("-t", "ovs-vtep", *words)
    assert appctl("version").startswith("ovs-vtep (Open vSwitch)")
    assert {"exit", "vlog/set", "list-commands"} <= {line.split()[0] for line in appctl("list-commands").splitlines()}
    appctl("vlog/set", "vtep:file:dbg")
    appctl("exit")
    until(lambda: not one.emulator.lives() and not one.emulator.pidfile.exists(), "the end of ovs-vtep")


def test_databases_and_sockets_elsewhere(making, vteps):
    one = vteps(count=1, started=False).one
    # The same directory as seen below another root.
    root = making.tmp_path_factory.mktemp("r")
    below = root / one.switch.directory.relative_to("/")
    below.parent.mkdir(parents=True)
    below.symlink_to(one.switch.directory)
    one.emulator.environment["OVS_RUNDIR"] = str(one.switch.directory)
    one.emulator.start(f"--root-prefix={root}")
    until(lambda: one.vtep("list-ports", NAME).split() == ["p1", "p2"], "the ports of the physical switch")
    assert f"emulating physical switch ps (unix:{below}/db.sock, unix:{below}/db.sock)" in one.emulator.log()
    one.emulator.stop()
    # The second database at another server.
    server = one.switch.directory / "second"
    server.mkdir()
    made = DatabaseServer(one.switch.programs, making.peers, server, [vtep_schema(making.peers)])
    made.start()
    try:
        words = ["--db", made.remote, "add-ps", NAME, "--", "set", "Physical_Switch", NAME, f"tunnel_ips={one.address}"]
        one.vtep(*words)
        one.emulator.start(f"--vtep-db={made.remote}", f"--db=unix:{one.switch.socket}")
        until(lambda: one.vtep("--db", made.remote, "list-ports", NAME).split() == ["p1", "p2"], "the ports")
    finally:
        one.emulator.stop()
        made.stop()


def test_linux_is_the_other_end(making):
    site, linux = Site(making, 1), LinuxEnd(making, 2)
    cable(site, linux)
    directory = making.tmp_path_factory.mktemp("vtep")
    server = DatabaseServer(making.programs, making.peers, directory, [vtep_schema(making.peers)])
    emulator = Emulator(site.switch, making.programs, making.peers)
    server.start()
    try:
        vtep = lambda *words: server.run("vtep-ctl", "--db", server.remote, *words).out
        vtep("add-ps", BRIDGE, "--", "set", "Physical_Switch", BRIDGE, f"tunnel_ips={outer(1)}")
        emulator.start(f"--vtep-db={server.remote}", name=BRIDGE)
        until(lambda: vtep("list-ports", BRIDGE).split() == [site.host.port], "the physical port")
        vtep("add-ls", "ls0", "--", "set", "Logical_Switch", "ls0", f"tunnel_key={KEY}")
        vtep("bind-ls", BRIDGE, site.host.port, "0", "ls0")
        vtep("add-mcast-remote", "ls0", "unknown-dst", outer(2))
        linux.tunnel("vxlan", "id", KEY, "remote", outer(1), "dstport", 4789)
        pings = lambda: site.host.run("ping", "-c", "1", "-W", "1", linux.address, check=False).code == 0
        until(pings, "a reply")
        until(lambda: f"{site.host.mac} -> vxlan_over_ipv4/{outer(1)}" in vtep("list-local-macs", "ls0"), "the learned address")
        # By the address alone, once a controller has reported it.
        vtep("add-ucast-remote", "ls0", linux.mac, outer(2), "--", "del-mcast-remote", "ls0", "unknown-dst", outer(2))
        until(pings, "a reply")
    finally:
        emulator.stop()
        server.stop()
