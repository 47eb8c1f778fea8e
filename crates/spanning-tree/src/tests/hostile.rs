//! Frames that no bridge sends: they are counted, and change nothing; floods are bounded.

use super::*;
use crate::bpdu::Malformed;
use base::rng::Rng;
use proptest::prelude::*;

fn valid() -> Vec<u8> {
    Bpdu::Rapid(of_root(1, 0x8001, Flags(0x3c))).write(MacAddr::from_u64(9))
}

#[test]
fn malformed_frames_are_counted_and_change_nothing() {
    let change = |at: usize, value: u8| {
        let mut frame = valid();
        frame[at] = value;
        frame
    };
    let config = |edit: fn(&mut Config)| {
        let mut config = of_root(1, 0x8001, Flags::default());
        edit(&mut config);
        Bpdu::Config(config).write(MacAddr::from_u64(9))
    };
    let frames = [
        (vec![], Malformed::NotBpdu),
        (valid()[..13].to_vec(), Malformed::NotBpdu),
        (valid()[..40].to_vec(), Malformed::Truncated),
        (change(5, 1), Malformed::NotBpdu),
        (change(12, 0x08), Malformed::NotBpdu),
        (change(13, 20), Malformed::Truncated),
        (change(14, 0xaa), Malformed::NotBpdu),
        (change(18, 1), Malformed::Protocol(1)),
        (change(20, 3), Malformed::Type(3)),
        (change(19, 0), Malformed::Type(2)),
        (config(|config| config.times.message_age = config.times.max_age), Malformed::Expired),
        (config(|config| config.times.max_age = 0), Malformed::Expired),
    ];
    for flavour in [stp(5), rstp(5)] {
        let mut bench = Bench::new(bridge(flavour, 1));
        bench.poll();
        for (n, (frame, error)) in frames.iter().enumerate() {
            assert_eq!(Bpdu::parse(frame), Err(*error), "frame {n}");
            assert_eq!(without_status(bench.raw_input(1, frame)), []);
            let statistics = bench.port(1).statistics;
            assert_eq!((statistics.rx, statistics.error), (0, n as u64 + 1));
        }
        assert_eq!(bench.role(1), Role::Designated);
    }
}

#[test]
fn frames_for_unknown_bridges_and_ports_are_ignored() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    bench.poll();
    bench.machine.input(port(2), &valid(), Millis(0));
    bench.machine.input(BridgePort { bridge: 0, port: PortNo(1) }, &valid(), Millis(0));
    assert_eq!(bench.poll(), []);
}

#[test]
fn a_bridge_with_stp_counts_rst_bpdus_as_errors() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    bench.raw_input(1, &valid());
    assert_eq!((bench.port(1).statistics.rx, bench.port(1).statistics.error), (0, 1));
}

#[test]
fn a_port_that_hears_itself_ignores_its_bpdus() {
    let mut bench = Bench::new(bridge(stp(5), 1));
    let own = sent(&bench.pass(2000), 1)[0];
    bench.input(1, own);
    assert_eq!((bench.port(1).statistics.error, bench.role(1)), (1, Role::Designated));
}

/// A flood of valid BPDUs by which everything changes: frames sent and flushes are bounded.
#[test]
fn a_flood_of_bpdus_neither_leads_to_a_flood_nor_keeps_the_table_empty() {
    for flavour in [stp(5), rstp(5)] {
        let mut rng = Rng::seeded(1);
        let mut bench = Bench::new(bridge(flavour, 4));
        bench.pass(40_000);
        let (mut frames, mut flushes) = (0, 0);
        for n in 0..5000u64 {
            bench.now = bench.now.after(u64::from(n % 5 == 0));
            let mut config = of_root(rng.below(3), 0x8000 | rng.below(4) as u16, Flags(rng.below(256) as u8));
            config.vector.cost = rng.below(3) as u32;
            let bpdu = match (flavour, rng.below(4)) {
                (_, 0) => Bpdu::TopologyChange,
                (Flavour::Stp(_), _) => Bpdu::Config(config),
                (Flavour::Rstp(_), _) => Bpdu::Rapid(config),
            };
            let effects = bench.input(1 + rng.below(2) as u32, bpdu);
            frames += effects.iter().filter(|effect| matches!(effect, Effect::Send { .. })).count();
            flushes += effects.iter().filter(|e| matches!(e, Effect::Flush(_) | Effect::FlushBridge(_))).count();
        }
        assert!(frames <= 80 && flushes <= 80, "{frames} frames, {flushes} flushes in a second");
    }
}

tally::proptest! {
    /// Any bytes behind a valid header: no panic, and what is valid survives writing.
    #[test]
    fn any_bytes_are_accepted_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..60), kind in 0usize..4) {
        let mut frame = valid();
        frame.truncate(18);
        frame.extend([0, 2, [0, 2, 0x80, 3][kind]]);
        frame.extend(&bytes);
        frame[13] = (frame.len() - 14) as u8;
        if let Ok(bpdu) = Bpdu::parse(&frame) {
            prop_assert_eq!(Bpdu::parse(&bpdu.write(MacAddr::default())), Ok(bpdu));
        }
        let mut bench = Bench::new(bridge(rstp(5), 2));
        bench.raw_input(1, &frame);
        bench.pass(100);
    }

    /// Changes of settings between BPDUs and in any order: the machines settle, and one port at most leads to the root.
    #[test]
    fn any_order_of_events_settles(
        is_rapid: bool,
        events in prop::collection::vec((0u8..6, 1u32..4, any::<u16>(), 0u64..4000), 1..60),
    ) {
        let mut bench = Bench::new(bridge(if is_rapid { rstp(5) } else { stp(5) }, 3));
        for (kind, number, value, ms) in events {
            let config = of_root(u64::from(value % 8), 0x8000 | (value % 3), Flags((value >> 8) as u8));
            match kind {
                0 => _ = bench.input(number, Bpdu::Rapid(config)),
                1 => _ = bench.input(number, Bpdu::Config(config)),
                2 => _ = bench.input(number, Bpdu::TopologyChange),
                3 => _ = bench.configure(|bridge| {
                    let port = bridge.ports.get_mut(&PortNo(number)).unwrap();
                    port.is_up = value & 1 != 0;
                    port.admin_edge = value & 2 != 0;
                    port.point_to_point = value & 4 != 0;
                    port.mcheck = value & 8 != 0;
                    port.path_cost = u32::from(value >> 4 & 3);
                    port.number = (value & 64 != 0).then_some(value >> 8 & 15);
                }),
                4 => _ = bench.configure(|bridge| match &mut bridge.flavour {
                    Flavour::Stp(parameters) => parameters.priority = value,
                    Flavour::Rstp(parameters) => parameters.priority = value,
                }),
                _ => _ = bench.pass(ms),
            }
            let status = bench.machine.status().remove(0);
            let roots = status.ports.iter().filter(|port| port.role == Role::Root).count();
            prop_assert!(roots <= 1);
            prop_assert!(status.ports.iter().all(|port| port.role != Role::Disabled || !port.state.forwards()));
        }
    }
}
