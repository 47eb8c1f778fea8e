"""Hosts: network namespaces with one interface each, cabled to the switch's namespace by a veth pair."""

import itertools
import os
import subprocess
import sys
import time
from pathlib import Path

from switch import Output, run

HERE = Path(__file__).resolve().parent

_numbers = itertools.count(1)


def unique(word):
    """A system-wide unique name among concurrent runs of the tests."""
    return f"fs{word}{os.getpid()}x{next(_numbers)}"


class Namespace:
    """A network namespace, deleted at the end with all of its contents."""

    def __init__(self, word):
        self.name = unique(word)
        run(["ip", "netns", "add", self.name])
        run(["ip", "-n", self.name, "link", "set", "lo", "up"])

    def words(self, *words):
        return ["ip", "netns", "exec", self.name, *[str(word) for word in words]]

    def run(self, *words, **options):
        return run(self.words(*words), **options)

    def delete(self):
        """Ends the processes inside, then removes the namespace."""
        pids = run(["ip", "netns", "pids", self.name], check=False).out.split()
        for pid in pids:
            run(["kill", "-9", pid], check=False)
        run(["ip", "netns", "delete", self.name], check=False)


class Host(Namespace):
    """A namespace with the interface e0, whose other end is `port` in the switch's namespace."""

    def __init__(self, switch, number, mtu=1500, offloads=True):
        super().__init__(f"h{number}")
        self.switch = switch
        self.number = number
        self.port = f"p{number}"
        self.address = f"10.1.0.{number}"
        self.mac = f"02:00:00:00:00:{number:02x}"
        self.mtu = mtu
        run(
            ["ip", "link", "add", self.port, "netns", switch.namespace, "mtu", mtu, "type", "veth"]
            + ["peer", "name", "e0", "netns", self.name, "mtu", mtu, "address", self.mac]
        )
        run(["ip", "-n", switch.namespace, "link", "set", self.port, "up"])
        run(["ip", "-n", self.name, "link", "set", "e0", "up"])
        run(["ip", "-n", self.name, "addr", "add", f"{self.address}/24", "dev", "e0"])
        # By default the kernel gives up a datagram whose fragments arrive with 64 of others in between. Fragments of one
        # datagram are packets of two flows, and while one of the two is being installed the other may run ahead.
        self.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/ipfrag_max_dist")
        if not offloads:
            self.run("ethtool", "-K", "e0", "tx", "off", "tso", "off", "gso", "off", "gro", "off")

    def ping(self, address, *words):
        """Expects an answer to an echo request, with as many tries as a busy machine may need."""
        deadline = time.monotonic() + 30
        while True:
            output = self.run("ping", "-c", "1", "-w", "30", "-i", "0.2", *words, address, check=False)
            # After a host-unreachable error, as long as the address is unresolved, ping does not try again by itself.
            if output.code != 1 or " errors" not in output.out or time.monotonic() > deadline:
                break
        assert output.code == 0, str(output)
        return output

    def cannot_ping(self, address):
        """Expects no answer to a few echo requests."""
        output = self.run("ping", "-c", "3", "-i", "0.2", "-W", "1", address, check=False)
        assert output.code == 1 and " 0 received" in output.out, str(output)

    def start(self, *words, **options):
        """Starts a program in the background, with pipes; it ends with the namespace."""
        options.setdefault("stdout", subprocess.PIPE)
        options.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen(self.words(*words), text=True, **options)

    def start_python(self, script, *words, **options):
        """Starts one of the programs beside this file and waits for its line that reports readiness."""
        process = self.start(sys.executable, HERE / script, *words, **options)
        line = process.stdout.readline()
        assert line == "ready\n", f"{script} is not ready: {line}{process.stderr.read()}"
        return process

    def python(self, script, *words, **options):
        return self.run(sys.executable, HERE / script, *words, **options)


class TaggingHost(Host):
    """A host whose cable carries tagged frames.

    Some kernels of test machines have no VLAN devices, so an edge bridge of the switch adds the tags, and a veth
    pair in the switch's namespace is the cable: `port` is its end for the bridge under test, over which the frames
    pass the kernel tagged."""

    def __init__(self, switch, number, mtu=1500, offloads=True):
        super().__init__(switch, number, mtu=mtu, offloads=offloads)
        self.offloads = offloads
        self.edge = f"edge{number}"
        self.port, uplink, plain = f"t{number}", f"u{number}", self.port
        run(
            ["ip", "-n", switch.namespace, "link", "add", self.port, "mtu", mtu, "type", "veth"]
            + ["peer", "name", uplink, "mtu", mtu]
        )
        for device in (self.port, uplink):
            run(["ip", "-n", switch.namespace, "link", "set", device, "up"])
        switch.vsctl("add-br", self.edge, "--", "add-port", self.edge, uplink, "--", "add-port", self.edge, plain)

    def add_vlan(self, vid):
        """Adds an interface whose frames are tagged, in a network of its own, and returns its address."""
        address = f"10.{vid % 250 + 2}.0.{self.number}"
        port, device = f"p{self.number}v{vid}", f"e{vid}"
        namespace = self.switch.namespace
        run(
            ["ip", "link", "add", port, "netns", namespace, "mtu", self.mtu, "type", "veth"]
            + ["peer", "name", device, "netns", self.name, "mtu", self.mtu]
        )
        if not self.offloads:
            self.run("ethtool", "-K", device, "tx", "off", "tso", "off", "gso", "off", "gro", "off")
        run(["ip", "-n", namespace, "link", "set", port, "up"])
        run(["ip", "-n", self.name, "link", "set", device, "up"])
        run(["ip", "-n", self.name, "addr", "add", f"{address}/24", "dev", device])
        self.switch.vsctl("add-port", self.edge, port, f"tag={vid}")
        return address


def start_by(switch, *words):
    """Starts a switch's daemons, the forwarding one through a wrapper program that removes or limits a resource."""
    switch.create_database()
    switch.start_database()
    switch.ours.vsctl("--no-wait", "init")
    switch._start(
        "ovs-vswitchd", "--detach", "--pidfile", "--log-file", "--enable-dummy",
        command=[*words, switch.programs / "ovs-vswitchd"],
    )


def finish(process, words="", check=True, timeout=300):
    """Waits for the end of a process started by `start` and returns its `Output`."""
    out, err = process.communicate(timeout=timeout)
    done = subprocess.CompletedProcess(words, process.returncode, out, err)
    output = Output([words or "background process"], done)
    assert not check or output.code == 0, str(output)
    return output
