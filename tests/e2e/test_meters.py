"""Meters by Debian's ovs-ofctl and ours: configuration, statistics, and their effect on packets."""

import pytest

ARP = "in_port(1),eth(src=50:54:00:00:00:09,dst=ff:ff:ff:ff:ff:ff),eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.0.2,op=1,sha=50:54:00:00:00:09,tha=00:00:00:00:00:00)"


@pytest.fixture
def ofctl(tools):
    """Runs ovs-ofctl over OpenFlow 1.3, on br0 with ports 1 and 2; returns its exit code and output."""
    tools.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
    for number, port in enumerate(("p1", "p2"), 1):
        tools.vsctl("add-port", "br0", port, "--", "set", "interface", port, "type=dummy", f"ofport_request={number}")

    def run(*words):
        done = tools.run("ovs-ofctl", "-O", "OpenFlow13", words[0], "br0", *words[1:], check=False)
        return done.code, done.out + done.err

    run.tools = tools
    return run


def test_meters_are_added_changed_shown_and_deleted(ofctl):
    assert ofctl("add-meter", "meter=1,kbps,burst,stats,bands=type=drop,rate=1000,burst_size=200") == (0, "")
    two = "meter=2,pktps,bands=type=dscp_remark,rate=5,prec_level=1,type=drop,rate=10"
    assert ofctl("add-meter", two) == (0, "")
    assert ofctl("add-meter", "meter=controller,pktps,bands=type=drop,rate=7") == (0, "")
    assert ofctl("mod-meter", "meter=1,pktps,bands=type=drop,rate=6") == (0, "")
    code, told = ofctl("dump-meters")
    assert (code, told.split("\n", 1)[0]) == (0, "OFPST_METER_CONFIG reply (OF1.3) (xid=0x2):")
    assert told.split("\n", 1)[1] == (
        "meter=1 pktps bands=\ntype=drop rate=6\n\n"
        "meter=2 pktps bands=\ntype=dscp_remark rate=5 prec_level=1\ntype=drop rate=10\n\n"
        "meter=controller pktps bands=\ntype=drop rate=7\n"
    )
    assert ofctl("dump-meters", "meter=1")[1].endswith("meter=1 pktps bands=\ntype=drop rate=6\n")
    code, told = ofctl("meter-features")
    assert told.splitlines()[1:] == [
        "max_meter:262144 max_bands:8 max_color:0",
        "band_types: drop dscp_remark",
        "capabilities: kbps pktps burst stats",
    ]
    code, told = ofctl("add-meter", two)
    assert code == 1 and told.startswith("OFPT_ERROR (OF1.3) (xid=0x2): OFPMMFC_METER_EXISTS\n")
    assert ofctl("del-meters", "meter=1") == (0, "")
    assert ofctl("del-meters") == (0, "")
    assert ofctl("dump-meters")[1] == "OFPST_METER_CONFIG reply (OF1.3) (xid=0x2):\n"


def test_invalid_meters(ofctl):
    for text, what in [
        ("meter=0,pktps,bands=type=drop,rate=5", "invalid value for meter"),
        ("meter=5,bands=type=drop,rate=5", "meter must specify either 'kbps' or 'pktps'"),
        ("meter=5,kbps,bands=type=drop", "band must have 'rate'"),
        ("meter=5,kbps,bands=rate=5", "band must start with the 'type' keyword"),
        ("meter=5,kbps", "must specify bands"),
        ("kbps,bands=type=drop,rate=5", "must specify 'meter'"),
        ("meter=5,kbps,bands=type=drop,rate=5,burst_size=6", "band may have 'burst_size' only when 'burst' flag is set"),
    ]:
        assert ofctl("add-meter", text) == (1, f"ovs-ofctl: {what}\n")


def test_flows_send_packets_through_meters(ofctl):
    tools = ofctl.tools
    tools.appctl("time/stop")
    code, told = ofctl("add-flow", "in_port=1,actions=meter:1,output:2")
    assert code == 1 and "OFPMMFC_INVALID_METER" in told
    assert ofctl("add-meter", "meter=1,pktps,burst,stats,bands=type=drop,rate=1,burst_size=5") == (0, "")
    assert ofctl("add-flow", "in_port=1,actions=meter:1,output:2") == (0, "")
    for _ in range(12):
        tools.appctl("netdev-dummy/receive", "p1", ARP)
    code, told = ofctl("meter-stats", "meter=1")
    first, second = told.splitlines()[1:]
    assert first.startswith("meter:1 flow_count:1 packet_in_count:12 byte_in_count:") and first.endswith("s bands:")
    assert second.startswith("0: packet_count:7 byte_count:")
    assert "tx pkts=5," in ofctl("dump-ports", "2")[1]
    assert ofctl("del-meters", "meter=1") == (0, "")
    assert ofctl("dump-flows")[1].splitlines()[1:] == []
