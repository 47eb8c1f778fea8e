"""Networks of OVN whose daemons restart: flows stay, and the network converges again."""

import pytest
from scapy.layers.inet import UDP

from logical import add_switches, packet, send
from waiting import until


def ping_all(each):
    """All hosts reach each other, by switches and the router."""
    ports = sorted(each.places)
    for source in ports:
        for destination in ports:
            if source != destination:
                send(each, source, packet(source, destination), destination)


@pytest.mark.parametrize("monitor_all", ["false", "true"])
def test_chassis_by_conditions(compared, monitor_all):
    """A chassis sees the part of the database that concerns its ports, or all of it, and follows changes of that."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each, numbers=(1, 2), hosts=(1, 2))
        # Nothing of a network without ports on a chassis is there.
        each.nbctl("--wait=sb", "ls-add", "s3")
        each.nbctl("--wait=sb", "lsp-add", "s3", "p31", "--", "lsp-set-addresses", "p31", "00:00:00:00:03:01 10.0.3.1")
        each.nbctl("--wait=hv", "lsp-add", "s3", "p32", "--", "lsp-set-addresses", "p32", "00:00:00:00:03:02 10.0.3.2")
        ping_all(each)
        each.chassis["hv1"].add_vif("p31")
        each.chassis["hv1"].add_vif("p32")
        each.settle()
        send(each, "p31", packet("p31", "p32"), "p32")
        # The last port of a network on a chassis leaves it.
        each.nbctl("--wait=hv", "lsp-del", "p12")
        chassis = each.chassis["hv2"]
        chassis.switch.vsctl("del-port", chassis.vifs.pop("p12"))
        del each.places["p12"]
        each.central.sync()
        each.receive("p11", packet("p11", "p12"))
        send(each, "p11", packet("p11", "p22"), "p22")
        other = "true" if monitor_all == "false" else "false"
        chassis.switch.vsctl("set", "Open_vSwitch", ".", f"external_ids:ovn-monitor-all={other}")
        each.central.sync()
        send(each, "p11", packet("p11", "p22"), "p22")

    compared(scenario, ovn_monitor_all=monitor_all)


def test_the_controller_restarts(compared):
    """With --restart the controller leaves flows and bindings, which forward until it is back, and takes them over."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        ping_all(each)
        chassis = each.chassis["hv1"]
        chassis.controller.exit("--restart")
        assert each.is_up("p11")
        send(each, "p11", packet("p11", "p22"), "p22")
        before = chassis.flows()
        assert len(before) > 100
        chassis.controller.start()
        each.settle()
        until(lambda: chassis.flows() == before, lambda: f"the same flows: {set(chassis.flows()) ^ set(before)}")
        ping_all(each)

    compared(scenario)


def test_the_controller_is_killed(compared):
    """A controller that is killed finds its chassis and ports again; changes of the time without it are made up for."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        chassis = each.chassis["hv1"]
        chassis.controller.kill()
        ping_all(each)
        each.nbctl("--wait=sb", "lsp-set-addresses", "p12", "00:00:00:00:01:22 10.0.1.2")
        chassis.controller.start()
        each.settle()
        changed = packet("p11", "p12")
        changed.dst = "00:00:00:00:01:22"
        send(each, "p11", changed, "p12")

    compared(scenario)


def test_the_controller_exits(compared):
    """A controller that exits takes its chassis, tunnels and bindings with it, and brings them back."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        chassis = each.chassis["hv1"]
        chassis.controller.exit()
        until(lambda: each.bindings()["p11"][1] is None, "a released port")
        assert "ovn-hv2-0" not in chassis.switch.vsctl("list-ports", "br-int").split()
        assert each.sbctl("--bare", "--columns=name", "list", "Chassis").split() == ["hv2"]
        chassis.controller.start()
        each.await_tunnels()
        each.settle()
        each.introduce()
        ping_all(each)

    compared(scenario)


def test_the_switch_restarts(compared):
    """The switch is stopped under its controller: the flows are installed again, and the network forwards."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        ping_all(each)
        for how in ("exit", "kill"):
            chassis = each.chassis["hv1"]
            before = chassis.flows()
            each.restart_switch("hv1", how)
            until(lambda: chassis.flows() == before, lambda: f"the same flows: {set(chassis.flows()) ^ set(before)}")
            ping_all(each)

    compared(scenario)


def test_the_local_database_restarts(compared):
    """The local database server restarts under switch and controller: a port that is plugged in afterwards works."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        chassis = each.chassis["hv1"]
        ping_all(each)
        chassis.switch.kill("ovsdb-server")
        chassis.switch.start_database()
        each.nbctl("--wait=sb", "lsp-add", "s1", "p13", "--", "lsp-set-addresses", "p13", "00:00:00:00:01:03 10.0.1.3")
        chassis.add_vif("p13")
        each.settle()
        ping_all(each)

    compared(scenario)


def test_the_central_databases_restart(compared):
    """The server of the central databases is killed: chassis forward without it, and follow changes when it is back."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        each.central.server.kill()
        ping_all(each)
        each.central.server.start()
        each.nbctl("--wait=hv", "lsp-set-addresses", "p12", "00:00:00:00:01:22 10.0.1.2")
        changed = packet("p11", "p12")
        changed.dst = "00:00:00:00:01:22"
        send(each, "p11", changed, "p12")

    compared(scenario)


def test_northd_restarts(compared):
    """Changes without northd take effect when it is back; a paused one does nothing until it is resumed."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        each.central.northd.kill()
        each.nbctl("lsp-set-addresses", "p12", "00:00:00:00:01:22 10.0.1.2")
        each.central.northd.start()
        each.central.sync()
        changed = packet("p11", "p12")
        changed.dst = "00:00:00:00:01:22"
        send(each, "p11", changed, "p12")
        each.central.northd.control_command("pause")
        assert each.central.northd.control_command("status") == "Status: paused\n"
        each.nbctl("lsp-set-addresses", "p12", "00:00:00:00:01:02 10.0.1.2")
        each.central.northd.control_command("resume")
        each.central.sync()
        ping_all(each)

    compared(scenario)


def test_a_chassis_reboots(compared):
    """All daemons of a chassis are killed; with the same database it comes back as it was."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        chassis = each.chassis["hv1"]
        before = chassis.flows()
        chassis.controller.kill()
        chassis.switch.kill("ovs-vswitchd")
        chassis.switch.kill("ovsdb-server")
        # What happens meanwhile is made up for.
        each.nbctl("--wait=sb", "lsp-set-addresses", "p12", "00:00:00:00:01:22 10.0.1.2")
        each.nbctl("--wait=sb", "lsp-set-addresses", "p12", "00:00:00:00:01:02 10.0.1.2")
        chassis.switch.start_database()
        chassis.run_switch()
        chassis.address_underlay()
        chassis.controller.start()
        until(lambda: "connected" in chassis.switch.appctl("netdev-dummy/conn-state", "uplink").split(), "the cable")
        each.introduce()
        until(lambda: chassis.flows() == before, lambda: f"the same flows: {set(chassis.flows()) ^ set(before)}")
        each.settle()
        settings = lambda: chassis.switch.vsctl("get", "Open_vSwitch", ".", "other_config", "external_ids")
        until(lambda: "flow-restore-wait" not in settings(), lambda: f"flows in force: {settings()}")
        ping_all(each)

    compared(scenario)


@pytest.mark.parametrize("kind", ["exit", "kill"])
def test_flows_are_restored_before_packets_pass(compared, kind):
    """A switch that starts with flow-restore-wait forwards nothing until its controller has installed flows."""

    def scenario(each):
        each.ends_daemons = True
        add_switches(each)
        chassis = each.chassis["hv1"]
        before = chassis.flows()
        chassis.switch.vsctl("set", "Open_vSwitch", ".", "other_config:flow-restore-wait=true")
        each.restart_switch("hv1", kind)
        until(lambda: chassis.flows() == before, lambda: f"the same flows: {set(chassis.flows()) ^ set(before)}")
        each.receive("p11", packet("p11", "p12"))
        chassis.switch.vsctl("remove", "Open_vSwitch", ".", "other_config", "flow-restore-wait")
        send(each, "p11", packet("p11", "p22"), "p22")
        # Packets of before have waited, or are lost.
        send(each, "p11", packet("p11", "p12", UDP(sport=9, dport=9)), "p12", lambda frame: frame[UDP].dport == 9)

    compared(scenario)
