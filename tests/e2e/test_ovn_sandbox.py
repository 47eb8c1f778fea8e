"""The sandbox of OVN in examples/ shows what it promises."""

import os

from switch import TOP, run


def test_the_sandbox_works(programs, peers):
    binary = os.readlink(programs / "ovs-vsctl")
    environment = dict(os.environ, FLOWSTONE=binary, FLOWSTONE_PEERS=str(peers.parent))
    shown = run([TOP / "examples/ovn-sandbox", "--once"], env=environment).out
    for line in ("outside -> web1, by its floating address: this is web1", "client -> outside, with the router's address: this is outside"):
        assert line in shown, shown
    assert 'output("web1");' in shown and "Unreachable" in shown, shown
