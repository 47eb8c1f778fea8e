"""A stock controller decides where packets go: os-ken's simple_switch_13."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hosts import HERE
from test_hosts import connect, tcp_transfer
from waiting import until

PORT = 6653


@pytest.fixture
def applications():
    """The unpacked wheel with the applications, beside the virtual environment that ./test makes."""
    folder = Path(os.environ.get("OSKEN_APPLICATIONS", Path(sys.prefix) / "wheels/os_ken-1.4.0"))
    assert folder.is_dir(), f"{folder} is not there: ./test e2e makes it"
    return folder


def test_simple_switch(making, applications):
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number) for number in (1, 2, 3)]
    connect(switch, *hosts)
    switch.vsctl("set", "bridge", "br0", "protocols=OpenFlow13", "fail-mode=secure")
    switch.ofctl("-OOpenFlow13", "del-flows", "br0")
    hosts[0].cannot_ping(hosts[1].address)
    log = switch.directory / "controller.log"
    with open(log, "wb") as out:
        command = switch.inside([sys.executable, HERE / "osken_app.py", applications, "simple_switch_13", PORT])
        controller = subprocess.Popen(command, stdout=out, stderr=out)
    try:
        switch.vsctl("set-controller", "br0", f"tcp:127.0.0.1:{PORT}")
        until(
            lambda: controller.poll() is None and switch.vsctl("get", "controller", "br0", "is_connected") == "true",
            lambda: f"the connection; {log.read_text()}\n{switch.log()}",
        )
        for a in hosts:
            for b in hosts:
                if a is not b:
                    a.ping(b.address)
        tcp_transfer(hosts[0], hosts[1], hosts[1].address, 1_000_000)
        flows = switch.flows("br0", "-OOpenFlow13")
        assert any("priority=0 actions=CONTROLLER:65535" in flow for flow in flows), flows
        learned = [flow for flow in flows if f"dl_dst={hosts[1].mac}" in flow]
        assert learned, flows
        assert "packet in" in log.read_text()
        assert "is_connected: true" in switch.vsctl("show")
    finally:
        controller.kill()
        controller.wait()
    until(lambda: switch.vsctl("get", "controller", "br0", "is_connected") == "false", "the connection lost")
    # In secure mode what the controller left goes on.
    hosts[0].ping(hosts[1].address)
