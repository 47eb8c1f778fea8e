"""A host sends datagrams with UDP segmentation (UDP_SEGMENT, udp(7)): the switch passes them on as one packet to ports that take it,
and as datagrams to others, also through connection tracking."""

import json
import subprocess
import sys

import pytest

from hosts import finish
from switch import run

PORT, LENGTH, DATAGRAMS, TRAINS = 6000, 1200, 40, 20
ADDRESS = "10.1.0.9"
SEND = f"""
import socket, sys, time
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
sender = socket.socket(family, socket.SOCK_DGRAM)
sender.setsockopt(socket.IPPROTO_UDP, 103, {LENGTH})
for train in range({TRAINS}):
    # The last one is shorter.
    parts = [bytes([train, n]) * ({LENGTH} // 2) for n in range({DATAGRAMS})]
    sender.sendto(b"".join(parts)[:-100], (sys.argv[1], {PORT}))
    time.sleep(0.02)
"""
RECEIVE = f"""
import json, socket, sys
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
receiver = socket.socket(family, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 22)
receiver.bind((sys.argv[1], {PORT}))
receiver.settimeout(10)
print("ready", flush=True)
seen = []
while len(seen) < {TRAINS * DATAGRAMS}:
    try:
        datagram = receiver.recv(65536)
    except TimeoutError:
        break
    same = datagram == datagram[:2] * (len(datagram) // 2)
    seen.append([*datagram[:2], len(datagram), same])
print(json.dumps(seen))
"""
EXPECTED = [[t, n, LENGTH - 100 * (n == DATAGRAMS - 1), True] for t in range(TRAINS) for n in range(DATAGRAMS)]


def sent(namespace, device):
    text = run(["ip", "-n", namespace, "-s", "-j", "link", "show", device]).out
    return json.loads(text)[0]["stats64"]["tx"]["packets"]


@pytest.mark.parametrize("tracked", [False, True], ids=["plain", "ct"])
@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("kind", ["system", "internal", "afxdp"])
def test_datagrams_arrive(making, kind, version, tracked):
    switch = making.switch(start="kernel")
    host, other = making.host(switch, 1), making.host(switch, 2)
    words = ["add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev", "--", "add-port", "br0", host.port]
    words += ["--", "add-port", "br0", other.port, "--", "set", "interface", other.port]
    words += ["type=afxdp" if kind == "afxdp" else "type=system", "--", "add-port", "br0", "i0"]
    switch.vsctl(*words, "--", "set", "interface", "i0", "type=internal")
    if tracked:
        flows = ["add udp,actions=ct(commit,table=1)", "add udp6,actions=ct(commit,table=1)", "add table=1,actions=normal"]
        switch.ofctl("-O", "OpenFlow14", "add-flows", "br0", "-", input="\n".join(flows))
    inside = other.words() if kind != "internal" else ["ip", "netns", "exec", switch.namespace]
    namespace, device = (switch.namespace, "i0") if kind == "internal" else (other.name, "e0")
    address = ADDRESS if version == 4 else "fd00:1::9"
    run(["ip", "-n", namespace, "addr", "add", f"{address}/{24 if version == 4 else 64}", "dev", device, *["nodad"][: version == 6]])
    run(["ip", "-n", namespace, "link", "set", device, "up"])
    host.run("ip", "addr", "add", "fd00:1::1/64", "dev", "e0", "nodad")
    host.ping(address)
    receiver = subprocess.Popen([*inside, sys.executable, "-c", RECEIVE, address], stdout=subprocess.PIPE, text=True)
    assert receiver.stdout.readline() == "ready\n"
    before = sent(switch.namespace, other.port)
    host.run(sys.executable, "-c", SEND, address)
    assert json.loads(finish(receiver).out) == EXPECTED
    if kind == "system":
        assert sent(switch.namespace, other.port) - before < 2 * TRAINS
