"""Flow tables as configured by the database and controllers: names, limits, eviction and vacancies."""

import re
import socket
import struct

import pytest


@pytest.fixture
def bridge(switch):
    """br0 without ports, and a row for its table 0."""
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
    switch.vsctl("set", "bridge", "br0", "flow_tables:0=@t", "--", "--id=@t", "create", "flow_table", "name=main")
    return switch


def set_table(switch, *words):
    switch.vsctl("set", "flow_table", "main", *words)


def add(switch, flow, **options):
    return switch.peers.run("ovs-ofctl", "-O", "OpenFlow14", "add-flow", "br0", flow, **options)


def names_of(switch, *words):
    return re.findall(r'table (\d+) \("(\w+)"\)', switch.ofctl(*words))


def test_names(bridge):
    tools = (bridge.peers, bridge.ours)
    for ours in tools:
        ours.ofctl("-O", "OpenFlow15", "mod-table", "br0", "7", "name:acl")
        for version in ("OpenFlow10", "OpenFlow11", "OpenFlow12"):
            assert names_of(bridge, "-O", version, "dump-tables", "br0") == [("0", "main"), ("7", "acl")]
        assert names_of(bridge, "-O", "OpenFlow13", "dump-table-features", "br0") == [("0", "main"), ("7", "acl")]
        # Names replace numbers in flows, and are shown.
        ours.ofctl("add-flow", "br0", "table=main,actions=goto_table:7", "-O", "OpenFlow13")
        ours.ofctl("add-flow", "br0", "table=acl,actions=drop", "-O", "OpenFlow13")
        for program in tools:
            flows = program.ofctl("-O", "OpenFlow13", "--names", "--no-stats", "dump-flows", "br0")
            assert flows.split("\n") == [" table=main, actions=goto_table:acl", " table=acl, actions=drop"], flows
            assert "table acl:\n" in program.ofctl("-O", "OpenFlow14", "--names", "dump-table-desc", "br0")
        # The database takes precedence.
        refused = ours.run("ovs-ofctl", "-O", "OpenFlow14", "mod-table", "br0", "0", "name:x", check=False)
        assert refused.code == 1 and "OFPTFFC_EPERM" in refused.err
        ours.ofctl("-O", "OpenFlow13", "mod-table", "br0", "acl", "name:")
        ours.ofctl("-O", "OpenFlow13", "del-flows", "br0")
    bridge.vsctl("clear", "flow_table", "main", "name")
    assert names_of(bridge, "dump-tables", "br0") == []


def test_limits_and_eviction(bridge):
    set_table(bridge, "flow_limit=4")
    assert "max_entries=4\n" in bridge.ofctl("-O", "OpenFlow13", "dump-table-features", "br0")
    for n in range(1, 5):
        add(bridge, f"priority={n},in_port={n % 2},idle_timeout={90 + n},importance={n % 3},actions=drop")
    refused = add(bridge, "priority=5,actions=drop", check=False)
    assert refused.code == 1 and "OFPFMFC_TABLE_FULL" in refused.err
    # Two for each port; of the least important, the one that expires first.
    set_table(bridge, "overflow_policy=evict", 'groups="NXM_OF_IN_PORT[]"')
    add(bridge, "priority=5,in_port=1,hard_timeout=500,importance=9,actions=drop")
    assert priorities(bridge) == [1, 2, 4, 5]
    add(bridge, "priority=6,actions=drop")
    assert priorities(bridge) == [2, 4, 5, 6] or priorities(bridge) == [1, 2, 5, 6]
    # A flow that must not be evicted stays, and a smaller limit applies at once.
    set_table(bridge, "flow_limit=2")
    assert len(priorities(bridge)) == 2 and 6 in priorities(bridge)
    bridge.vsctl("clear", "flow_table", "main", "overflow_policy")
    assert add(bridge, "priority=7,actions=drop", check=False).code == 1
    # The same by OpenFlow.
    bridge.ofctl("-O", "OpenFlow14", "mod-table", "br0", "main", "evict")
    add(bridge, "priority=7,actions=drop")
    assert priorities(bridge) == [6, 7]
    assert add(bridge, "priority=8,actions=drop", check=False).code == 1
    assert "eviction=on eviction_flags=OTHER|IMPORTANCE|LIFETIME" in bridge.ofctl("-O", "OpenFlow14", "dump-table-desc", "br0")


def priorities(switch):
    return sorted(int(n) for n in re.findall(r"priority=(\d+)", switch.ofctl("dump-flows", "br0")))


class Controller:
    """OpenFlow 1.4 on the management socket, byte by byte: Debian's monitor does not request table status messages."""

    def __init__(self, switch):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(switch.management("br0")))
        self.send(0)
        self.next()
        self.send(9, struct.pack(">HH", 0, 0xFFFF))
        reasons = 1 << 3 | 1 << 4
        self.send(28, struct.pack(">HHIHHI", 9, 8, reasons, 5, 8, 1 << 5))

    def send(self, kind, body=b"", xid=5):
        self.socket.sendall(struct.pack(">BBHI", 5, kind, 8 + len(body), xid) + body)

    def next(self):
        head = self.exactly(8)
        return head[1], self.exactly(int.from_bytes(head[2:4], "big") - 8)

    def exactly(self, n):
        data = b""
        while len(data) < n:
            data += self.socket.recv(n - len(data)) or pytest.fail("closed")
        return data

    def news(self):
        """All messages before the reply to a barrier."""
        self.send(20)
        messages = []
        while (message := self.next())[0] != 21:
            messages.append(message)
        return messages


def test_vacancies_and_evictions_are_reported(bridge):
    set_table(bridge, "flow_limit=5", "overflow_policy=evict")
    bridge.ofctl("-O", "OpenFlow14", "mod-table", "br0", "0", "vacancy:20,80")
    controller = Controller(bridge)
    assert controller.news() == []
    for n in range(5):
        add(bridge, f"priority={n},send_flow_rem,hard_timeout={5000 - 1000 * n},actions=drop")
    (kind, body), *rest = controller.news()
    # Table 0 has vacancy events at 20 and 80 percent; now it is full.
    assert (kind, body[0], body[8:]) == (31, 3, bytes.fromhex("0018000000000008 0002000800000007 0003000814500000"))
    assert rest == []
    add(bridge, "priority=9,actions=drop")
    ((kind, body),) = controller.news()
    # The flow that would expire first: priority 4, evicted.
    assert (kind, body[8:11]) == (11, bytes([0, 4, 5]))
    bridge.ofctl("del-flows", "br0")
    news = controller.news()
    assert [(kind, body[0]) for kind, body in news if kind == 31] == [(31, 4)]
    desc = bridge.ofctl("-O", "OpenFlow15", "dump-table-desc", "br0")
    assert "vacancy=on vacancy_down=20% vacancy_up=80% vacancy=100%\n" in desc
    bridge.ofctl("-O", "OpenFlow15", "mod-table", "br0", "0", "novacancy")
    assert "vacancy=on" not in bridge.ofctl("-O", "OpenFlow15", "dump-table-desc", "br0")


def test_settings_by_both_programs(bridge):
    for setting in ("evict", "vacancy:30,40", "noevict", "novacancy"):
        told = []
        for tools in (bridge.peers, bridge.ours):
            assert str(tools.run("ovs-ofctl", "-O", "OpenFlow15", "mod-table", "br0", "3", setting).err) == ""
            told.append(tools.ofctl("-O", "OpenFlow14", "dump-table-desc", "br0"))
        assert told[0] == told[1], setting
    for words in (("254", "evict"), ("300", "evict"), ("all", "name:x"), ("3", "vacancy:9"), ("3", "other")):
        told = [tools.run("ovs-ofctl", "-O", "OpenFlow14", "mod-table", "br0", *words, check=False) for tools in (bridge.peers, bridge.ours)]
        errors = [re.sub(r"xid=0x\w+|\S+WARN\S.*\n|ovs-ofctl: ", "", done.err) for done in told]
        assert errors[0] == errors[1] and told[0].code == told[1].code == 1, words
