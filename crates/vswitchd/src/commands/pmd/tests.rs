//! Command lines as they are parsed, and the output for a thread that did a little work.

use super::*;
use dpif::RoundSample;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn options() {
    let all = ["-nh", "-it", "-ms"];
    let line = words("-nh -it 7 -pmd 1 -ms 8 netdev@ovs-netdev");
    let request = Request::parse(&line, &all);
    assert_eq!((request.histograms, request.core, request.dp), (false, Some(1), line.last()));
    assert_eq!(request.history, (7, 8));
    // What cannot be used counts as not given, and a word that is no option names a datapath.
    for wrong in ["-pmd x", "-it x", "-ms x", "-it -1"] {
        let line = words(wrong);
        let request = Request::parse(&line, &all);
        assert_eq!((request.history, request.core, request.dp), ((0, 0), None, None), "{wrong}");
    }
    for word in ["-pmd", "-secs", "-1"] {
        let line = words(word);
        assert_eq!(Request::parse(&line, &all).dp, line.last());
    }
    assert_eq!(Request::parse(&words("-secs 30"), &["-secs"]).seconds, 30);
}

fn a_thread() -> Measured {
    let mut by_packets = vec![0; 32];
    by_packets[1] = 2;
    by_packets[6] = 3;
    let mut by_ns = vec![0; 32];
    (by_ns[12], by_ns[31]) = (4, 1);
    let stats = ThreadStats {
        packets: 100,
        batches: 5,
        microflow_hits: 60,
        megaflow_hits: 30,
        probes: 60,
        misses: 10,
        lost: 3,
        tx_packets: 90,
        tx_batches: 9,
        rounds: 20,
        sleeps: 4,
        busy_ns: 3_000,
        idle_ns: 41_000,
        sleep_ns: 40_000,
        batch_sizes: vec![0, 7],
        rounds_by_packets: by_packets,
        rounds_by_ns: by_ns.clone(),
        rounds_by_packet_ns: by_ns,
        ..ThreadStats::default()
    };
    Measured { seconds: 2.0, stats, served: (7, 14_000), ..an_idle_thread() }
}

fn an_idle_thread() -> Measured {
    let thread = ThreadInfo {
        id: 7,
        core_id: 3,
        numa_id: 1,
        is_pinned: true,
        is_isolated: false,
        sleep_us_max: Some(0),
        age: std::time::Duration::ZERO,
    };
    let (stats, served) = (ThreadStats::default(), (0, 0));
    Measured {
        datapath: "netdev@ovs-netdev".to_owned(),
        thread: Some(thread),
        seconds: 0.0,
        stats,
        history: None,
        metrics: true,
        served,
    }
}

fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line} in {text}");
    }
}

#[test]
fn settings_of_the_log_of_iterations() {
    let parsed = |words: &str| {
        let args: Vec<String> = words.split_whitespace().map(str::to_owned).collect();
        parse_log(RoundWatchSettings::default(), &args)
    };
    let default = RoundWatchSettings::default();
    assert_eq!(parsed(""), Some(default));
    let all = RoundWatchSettings { is_on: true, before: 1, after: 2, extends: true, us_max: 3, queue_max: 4 };
    assert_eq!(parsed("on -b 1 -a 2 -e -us 3 -q 4"), Some(all));
    assert_eq!(parsed("on -e off -ne"), Some(default));
    for wrong in ["x", "-b", "on -a -1", "-us 5x", "-q x", "-x"] {
        assert_eq!(parsed(wrong), None, "{wrong}");
    }
}

#[test]
fn the_main_thread_has_no_rounds() {
    let main = Measured { thread: None, ..a_thread() };
    let text = perf::text(&[main], true);
    assert_lines(&text, &["main thread:"]);
    assert!(!text.contains("Iterations") && text.contains("  Tx packets:"), "{text}");
}

#[test]
fn each_look_up_of_a_packet_is_a_pass() {
    let mut m = a_thread();
    (m.stats.recirculations, m.stats.megaflow_hits) = (150, 180);
    let text = perf::text(&[m], false);
    let lines = [
        "  Datapath passes:             250  (2.50 passes/pkt)",
        "  - Megaflow hits:             180  ( 72.0 %, 0.33 subtbl lookups/hit)",
    ];
    assert_lines(&text, &lines);
}

#[test]
fn perf() {
    let mut m = a_thread();
    let brief = perf::text(&[a_thread()], false);
    let lines = [
        "Measurement duration: 2.000 s",
        "pmd thread numa_id 1 core_id 3:",
        "  Iterations:                   20  (0.20 us/it)",
        "  - idle iterations:            15  ( 25.0 % of used cycles)",
        "  - busy iterations:             5  ( 75.0 % of used cycles)",
        "  - sleep iterations:            4  ( 20.0 % of iterations)",
        "  Sleep time (us):              40  ( 10 us/iteration avg.)",
        "  Datapath passes:             100  (1.00 passes/pkt)",
        "  - Simple Match hits:           0  (  0.0 %)",
        "  - EMC hits:                   60  ( 60.0 %)",
        "  - Megaflow hits:              30  ( 30.0 %, 2.00 subtbl lookups/hit)",
        "  - Upcalls:                     7  (  7.0 %, 2.0 us/upcall)",
        "  - Lost upcalls:                3  (  3.0 %)",
        "  Tx batches:                    9  (10.00 pkts/batch)",
    ];
    assert_lines(&brief, &lines);
    assert!(!brief.contains("Histograms"));
    m.metrics = false;
    assert!(!perf::text(&[m], true).contains("Histograms"), "without metrics");
    let text = perf::text(&[a_thread()], true);
    let table: Vec<&str> = text.lines().skip_while(|line| *line != "Histograms").collect();
    // Titles, buckets, a line, titles and means.
    assert_eq!(table.len(), 2 + 32 + 3, "{text}");
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(&columns(table[2])[2..4], ["0", "15"], "rounds without packets");
    assert_eq!(&columns(table[3])[2..4], ["1", "2"]);
    assert_eq!(&columns(table[3])[6..], ["2", "7"], "batches of two");
    assert_eq!(&columns(table[8])[2..4], ["63", "3"]);
    assert_eq!(columns(table[33])[..4], [">", "1", ">", "0"]);
    assert_eq!(columns(table[36])[1], "5.00000");
}

#[test]
fn the_last_rounds_and_milliseconds() {
    let mut m = a_thread();
    let sample = |at, rounds, packets| RoundSample { at, rounds, ns: 0, packets, batches: 2, upcalls: 1 };
    m.history = Some(RoundHistory { rounds: vec![sample(20, 1, 32), sample(19, 1, 0)], milliseconds: vec![] });
    let text = perf::text(std::slice::from_ref(&m), false);
    let (_, history) = text.split_once("   iter ").unwrap();
    let columns: Vec<Vec<&str>> = history.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(
        columns[0],
        ["cycles", "packets", "cycles/pkt", "pkts/batch", "vhost", "qlen", "upcalls", "cycles/upcall"]
    );
    assert_eq!(columns[1], ["20", "0", "32", "0", "16", "0", "1", "0"]);
    assert_eq!(columns[2], ["19", "0", "0", "0", "0", "0", "1", "0"]);
    m.history = Some(RoundHistory { rounds: vec![], milliseconds: vec![sample(5000, 40, 64)] });
    let text = perf::text(std::slice::from_ref(&m), false);
    let (_, history) = text.split_once("   ms ").unwrap();
    let columns: Vec<&str> = history.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(columns, ["5000", "40", "0", "64", "0", "32", "0", "1", "0"]);
    assert_eq!(perf::json(&[m], false)[0]["ms_history"][0]["packets"], json!(64));
}

#[test]
fn a_thread_that_did_nothing() {
    let text = perf::text(&[an_idle_thread()], true);
    assert!(text.contains("  Rx packets:                    0\n  Tx packets:                    0\n\n"), "{text}");
}

#[test]
fn json_has_the_histograms() {
    let all = perf::json(&[a_thread()], true);
    let packets = &all[0]["histograms"]["packets_per_iteration"];
    assert_eq!(packets["mean"], json!(5.0));
    assert_eq!(
        packets["buckets"],
        json!([{"at_most": 0, "count": 15}, {"at_most": 1, "count": 2}, {"at_most": 63, "count": 3}])
    );
    assert_eq!(all[0]["us_per_upcall"], json!(2.0));
    assert!(perf::json(&[a_thread()], false)[0].get("histograms").is_none());
}
