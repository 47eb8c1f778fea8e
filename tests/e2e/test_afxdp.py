"""Ports of type afxdp: AF_XDP sockets on veths, whose other ends are hosts in namespaces."""

import contextlib
import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from hosts import Host, TaggingHost, run, start_by
from test_hosts import tcp_transfer, udp_transfer
from waiting import until

MODES = ["native", "generic"]


def connect(switch, *hosts, kind="afxdp", bridge="br0", **options):
    """A bridge with the hosts' cables as its ports, numbered like the hosts; afxdp ports have `options`."""
    words = ["add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev"]
    for host in hosts:
        words += ["--", "add-port", bridge, host.port]
        words += ["--", "set", "interface", host.port, f"ofport_request={host.number}", f"type={kind}"]
        words += [f"options:{name.replace('_', '-').replace('n-rxq', 'n_rxq')}={value}" for name, value in options.items()]
    switch.vsctl(*words)
    for host in hosts:
        assert switch.vsctl("get", "interface", host.port, "error") == "[]"


def status(switch, port, key):
    return switch.vsctl("--if-exists", "get", "interface", port, f"status:{key}").strip('"')


def error(switch, port):
    return switch.vsctl("get", "interface", port, "error")


def statistics(switch, port):
    text = switch.vsctl("get", "interface", port, "statistics").strip("{}")
    return {name: int(value) for name, value in (pair.split("=") for pair in text.split(", ") if pair)}


def open_descriptors(switch):
    """The types of open descriptors of the switch's process, with their number."""
    folder = Path(f"/proc/{switch.pid('ovs-vswitchd')}/fd")
    kinds = Counter()
    for descriptor in folder.iterdir():
        with contextlib.suppress(OSError):
            kinds[os.readlink(descriptor).split(":")[0]] += 1
    return kinds


def has_program(namespace, port):
    """Whether an XDP program is attached to a device."""
    link = json.loads(namespace.run("ip", "-j", "link", "show", "dev", port).out)[0]
    return "xdp" in link


def channels(namespace, port, n):
    """Gives a veth `n` queues in each direction."""
    namespace.run("ethtool", "-L", port, "rx", n, "tx", n)


class Pings:
    """A host that pings another continuously."""

    def __init__(self, host, address):
        self.host, self.address = host, address

    def __enter__(self):
        self.process = self.host.start("ping", "-i", "0.01", self.address)
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("mode", MODES)
def test_requested_mode(making, mode):
    """test_pairs.py tests which frames pass."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    connect(switch, one, two, xdp_mode=mode)
    assert status(switch, "p1", "xdp-mode") == mode
    assert status(switch, "p1", "xdp-mode-in-use") == mode
    assert status(switch, "p1", "use-need-wakeup") == "true"
    one.ping(two.address)


def test_best_mode_that_works(making):
    """A veth has no zero-copy; the row says so, and names the mode in use."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    connect(switch, one, two)
    one.ping(two.address)
    assert status(switch, "p1", "xdp-mode") == "best-effort"
    assert status(switch, "p1", "xdp-mode-in-use") == "native"
    assert "native-with-zerocopy mode: Operation not supported" in status(switch, "p1", "xdp-mode-refused")
    assert status(switch, "p1", "driver_name") == "veth"
    assert status(switch, "p1", "io") == "AF_XDP sockets"
    assert "afxdp" in switch.vsctl("get", "open_vswitch", ".", "iface_types")
    until(lambda: statistics(switch, "p1").get("rx_packets", 0) > 0, "counters in the row")
    counters = statistics(switch, "p1")
    assert counters["xsk_queue_0_rx_dropped"] == counters["xsk_queue_0_rx_ring_full"] == 0
    assert counters["rx_dropped"] == counters["rx_errors"] == counters["tx_errors"] == 0


@pytest.mark.parametrize("kind", ["system", "afxdp"])
def test_driver_capabilities(making, kind):
    """The row reports the driver's capabilities as the kernel does (from Linux 6.3 on), and the resulting choice."""
    switch = making.switch(start="kernel")
    one = making.host(switch, 1)
    connect(switch, one, kind=kind)
    output = [status(switch, "p1", key) for key in ("xdp-features", "xsk-features", "xsk-zerocopy")]
    assert output == ["", "", ""] or (output[0].startswith("basic redirect") and output[1:] == ["none", "false"])
    io = {"system": ("packet sockets", "type=afxdp moves more small frames"), "afxdp": ("AF_XDP sockets", "type=afxdp asks")}
    assert status(switch, "p1", "io") == io[kind][0]
    assert io[kind][1] in status(switch, "p1", "io-reason")
    # Packet sockets leave checksums and segments of TCP and UDP to the kernel; the names are Open vSwitch's.
    for work in ("tx_tcp_csum_offload", "tx_tcp_seg_offload", "tx_udp_csum_offload"):
        assert status(switch, "p1", work) == ("true" if kind == "system" else "false")
    for work in ("tx_ip_csum_offload", "tx_sctp_csum_offload", "tx_vxlan_tso_offload"):
        assert status(switch, "p1", work) == "false"
    assert int(status(switch, "p1", "peer_ifindex")) > 0


def assert_cable_is_tagged(namespace, sender, address, vid):
    """Watches the cable at the end that is no AF_XDP port, as captures do not see frames of AF_XDP ports."""
    words = ["tcpdump", "-i", f"u{sender.number}", "-n", "-e", "-c", "1", "--immediate-mode", f"vlan {vid} and icmp"]
    capture = subprocess.Popen(namespace.words(*words), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    until(lambda: sender.ping(address) and capture.poll() is not None, "a tagged packet on the cable")
    assert f"vlan {vid}," in capture.communicate()[0]


@pytest.mark.parametrize(
    ("mtu", "tagged", "offloads", "wakeup"),
    [
        (1500, False, True, "true"),
        (1500, False, False, "false"),
        (1500, True, False, "true"),
        (9000, False, False, "true"),
        (9000, True, True, "false"),
    ],
)
def test_transfers(making, mtu, tagged, offloads, wakeup):
    """Every byte arrives, in frames of one piece and of several; also from senders with partial checksums."""
    switch = making.switch(start="kernel")
    kind = TaggingHost if tagged else Host
    one, two = (making.host(switch, number, kind, mtu=mtu, offloads=offloads) for number in (1, 2))
    connect(switch, one, two, use_need_wakeup=wakeup)
    address = [host.add_vlan(5) for host in (one, two)][1] if tagged else two.address
    one.ping(address)
    one.ping(address, "-s", str(mtu - 28), "-M", "do")
    if tagged:
        assert_cable_is_tagged(making.namespaces[0], one, address, 5)
    tcp_transfer(one, two, address, 10_000_000)
    udp_transfer(one, two, address, mtu - 100)
    udp_transfer(one, two, address, 2 * mtu)


@pytest.mark.parametrize("mode", MODES)
def test_losses_are_counted_once(making, mode):
    """Frames that arrive while the switch does not poll are lost when the ring is full, and counted once."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number, offloads=False) for number in (1, 2))
    connect(switch, one, two, xdp_mode=mode)
    one.ping(two.address)
    one.run("ip", "neigh", "replace", two.address, "lladdr", two.mac, "dev", "e0", "nud", "permanent")
    pid = switch.pid("ovs-vswitchd")
    os.kill(pid, signal.SIGSTOP)
    try:
        one.python("transfer.py", "udp-flood", two.address, 5100, 6000, 100)
    finally:
        os.kill(pid, signal.SIGCONT)

    def counted():
        counters = statistics(switch, "p1")
        lost = counters.get("xsk_queue_0_rx_dropped", 0) + counters.get("xsk_queue_0_rx_ring_full", 0)
        return lost > 1000 and counters["rx_dropped"] == lost

    until(counted, "the losses counted")
    one.ping(two.address)


def moved(switch, *ports):
    """Number of frames that the ports sent without a copy from another port."""
    return sum(statistics(switch, port).get("xsk_queue_0_tx_moved", 0) for port in ports)


def assert_no_bad_frames(switch, *ports):
    """The kernel returned no invalid frame address."""
    for port in ports:
        until(lambda port=port: "xsk_queue_0_tx_bad_completions" in statistics(switch, port), "counters in the row")
        counters = statistics(switch, port)
        assert counters["xsk_queue_0_rx_bad_descs"] == counters["xsk_queue_0_tx_bad_completions"] == 0


def shared_with(switch, port):
    return status(switch, port, "umem-shared-with").split()


def test_ports_share_a_umem(making):
    """One port sends frames of another without a copy; all payloads are right."""
    switch = making.switch(start="kernel")
    one, two, three = (making.host(switch, number) for number in (1, 2, 3))
    connect(switch, one, two, three)
    assert [shared_with(switch, port) for port in ("p1", "p2", "p3")] == [["p2", "p3"], ["p1", "p3"], ["p1", "p2"]]
    assert status(switch, "p1", "umem-alone") == ""
    tcp_transfer(one, two, two.address, 10_000_000)
    udp_transfer(two, three, three.address, 1400)
    until(lambda: moved(switch, "p1", "p2", "p3") > 1000, "frames that were not copied")
    assert_no_bad_frames(switch, "p1", "p2", "p3")


def test_tags_are_pushed_into_moved_frames(making):
    """Tags are removed, too: the frame then begins at another offset than where it was received."""
    switch = making.switch(start="kernel")
    one, two = making.host(switch, 1, offloads=False), making.host(switch, 2, TaggingHost, offloads=False)
    connect(switch, one, two)
    address = two.add_vlan(5)
    switch.vsctl("set", "port", one.port, "tag=5")
    own = address.rpartition(".")[0] + ".1"
    one.run("ip", "addr", "add", f"{own}/24", "dev", "e0")
    one.ping(address)
    for a, b, to in ((one, two, address), (two, one, own)):
        tcp_transfer(a, b, to, 3_000_000)
        udp_transfer(a, b, to, 1400)
    until(lambda: all(moved(switch, host.port) > 1000 for host in (one, two)), "frames that were not copied")
    assert_no_bad_frames(switch, one.port, two.port)


def test_flooding_over_ports_that_share_a_umem(making):
    """Each host gets each frame complete: one of them without a copy, the others as copies; so does the bridge's own
    port."""
    switch = making.switch(start="kernel")
    hosts = one, two, three = [making.host(switch, number) for number in (1, 2, 3)]
    connect(switch, *hosts)
    switch.ofctl("del-flows", "br0")
    for actions in ("output:1,output:2,output:3", "flood"):
        switch.ofctl("add-flow", "br0", f"actions={actions}")
        for a, b in ((one, two), (two, three), (three, one)):
            tcp_transfer(a, b, b.address, 2_000_000)
            udp_transfer(a, b, b.address, 1400)
        until(lambda: moved(switch, "p1", "p2", "p3") > 1000, "frames that were not copied")
    assert_no_bad_frames(switch, "p1", "p2", "p3")


def test_a_port_is_removed_while_its_frames_are_in_transit(making):
    """The other ports still send frames of a removed port, and a port that is added again takes its place again."""
    switch = making.switch(start="kernel")
    hosts = one, two, three = [making.host(switch, number) for number in (1, 2, 3)]
    connect(switch, *hosts)
    one.run("ip", "neigh", "replace", two.address, "lladdr", two.mac, "dev", "e0", "nud", "permanent")
    flood = one.start("python3", Path(__file__).with_name("transfer.py"), "udp-flood", two.address, "5100", "200000", "1000")
    for _ in range(10):
        switch.vsctl("del-port", "br0", "p1")
        switch.vsctl("add-port", "br0", "p1", "--", "set", "interface", "p1", "type=afxdp")
        assert (error(switch, "p1"), shared_with(switch, "p1")) == ("[]", ["p2", "p3"])
    flood.kill()
    flood.communicate()
    for a, b in ((one, two), (two, three), (three, one)):
        a.ping(b.address)
        tcp_transfer(a, b, b.address, 1_000_000)
    assert_no_bad_frames(switch, "p1", "p2", "p3")


def test_a_killed_switch_leaves_no_umem(making):
    """A killed switch leaves nothing that keeps the next one from sharing, even with frames in transit."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    connect(switch, one, two)
    with Pings(one, two.address), Pings(two, one.address):
        switch.kill("ovs-vswitchd")
        switch.start_switch()
        until(lambda: shared_with(switch, "p1") == ["p2"] and shared_with(switch, "p2") == ["p1"], "a umem for both")
    one.ping(two.address)
    tcp_transfer(one, two, two.address, 1_000_000)


def test_more_ports_than_a_umem_serves(making):
    """Ports beyond the capacity of a umem share the next one, and frames between both are copied."""
    switch = making.switch(start="kernel")
    hosts = [making.host(switch, number) for number in range(1, 6)]
    connect(switch, *hosts)
    assert [len(shared_with(switch, host.port)) for host in hosts] == [3, 3, 3, 3, 1]
    assert shared_with(switch, "p5") == ["none"]
    before = moved(switch, "p5")
    hosts[0].ping(hosts[4].address, "-s", "1400")
    tcp_transfer(hosts[0], hosts[4], hosts[4].address, 2_000_000)
    assert moved(switch, "p5") == before == 0


def test_two_queues(making):
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    namespace = making.namespaces[0]
    for host in (one, two):
        channels(namespace, host.port, 2)
    # As many as there are, and not one more.
    connect(switch, one, two, n_rxq=2)
    assert status(switch, "p1", "n_rxq") == "2"
    one.ping(two.address)
    tcp_transfer(one, two, two.address, 10_000_000)
    udp_transfer(two, one, one.address, 1400)
    until(lambda: "xsk_queue_1_rx_dropped" in statistics(switch, "p1"), "counters of the second queue")
    switch.vsctl("set", "interface", "p1", "options:n_rxq=3", check=False)
    assert error(switch, "p1") == (
        '"p1: option n_rxq: queues 0 to 2 are asked for, the device has 2 receive queues (ethtool -L)"'
    )
    switch.vsctl("set", "interface", "p1", "options:n_rxq=1", "options:start-qid=1")
    assert (error(switch, "p1"), status(switch, "p1", "start-qid")) == ("[]", "1")
    switch.vsctl("set", "interface", "p1", "options:n_rxq=2", check=False)
    assert "queues 1 to 2 are asked for" in error(switch, "p1")
    switch.vsctl("remove", "interface", "p1", "options", "start-qid")
    assert error(switch, "p1") == "[]"
    one.ping(two.address)


def test_ports_are_added_and_removed_under_traffic(making):
    switch = making.switch(start="kernel")
    one, two, three = (making.host(switch, number) for number in (1, 2, 3))
    connect(switch, one, two, three)
    descriptors = open_descriptors(switch)
    with Pings(one, two.address), Pings(three, one.address):
        for _ in range(10):
            switch.vsctl("del-port", "br0", "p2")
            switch.vsctl("add-port", "br0", "p2", "--", "set", "interface", "p2", "type=afxdp")
            assert error(switch, "p2") == "[]"
        for _ in range(5):
            for mode in ("generic", "native"):
                switch.vsctl("set", "interface", "p1", f"options:xdp-mode={mode}")
                assert (error(switch, "p1"), status(switch, "p1", "xdp-mode-in-use")) == ("[]", mode)
        for kind in ("system", "afxdp"):
            switch.vsctl("set", "interface", "p3", f"type={kind}")
            assert (error(switch, "p3"), has_program(making.namespaces[0], "p3")) == ("[]", kind == "afxdp")
    for a, b in ((one, two), (two, three), (three, one)):
        a.ping(b.address)
    # Sockets, maps, programs and links of removed ports are gone.
    until(lambda: open_descriptors(switch) == descriptors, "the descriptors' end")


def test_no_program_outlives_the_switch(making):
    """This holds after the removal of a port, and of the process by any signal; a new process finds the queues free."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    namespace = making.namespaces[0]
    connect(switch, one, two)
    assert has_program(namespace, "p1") and has_program(namespace, "p2")
    switch.vsctl("del-port", "br0", "p2")
    assert has_program(namespace, "p1") and not has_program(namespace, "p2")
    switch.vsctl("add-port", "br0", "p2", "--", "set", "interface", "p2", "type=afxdp")
    one.ping(two.address)
    switch.kill("ovs-vswitchd")
    until(lambda: not has_program(namespace, "p1") and not has_program(namespace, "p2"), "the programs' end")
    switch.start_switch()
    assert has_program(namespace, "p1") and error(switch, "p1") == "[]"
    one.ping(two.address)


def test_wrong_options(making):
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    connect(switch, one, two)
    for option, expected in (
        ("xdp-mode=fast", "is none of best-effort, native-with-zerocopy, native or generic"),
        ("n_rxq=0", "is not a number from 1 to 64"),
        ("n_rxq=4", "the device has 1 receive queues"),
        ("start-qid=x", "is not a number from 0 to"),
        ("start-qid=1", "the device has 1 receive queues"),
        ("use-need-wakeup=perhaps", "is neither true nor false"),
        ("xdp-mode=native-with-zerocopy", "the driver has no zero-copy"),
    ):
        switch.vsctl("set", "interface", "p1", f"options:{option}", check=False)
        assert expected in error(switch, "p1"), option
        assert switch.vsctl("get", "interface", "p1", "ofport") == "-1"
        switch.vsctl("remove", "interface", "p1", "options", option.split("=")[0])
        assert error(switch, "p1") == "[]"
    one.ping(two.address)
    assert switch.log().count("is none of best-effort") == 1


def test_no_ethernet_and_no_device(making):
    switch = making.switch(start="kernel")
    switch.vsctl("add-br", "br0")
    for name, expected in (("lo", "Invalid argument"), ("nothing", "No such device")):
        switch.vsctl("add-port", "br0", name, "--", "set", "interface", name, "type=afxdp", check=False)
        assert error(switch, name) == f'"could not open network device {name} ({expected})"'


def test_device_is_deleted_and_recreated(making):
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    namespace = making.namespaces[0]
    connect(switch, one, two)
    with Pings(two, one.address):
        namespace.run("ip", "link", "set", "p1", "down")
        until(lambda: switch.vsctl("get", "interface", "p1", "admin_state") == "down", "the port seen down")
        two.cannot_ping(one.address)
        namespace.run("ip", "link", "set", "p1", "up")
        until(lambda: switch.vsctl("get", "interface", "p1", "link_state") == "up", "the port seen up")
        two.ping(one.address)
        for mtu in (9000, 1500):
            for host in (one, two):
                run(["ip", "-n", host.name, "link", "set", "e0", "mtu", mtu])
                namespace.run("ip", "link", "set", host.port, "mtu", mtu)
            until(lambda mtu=mtu: switch.vsctl("get", "interface", "p1", "mtu") == str(mtu), "the new MTU")
            two.ping(one.address, "-s", mtu - 28, "-M", "do")
        namespace.run("ip", "link", "delete", "p1")
        until(lambda: "No such device" in error(switch, "p1"), "the device missed")
        run(
            ["ip", "link", "add", "p1", "netns", namespace.name, "type", "veth"]
            + ["peer", "name", "e0", "netns", one.name, "address", one.mac]
        )
        namespace.run("ip", "link", "set", "p1", "up")
        one.run("ip", "link", "set", "e0", "up")
        one.run("ip", "addr", "add", f"{one.address}/24", "dev", "e0")
        until(lambda: error(switch, "p1") == "[]" and has_program(namespace, "p1"), "the port opened again")
        two.ping(one.address)


def test_channels_change(making):
    """The kernel keeps queues with sockets; the port does not use additional queues until configured to."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    namespace = making.namespaces[0]
    connect(switch, one, two)
    channels(namespace, "p1", 2)
    one.ping(two.address)
    switch.vsctl("set", "interface", "p1", "options:n_rxq=2")
    assert error(switch, "p1") == "[]"
    assert namespace.run("ethtool", "-L", "p1", "rx", "1", check=False).code != 0
    one.ping(two.address)


def test_driver_that_refuses(making):
    """A veth whose peer has more tx queues than it has rx queues accepts no native program."""
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    one.run("ethtool", "-L", "e0", "tx", "2")
    switch.vsctl("add-br", "br0")
    switch.vsctl(
        *["add-port", "br0", "p1", "--", "set", "interface", "p1", "type=afxdp", "options:xdp-mode=native"], check=False
    )
    assert "fewer receive queues than its peer has transmit queues" in error(switch, "p1")
    switch.vsctl("remove", "interface", "p1", "options", "xdp-mode")
    assert status(switch, "p1", "xdp-mode-in-use") == "generic"
    assert "XDP program in native mode: No space left on device" in status(switch, "p1", "xdp-mode-refused")
    switch.vsctl("add-port", "br0", "p2", "--", "set", "interface", "p2", "type=afxdp")
    one.ping(two.address)


@pytest.mark.parametrize("queue", [0, 1], ids=["socket", "program"])
def test_another_process_has_the_device(making, queue):
    """The port reports a socket or program of another process, and opens when it is gone."""
    switch, other = (making.switch(start="kernel") for _ in range(2))
    one, two = (making.host(switch, number) for number in (1, 2))
    channels(making.namespaces[0], "p1", 2)
    # A second switch in the same namespace is the other process.
    other.stop()
    other.namespace = switch.namespace
    other.start_database()
    other.start_switch()
    words = ["--", "add-port", "br1", "p1", "--", "set", "interface", "p1", "type=afxdp", f"options:start-qid={queue}"]
    other.vsctl("add-br", "br1", *words)
    assert error(other, "p1") == "[]"
    switch.vsctl("add-br", "br0", "--", "add-port", "br0", "p2", "--", "set", "interface", "p2", "type=afxdp")
    switch.vsctl("add-port", "br0", "p1", "--", "set", "interface", "p1", "type=afxdp", check=False)
    expected = ["another AF_XDP socket has the queue", "another XDP program is on the device"]
    assert expected[queue] in error(switch, "p1")
    other.vsctl("del-port", "br1", "p1")
    until(lambda: error(switch, "p1") == "[]", "the port opened")
    switch.vsctl("set", "interface", "p1", "options:n_rxq=2")
    one.ping(two.address)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["setpriv", "--bounding-set=-net_raw"], "AF_XDP socket: Operation not permitted: the process lacks CAP_NET_RAW"),
        (
            ["setpriv", "--bounding-set=-bpf,-sys_admin"],
            "XDP program: Operation not permitted: the process lacks CAP_BPF",
        ),
        (
            ["prlimit", "--memlock=65536", "setpriv", "--bounding-set=-ipc_lock"],
            "AF_XDP memory of 8192 KiB: No buffer space available: the limit of locked memory is 64 KiB (ulimit -l), "
            "and the process lacks CAP_IPC_LOCK",
        ),
    ],
    ids=["net_raw", "bpf", "ipc_lock"],
)
def test_missing_capabilities(making, words, expected):
    """The error names the missing capability."""
    switch = making.switch(start=False)
    making.host(switch, 1)
    start_by(switch, *words)
    # The bridge's own port would need capabilities too.
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy")
    switch.vsctl("add-port", "br0", "p1", "--", "set", "interface", "p1", "type=afxdp", check=False)
    assert error(switch, "p1") == f'"could not open network device p1 ({expected})"'
