"""30,000 flows in one go, while packets are forwarded."""

import re

from hosts import finish
from test_hosts import connect
from waiting import until

FLOWS = 30_000
PINGS_A_SECOND = 50


def test_many_flows(making, record_property):
    switch = making.switch(start="kernel")
    one, two = (making.host(switch, number) for number in (1, 2))
    connect(switch, one, two)
    one.ping(two.address)
    path = switch.directory / "flows"
    with open(path, "w") as file:
        for n in range(FLOWS):
            addresses = f"nw_src=10.{n >> 16}.{n >> 8 & 255}.{n & 255},nw_dst=192.168.{n % 251}.{n % 253}"
            file.write(f"table={n % 3},tcp,{addresses},tp_src={n % 60000},tp_dst=80,actions=output:{n % 2 + 1}\n")
    pings = one.start("ping", "-D", "-i", 1 / PINGS_A_SECOND, two.address)
    switch.ofctl("add-flows", "br0", path)
    dumped = switch.ofctl("dump-flows", "br0", "tcp")
    assert dumped.count("actions=output") == FLOWS
    assert f"flow_count={FLOWS + 1}" in switch.ofctl("dump-aggregate", "br0")
    switch.ofctl("del-flows", "br0", "tcp")
    assert len(switch.flows("br0")) == 1
    # The packets still follow their flows; this reply confirms all earlier packets.
    one.ping(two.address)
    pings.send_signal(2)
    report = finish(pings)
    times = [float(time) for time in re.findall(r"^\[(\d+\.\d+)\] \d+ bytes from", report.out, re.MULTILINE)]
    assert len(times) > 1, str(report)
    gap = max(later - earlier for earlier, later in zip(times, times[1:]))
    record_property("longest_gap_ms", round(gap * 1000))
    print(f"\nlongest time between two answered pings: {gap * 1000:.0f} ms, {report.out.splitlines()[-2]}")
    lost = re.search(r"(\d+) packets transmitted, (\d+) received", report.out)
    assert int(lost.group(2)) >= int(lost.group(1)) // 2
    until(lambda: one.mac in switch.appctl("fdb/show", "br0"), "the address in the table")
