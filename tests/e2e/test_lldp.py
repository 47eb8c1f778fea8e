"""LLDP and auto-attach: with Debian's lldpd at the other end of a cable, and compared with Open vSwitch's daemon on
the same frames."""

import json
import os
import re
import shutil
import signal
import struct
import tempfile
from pathlib import Path

import pytest

from dummies import Dummies
from waiting import until

NEAREST_BRIDGE = bytes.fromhex("0180c200000e")
PEER = bytes.fromhex("020000000001")
DIGEST = bytes(32)


class Lldpd:
    """Debian's lldpd on the interface e0 of a host."""

    def __init__(self, host):
        self.host = host
        # lldpcli drops its privileges before it connects: the directory is open to all.
        self.directory = Path(tempfile.mkdtemp(prefix="fslldp", dir="/tmp"))
        self.directory.chmod(0o755)
        self.socket = self.directory / "socket"
        # At its start lldpd is paused, and a child of it reads and writes back the whole configuration: first for this
        # file, then to resume. A command given meanwhile does the same, and one of the two undoes the other's change:
        # the interval stays at 30 s, or lldpd is paused again and stays so.
        configuration = self.directory / "configuration"
        configuration.write_text("configure lldp tx-interval 1\n")
        words = ["lldpd", "-d", "-u", self.socket, "-I", "e0", "-S", "a host of the tests", "-M", "4"]
        self.process = host.start(*words, "-O", configuration)
        # For a moment, only root may connect to the socket.
        until(lambda: self.command("show", "configuration", check=False), "an answer of lldpd")

    def command(self, *words, **options):
        return self.host.run("lldpcli", "-u", self.socket, *words, **options).out

    def neighbours(self):
        """The neighbours of e0, as lldpcli lists them."""
        shown = json.loads(self.command("-f", "json0", "show", "neighbors", "details"))
        return shown["lldp"][0].get("interface", [])

    def stop(self):
        """Ends it by SIGTERM like a service, and waits for its end."""
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def statistics(switch, port):
    return json.loads(switch.ours.appctl("--format", "json", "autoattach/statistics"))[port]


def neighbours(switch, port):
    return json.loads(switch.ours.appctl("--format", "json", "autoattach/status"))[port]


def test_lldpd_and_the_switch_are_neighbours(making):
    switch = making.switch(start="kernel")
    one, other = making.host(switch, 1), making.host(switch, 2)
    switch.vsctl("add-br", "br0", "--", "add-port", "br0", one.port, "--", "add-port", "br0", other.port)
    # The flow sends all frames to the other port, even LLDP, unless the switch takes them first.
    switch.ofctl("add-flow", "br0", f"priority=9,in_port={one.port},actions={other.port}")
    switch.ours.vsctl("set", "interface", one.port, "lldp:enable=true")
    words = ["--", "--id=@a", "create", "AutoAttach", "system_name=a-switch", "system_description=of-tests"]
    switch.ours.vsctl("set", "bridge", "br0", "auto_attach=@a", *words)
    lldpd, beside = Lldpd(one), Lldpd(other)
    try:
        # The switch's LLDPDU, as decoded by lldpd.
        seen = until(lldpd.neighbours, "the switch as a neighbour of lldpd")[0]
        mac = switch.vsctl("get", "interface", one.port, "mac_in_use").strip('"')
        chassis, port = seen["chassis"][0], seen["port"][0]
        assert (chassis["id"][0]["type"], chassis["id"][0]["value"]) == ("mac", mac)
        assert chassis["name"][0]["value"] == "a-switch" and chassis["descr"][0]["value"] == "of-tests"
        assert (port["id"][0]["type"], port["id"][0]["value"]) == ("ifname", one.port)
        assert port["ttl"][0]["value"] == "120"
        # lldpd's LLDPDU, as decoded by the switch.
        [known] = until(lambda: neighbours(switch, one.port), "lldpd as a neighbour of the switch")
        assert known["system_description"] == "a host of the tests" and known["ttl"] == 4
        assert known["port_id"] == one.mac, known
        counts = until(
            lambda: (got := statistics(switch, one.port))["rx"] > 2 and got["tx"] > 0 and got, "frames in both directions"
        )
        assert (counts["rx_discarded"], counts["insert"], counts["drop"]) == (0, 1, 0)
        assert "slow_path(lldp)" in switch.ours.appctl("dpctl/dump-flows")
        # The frames of one were not forwarded, and the port without LLDP has no state.
        assert not beside.neighbours()
        assert one.port in switch.ours.appctl("autoattach/status") and other.port not in switch.ours.appctl(
            "autoattach/status"
        )
        # It sends a shutdown LLDPDU when it ends.
        lldpd.stop()
        until(lambda: not neighbours(switch, one.port), "the end of the neighbour")
        counts = statistics(switch, one.port)
        assert counts["delete"] + counts["ageout"] == 1, counts
        # With LLDP disabled, its frames follow the tables.
        switch.ours.vsctl("clear", "interface", one.port, "lldp")
        assert switch.ours.appctl("autoattach/status") == ""
        lldpd = Lldpd(one)
        until(beside.neighbours, "one host as the neighbour of the other")
    finally:
        lldpd.stop()
        beside.stop()


def test_the_switch_withdraws_what_it_announced(making):
    """lldpd forgets the switch at once and not after the time to live of 120 s, however LLDP ends on a port."""
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number) for number in (1, 2, 3)]
    for number, host in enumerate(hosts):
        # The last one is alone on its bridge.
        bridge = f"br{number // 2}"
        switch.vsctl("--may-exist", "add-br", bridge, "--", "add-port", bridge, host.port)
        switch.ours.vsctl("set", "interface", host.port, "lldp:enable=true")
    all_lldpd = [Lldpd(host) for host in hosts]

    def names(lldpd):
        return [neighbour["port"][0]["id"][0]["value"] for neighbour in lldpd.neighbours()]

    def expect(*known):
        for lldpd, is_known in zip(all_lldpd, known):
            expected = [lldpd.host.port] if is_known else []
            until(lambda lldpd=lldpd, expected=expected: names(lldpd) == expected, f"{expected} at {lldpd.host.port}")

    try:
        expect(True, True, True)
        switch.ours.vsctl("set", "interface", hosts[0].port, "lldp:enable=false")
        expect(False, True, True)
        switch.ours.vsctl("del-port", hosts[1].port)
        expect(False, False, True)
        switch.ours.vsctl("del-br", "br1")
        expect(False, False, False)
        switch.ours.vsctl("set", "interface", hosts[0].port, "lldp:enable=true")
        expect(True, False, False)
        pid = switch.pid("ovs-vswitchd")
        switch.ours.appctl("exit")
        switch.wait_gone(pid)
        expect(False, False, False)
    finally:
        for lldpd in all_lldpd:
            lldpd.stop()


@pytest.mark.parametrize("way", ["SIGTERM", "exit", "exit --cleanup"])
def test_shutdown_frames_of_an_orderly_end(making, way):
    """Each port sends one shutdown frame, though none was due yet; Open vSwitch 4.0.0 sends none."""
    switch = making.switch()
    dummies = Dummies(switch, "br0", "p1", "p2")
    switch.ours.vsctl("set", "interface", "p1", "lldp:enable=true", "--", "set", "interface", "p2", "lldp:enable=true")
    pid = switch.pid("ovs-vswitchd")
    if way == "SIGTERM":
        os.kill(pid, signal.SIGTERM)
    else:
        switch.ours.appctl(*way.split())
    switch.wait_gone(pid)
    for port in ("p1", "p2"):
        sent = [bytes(frame) for frame in dummies.all_frames(port)]
        last = sent.pop()
        mac, mandatory = last[6:12], tlv(2, b"\x05" + port.encode()) + tlv(3, bytes(2)) + tlv(0, b"")
        assert last == NEAREST_BRIDGE + mac + b"\x88\xcc" + tlv(1, b"\x04" + mac) + mandatory
        assert all(tlv(3, bytes(2)) not in frame for frame in sent)


def tlv(kind, value):
    return struct.pack("!H", kind << 9 | len(value)) + value


def auto_attach(subtype, contents):
    return tlv(127, bytes([0x00, 0x04, 0x0D, subtype]) + DIGEST + contents)


def frame(*more, ttl=120, chassis=b"\x04" + PEER, port=b"\x05eth9"):
    head = tlv(1, chassis) + tlv(2, port) + tlv(3, struct.pack("!H", ttl))
    return (NEAREST_BRIDGE + PEER + b"\x88\xcc" + head + b"".join(more) + tlv(0, b"")).ljust(60, b"\0")


ELEMENT = auto_attach(0x0B, bytes.fromhex("08000000" + "0a0b0c0d0e0f" + "ffff3040"))


def assignment(status, vlan=200, isid=100):
    return auto_attach(0x0C, struct.pack("!H", status << 12 | vlan) + isid.to_bytes(3, "big"))


FRAMES = {
    "complete": frame(),
    "element": frame(tlv(6, b"a server"), ELEMENT),
    "no description": frame(ELEMENT),
    "chassis of another kind": frame(tlv(6, b"another"), ELEMENT, chassis=b"\x07xyz"),
    "unknown TLVs": frame(tlv(9, b"abc"), tlv(127, b"\0\1\2\3abc")),
    "short organization": frame(tlv(127, b"\0\1")),
    "short element": frame(auto_attach(0x0B, b"123")),
    "no time to live": frame()[:31] + b"\0" * 29,
    **{f"status {status}": frame(ELEMENT, assignment(status)) for status in range(10)},
}


# The output of Open vSwitch 4.0.0 after each of these frames in turn, and the end of the frame that it sends. Older
# versions count and print some of this differently, so they are no reference.
RECORDED = json.loads((Path(__file__).parent / "lldp_of_open_vswitch.json").read_text())


@pytest.fixture(scope="module")
def both(module_making, peers):
    """A bridge with LLDP and a mapping, by Open vSwitch's daemons and by ours."""
    switches = [module_making.switch(maker=peers), module_making.switch()]
    for switch in switches:
        switch.dummies = Dummies(switch, "br0", "p1")
        switch.vsctl("add-aa-mapping", "br0", "100", "200", "--", "set", "interface", "p1", "lldp:enable=true")
    return switches


def is_reference(switch):
    """Whether the version of Open vSwitch is the one recorded here."""
    version = re.search(r"Open vSwitch\) (\d+)", switch.ours.run("ovs-vswitchd", "--version").out)
    return version is not None and int(version[1]) >= 4


def test_frames(both):
    """Neighbours, mappings and counters after each frame, without frames that the daemons sent meanwhile."""

    def shown(switch, name):
        def received():
            return int(switch.appctl("autoattach/statistics").split("rx cnt: ")[1].split()[0])

        before = received()
        switch.dummies.receive("p1", FRAMES[name])
        until(lambda: received() == before + 1, "the frame")
        text = [switch.appctl(f"autoattach/{what}") for what in ("status", "show-isid", "statistics")]
        return "\n".join(line for line in "\n".join(text).splitlines() if "tx cnt" not in line)

    theirs, ours = both
    for name in FRAMES:
        assert shown(ours, name) == RECORDED[name], name
    if is_reference(theirs):
        for name in FRAMES:
            assert shown(theirs, name) == RECORDED[name], name


def test_vlans_of_mappings_are_trunked(both):
    def trunks(switch):
        return switch.vsctl("get", "port", "p1", "trunks", "vlan_mode")

    def become(trunked):
        for switch in both:
            until(lambda: trunks(switch) == trunked, lambda: f"{trunked}, but {trunks(switch)}")

    become("[200]\ntrunk")
    for switch in both:
        switch.vsctl("add-aa-mapping", "br0", "101", "201")
    become("[200, 201]\ntrunk")
    for switch in both:
        switch.vsctl("del-aa-mapping", "br0", "101", "201")
    become("[200]\ntrunk")


def test_frames_sent(both):
    """Except for the description, both send the same, once they send the last mapping alone."""
    heads = []
    for switch, name in zip(both, (b"openvswitch", b"Flowstone")):

        until(lambda switch=switch: switch.dummies.all_frames("p1"), "a frame")

        def parts(switch=switch, name=name):
            frame = bytes(switch.dummies.all_frames("p1")[-1])
            at = frame.index(name)
            return frame[14 : at - 2], frame[at + frame[at - 1] :].hex()

        if name == b"Flowstone" or is_reference(switch):
            until(lambda parts=parts: parts()[1] == RECORDED["sent"], lambda parts=parts: f"{RECORDED['sent']}, but {parts()[1]}")
        heads.append(parts()[0])
    assert heads[0] == heads[1]
