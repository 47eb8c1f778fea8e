"""The Debian package takes the place of Open vSwitch's, keeps its database, and runs by its own scripts."""

import configparser
import json
import os
import re
import shutil

import pytest

from machine import ControlGroup, Machine
from switch import SCHEMA, TOP, run
from waiting import until

PACKAGING = TOP / "packaging"
OVS_CTL = "/usr/share/openvswitch/scripts/ovs-ctl"
# The packages that Open vSwitch's daemons come in.
REPLACED = ("openvswitch-common", "openvswitch-switch")


@pytest.fixture(scope="session")
def package(programs, tmp_path_factory):
    """The package, with the binary under test."""
    archive = tmp_path_factory.mktemp("package") / "flowstone.deb"
    binary = (programs / "ovs-vsctl").resolve()
    run([PACKAGING / "debian/build", archive, binary], env=dict(os.environ, DPKG_DEB_COMPRESSOR_TYPE="none"))
    return archive


@pytest.fixture
def machine(package, peers, tmp_path):
    """A machine on which no package starts services."""
    (tmp_path / "machine").mkdir()
    made = Machine(tmp_path / "machine", package.parent, peers.parent, tmp_path)
    try:
        policy = made.path("/usr/sbin/policy-rc.d")
        policy.write_text("#!/bin/sh\nexit 101\n")
        policy.chmod(0o755)
        # Manual pages are not indexed, which would take longer than the rest.
        made.path("/var/lib/man-db/auto-update").unlink(missing_ok=True)
        yield made
    finally:
        made.end()


def dpkg(machine, *words, **options):
    """Runs dpkg, which need not wait for the disk. Open vSwitch's packages are for another release of Debian."""
    return machine.run(
        "dpkg", "--force-unsafe-io", *words, environment={"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}, **options
    )


def is_installed(machine, package):
    status = machine.run("dpkg-query", "-W", "-f", "${db:Status-Status}", package, check=False)
    return status.code == 0 and status.out == "installed"


def older_database(peers, directory):
    """A database of an older schema, with the bridge br0, a port and a description, written by Open vSwitch's programs."""
    schema = json.loads((peers.parent / "usr/share/openvswitch/vswitch.ovsschema").read_text())
    schema["version"] = "8.4.0"
    del schema["tables"]["Interface"]["columns"]["bfd_status"]
    older = directory / "older.ovsschema"
    older.write_text(json.dumps(schema))
    database = directory / "older.db"
    environment = dict(os.environ, OVS_RUNDIR=str(directory), OVS_LOGDIR=str(directory), OVS_DBDIR=str(directory))
    run([peers / "ovsdb-tool", "create", database, older], env=environment)
    socket = directory / "older.sock"
    commands = "init -- add-br br0 -- set bridge br0 datapath_type=netdev external-ids:owner=me -- add-port br0 v1"
    run(
        [peers / "ovsdb-server", database, f"--remote=punix:{socket}", "-vconsole:warn"]
        + ["--run", f"{peers / 'ovs-vsctl'} --db=unix:{socket} --no-wait {commands}"],
        env=environment,
    )
    return database


def vsctl(machine, *words):
    return machine.run("ovs-vsctl", "--timeout=60", *words).out.rstrip("\n")


def flows(machine, *words):
    return machine.run("ovs-ofctl", "--no-stats", *words, "dump-flows", "br0").out


def add_host(machine):
    """A namespace with the address 10.1.0.2 behind the device v1."""
    machine.run("ip", "netns", "add", "host")
    machine.run("ip", "link", "add", "v1", "type", "veth", "peer", "name", "e0", "netns", "host")
    machine.run("ip", "link", "set", "v1", "up")
    machine.run("ip", "-n", "host", "address", "add", "10.1.0.2/24", "dev", "e0")
    machine.run("ip", "-n", "host", "link", "set", "e0", "up")


def assert_forwards(machine):
    """The host reaches the switch's machine through the bridge's own device."""
    machine.run("ip", "address", "replace", "10.1.0.1/24", "dev", "br0")
    machine.run("ip", "link", "set", "br0", "up")
    machine.run("ip", "netns", "exec", "host", "ping", "-c", "2", "-i", "0.2", "-W", "20", "10.1.0.1")


@pytest.fixture(params=["usr/lib", "lib"])
def archives(request, peers, tmp_path):
    """Debian's archives of Open vSwitch, with units in this folder: until Debian 12 it was `lib`, a link to `usr/lib`."""
    found = [next((peers.parent / "deb").glob(f"{name}_*.deb"), None) for name in REPLACED]
    if None in found:
        assert os.environ.get("CI") != "true"
        pytest.skip(f"no archives of Open vSwitch in {peers.parent / 'deb'}: run tests/peers/unpack.sh again")
    repacked = []
    for archive in found:
        tree = tmp_path / archive.stem
        run(["dpkg-deb", "--raw-extract", archive, tree])
        units = [tree / folder / "systemd" for folder in ("lib", "usr/lib")]
        for folder in units:
            wanted = tree / request.param / "systemd"
            if folder.exists() and folder != wanted:
                wanted.parent.mkdir(exist_ok=True)
                folder.rename(wanted)
        repacked.append(tmp_path / archive.name)
        run(["dpkg-deb", "-Znone", "--root-owner-group", "--build", tree, repacked[-1]])
    return repacked


def test_the_package_replaces_open_vswitch_and_keeps_its_database(machine, package, archives, peers, tmp_path):
    dpkg(machine, "--force-depends", "--install", *archives)
    assert all(is_installed(machine, name) for name in REPLACED)
    assert machine.path("/usr/sbin/ovs-vswitchd").is_symlink()
    old = older_database(peers, tmp_path)
    # Debian's package has made /etc/openvswitch/conf.db a link to this file.
    machine.run("install", "-m", "640", old, "/var/lib/openvswitch/conf.db")
    machine.run("sh", "-c", "echo 00000000-1111-2222-3333-444444444444 >/etc/openvswitch/system-id.conf")

    dpkg(machine, "--install", package)
    assert is_installed(machine, "flowstone")
    assert not any(is_installed(machine, name) for name in REPLACED)
    assert dpkg(machine, "--verify", "flowstone").out == ""
    audit = dpkg(machine, "--audit").out
    assert "flowstone" not in audit, audit
    for name in ("ovsdb-server", "ovs-vswitchd", "ovs-vsctl", "ovs-ofctl", "ovs-appctl", "ovs-dpctl", "ovsdb-tool"):
        assert machine.run(name, "--version").out.splitlines()[1].startswith("Flowstone "), name
    status = machine.run(OVS_CTL, "status", check=False)
    assert (status.code, status.out) == (1, "ovsdb-server is not running\novs-vswitchd is not running\n")

    add_host(machine)
    started = machine.run(OVS_CTL, "--system-id=random", "start").out
    assert "Backing up database to /etc/openvswitch/conf.db.backup8.4.0-" in started, started
    assert "Converting database schema.\n" in started, started
    status = machine.run(OVS_CTL, "status").out
    assert re.fullmatch(r"ovsdb-server is running with pid \d+\novs-vswitchd is running with pid \d+\n", status)
    assert "is already running" in machine.run(OVS_CTL, "--system-id=random", "start").out
    # The old database's contents, under the current schema.
    assert vsctl(machine, "list-br") == "br0"
    assert vsctl(machine, "br-get-external-id", "br0", "owner") == "me"
    assert "Port v1\n" in vsctl(machine, "show")
    assert vsctl(machine, "get", "Interface", "v1", "bfd_status", "error") == "{}\n[]"
    system = vsctl(machine, "get", "Open_vSwitch", ".", "external_ids:system-id", "external_ids:rundir", "ovs_version")
    assert system == '"00000000-1111-2222-3333-444444444444"\n"/var/run/openvswitch"\n"4.0.0"'
    assert vsctl(machine, "get", "Open_vSwitch", ".", "db_version") == '"8.8.0"'
    assert machine.run("readlink", "/etc/openvswitch/conf.db").out == "/var/lib/openvswitch/conf.db\n"
    assert_forwards(machine)

    # Purging what is left of the replaced packages removes links that are ours now; a trigger makes them again.
    enabled = machine.path("/etc/systemd/system/multi-user.target.wants/openvswitch-switch.service")
    assert enabled.is_symlink()
    dpkg(machine, "--purge", "openvswitch-switch", "openvswitch-common")
    assert machine.run("readlink", "/etc/openvswitch/conf.db").out == "/var/lib/openvswitch/conf.db\n"
    assert enabled.is_symlink()
    machine.run(OVS_CTL, "--system-id=random", "restart")
    assert vsctl(machine, "list-br") == "br0"
    assert vsctl(machine, "get", "Open_vSwitch", ".", "external_ids:system-id") == '"00000000-1111-2222-3333-444444444444"'
    assert_forwards(machine)

    # And back: Debian's packages find the database, which a purge of ours does not touch any more.
    dpkg(machine, "--remove", "flowstone")
    assert not list(machine.path("/run/openvswitch").glob("*.pid"))
    dpkg(machine, "--force-depends", "--force-confmiss", "--install", *archives)
    dpkg(machine, "--purge", "flowstone")
    assert machine.path("/var/lib/openvswitch/conf.db").exists()
    assert machine.run("readlink", "/etc/openvswitch/conf.db").out == "/var/lib/openvswitch/conf.db\n"
    assert machine.path("/usr/bin/ovs-vsctl").exists() and not machine.path("/usr/bin/flowstone").exists()


def test_a_purge_leaves_nothing(machine, package):
    dpkg(machine, "--install", package)
    machine.run(OVS_CTL, "--system-id=random", "start")
    assert machine.path("/var/lib/openvswitch/conf.db").exists()
    dpkg(machine, "--remove", "flowstone")
    assert not list(machine.path("/run/openvswitch").glob("*.pid"))
    # The database stays until the purge.
    assert machine.path("/var/lib/openvswitch/conf.db").exists()
    dpkg(machine, "--purge", "flowstone")
    where = ["/etc", "/usr/bin", "/usr/sbin", "/usr/lib/systemd", "/usr/share", "/var/lib/openvswitch", "/var/log/openvswitch"]
    what = ["-path", "*openvswitch*", "-o", "-name", "ovs*", "-o", "-name", "flowstone*"]
    assert machine.run("find", *where, *what, check=False).out == ""


def test_a_restart_keeps_flows_groups_and_meters(machine, package):
    dpkg(machine, "--install", package)
    start = machine.run(OVS_CTL, "--system-id=random", "--external-id=a=b", "start").out
    assert "Creating empty database" in start, start
    vsctl(machine, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "fail_mode=secure")
    vsctl(machine, "add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=netdev", "protocols=OpenFlow10")
    identity = vsctl(machine, "get", "Open_vSwitch", ".", "external_ids:system-id")
    assert vsctl(machine, "get", "Open_vSwitch", ".", "external_ids:a") == "b"
    of = ["ovs-ofctl", "-O", "OpenFlow14"]
    machine.run(*of, "add-tlv-map", "br0", "{class=0xffff,type=1,len=4}->tun_metadata0")
    machine.run(*of, "add-meter", "br0", "meter=3,kbps,burst,bands=type=drop,rate=100,burst_size=10")
    machine.run(*of, "add-group", "br0", "group_id=7,type=select,bucket=actions=local")
    machine.run(*of, "add-flow", "br0", "table=2,priority=9,udp,tp_dst=53,actions=meter:3,group:7")
    machine.run(*of, "add-flow", "br0", "cookie=0x5,idle_timeout=900,ip,nw_proto=2,tun_metadata0=1,actions=drop")
    machine.run("ovs-ofctl", "-O", "OpenFlow10", "add-flow", "br1", "priority=1,arp,actions=drop")
    shown = lambda: [
        machine.run(*of, command, "br0").out for command in ("dump-groups", "dump-meters", "dump-tlv-map")
    ] + [machine.run("ovs-ofctl", *version, "--no-stats", "dump-flows", bridge).out for version, bridge in (
        (("-O", "OpenFlow14"), "br0"), (("-O", "OpenFlow10"), "br1"))]
    without_xid = lambda texts: [re.sub(r"\(xid=\w+\)", "", text) for text in texts]
    before = without_xid(shown())
    assert "meter:3,group:7" in before[3] and "tun_metadata0=0x1" in before[3] and "arp" in before[4]
    pids = machine.run(OVS_CTL, "status").out
    restarted = machine.run(OVS_CTL, "--system-id=random", "restart").out
    assert "Restoring saved flows.\n" in restarted, restarted
    assert machine.run(OVS_CTL, "status").out != pids
    assert without_xid(shown()) == before
    assert vsctl(machine, "get", "Open_vSwitch", ".", "external_ids:system-id") == identity

    # Each daemon alone.
    machine.run(OVS_CTL, "--no-ovsdb-server", "stop")
    status = machine.run(OVS_CTL, "status", check=False)
    assert status.code == 1 and re.fullmatch(r"ovsdb-server is running with pid \d+\novs-vswitchd is not running\n", status.out)
    machine.run(OVS_CTL, "--no-ovsdb-server", "--no-monitor", "start")
    assert vsctl(machine, "list-br") == "br0\nbr1"
    machine.run(OVS_CTL, "stop")
    assert "ovs-vswitchd is not running" in machine.run(OVS_CTL, "stop").out
    machine.run(OVS_CTL, "--system-id=mine", "--delete-bridges", "start")
    assert vsctl(machine, "list-br") == ""
    assert vsctl(machine, "get", "Open_vSwitch", ".", "external_ids:system-id") == "mine"
    machine.run(OVS_CTL, "stop")


def test_the_daemons_run_as_another_user(machine, package):
    dpkg(machine, "--install", package)
    machine.run("useradd", "--system", "--user-group", "switch")
    machine.run("install", "-d", "-o", "switch", "/srv/extra")
    machine.run("ovsdb-tool", "create", "/srv/extra/vtep.db", "/usr/share/openvswitch/vtep.ovsschema")
    machine.run("chown", "-R", "switch", "/srv/extra")
    options = ["--system-id=random", "--ovs-user=switch:switch", "--ovsdb-server-umask=0007", "--oom-score=5", "--daemon-cwd=/srv"]
    machine.run(OVS_CTL, *options, "--extra-dbs=/srv/extra/vtep.db /srv/none.db", "start")
    for daemon in ("ovsdb-server", "ovs-vswitchd"):
        # Outside of its namespace, the process has another number.
        pid = (machine.path("/run/openvswitch") / f"{daemon}.pid").read_text().strip()
        status = machine.run("cat", f"/proc/{pid}/status").out
        user = machine.run("id", "-u", "switch").out.strip()
        assert re.search(rf"^Uid:\t{user}\t{user}\t", status, re.MULTILINE), status
        assert machine.run("cat", f"/proc/{pid}/oom_score_adj").out == "5\n"
        assert machine.run("readlink", f"/proc/{pid}/cwd").out == "/srv\n"
    assert machine.run("stat", "-c", "%U %a", "/run/openvswitch/db.sock").out == "switch 770\n"
    assert machine.run("ovsdb-client", "list-dbs").out == "Open_vSwitch\n_Server\nhardware_vtep\n"
    # The switch has kept what it needs to make devices.
    add_host(machine)
    vsctl(machine, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "--", "add-port", "br0", "v1")
    assert_forwards(machine)
    machine.run(OVS_CTL, "stop")


def test_bridges_in_etc_network_interfaces(machine, package):
    dpkg(machine, "--install", package)
    # As ifup and ifdown run it.
    def ifupdown(mode, interface, kind, **options):
        options = {f"IF_OVS_{name.upper()}": value for name, value in options.items()}
        machine.run(
            "/etc/network/if-pre-up.d/openvswitch", environment={"MODE": mode, "IFACE": interface, "IF_OVS_TYPE": kind, **options}
        )

    ifupdown("start", "br0", "OVSBridge", options="-- set bridge br0 datapath_type=netdev", extra="br-set-external-id ${IFACE} a $(echo b)")
    machine.run("ip", "link", "add", "v1", "type", "veth", "peer", "name", "v2")
    ifupdown("start", "v1", "OVSPort", bridge="br0", options="tag=10")
    ifupdown("start", "inside", "OVSIntPort", bridge="br0", options="tag=100", extra="set interface ${IFACE} external-ids:iface-id=x")
    ifupdown("start", "patch0", "OVSPatchPort", bridge="br0", patch_peer="patch1")
    assert vsctl(machine, "br-get-external-id", "br0", "a") == "b"
    assert vsctl(machine, "list-ports", "br0") == "inside\npatch0\nv1"
    assert vsctl(machine, "get", "port", "v1", "tag") == "10"
    assert vsctl(machine, "get", "interface", "inside", "type", "external_ids:iface-id") == "internal\nx"
    assert vsctl(machine, "get", "interface", "patch0", "options:peer") == "patch1"
    assert "UP" in machine.run("ip", "link", "show", "inside").out
    ifupdown("stop", "v1", "OVSPort", bridge="br0")
    assert vsctl(machine, "list-ports", "br0") == "inside\npatch0"
    ifupdown("stop", "br0", "OVSBridge")
    assert vsctl(machine, "list-br") == ""
    machine.run(OVS_CTL, "stop")


def test_ovs_ctl_in_directories_of_its_own(programs, tmp_path):
    """Without installation: everything is found by the environment."""
    data = tmp_path / "share"
    shutil.copytree(PACKAGING / "scripts", data / "scripts")
    shutil.copy(SCHEMA, data)
    names = ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")
    environment = dict(os.environ, OVS_PKGDATADIR=data, OVS_BINDIR=programs, OVS_SBINDIR=programs, OVS_SYSLOG_METHOD="null")
    environment.update({f"OVS_{name}": str(tmp_path / name) for name in names})
    (tmp_path / "SYSCONFDIR").mkdir()
    ovs_ctl = lambda *words, **options: run([data / "scripts/ovs-ctl", *words], env=environment, **options)
    options = ["--ovs-vswitchd-options=--enable-dummy --disable-system", "--no-mlockall", "--system-type=test"]
    try:
        out = ovs_ctl("--system-id=random", *options, "start").out
        assert f"{tmp_path}/DBDIR/conf.db does not exist ... (warning).\n" in out, out
        assert (tmp_path / "SYSCONFDIR/openvswitch/system-id.conf").exists()
        ovs_vsctl = lambda *words: run([programs / "ovs-vsctl", "--timeout=60", *words], env=environment).out
        assert ovs_vsctl("get", "Open_vSwitch", ".", "system_type") == "test\n"
        ovs_vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
        ovs_vsctl("add-port", "br0", "p1", "--", "set", "port", "p1", "other_config:transient=true", "--", "set", "interface", "p1", "type=dummy")
        ovs_ctl("delete-transient-ports")
        assert ovs_vsctl("list-ports", "br0") == ""
        ovs_ctl("record-hostname-if-not-set")
        assert ovs_vsctl("get", "Open_vSwitch", ".", "external_ids:hostname").strip()
        refused = {
            "force-reload-kmod": "there is no kernel module",
            "start-ovs-ipsec": "there are no IPsec tunnels",
            "enable-protocol": "change the firewall's rules",
            "nosuch": 'unknown command "nosuch"',
            "--nosuch": 'unknown option "--nosuch"',
            "--no-nosuch": 'unknown option "--no-nosuch"',
            "--ovs-vswitchd-wrapper=valgrind": "wrappers are not supported",
            "--nosuch=yes": 'unknown option "--nosuch=yes"',
            "--monitor=perhaps": "expected yes or no",
            "--external-id=x": 'not in the form "key=value"',
        }
        for word, reason in refused.items():
            done = ovs_ctl(word, *([] if not word.startswith("-") else ["status"]), check=False)
            assert done.code == 1 and reason in done.err, str(done)
        assert ovs_ctl(check=False).err.endswith("missing command name (use --help for help)\n")
        assert "no kernel module" in ovs_ctl("load-kmod").out
        assert "ovs-ctl (Open vSwitch) 4.0.0" in ovs_ctl("--version").out
        assert ovs_ctl("version").out.startswith("ovsdb-server (Open vSwitch) 4.0.0\n")
    finally:
        ovs_ctl("stop")
    assert ovs_ctl("status", check=False).code == 1


def test_a_database_that_cannot_be_converted_stays(programs, tmp_path):
    """ovs-ctl fails by name instead of starting with an empty database."""
    broken = tmp_path / "conf.db"
    broken.write_text("no database\n")
    environment = dict(os.environ, OVS_BINDIR=programs, OVS_SBINDIR=programs, OVS_PKGDATADIR=PACKAGING)
    environment.update({f"OVS_{name}": str(tmp_path) for name in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR")})
    done = run([PACKAGING / "scripts/ovs-ctl", f"--db-schema={SCHEMA}", "start"], env=environment, check=False)
    assert done.code == 1 and f"Reading the schema of {broken} ... failed!\n" in done.out, str(done)
    assert broken.read_text() == "no database\n"


def test_packages_that_need_open_vswitch_are_satisfied(machine, package, tmp_path):
    """As OVN's, Neutron's and others depend on it."""
    dpkg(machine, "--install", package)
    tree = tmp_path / "tree/DEBIAN"
    tree.mkdir(parents=True)
    control = "Package: needs-a-switch\nVersion: 1\nArchitecture: all\nMaintainer: A <a@localhost>\nDescription: test\n"
    control += "Pre-Depends: openvswitch-switch\nDepends: openvswitch-switch (>= 4.0.0-2), openvswitch-common (<< 4.1~)\n"
    (tree / "control").write_text(control)
    run(["dpkg-deb", "--root-owner-group", "--build", tree.parent, tmp_path / "needs.deb"])
    dpkg(machine, "--install", tmp_path / "needs.deb")
    assert is_installed(machine, "needs-a-switch")


def test_ovn_ctl_finds_its_functions_in_ovs_lib(programs, peers, tmp_path):
    """OVN's script starts and stops its databases and ovn-northd by functions of our ovs-lib."""
    ovn = peers.parent / "usr/share/ovn"
    if not ovn.exists():
        assert os.environ.get("CI") != "true"
        pytest.skip(f"no {ovn}: run tests/peers/unpack.sh with the word ovn")
    share = tmp_path / "share"
    shutil.copytree(PACKAGING / "scripts", share / "openvswitch/scripts")
    (share / "ovn").symlink_to(ovn)
    environment = dict(os.environ, OVS_BINDIR=programs, OVS_SBINDIR=programs, OVN_PKGDATADIR=ovn, OVN_BINDIR=peers)
    environment.update(PATH=f"{programs}:{peers}:{os.environ['PATH']}", OVS_SYSLOG_METHOD="null")
    for name in ("RUNDIR", "LOGDIR", "DBDIR", "SYSCONFDIR"):
        (tmp_path / name).mkdir()
        environment |= {f"OVN_{name}": str(tmp_path / name), f"OVS_{name}": str(tmp_path / name)}
    ovn_ctl = lambda *words, **options: run([share / "ovn/scripts/ovn-ctl", *words], env=environment, **options)
    try:
        out = ovn_ctl("start_northd").out
        assert "Creating empty database" in out and "Starting ovn-northd" in out, out
        assert "ovn-northd is running with pid" in ovn_ctl("status_northd").out
        socket = tmp_path / "RUNDIR/ovnnb_db.sock"
        run([peers / "ovn-nbctl", f"--db=unix:{socket}", "--timeout=60", "--wait=sb", "ls-add", "sw0"], env=environment)
        refused = ovn_ctl("--db-nb-cluster-local-addr=127.0.0.1", "--db-nb-file=" + str(tmp_path / "cluster.db"), "restart_nb_ovsdb", check=False)
        assert "clustered databases are not supported" in refused.out, str(refused)
    finally:
        ovn_ctl("stop_northd")
    assert "is not running" in ovn_ctl("status_northd", check=False).out


def test_systemd_accepts_the_units(machine, package):
    dpkg(machine, "--install", package)
    units = {path.name for path in (PACKAGING / "systemd").iterdir()}
    assert units == {"openvswitch-switch.service", "ovsdb-server.service", "ovs-vswitchd.service", "ovs-record-hostname.service"}
    for unit in sorted(units):
        parser = configparser.ConfigParser(interpolation=None, strict=False)
        parser.optionxform = str
        parser.read(PACKAGING / "systemd" / unit)
        program = parser["Service"]["ExecStart"].split()[0]
        assert machine.run("test", "-x", program, check=False).code == 0, unit
        # The options are those of ovs-ctl.
        if program == OVS_CTL:
            words = [word for word in parser["Service"]["ExecStart"].split()[1:] if word.startswith("--")]
            machine.run(OVS_CTL, *words, "load-kmod")
    if machine.run("sh", "-c", "command -v systemd-analyze", check=False).code == 0:
        paths = [f"/usr/lib/systemd/system/{unit}" for unit in sorted(units)]
        verified = machine.run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *paths, check=False)
        complaints = [line for line in verified.err.splitlines() if "ovs" in line or "openvswitch" in line]
        assert not complaints, verified.err
    # Enabled by the package's scripts, without a running systemd.
    wants = machine.path("/etc/systemd/system/multi-user.target.wants/openvswitch-switch.service")
    if machine.run("sh", "-c", "command -v deb-systemd-helper", check=False).code == 0:
        assert wants.is_symlink()


@pytest.fixture
def booted_machine(package, tmp_path):
    """A machine with systemd."""
    if not os.path.exists("/lib/systemd/systemd") or "\tcgroup2\n" not in open("/proc/filesystems", encoding="ascii").read():
        pytest.skip("systemd is not installed here, or the kernel has no cgroup2")
    for name in ("machine", "group"):
        (tmp_path / name).mkdir()
    group = ControlGroup(tmp_path / "group")
    try:
        made = Machine(tmp_path / "machine", package.parent, group=group)
        try:
            yield made
        finally:
            made.end()
    finally:
        group.end()


def test_systemd_runs_the_daemons(booted_machine, package):
    machine = booted_machine
    systemctl = lambda *words: machine.run("systemctl", *words, check=False).out.split()
    units = ("openvswitch-switch", "ovsdb-server", "ovs-vswitchd")
    pid = lambda name: (machine.path("/run/openvswitch") / f"{name}.pid").read_text().strip()
    dpkg(machine, "--install", package)
    assert systemctl("is-active", *units) == ["active"] * 3
    assert systemctl("is-enabled", "openvswitch-switch", "ovs-record-hostname") == ["enabled"] * 2
    vsctl(machine, "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    until(lambda: "hostname=" in vsctl(machine, "get", "Open_vSwitch", ".", "external_ids"), "the host's name")

    # A reload restarts both daemons and keeps the flows.
    machine.run("ovs-ofctl", "add-flow", "br0", "table=7,actions=drop")
    before = (pid("ovsdb-server"), pid("ovs-vswitchd"))
    machine.run("systemctl", "reload", "openvswitch-switch")
    main = lambda unit: systemctl("show", "--value", "-p", "MainPID", unit)[0]
    # systemd reads the new pid files on its own.
    until(lambda: (main("ovsdb-server"), main("ovs-vswitchd")) == (pid("ovsdb-server"), pid("ovs-vswitchd")), "the new processes")
    assert pid("ovsdb-server") != before[0] and pid("ovs-vswitchd") != before[1]
    assert "table=7" in flows(machine)

    # A daemon that dies is started again, and the other one does not notice.
    for dying, other in (("ovsdb-server", "ovs-vswitchd"), ("ovs-vswitchd", "ovsdb-server")):
        dead, alive = pid(dying), pid(other)
        machine.run("kill", "-9", dead)
        until(lambda: systemctl("is-active", dying) == ["active"] and main(dying) not in ("0", dead), f"{dying} again")
        assert vsctl(machine, "list-br") == "br0"
        assert pid(other) == alive

    # The other units follow the first.
    machine.run("systemctl", "stop", "openvswitch-switch")
    until(lambda: systemctl("is-active", *units) == ["inactive"] * 3, "the end of the daemons")
    machine.run("systemctl", "start", "openvswitch-switch")
    assert vsctl(machine, "list-br") == "br0"

    # An upgrade has the new program take over.
    before = pid("ovs-vswitchd")
    dpkg(machine, "--install", package)
    assert pid("ovs-vswitchd") != before and systemctl("is-active", *units) == ["active"] * 3
    dpkg(machine, "--purge", "flowstone")
    assert systemctl("is-active", *units) == ["inactive"] * 3
    assert not list(machine.path("/run/openvswitch").glob("*.pid"))
