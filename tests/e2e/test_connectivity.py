"""BFD and CFM with Open vSwitch 4.0.0 at the other end, over a cable and over a VXLAN tunnel, and BFD with FRR's bfdd."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from overlays import LOCAL, UPLINK, add_tunnels, join
from waiting import until

FAST = ["bfd:enable=true", "bfd:min_rx=100", "bfd:min_tx=100"]


def status(site, interface, column="bfd_status"):
    """A column of pairs as a dictionary, or the text of another one."""
    text = site.switch.vsctl("get", "interface", interface, column)
    if not text.startswith("{"):
        return text
    return dict(pair.split("=", 1) for pair in text.strip("{}").replace('"', "").split(", ") if pair)


def bfd(site, interface):
    return status(site, interface).get("state")


def is_live(site, bridge, port):
    """Whether OpenFlow's port state is LIVE."""
    lines = site.switch.ofctl("-O", "OpenFlow13", "dump-ports-desc", bridge)
    part = lines.split(f"({port})", 1)[1].split("addr:", 2)[1]
    return "LIVE" in part


def both(sites, interface, check, what):
    for site in sites:
        until(lambda site=site: check(site, interface), f"{what} at site {site.number}")


@pytest.fixture(params=["cable", "vxlan"])
def ends(request, making, peers):
    """A site of ours and one of Open vSwitch, and the interface by which they reach each other."""
    sites = join(making, maker=peers)
    if request.param == "cable":
        return sites, LOCAL, UPLINK
    add_tunnels("vxlan", 4, ["key=7"], *sites)
    return sites, "br-int", "t0"


def test_bfd_with_open_vswitch(ends):
    sites, bridge, port = ends
    ours, theirs = sites
    ours.switch.vsctl("set", "interface", port, *FAST)
    until(lambda: status(ours, port).get("state") == "down", "a session that is down")
    assert not is_live(ours, bridge, port)
    theirs.switch.vsctl("set", "interface", port, *FAST, "bfd:mult=5")
    both(sites, port, lambda site, name: bfd(site, name) == "up", "a session that is up")
    until(lambda: is_live(ours, bridge, port), "a live port")
    shown = json.loads(ours.switch.ours.appctl("--format", "json", "bfd/show"))[port]
    assert (shown["remote"]["multiplier"], shown["tx_interval_ms"]) == (5, 100)
    # Both ends agree about new intervals, and no packet is late meanwhile.
    ours.switch.vsctl("set", "interface", port, "bfd:min_rx=400", "bfd:min_tx=300")
    until(lambda: "RX Interval: Approx 400ms" in ours.switch.ours.appctl("bfd/show", port), "new intervals")
    until(lambda: json.loads(ours.switch.ours.appctl("--format", "json", "bfd/show"))[port]["local"]["flags"] == "none", "the end of a poll sequence")
    assert [status(site, port)["flap_count"] for site in sites] == ["1", "1"]
    # A path that is down behind us forbids the other end to forward.
    ours.switch.vsctl("set", "interface", port, "bfd:cpath_down=true")
    until(lambda: status(theirs, port)["forwarding"] == "false", "a path that is down at the other end")
    assert status(theirs, port)["remote_diagnostic"] == "Concatenated Path Down"
    ours.switch.vsctl("set", "interface", port, "bfd:cpath_down=false")
    until(lambda: status(theirs, port)["forwarding"] == "true", "a path that is up at the other end")
    # The session ends at the other end without a word.
    theirs.switch.vsctl("set", "interface", port, "bfd:enable=false")
    until(lambda: bfd(ours, port) == "down", "the end of the session")
    assert status(ours, port)["diagnostic"] == "Control Detection Time Expired"
    until(lambda: not is_live(ours, bridge, port), "a dead port")
    theirs.switch.vsctl("set", "interface", port, "bfd:enable=true")
    both(sites, port, lambda site, name: bfd(site, name) == "up", "another session")
    ours.switch.vsctl("clear", "interface", port, "bfd")
    until(lambda: bfd(theirs, port) == "down", "the end of the other session")
    assert status(ours, port) == {}


@pytest.mark.parametrize("extended", ["false", "true"])
def test_cfm_with_open_vswitch(ends, extended):
    sites, bridge, port = ends
    ours, theirs = sites
    for site in sites:
        words = [f"other_config:cfm_extended={extended}", "other_config:cfm_interval=100"]
        site.switch.vsctl("set", "interface", port, f"cfm_mpid={site.number}", *words)
    both(sites, port, lambda site, name: status(site, name, "cfm_remote_mpids") == f"[{3 - site.number}]", "the remote point")
    both(sites, port, lambda site, name: status(site, name, "cfm_health") == "100", "health")
    assert [status(site, port, "cfm_fault") for site in sites] == ["false", "false"]
    assert is_live(ours, bridge, port)
    if extended == "true":
        theirs.switch.vsctl("set", "interface", port, "other_config:cfm_opstate=down")
        until(lambda: status(ours, port, "cfm_remote_opstate") == "down", "a remote end that is down")
        until(lambda: not is_live(ours, bridge, port), "a dead port")
        theirs.switch.vsctl("set", "interface", port, "other_config:cfm_opstate=up")
        until(lambda: is_live(ours, bridge, port), "a live port")
    theirs.switch.vsctl("clear", "interface", port, "cfm_mpid")
    until(lambda: status(ours, port, "cfm_fault_status") == "[recv]", "a fault")
    until(lambda: not is_live(ours, bridge, port), "a dead port")
    theirs.switch.vsctl("set", "interface", port, "cfm_mpid=2")
    both(sites, port, lambda site, name: status(site, name, "cfm_fault") == "false", "the end of the fault")
    ours.switch.vsctl("clear", "interface", port, "cfm_mpid")
    until(lambda: status(theirs, port, "cfm_fault_status") == "[recv]", "a fault at the other end")
    until(lambda: status(ours, port, "cfm_fault") == "[]", "empty columns")


class Frr:
    """FRR's zebra and bfdd on a host, from the folder that tests/peers/frr.sh has laid out."""

    def __init__(self, host, root):
        self.host, self.root = host, root
        self.directory = Path(tempfile.mkdtemp(prefix="fsfrr", dir="/tmp"))
        libraries = root / "usr/lib/x86_64-linux-gnu"
        self.env = {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{libraries}/frr"}
        # The programs look for their groups and their rules of authentication in /etc.
        groups = self.directory / "group"
        groups.write_text(Path("/etc/group").read_text() + "frrvty:x:3333:root\nfrr:x:3334:root\n")
        self.script = f'mount --bind {groups} /etc/group && mount --bind {root}/etc/pam.d /etc/pam.d && exec "$@"'
        own = ["-u", "root", "-g", "root", "--vty_socket", self.directory, "-z", self.directory / "zserv"]
        own += ["-A", "127.0.0.1", "-f", "/dev/null", "--log", f"file:{self.directory}/log"]
        self.processes = []
        for program in ("zebra", "bfdd"):
            words = [root / "usr/lib/frr" / program, *own, "-i", self.directory / f"{program}.pid"]
            if program == "bfdd":
                words += ["--bfdctl", self.directory / "bfdd.sock"]
            self.processes.append(host.start(*self.inside(words), env=self.env))
            until(lambda program=program: (self.directory / f"{program}.vty").exists(), f"{program} of FRR")

    def inside(self, words):
        return ["sh", "-c", self.script, "sh", *words]

    def command(self, *commands):
        words = [self.root / "usr/bin/vtysh", "--vty_socket", self.directory]
        return self.host.run(*self.inside([*words, *[word for command in commands for word in ("-c", command)]]), env=self.env).out

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait()
        shutil.rmtree(self.directory, ignore_errors=True)


def test_bfd_with_frr(making):
    clone = Path(__file__).parents[2]
    subprocess.run([clone / "tests/peers/frr.sh"], check=True, timeout=300)
    switch = making.switch(start="kernel")
    host = making.host(switch, 1)
    switch.vsctl("add-br", "br0", "--", "add-port", "br0", host.port)
    # The switch has no address that answers ARP.
    host.run("ip", "neigh", "replace", "10.1.0.99", "lladdr", "02:00:00:00:00:99", "dev", "e0", "nud", "permanent")
    frr = Frr(host, clone / ".cache/frr")

    def peer():
        return json.loads(frr.command("show bfd peers json"))[0]

    try:
        session = [f"peer 10.1.0.99 local-address {host.address} interface e0", "receive-interval 100", "transmit-interval 100"]
        frr.command("configure terminal", "bfd", *session, "no shutdown")
        words = [*FAST, "bfd:bfd_src_ip=10.1.0.99", f"bfd:bfd_dst_ip={host.address}", f'bfd:bfd_local_dst_mac="{host.mac}"']
        switch.vsctl("set", "interface", host.port, *words)
        until(lambda: "state=up" in switch.vsctl("get", "interface", host.port, "bfd_status"), "a session that is up")
        until(lambda: peer()["status"] == "up", "a session of bfdd that is up")
        assert peer()["remote-transmit-interval"] == 100
        # bfdd stops sending, and says why.
        frr.command("configure terminal", "bfd", session[0], "shutdown")
        until(lambda: "state=down" in switch.vsctl("get", "interface", host.port, "bfd_status"), "the end of the session")
        frr.command("configure terminal", "bfd", session[0], "no shutdown")
        until(lambda: "state=up" in switch.vsctl("get", "interface", host.port, "bfd_status"), "another session")
        switch.vsctl("clear", "interface", host.port, "bfd")
        until(lambda: peer()["status"] == "down", "the end of the session at bfdd")
        assert peer()["diagnostic"] == "control detection time expired"
    finally:
        frr.stop()
