"""Multicast snooping with real hosts: sockets of the kernel join groups, and reports, leaves and data pass the switch."""

import json
import select

import pytest

from waiting import until

PORT = 5555


class Lan:
    """A sender, two hosts that may listen, and a host that watches all frames."""

    def __init__(self, making):
        self.switch = making.switch(start="kernel")
        self.sender, self.first, self.second, self.watcher = self.hosts = [
            making.host(self.switch, number) for number in (1, 2, 3, 4)
        ]
        ports = [word for host in self.hosts for word in ("--", "add-port", "br0", host.port)]
        self.switch.vsctl("add-br", "br0", *ports)
        self.switch.ofctl("add-flow", "br0", "actions=normal")
        self.set_bridge("mcast_snooping_enable=true", "other_config:mcast-snooping-disable-flood-unregistered=true")
        self.watching = self.watcher.start_python("multicast_host.py", "watch", PORT)

    def set_bridge(self, *settings):
        self.switch.ours.vsctl("set", "bridge", "br0", *settings)

    def table(self):
        return json.loads(self.switch.ours.appctl("--format", "json", "mdb/show", "br0"))

    def members(self, group):
        """The port numbers of a group's members, and its protocols."""
        rows = [row for row in self.table()["members"] if row["group"] == group]
        return [row["port"] for row in rows], {row["protocol"] for row in rows}

    def number(self, host):
        return int(self.switch.ours.vsctl("get", "interface", host.port, "ofport"))

    def listen(self, host, group):
        """Joins a group, and waits until the switch knows."""
        process = host.start_python("multicast_host.py", "listen", group, PORT, stdin=-1)
        until(lambda: self.number(host) in self.members(group)[0], f"{host.port} as a member of {group}")
        return process

    def leave(self, process, host, group):
        process.stdin.close()
        process.wait(30)
        until(lambda: self.number(host) not in self.members(group)[0], f"{host.port} without {group}")

    def send(self, group, text):
        self.sender.python("multicast_host.py", "send", group, PORT, text)


def heard(process):
    """The next line of a listener."""
    assert select.select([process.stdout], [], [], 30)[0], "nothing was received"
    return process.stdout.readline().strip()


VERSIONS = [("v4", 1, "IGMPv1"), ("v4", 2, "IGMPv2"), ("v4", 3, "IGMPv3"), ("v6", 1, "MLDv1"), ("v6", 2, "MLDv2")]


@pytest.mark.parametrize("family, version, protocol", VERSIONS, ids=[protocol for _, _, protocol in VERSIONS])
def test_listeners_get_their_group_and_others_do_not(making, family, version, protocol):
    lan = Lan(making)
    group = "239.1.1.1" if family == "v4" else "ff15::77"
    setting = f"ip{family}/conf/all/force_{'igmp' if family == 'v4' else 'mld'}_version"
    for host in (lan.first, lan.second):
        host.run("sh", "-c", f"echo {version} > /proc/sys/net/{setting}")
    if family == "v6":
        # A host reports its groups, and sends, once its own address is known to be unique.
        for host in (lan.first, lan.second, lan.sender):
            until(lambda host=host: "tentative" not in host.run("ip", "-6", "addr", "show", "dev", "e0").out, "an address")
    first = lan.listen(lan.first, group)
    assert lan.members(group) == ([lan.number(lan.first)], {protocol})
    lan.send(group, "one")
    assert heard(first) == "one"
    second = lan.listen(lan.second, group)
    lan.send(group, "two")
    assert (heard(first), heard(second)) == ("two", "two")
    # IGMP version 1 has no message for leaving. Hosts that have left repeat no report.
    if version == 1 and family == "v4":
        for process in (first, second):
            process.stdin.close()
            process.wait(30)
        lan.switch.ours.appctl("mdb/flush", "br0")
    else:
        lan.leave(first, lan.first, group)
        lan.send(group, "three")
        assert heard(second) == "three"
        lan.leave(second, lan.second, group)
    # Nobody listens: the watching host gets frames only when it is flooded.
    lan.send(group, "four")
    lan.set_bridge("other_config:mcast-snooping-disable-flood-unregistered=false")
    lan.send(group, "five")
    assert heard(lan.watching) == "five"


def test_routers_get_reports_and_all_groups(making):
    lan = Lan(making)
    lan.watcher.python("multicast_host.py", "query")
    until(lambda: [row["port"] for row in lan.table()["routers"]] == [lan.number(lan.watcher)], "a router")
    lan.send("239.1.1.1", "to nobody")
    assert heard(lan.watching) == "to nobody"
    listener = lan.listen(lan.first, "239.1.1.1")
    lan.send("239.1.1.1", "to one")
    assert (heard(listener), heard(lan.watching)) == ("to one", "to one")
    before = lan.switch.ours.appctl("mdb/show", "br0")
    assert "querier" in before and "239.1.1.1" in before
    # A flooded port gets the groups of others, too.
    lan.switch.ours.appctl("mdb/flush", "br0")
    lan.switch.ours.vsctl("set", "port", lan.watcher.port, "other_config:mcast-snooping-flood=true")
    lan.send("239.1.1.1", "flooded")
    assert heard(lan.watching) == "flooded"
