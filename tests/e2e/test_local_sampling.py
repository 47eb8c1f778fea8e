"""Local sampling: Flowstone in a virtual machine with Debian's kernel, whose psample group receives what the action `sample`
sends.

The kernel samples the same packets itself (the action `sample` of tc): its messages are the reference for ours."""

import struct

import pytest

from hosts import Namespace
from virtual import VirtualMachine
from waiting import until

# Attributes of psample's messages (include/uapi/linux/psample.h).
IIFINDEX, OIFINDEX, ORIGSIZE, SAMPLE_GROUP, GROUP_SEQ, SAMPLE_RATE, DATA = range(7)
TIMESTAMP, PROTO, USER_COOKIE, SAMPLE_PROBABILITY = range(13, 17)
ALL = 0xFFFFFFFF
# The kernel's own samples of what enters the port.
KERNEL = 5
# Samples by the switch, by their collector sets.
GROUPS = {1: 9, 2: ALL}
# Between two samples of the same packet at most.
APART_S = 60
# How long a listener waits for samples.
LISTENING_S = 100


def attributes(line):
    """The attributes of a message in hexadecimal digits, {type: bytes}."""
    data, found = bytes.fromhex(line), {}
    while data:
        length, kind = struct.unpack_from("=HH", data)
        found[kind] = data[4:length]
        data = data[(length + 3) & ~3 :]
    return found


def number(value):
    return int.from_bytes(value, "little")


@pytest.fixture(scope="module")
def vm(module_making, programs, tmp_path_factory):
    """A machine that runs Flowstone. Its port v1 leads to the host v0 in the same machine; the kernel samples there too."""
    namespace = Namespace("sampling")
    module_making.namespaces.append(namespace)
    binary = (programs / "ovs-vsctl").resolve()
    made = VirtualMachine(tmp_path_factory.mktemp("vm"), namespace.name, {}, programs={"flowstone": binary})
    try:
        made.batch(
            "ip",
            [
                "link add v0 type veth peer name v1",
                "link set v0 up",
                "link set v1 up",
                "addr add 10.9.0.1/24 dev v0",
                "neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev v0",
            ],
        )
        made.run("tc qdisc add dev v1 clsact")
        made.run(f"tc filter add dev v1 ingress protocol ip matchall action sample rate 1 group {KERNEL}")
        made.run("mkdir -p /var/run/openvswitch /var/log/openvswitch /etc/openvswitch")
        made.run("flowstone run --detach --log-file=/tmp/log -vconsole:off")
        vsctl = "flowstone vsctl --timeout=60"
        made.run(f"{vsctl} add-br br0 -- set bridge br0 datapath_type=netdev fail_mode=secure -- add-port br0 v1")
        set_of = "create Flow_Sample_Collector_Set bridge=@b"
        sets = " ".join(f"-- {set_of} id={id} local_group_id={group}" for id, group in GROUPS.items())
        datapath = "-- --id=@d create Datapath datapath_version=here -- set Open_vSwitch . datapaths:netdev=@d"
        made.run(f"{vsctl} -- --id=@b get bridge br0 {sets} {datapath}")
        yield made
    finally:
        made.end()


def sampled(vm, actions, length, count):
    """Sends an ICMP packet with that many bytes of payload to the switch, whose flow has these actions; returns the `count`
    messages that the members of the group receive, by the number of the group of samples."""
    vm.run(f"flowstone ofctl add-flow br0 'ip,icmp,actions={actions}'")
    vm.run(f"psample-listener {count} {LISTENING_S} >/tmp/samples 2>&1 &")
    lines = lambda: vm.run("cat /tmp/samples").out.split()
    until(lambda: lines() == ["ready"], lambda: f"a listener: {lines()}")
    vm.run(f"ping -c 1 -W 1 -s {length} 10.9.0.2", check=False)
    until(lambda: len(lines()) > count, lambda: f"{count} samples: {lines()}")
    messages = [attributes(line) for line in lines()[1:]]
    return {number(message[SAMPLE_GROUP]): message for message in messages}


def test_messages_are_those_of_the_kernel(vm):
    """The same packet, once sampled by the kernel and once by the switch."""
    action = "sample(probability=65535,collector_set_id=1,obs_domain_id=10,obs_point_id=20)"
    messages = sampled(vm, action, 1000, 2)
    theirs, ours = messages[KERNEL], messages[GROUPS[1]]
    same = (IIFINDEX, ORIGSIZE, PROTO, DATA)
    assert [ours[kind] for kind in same] == [theirs[kind] for kind in same]
    assert (len(ours[DATA]), number(ours[PROTO])) == (1042, 0x800)
    # The kernel's rate is one of so many, that of Open vSwitch a probability.
    assert (number(theirs[SAMPLE_RATE]), number(ours[SAMPLE_RATE])) == (1, ALL)
    assert ours[SAMPLE_PROBABILITY] == b""
    assert ours[USER_COOKIE] == struct.pack(">II", 10, 20)
    assert abs(number(ours[TIMESTAMP]) - number(theirs[TIMESTAMP])) < APART_S * 10**9
    # Both have the same attributes otherwise, with the same lengths.
    lengths = lambda message: {kind: len(value) for kind, value in message.items()}
    assert lengths(ours) == lengths(theirs) | {USER_COOKIE: 8, SAMPLE_PROBABILITY: 0}
    flows = vm.run("flowstone appctl dpctl/dump-flows").out
    assert "actions:psample(group=9,cookie=0xa00000014)" in flows


def test_a_part_of_the_packets(vm):
    """The probability is in the message; each of two samples has its group and its cookie."""
    half = "sample(probability=65534,collector_set_id=2,obs_domain_id=0,obs_point_id=1)"
    action = "sample(probability=65535,collector_set_id=1,obs_domain_id=1,obs_point_id=2)"
    messages = sampled(vm, f"{half},{action}", 8, 3)
    assert set(messages) == {KERNEL, *GROUPS.values()}
    shown = {group: (number(messages[group][SAMPLE_RATE]), messages[group][USER_COOKIE].hex()) for group in GROUPS.values()}
    assert shown == {9: (ALL, "0000000100000002"), ALL: (65534 << 16 | 65534, "0000000000000001")}


def test_the_feature_is_shown(vm):
    assert "psample action: Yes" in vm.run("flowstone appctl dpif/show-dp-features br0").out
    capabilities = "flowstone vsctl --columns=capabilities list Datapath"
    until(lambda: 'psample="true"' in vm.run(capabilities).out, "the capability in the database")
    assert "ignoring local sampling" not in vm.run("cat /tmp/log").out
