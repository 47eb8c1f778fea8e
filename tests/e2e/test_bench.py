"""The foundations of the benchmarks: workloads have the same bytes everywhere, and outputs of switches are parsed."""

import hashlib
import sys

import pytest
from switch import TOP

sys.path.insert(0, str(TOP / "bench"))

import examples  # noqa: E402
import nsdi15  # noqa: E402
import punted  # noqa: E402
import queues  # noqa: E402
import replay  # noqa: E402
import report  # noqa: E402
import threads  # noqa: E402
import workload  # noqa: E402

# SHA-256 of NAME.pcap and of NAME.flows, seed 1.
PINNED = {
    "p2p-1": (
        "ea680aa9283700992c0fc7ac82f226ad7000b8b1c71ebd720ca62bc4c241f2af",
        "bc1ce3ffabe2d1c7373073211a1b62313f2cac58fa0aeba4258bb6cdeea79e03",
    ),
    "ip-1k": (
        "0ba648cd8c5e5556dfe69ffd6281e1500ce472a7c9ea477dc2356fc01ce1c448",
        "9c006232b6613517c3670a2603293622f43cd2372956ac0a1e51bbdbdad156c7",
    ),
    "masks-1": (
        "1cd691e3936ef52e290a6c7732d9504c7f04a5fee1f8bb63d06d3b7210eac9aa",
        "a20f262f21fdd0632bf85e23030725f37520009d431d9e311b264baa51643c8d",
    ),
    "masks-50": (
        "c82b01e71b223a78b5a0cc717b392c19d78024ee0670cf3786abe9430c5fea38",
        "181722baea645ea4f22e51f2a59784d9f3433013b8d36ebce4030c2349967eb4",
    ),
    "masks-200": (
        "9a5344940556ca46e48f944275943bc1044d55e12b89837bdc18cb95163a3cf7",
        "13863ec67d83bbd804d8fadb84610020f252508348f3a841b244daa29f950011",
    ),
    "normal-1k": (
        "5a8a69ad04bc49b66d04e21ae60f20b6c4761bd35f8b11c5d7853f60be5d9b79",
        "1081078d7f0b0a1de4a9049001732500c28dae5ee1a4aad97894a5b671e6327f",
    ),
    "acl-1000": (
        "f8f6b8cd16943f1a2d546742d9b3892983d9472485795ed94c9ea3537e0bf850",
        "4b612b7def5070d03dc1e9f727ffd490642fdda428a9bce8e5a3c12c54a6b00f",
    ),
    "victim-4000": (
        "b8c3ca28d28af0f73bbc57e7d5c53957a697febc65b3a9d409e3b766835e1fee",
        "6833121ec1ab20876771c044bf71cda4d1a0739da7a42404b97da456dd13bc6b",
    ),
    "tse-4000": (
        "ecc4a189f5e43e2c08564d13bff925ebc2f11143237d1e06402c70251bea14d8",
        "6833121ec1ab20876771c044bf71cda4d1a0739da7a42404b97da456dd13bc6b",
    ),
    "mpls-100": (
        "e199d8773e5426dbd78444d9d299c33944a46421b326200ca0921a749c9c83ee",
        "7382b052ddc8376ac173375ce0ad944e49a58fb87c16e006fb131733f092c688",
    ),
    "setups-1000": (
        "c0ed237406ba83e0ef39e62ba3006158ef4e7ce6fa2df2a09fd3b5c641597b13",
        "5bf28a3cc126d1283ca6cefde6b282f474a39009ff372f790a6df2ecc343b408",
    ),
}

# As printed by Open vSwitch 3.1 with DPDK.
PMD_STATS = """\
pmd thread numa_id 0 core_id 1:
  packets received: 4789376
  packet recirculations: 0
  avg. datapath passes per packet: 1.00
  phwol hits: 0
  mfex opt hits: 0
  simple match hits: 0
  emc hits: 1024
  smc hits: 0
  megaflow hits: 4788352
  avg. subtable lookups per megaflow hit: 5.50
  miss with success upcall: 7
  miss with failed upcall: 0
  avg. packets per output batch: 32.00
  idle cycles: 0 (0.00%)
  processing cycles: 4508604032 (100.00%)
  avg cycles per packet: 941.38 (4508604032/4789376)
  avg processing cycles per packet: 941.38 (4508604032/4789376)
main thread:
  packets received: 12
  emc hits: 3
"""

PMD_STATS_4_0 = """
Time: 12:03:40.505
Measurement duration: 2.028 s

pmd thread numa_id 0 core_id 1:

  Iterations:               564548  (3.59 us/it)
  - Used TSC cycles:    5264301820  (100.0 % of total cycles)
  Rx packets:             18065568  (8908 Kpps, 291 cycles/pkt)
  Datapath passes:        18065568  (1.00 passes/pkt)
  - EMC hits:             17563221  ( 97.2 %)
  - SMC hits:                    0  (  0.0 %)
  - Megaflow hits:          502315  (  2.8 %, 18.97 subtbl lookups/hit)
  - Upcalls:                     5  (  0.0 %, 0.0 us/upcall)
  - Lost upcalls:                0  (  0.0 %)
  Tx packets:             18065536  (8908 Kpps)

Time: 12:03:40.505
Measurement duration: 2.028 s

main thread:

  Rx packets:                    3
  Tx packets:                    0
"""


@pytest.mark.parametrize("name", PINNED)
def test_workload_bytes(name):
    assert tuple(hashlib.sha256(content).hexdigest() for content in workload.files(name)) == PINNED[name]


def test_workload_seed_and_names(tmp_path):
    assert workload.files("masks-10", seed=2) != workload.files("masks-10")
    pcap, flows = workload.write("masks-10", tmp_path / "new")
    assert (pcap.read_bytes(), flows.read_bytes()) == workload.files("masks-10")
    assert workload.packets_in(pcap) == 4096
    for name in ("masks", "masks-0", "masks-1x", "other-1", "../masks-1", "setups-10", "setups-200"):
        with pytest.raises(ValueError):
            workload.files(name)


def test_setups_packets_share_no_megaflow():
    packets, _flows = workload.files("setups-300")
    frames = {packets[at + 16 : at + 76] for at in range(24, len(packets), 76)}
    assert len(frames) == workload.SETUPS_PACKETS


def test_pmd_stats():
    stats = replay.parse_stats(PMD_STATS)
    assert replay.figures("ovs-dpdk", stats, 2.0) == {
        "peer": "ovs-dpdk",
        "mpps": 2.3947,
        "cycles_per_packet": 941.38,
        "emc_hits": 1024,
        "smc_hits": 0,
        "megaflow_hits": 4788352,
        "subtable_lookups_per_hit": 5.5,
        "misses": 7,
    }
    assert replay.figures("ovs-dpdk", replay.parse_stats(PMD_STATS_4_0), 2.0) == {
        "peer": "ovs-dpdk",
        "mpps": 9.0328,
        "cycles_per_packet": 291,
        "emc_hits": 17563221,
        "smc_hits": 0,
        "megaflow_hits": 502315,
        "subtable_lookups_per_hit": 18.97,
        "misses": 5,
    }
    assert replay.parse_stats("") == {}
    assert replay.parse_stats("  packets received: 1\n") == {}


def test_stats_of_several_threads():
    received = [thread["packets received"] for thread in replay.threads_of(PMD_STATS) if thread]
    other = PMD_STATS.replace("packets received: 4789376", "packets received: 5")
    both = [thread["packets received"] for thread in replay.threads_of(PMD_STATS + other) if thread]
    assert sum(both) == 2 * sum(received) - 4789376 + 5


def test_rates_of_switches_together():
    one = {"setups": 100, "seconds": 1.0, "cpu_seconds": 0.5, "hits": 1, "cached_flows": 100}
    other = one | {"setups": 300, "seconds": 2.0, "cpu_seconds": 1.5}
    assert queues.rates([one])["setups_per_s"] == 100
    assert queues.rates([one, other]) == {
        "setups_per_s": 250,
        "cpu_s_per_s": 1.25,
        "setups_per_cpu_s": 200,
        "seconds": 2.0,
        "hits": 2,
        "cached_flows": 200,
    }


def test_threads_beside_processes():
    many = [{"few_threads": 2, "few_mpps": 10, "many_threads": 64, "many_mpps": mpps, "ratio": mpps / 10} for mpps in (8, 9)]
    costs = {threads.ONE: 20, threads.TWO: 25, threads.APART: 24}
    scale = [{"way": way, "cheapest_ns": ns - 1, "median_ns": ns} for way, ns in costs.items()]
    found = threads.report(many, [scale])
    many_threads, by_way = found.tables
    assert many_threads.rows == [[10, 8.5, pytest.approx(0.85), 0.9]]
    assert [row[1:] for row in by_way.rows] == [[19, 20, 1.0], [24, 25, 1.6], [23, 24, 1.67]]
    assert found.figures["two_threads_beside_processes"]["ratio"] == 0.96


def test_flood_of_lldp_frames():
    capture = punted.capture(0x88CC)
    frame = capture[40:]
    assert (len(frame), frame[:14].hex()) == (60, "0180c200000e02000000000188cc")
    # Chassis, port, time to live, and the end of the LLDPDU (IEEE 802.1AB-2016 section 8.4).
    assert frame[14:34].hex() == "0207" + "04020000000001" + "0403" + "056530" + "0602" + "0078" + "0000"
    assert punted.capture(0x88B5)[54:] == capture[54:]
    rounds = {"nothing": [{"x": 10}, {"x": 20}], "dropped frames": [{"x": 15}], "LLDP frames": [{"x": 12}]}
    (table,) = punted.report(rounds).tables
    assert table.rows == [["x", 15, 15, 12, 1.0, 0.8]]


def test_tables():
    table = report.Table("what", ["name", "figure"], [["a", 1234567], ["b", None], ["c", 0.5]])
    assert table.text() == "what:\n  name     figure\n  ----  ---------\n  a     1,234,567\n  b             -\n  c          0.50"
    assert (report.ratio(1, 3), report.ratio(None, 3), report.ratio(1, 0)) == (0.333, None, None)
    assert (report.middle([3, 1, 2]), report.middle([1, 2]), report.middle([1, None])) == (2, 1.5, None)


def test_lines_of_examples():
    found = examples.objects('{"rules": 1, "ns": 2.5}\n\n{"rules": 2, "ns": 3}\n{"bytes": 4}\n', "it")
    assert [len(table.rows) for table in examples.tables("title", found)] == [2, 1]
    (table,) = examples.tables("title", [{"measure": "update", "rules": 5}])
    assert (table.title, table.header, table.rows) == ("title: update", ["rules"], [[5]])
    for text in ("", "words\n", "[1]\n"):
        with pytest.raises(SystemExit):
            examples.objects(text, "it")


def test_nsdi15_beside_the_paper():
    found = [
        {"table": 1, "optimizations": "all", "flows": 16, "masks": 9, "packets_per_second": 5.5e6},
        {"table": 2, "microflows": "enabled", "optimizations": "enabled", "tuples_per_packet": 1.5},
    ]
    assert nsdi15.table_1(found).rows == [["all", 15, 16, 14, 9, 117, 5.5e6]]
    assert nsdi15.table_2(found).rows == [["enabled", "enabled", 1.68, 1.5, None, 120, None]]
