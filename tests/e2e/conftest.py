"""Fixtures: the programs under test, a running switch, and hosts on it.

Environment: FLOWSTONE names the binary under test (by default the build in target/), FLOWSTONE_PEERS the folder with
Debian's Open vSwitch that tests/peers/unpack.sh made. `./test e2e` sets both.
"""

import os
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from comparison import comparison
from hosts import Host, Namespace
from ovn import Network, Underlays
from switch import TOP, Switch


@pytest.fixture(autouse=True)
def judged_by_version(other_version):
    """Has every test know the version, see `pytest_runtest_makereport`."""
    return other_version


@pytest.fixture(scope="session", autouse=True)
def root():
    """Namespaces and packet sockets need root; a run without it would test nothing."""
    assert os.geteuid() == 0, "the end-to-end tests run as root"


# Files with tests of half a minute and more. They begin first, so that none of them is the last one, alone.
LONG = ("conformance", "ovs_vtep", "linux_tunnels", "ovn_ports", "database_tls", "spanning_tree", "ovn_random", "ovn_gateways")


def pytest_collection_modifyitems(items):
    """Orders files: the long ones, then by the number of their tests. Tests of a file keep their order."""
    counts = Counter(item.path for item in items)
    ranks = {f"test_{name}": rank for rank, name in enumerate(LONG)}
    items.sort(key=lambda item: (ranks.get(item.path.stem, len(LONG)), -counts[item.path], item.path))


@pytest.fixture(scope="session")
def programs(tmp_path_factory):
    """A folder with the binary under test under every one of its names."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", TOP / "target"))
    binary = os.environ.get("FLOWSTONE", target / "debug/flowstone")
    directory = tmp_path_factory.mktemp("bin")
    subprocess.run([binary, "links", directory], check=True)
    return directory


@pytest.fixture(scope="session")
def peers():
    """A folder with Debian's programs."""
    directory = Path(os.environ.get("FLOWSTONE_PEERS", TOP / ".cache/peers")) / "bin"
    assert (directory / "ovs-vsctl").exists(), f"no ovs-vsctl in {directory}: run tests/peers/unpack.sh first"
    return directory


# The version of Open vSwitch whose behaviour the tests expect.
EXPECTED = "4.0"


@pytest.fixture(scope="session")
def other_version(peers):
    """The version of Debian's programs if it is another one than expected."""
    line = subprocess.run([peers / "ovs-vswitchd", "--version"], capture_output=True, text=True, check=True).stdout
    version = line.splitlines()[0].split()[-1]
    return None if f"{version}.".startswith(f"{EXPECTED}.") else version


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With programs of another version, a failure is listed by name and does not fail the run: Debian may have moved on."""
    report = yield
    other = item.funcargs.get("other_version") if hasattr(item, "funcargs") else None
    if report.failed and other:
        report.outcome = "skipped"
        report.wasxfail = f"not judged, expects Open vSwitch {EXPECTED} and found {other}"
    return report


class Making:
    """Resources of a test, removed in reverse order; checks that no daemon died or panicked."""

    def __init__(self, programs, peers, tmp_path_factory):
        self.programs = programs
        self.peers = peers
        self.tmp_path_factory = tmp_path_factory
        self.switches = []
        self.namespaces = []
        # Whether the kernel forwards the flows that it supports.
        self.offload = False
        # Switches that outlive a test, for networks of OVN.
        self.underlays = None

    def switch(self, start=True, maker=None, directory=None):
        """A switch in a namespace and a run directory of its own; with `maker`, that folder's daemons."""
        namespace = Namespace("sw")
        self.namespaces.append(namespace)
        directory = directory or self.tmp_path_factory.mktemp("run")
        switch = Switch(maker or self.programs, self.peers, directory, namespace.name)
        self.switches.append(switch)
        if start:
            switch.create_database()
            switch.start_database()
            switch.ours.vsctl("--no-wait", "init")
            if self.offload:
                switch.ours.vsctl("--no-wait", "set", "Open_vSwitch", ".", "other_config:hw-offload=true")
            switch.start_switch("--enable-dummy", *([] if start == "kernel" else ["--disable-system"]))
        return switch

    def host(self, switch, number, kind=Host, **options):
        """A host that is cabled to the switch but not yet a port of a bridge."""
        host = kind(switch, number, **options)
        self.namespaces.append(host)
        return host

    def end(self):
        """Removes everything, then reports errors."""
        wrong = []
        for switch in self.switches:
            wrong += [f"process {pid} died" for pid in switch.started if not switch.lives(pid)]
            switch.stop()
            for program in ("ovs-vswitchd", "ovsdb-server"):
                log = switch.log(program)
                wrong += [line for line in log.splitlines() if "panicked" in line or "|EMER|" in line]
        for namespace in reversed(self.namespaces):
            namespace.delete()
        assert not wrong, "\n".join(wrong)


@pytest.fixture(scope="session")
def underlays(programs, peers, tmp_path_factory):
    made = Making(programs, peers, tmp_path_factory)
    yield Underlays(made)
    made.end()


@pytest.fixture
def making(programs, peers, tmp_path_factory, underlays):
    made = Making(programs, peers, tmp_path_factory)
    made.underlays = underlays
    yield made
    made.end()


@pytest.fixture(scope="module")
def module_making(programs, peers, tmp_path_factory, underlays):
    """The same for resources shared by the tests of a file."""
    made = Making(programs, peers, tmp_path_factory)
    made.underlays = underlays
    yield made
    made.end()


@pytest.fixture
def switch(making):
    """Running daemons that support dummy ports only."""
    return making.switch()


@pytest.fixture
def kernel_switch(making):
    """Running daemons that may open the kernel's devices."""
    return making.switch(start="kernel")


@pytest.fixture(params=["peers", "ours"])
def tools(request, switch):
    """A running switch's command line programs: Debian's, then ours."""
    return getattr(switch, request.param)


@pytest.fixture
def network(making):
    """Makes networks of OVN, and ends their daemons."""
    made = []

    def make(maker=None):
        made.append(Network(making, maker))
        return made[-1]

    yield make
    for each in made:
        each.stop()


@pytest.fixture
def compared(request, making, network):
    """Runs a scenario on networks of both makers, see `comparison`."""
    return comparison(request.node, making.peers, network)
