"""The daemons as processes: options, pid files, logs, signals, and both of them in one process."""

import os
import re
import signal

from dummies import Dummies
from switch import run
from waiting import until


def test_files_and_exit(making):
    switch = making.switch()
    for program in ("ovs-vswitchd", "ovsdb-server"):
        pid = switch.pid(program)
        assert os.path.exists(f"/proc/{pid}")
        assert switch.control(program).is_socket()
        # Date, number, module, level, message.
        line = switch.log(program).splitlines()[0]
        assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\|00001\|\w+\|(INFO|WARN|DBG)\|", line), line
        switch.appctl("-t", program, "exit")
        switch.wait_gone(pid)
        left = [path.name for path in switch.directory.iterdir() if path.suffix in (".pid", ".ctl")]
        assert not any(name.startswith(program) for name in left), left


def test_large_pages_for_the_switch(making):
    """The heap of a background switch may use large pages; that of the database does not."""
    switch = making.switch()
    tunables = {
        program: re.findall(rb"GLIBC_TUNABLES=([^\0]*)", open(f"/proc/{switch.pid(program)}/environ", "rb").read())
        for program in ("ovs-vswitchd", "ovsdb-server")
    }
    given = os.environ.get("GLIBC_TUNABLES")
    expected = [b"glibc.malloc.hugetlb=1"] if given is None else [given.encode()]
    assert tunables["ovs-vswitchd"] == expected, tunables
    assert tunables["ovsdb-server"] == expected * (given is not None), tunables


def test_a_second_daemon_is_refused(making):
    """A second daemon does not replace a running one."""
    switch = making.switch()
    words = ["ovs-vswitchd", "--enable-dummy", "--disable-system", "--pidfile", "--detach"]
    output = switch.ours.run(*words, check=False)
    assert output.code == 1 and "already running" in output.err, str(output)
    assert switch.vsctl("list-br") == ""


def test_log_levels_of_the_command_line(making):
    switch = making.switch()
    levels = switch.appctl("vlog/list")
    assert re.search(r"^vconn +OFF? +\S+ +DBG|^vconn +\S+ +\S+ +DBG", levels, re.MULTILINE), levels
    switch.add_dummy_bridge("br0", "p1")
    switch.ofctl("dump-flows", "br0")
    until(lambda: "|vconn|DBG|" in switch.log(), "messages of OpenFlow connections in the log")
    assert "OFPT_HELLO" in switch.log()


def test_monitor_restarts_a_crashed_daemon(making):
    switch = making.switch(start=False)
    switch.create_database()
    switch.start_database("--monitor")
    switch.ours.vsctl("--no-wait", "init")
    switch.start_switch("--enable-dummy", "--disable-system", "--monitor")
    switch.add_dummy_bridge("br0", "p1")
    for program in ("ovs-vswitchd", "ovsdb-server"):
        pid = switch.pid(program)
        os.kill(pid, signal.SIGABRT)
        switch.wait_gone(pid)

        def restarted(program=program, pid=pid):
            try:
                return switch.pid(program) != pid
            except (FileNotFoundError, ValueError):
                return False

        until(restarted, f"{program} again")
        switch.started.append(switch.pid(program))
        until(lambda: switch.peers.run("ovs-vsctl", "--timeout=5", "list-br", check=False).out == "br0\n", "the switch")
    until(lambda: switch.vsctl("get", "interface", "p1", "ofport") == "1", "the port")
    # The monitor processes end with their daemons, when those exit by command.
    for program in ("ovs-vswitchd", "ovsdb-server"):
        pid = switch.pid(program)
        switch.appctl("-t", program, "exit")
        switch.wait_gone(pid)
    until(lambda: not run(["ip", "netns", "pids", switch.namespace]).out.split(), "the end of all processes")


def test_a_switch_goes_on_with_another_database_server(making):
    """A switch is configured with two servers; the connected one dies, and the switch connects to the other."""
    switch = making.switch(start=False)
    switch.create_database()
    first, second = (f"unix:{switch.directory}/{name}.sock" for name in ("first", "second"))
    switch.start_database(f"--remote=p{first}")
    switch.ours.vsctl("--no-wait", "init")
    switch.start_switch("--enable-dummy", "--disable-system", f"{first},{second}")
    switch.add_dummy_bridge("br0", "p1")

    def connections():
        return re.findall(r"\|reconnect\|INFO\|(\S+): connected$", switch.log(), re.MULTILINE)

    assert connections() == [first]
    switch.kill("ovsdb-server")
    switch.start_database(f"--remote=p{second}")
    # The command returns when the switch has applied it.
    switch.vsctl("add-port", "br0", "p2", "--", "set", "interface", "p2", "type=dummy")
    assert connections() == [first, second]
    # Command line programs also try servers in turn, in any order.
    for _ in range(4):
        assert switch.ours.vsctl(f"--db={first},{second}", "get", "interface", "p2", "ofport") == "2"


def test_both_in_one_process(making):
    switch = making.switch(start=False)
    binary = (switch.programs / "ovs-vsctl").resolve()
    switch.start_both(binary, "--enable-dummy", "--disable-system")
    assert switch.pid("ovs-vswitchd") == switch.pid("ovsdb-server")
    dummies = Dummies(switch, "br0", "p1", "p2")
    dummies.flows("in_port=1,actions=2")
    frame = bytes(60)
    assert dummies.exchange("p1", frame) == {"p2": [frame]}
    for program in ("ovs-vswitchd", "ovsdb-server"):
        assert program in switch.appctl("-t", program, "version")
    assert "Open_vSwitch" in switch.peers.ovsdb_client("list-dbs", f"unix:{switch.socket}")
    pid = switch.pid("ovs-vswitchd")
    os.kill(pid, signal.SIGTERM)
    switch.wait_gone(pid)
    assert not [path for path in switch.directory.iterdir() if path.suffix in (".pid", ".ctl")]
    # After a restart, also by SIGKILL, the state is the same.
    switch.start_both(binary, "--enable-dummy", "--disable-system")
    until(lambda: switch.vsctl("list-ports", "br0") == "p1\np2", "the ports")
    switch.vsctl("add-br", "br1", "--", "set", "bridge", "br1", "datapath_type=dummy")
    switch.kill("ovs-vswitchd")
    switch.start_both(binary, "--enable-dummy", "--disable-system")
    assert switch.vsctl("list-br") == "br0\nbr1"
