//! Command lines as they are parsed, and the output for a thread that did a little work.

use super::*;

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn options() {
    let all = ["-nh", "-it", "-ms"];
    let line = words("-nh -it 0 -pmd 1 netdev@ovs-netdev");
    let request = Request::parse(&line, &all).unwrap();
    assert_eq!((request.histograms, request.core, request.dp), (false, Some(1), line.last()));
    let refused = |text: &str, options: &[&str]| Request::parse(&words(text), options).unwrap_err();
    for history in ["-it 5", "-ms 5"] {
        assert!(refused(history, &all).contains("no history"));
    }
    for wrong in ["-pmd x", "-pmd", "-it", "-ms x"] {
        assert!(refused(wrong, &all).contains("wants a number"), "{wrong}");
    }
    assert_eq!(Request::parse(&words("-secs 30"), &["-secs"]).unwrap().seconds, 30);
    assert_eq!(refused("-nh", &[]), "Unrecognized option -nh");
}

#[test]
fn suspicious_iterations() {
    for accepted in ["", "off", "off -b 5 -a 5 -ne -us 250 -q 128", "on off"] {
        assert_eq!(log_set(&words(accepted)), Ok(String::new()), "{accepted}");
    }
    assert!(log_set(&words("on -us 9")).unwrap_err().contains("no history"));
    for wrong in ["maybe", "on -b", "off -b x", "-z"] {
        assert!(log_set(&words(wrong)).unwrap_err().starts_with("Usage: "), "{wrong}");
    }
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
    Measured { kind: "netdev".to_owned(), several: false, thread, seconds: 0.0, stats, served }
}

fn assert_lines(text: &str, lines: &[&str]) {
    for line in lines {
        assert!(text.lines().any(|l| l == *line), "{line} in {text}");
    }
}

#[test]
fn stats() {
    let mut m = a_thread();
    let lines = [
        "pmd thread numa_id 1 core_id 3:",
        "  packets received: 100",
        "  emc hits: 60",
        "  megaflow hits: 30",
        "  avg. subtable lookups per megaflow hit: 2.00",
        "  miss with success upcall: 7",
        "  miss with failed upcall: 3",
        "  avg. packets per output batch: 10.00",
    ];
    assert_lines(&stats_text(&m), &lines);
    m.several = true;
    assert_lines(&stats_text(&m), &["pmd thread numa_id 1 core_id 3: (netdev@ovs-netdev)"]);
}

#[test]
fn perf() {
    let m = a_thread();
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
    let text = perf::text(&[m], true);
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
