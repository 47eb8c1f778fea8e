"""Packet threads and receive queues: the configured assignment, and packets while it changes."""

import json
import os
import re
import threading

import pytest

import pcap
from hosts import Host
from waiting import until

CORES = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(CORES[:2] != [0, 1], reason="needs the cores 0 and 1")
# Pinned threads share their cores with other processes here, so they sleep when idle.
SLEEP = "other_config:pmd-maxsleep=10000"
ROUND_ROBIN = ["set", "open_vswitch", ".", "other_config:pmd-rxq-assign=roundrobin"]


def dummy_pmds(switch, **queues):
    """A bridge with ports of type dummy-pmd with the given numbers of queues, numbered from 1, each with a capture
    of sent frames."""
    switch.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=dummy", "fail-mode=secure")
    switch.vsctl("set", "open_vswitch", ".", SLEEP)
    for number, (port, n) in enumerate(queues.items(), 1):
        add_port(switch, port, n, number)


def add_port(switch, port, n, number):
    options = [f"options:n_rxq={n}", f"options:tx_pcap={switch.directory / port}-tx.pcap"]
    interface = ["set", "interface", port, "type=dummy-pmd", f"ofport_request={number}", *options]
    switch.vsctl("add-port", "br0", port, "--", *interface)


def configure(switch, *settings):
    switch.vsctl("set", "open_vswitch", ".", *[f"other_config:{setting}" for setting in settings])


def as_json(switch, *words):
    return json.loads(switch.ours.appctl("--format=json", *words))


def queues_by_core(switch, *words):
    """{core: [(port, queue), ...]} of the ports of type dummy-pmd."""
    threads = as_json(switch, "dpif-netdev/pmd-rxq-show", *words)
    names = lambda thread: [(q["port"], q["queue_id"]) for q in thread["queues"] if q["port"] != "br0"]
    return {thread["core_id"]: names(thread) for thread in threads}


def shown(switch, *words):
    """pmd-rxq-show without loads; without ports that Open vSwitch polls in its main thread, which it does not list."""
    lines = switch.appctl("dpif-netdev/pmd-rxq-show", *words).splitlines()
    lines = [line for line in lines if "port: br0 " not in line]
    return [re.sub(r"(usage|overhead): .*", r"\1", line) for line in lines]


@two_cores
def test_queues_are_assigned_as_in_open_vswitch(making):
    theirs, ours = (making.switch(maker=maker) for maker in (making.peers, None))
    affinity = "other_config:pmd-rxq-affinity"
    steps = [
        ["set", "open_vswitch", ".", "other_config:pmd-cpu-mask=1"],
        ["set", "open_vswitch", ".", "other_config:pmd-cpu-mask=0x3"],
        ["set", "interface", "p1", f"{affinity}=0:1"],
        ["set", "interface", "p1", f'{affinity}="0:1,2:0"'],
        ["set", "interface", "p1", f'{affinity}="0:1,3:1"'],
        ["set", "interface", "p2", "options:n_rxq=5"],
        ["set", "open_vswitch", ".", "other_config:pmd-rxq-assign=group"],
        ["set", "open_vswitch", ".", "other_config:pmd-rxq-isolate=false"],
        ROUND_ROBIN,
        ["remove", "interface", "p1", "other_config", "pmd-rxq-affinity"],
        ["add-port", "br0", "p3", "--", "set", "interface", "p3", "type=dummy-pmd", "options:n_rxq=3"],
        ["del-port", "p1"],
        ["set", "open_vswitch", ".", "other_config:pmd-cpu-mask=2"],
    ]
    for switch in (theirs, ours):
        dummy_pmds(switch, p1=4, p2=1)
    for step in steps:
        # With all cores isolated, Open vSwitch leaves queues unpolled; here they share cores.
        for switch in (theirs, ours):
            switch.vsctl(*step)
        if '"0:1,2:0"' in step[-1]:
            threads = as_json(ours, "dpif-netdev/pmd-rxq-show")
            assert [thread["isolated"] for thread in threads] == [True, True]
            assert sum(len(queues) for queues in queues_by_core(ours).values()) == 5
            assert "All cores are isolated by pmd-rxq-affinity" in ours.log()
            continue
        expected = until_steady(lambda: shown(theirs))
        if step in steps[steps.index(ROUND_ROBIN) :]:
            # In this mode Open vSwitch takes ports in the order of a hash table: the numbers are equal, not the queues.
            count = lambda lines: sorted(line for line in lines if "port:" not in line)
            assert count(shown(ours)) == count(expected), step
            assert sum("port:" in line for line in shown(ours)) == sum("port:" in line for line in expected)
        else:
            assert shown(ours) == expected, step
            assert shown(ours, "-pmd", "1") == shown(theirs, "-pmd", "1")
    assert shown(ours, "-pmd", "7") == shown(theirs, "-pmd", "7") == []
    assert shown(ours, "-secs", "7")[0] == shown(theirs, "-secs", "7")[0] == "Displaying last 10 seconds pmd usage %"
    assert shown(ours, "-secs", "99")[0] == shown(theirs, "-secs", "99")[0]
    for switch in (theirs, ours):
        assert switch.appctl("dpif-netdev/pmd-rxq-rebalance") == "pmd rxq rebalance requested."
        assert "p2 2/2: (dummy-pmd: n_rxq=5, n_txq=1, numa_id=0)" in switch.appctl("dpif/show")
    warning = "pmd-rxq-isolate can only be set false when using pmd-rxq-assign=group"
    assert warning in theirs.log() and warning in ours.log()


def until_steady(look):
    """Polls `look` until it returns the same value twice in a row."""
    seen = [None]

    def again():
        seen.append(look())
        return seen[-1] == seen[-2] and seen[-1]

    return until(again, "the same twice")


@two_cores
def test_the_core_of_a_queue_forwards_its_packets(switch):
    dummy_pmds(switch, p1=3, p2=1)
    switch.ofctl("add-flow", "br0", "in_port=1,actions=2")
    configure(switch, "pmd-cpu-mask=3")
    switch.vsctl("set", "interface", "p1", 'other_config:pmd-rxq-affinity="0:0,1:1,2:7"')
    # Queue 2 cannot have core 7, and both other cores are isolated.
    by_core = queues_by_core(switch)
    assert ("p1", 0) in by_core[0] and ("p1", 1) in by_core[1]
    text = "Core  7 cannot be pinned with port 'p1' rx queue 2. Use pmd-cpu-mask to enable a pmd on core 7. An alternative"
    assert text in switch.log()
    switch.appctl("dpif-netdev/pmd-stats-clear")
    received = lambda: {t["core_id"]: t["packets_received"] for t in as_json(switch, "dpif-netdev/pmd-stats-show")}
    assert received() == {0: 0, 1: 0}
    inject(switch, 1, range(10))
    until(lambda: received() == {0: 0, 1: 10}, received)
    inject(switch, 0, range(5))
    until(lambda: received() == {0: 5, 1: 10}, received)
    stats = switch.appctl("dpif-netdev/pmd-stats-show", "-pmd", "1")
    assert "\npmd thread numa_id 0 core_id 1:\n" in stats and re.search(r"^  Rx packets: +10 ", stats, re.M), stats
    assert "core_id 1:" in switch.appctl("dpif-netdev/pmd-perf-show", "-nh", "-pmd", "1")
    # Counters of an ended thread stay in the sums.
    hits = lambda: sum(map(int, re.search(r"hit:(\d+) missed:(\d+)", switch.appctl("dpif/show")).groups()))
    before = hits()
    configure(switch, "pmd-cpu-mask=1")
    assert received() == {0: 5} and hits() == before
    configure(switch, "pmd-cpu-mask=3")
    assert received() == {0: 5, 1: 0}, "a thread begins from zero"
    # After an interval the cost of queues is known.
    percent = lambda: [q["usage_percent"] for q in as_json(switch, "dpif-netdev/pmd-rxq-show", "-pmd", "0")[0]["queues"]]
    until(lambda: all(p is not None and 0 <= p <= 100 for p in percent()), percent)
    text = switch.appctl("dpif-netdev/pmd-rxq-show", "-pmd", "0")
    assert re.search(r"^  port: p1 {16}queue-id:  0 \(enabled\)   pmd usage: [ \d]\d %$", text, re.M), text
    assert re.search(r"^  overhead: [ \d]\d %$", text, re.M), text
    assert "isolated : true" in text


def inject(switch, queue, numbers):
    """Port p1 receives frames with these numbers in that queue."""
    frames = [f"02000000000b02000000000a88b5{n:08x}{queue:02x}".ljust(120, "0") for n in numbers]
    switch.appctl("netdev-dummy/receive", "p1", "--qid", str(queue), *frames)


@two_cores
def test_no_packet_is_lost_while_threads_and_ports_change(switch):
    dummy_pmds(switch, p1=4, p2=1)
    switch.ofctl("add-flow", "br0", "in_port=1,actions=2")
    # The flow is installed before the other frames, which then stay in order.
    inject(switch, 0, [0])
    frames = lambda: pcap.packets(switch.directory / "p2-tx.pcap")
    until(lambda: len(frames()) == 1, "the first frame")
    sent, stop, problems = [0] * 4, threading.Event(), []

    def traffic():
        try:
            while not stop.is_set():
                for queue in range(4):
                    inject(switch, queue, range(sent[queue] + 1, sent[queue] + 51))
                    sent[queue] += 50
        except AssertionError as problem:
            problems.append(problem)

    feeder = threading.Thread(target=traffic)
    feeder.start()
    try:
        for mask in ["1", "3", "2", "3", "1"]:
            before = sum(sent)
            configure(switch, f"pmd-cpu-mask={mask}")
            cores = {core for core in (0, 1) if int(mask, 16) >> core & 1}
            assert set(queues_by_core(switch)) == cores
            assert sum(map(len, queues_by_core(switch).values())) == 5
            add_port(switch, "p3", 2, 3)
            switch.appctl("dpif-netdev/pmd-rxq-rebalance")
            configure(switch, "pmd-rxq-assign=" + ("group" if mask == "3" else "roundrobin"))
            switch.vsctl("del-port", "p3")
            until(lambda before=before: sum(sent) > before or problems, "traffic")
        switch.vsctl("remove", "open_vswitch", ".", "other_config", "pmd-cpu-mask")
    finally:
        stop.set()
        feeder.join()
    assert not problems, problems
    until(lambda: len(frames()) == sum(sent) + 1, lambda: f"{sum(sent) + 1} frames, {len(frames())} are there")
    for queue in range(4):
        of_queue = [int.from_bytes(frame[14:18]) for frame in frames()[1:] if frame[18] == queue]
        assert of_queue == list(range(1, sent[queue] + 1)), f"queue {queue}"
    assert "drop" not in switch.appctl("dpif/show-drops").replace("No drops", "")


def test_invalid_settings_are_reported(switch):
    dummy_pmds(switch, p1=2)
    beyond = 60
    assert beyond > max(CORES)
    configure(switch, f"pmd-cpu-mask={1 << beyond:x}")
    assert f"pmd-cpu-mask has core {beyond}, which this machine has not, or not online" in switch.log()
    assert "packet threads run anywhere" in switch.log()
    # As many threads as a port has queues, if there are enough processors.
    threads = as_json(switch, "dpif-netdev/pmd-rxq-show")
    assert len(threads) == min(2, len(CORES)) and not any(thread["pinned"] for thread in threads)
    configure(switch, "pmd-rxq-assign=best", "pmd-auto-lb=maybe", "pmd-auto-lb-load-threshold=101", "pmd-sleep-max=long")
    switch.vsctl("set", "interface", "p1", "other_config:pmd-rxq-affinity=first")
    until(lambda: "is not a list of queue:core" in switch.log(), "the last warning")
    for text in [
        "Unsupported rx queue to PMD assignment mode in pmd-rxq-assign. Defaulting to 'cycles'.",
        'pmd-auto-lb is "maybe", which is not true or false',
        'pmd-auto-lb-load-threshold is "101", which is not a number up to 100',
        'pmd-sleep-max is "long", which is not microseconds',
    ]:
        assert text in switch.log()
    switch.vsctl("set", "interface", "p1", "options:n_rxq=65")
    error = switch.vsctl("get", "interface", "p1", "error")
    assert "option n_rxq" in error, error
    switch.vsctl("set", "interface", "p1", "options:n_rxq=3")
    assert switch.vsctl("get", "interface", "p1", "error") == "[]"
    assert sum(map(len, queues_by_core(switch).values())) == 3


def test_sleep_is_shown(switch):
    dummy_pmds(switch, p1=1)
    assert switch.appctl("dpif-netdev/pmd-sleep-show").splitlines() == [
        "Default max sleep: 10000 us",
        "pmd thread numa_id 0 core_id 0:",
        "  max sleep: none (not pinned)",
    ]
    configure(switch, f"pmd-cpu-mask={1 << CORES[0]:x}", f'pmd-sleep-max="50,{CORES[0]}:7"')
    lines = switch.appctl("dpif-netdev/pmd-sleep-show").splitlines()
    assert lines[0] == "Default max sleep:   50 us" and lines[2] == "  max sleep:    7 us"
    (shown,) = as_json(switch, "dpif-netdev/pmd-sleep-show")
    assert (shown["default_max_sleep_us"], shown["threads"][0]["max_sleep_us"]) == (50, 7)
    assert shown["threads"][0] | {"pinned": True, "core_id": CORES[0]} == shown["threads"][0]
    # A pinned thread does not sleep unless configured.
    configure(switch, "pmd-sleep-max=0")
    perf = lambda: as_json(switch, "dpif-netdev/pmd-perf-show", "-nh")[0]
    before = perf()
    until(lambda: perf()["iterations"] > before["iterations"] + 10_000, perf)
    assert perf()["sleeps"] <= before["sleeps"] + 1
    configure(switch, "pmd-sleep-max=10000")
    until(lambda: perf()["sleeps"] > before["sleeps"] + 1, perf)


def test_the_main_thread_counts_what_controllers_send(switch):
    dummy_pmds(switch, p1=1)
    main = lambda: switch.appctl("dpif-netdev/pmd-perf-show", "-nh").partition("\nmain thread:\n")[2]  # noqa: E731
    assert re.search(r"^  Tx packets: +0$", main(), re.M)
    switch.ofctl("packet-out", "br0", "in_port=controller,packet=ffffffffffff0200000000010806,actions=1")
    until(lambda: re.search(r"^  Tx packets: +1 ", main(), re.M), main)
    assert "main thread" not in switch.appctl("dpif-netdev/pmd-perf-show", "-pmd", "0")
    with pytest.raises(AssertionError, match="is not a valid command"):
        switch.appctl("dpif-netdev/subtable-lookup-prio-get")
    with pytest.raises(AssertionError, match="please specify an existing datapath"):
        switch.appctl("dpif-netdev/pmd-rxq-rebalance", "nowhere")


def test_a_device_of_the_kernel_with_several_queues(making, kernel_switch):
    switch = kernel_switch
    hosts = [making.host(switch, number, Host) for number in (1, 2)]
    switch.vsctl("add-br", "br0")
    for host in hosts:
        options = ["options:n_rxq=2"] if host.number == 1 else []
        switch.vsctl("add-port", "br0", host.port, "--", "set", "interface", host.port, f"ofport_request={host.number}", *options)
    queues = lambda: sum((of for of in queues_by_core(switch).values()), [])
    assert [q for q in sorted(queues()) if q[0] == "p1"] == [("p1", 0), ("p1", 1)]
    hosts[0].ping(hosts[1].address)
    hosts[1].ping(hosts[0].address)
    # Each frame arrives once.
    answers = hosts[0].run("ping", "-c", "20", "-i", "0.01", hosts[1].address).out
    assert "20 received" in answers and "duplicates" not in answers, answers
    # With another number of queues the device is opened again, under the same number.
    switch.vsctl("set", "interface", "p1", "options:n_rxq=4")
    assert len([q for q in queues() if q[0] == "p1"]) == 4
    assert switch.vsctl("get", "interface", "p1", "ofport") == "1"
    hosts[0].ping(hosts[1].address)
    switch.vsctl("remove", "interface", "p1", "options", "n_rxq")
    hosts[0].ping(hosts[1].address)
    assert [q for q in queues() if q[0] == "p1"] == [("p1", 0)]
