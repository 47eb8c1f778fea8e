//! Meters: changes, errors, references by flows, treatment of packets, and accuracy of rates.

use super::*;
use crate::flow_table::Criteria;
use dpif::Meters;
use openflow::flow_msg::FlowRemovedReason;
use openflow::meter::{Band, BandKind, METER_ALL, METER_CONTROLLER, METER_MAX, MeterConfig, MeterStats, flag};
use openflow::{ControllerAction, MeterCommand, MeterMod};

fn drop_above(rate: u32) -> Band {
    Band { kind: BandKind::Drop, rate, burst_size: 0 }
}

fn meter(command: MeterCommand, meter_id: u32, flags: u16, bands: &[Band]) -> Message {
    Message::MeterMod(MeterMod { command, meter: MeterConfig { meter_id, flags, bands: bands.to_vec() } })
}

fn adds(meter_id: u32, rate: u32) -> Message {
    meter(MeterCommand::Add, meter_id, flag::PKTPS, &[drop_above(rate)])
}

fn deletes(meter_id: u32) -> Message {
    Message::MeterMod(MeterMod::delete(meter_id))
}

fn stats(c: &Client) -> Vec<MeterStats> {
    let StatsReply::Meter(all) = c.ask(StatsRequest::Meter(METER_ALL)) else { panic!("meters") };
    all
}

#[test]
fn changes_and_their_errors() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let error = |message| error_of(&c.send(&message));
    assert_eq!(error(adds(5, 10)), None);
    assert_eq!(error(adds(METER_MAX, 10)), None);
    assert_eq!(error(adds(METER_CONTROLLER, 10)), None);
    assert_eq!(error(adds(5, 10)), Some(OfpError::MmfcMeterExists));
    for id in [0, METER_MAX + 1, METER_ALL] {
        assert_eq!(error(adds(id, 10)), Some(OfpError::MmfcInvalidMeter), "{id}");
    }
    assert_eq!(error(meter(MeterCommand::Modify, 6, 1, &[])), Some(OfpError::MmfcUnknownMeter));
    assert_eq!(error(meter(MeterCommand::Add, 6, 0x11, &[])), Some(OfpError::MmfcBadFlags));
    assert_eq!(error(meter(MeterCommand::Add, 6, 1, &[drop_above(1); 9])), Some(OfpError::MmfcOutOfBands));
    assert_eq!(error(meter(MeterCommand::Modify, 5, flag::KBPS, &[drop_above(1), drop_above(2)])), None);
    let configs = |id| match c.ask(StatsRequest::MeterConfig(id)) {
        StatsReply::MeterConfig(all) => all.iter().map(|m| (m.meter_id, m.flags, m.bands.len())).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    assert_eq!(configs(METER_ALL), [(5, 1, 2), (METER_MAX, 2, 1), (METER_CONTROLLER, 2, 1)]);
    assert_eq!(configs(5), [(5, 1, 2)]);
    let unknown = Message::StatsRequest { more: false, body: StatsRequest::Meter(6) };
    assert_eq!(error_of(&c.send(&unknown)), Some(OfpError::MmfcUnknownMeter));
    // Deleting a meter that does not exist is no error.
    assert_eq!(error(deletes(6)), None);
    assert_eq!(error(deletes(METER_ALL)), None);
    assert!(configs(METER_ALL).is_empty());
}

#[test]
fn flows_need_their_meters_and_are_deleted_with_them() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 3);
    let c = Client::new(&br, PeerKind::Controller, Version::V14);
    let metered = |priority, id| {
        let mut fm = add(in_port(1), priority, vec![Action::Meter(id), output(2)]);
        fm.flags.send_flow_rem = true;
        fm
    };
    assert_eq!(error_of(&c.flow_mod(metered(1, 9))), Some(OfpError::MmfcInvalidMeter));
    c.send(&adds(9, 100));
    assert_eq!(error_of(&c.flow_mod(metered(1, 9))), None);
    c.flow_mod(metered(2, 9));
    c.flow_mod(add(in_port(1), 0, vec![output(3)]));
    assert_eq!(stats(&c)[0].flow_count, 2);
    lab.send("br-1", &vec![frame(1, 2); 30]);
    assert_eq!((lab.received("br-2").len(), stats(&c)[0].packet_in_count), (30, 30));
    // Cached flows are removed too: the datapath may reuse the number.
    let messages = c.send(&deletes(9));
    let reasons: Vec<_> =
        messages.iter().map(|m| if let Message::FlowRemoved(_, f) = m { f.reason } else { panic!("{m:?}") }).collect();
    assert_eq!(reasons, [FlowRemovedReason::MeterDelete; 2]);
    assert_eq!(br.collect(&Criteria::any()).len(), 1);
    assert!(c.send(&adds(7, 1)).is_empty());
    lab.send("br-1", &vec![frame(1, 2); 30]);
    assert_eq!((lab.received("br-2").len(), lab.received("br-3").len()), (0, 30));
    assert_eq!(stats(&c)[0].packet_in_count, 0);
}

#[test]
fn rates_are_held() {
    // At 60 bytes per packet, 1,000 packets a second are 480 kilobits a second.
    for (flags, rate, expected) in [(flag::PKTPS, 1000, 1000.0), (flag::KBPS, 480, 1000.0), (flag::PKTPS, 7, 7.0)] {
        let mut lab = Lab::new();
        let br = lab.bridge("br", 2);
        let c = Client::new(&br, PeerKind::Controller, Version::V13);
        c.send(&meter(MeterCommand::Add, 1, flags | flag::STATS, &[drop_above(rate)]));
        c.flow_mod(add(in_port(1), 1, vec![Action::Meter(1), output(2)]));
        let steady = |seconds: u64| {
            let step = |_| {
                lab.clock.warp(10);
                lab.send("br-1", &vec![frame(1, 2); 30]);
                lab.received("br-2").len()
            };
            (0..seconds * 100).map(step).sum::<usize>() as f64
        };
        // This uses up the initial burst.
        steady(2);
        let rate = steady(20) / 20.0;
        assert!((rate / expected - 1.0).abs() <= 0.02, "{rate} packets a second");
        let stats = stats(&c);
        assert_eq!(stats[0].packet_in_count, 22 * 100 * 30);
        assert_eq!((stats[0].duration_sec, stats[0].duration_nsec), (22, 0));
    }
}

#[test]
fn the_highest_exceeded_band_applies() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let remark = Band { kind: BandKind::DscpRemark { prec_level: 1 }, rate: 10, burst_size: 0 };
    c.send(&meter(MeterCommand::Add, 1, flag::PKTPS, &[remark, drop_above(20)]));
    c.flow_mod(add(in_port(1), 1, vec![Action::Meter(1), output(2)]));
    (0..300).for_each(|_| {
        lab.clock.warp(100);
        lab.send("br-1", &vec![frame(1, 2); 10]);
    });
    let stats = &stats(&c)[0];
    let counts: Vec<u64> = stats.bands.iter().map(|(packets, _)| *packets).collect();
    // 100 packets a second for half a minute: 10 pass unchanged, 10 are marked, 80 dropped.
    let near = |n: u64, expected: u64| n.abs_diff(expected) <= expected / 20;
    assert!(near(counts[0], 300) && near(counts[1], 2400), "{counts:?}");
    assert!(near(lab.received("br-2").len() as u64, 600));
}

#[test]
fn packets_to_controllers_are_metered() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let ask = |meter_id| Action::Controller(Box::new(ControllerAction { meter_id, ..ControllerAction::default() }));
    c.flow_mod(add(in_port(1), 1, vec![ask(Some(4)), output(2)]));
    let packet_ins = || {
        lab.clock.warp(10_000);
        lab.send("br-1", &vec![frame(1, 2); 20]);
        assert_eq!(lab.received("br-2").len(), 20, "the packets themselves are not metered");
        c.waiting().iter().filter(|m| matches!(m, Message::PacketIn(..))).count()
    };
    assert_eq!(packet_ins(), 20);
    c.send(&adds(METER_CONTROLLER, 5));
    assert_eq!(packet_ins(), 5);
    c.send(&adds(4, 3));
    assert_eq!(packet_ins(), 3);
    c.send(&deletes(4));
    assert_eq!(packet_ins(), 5);
    assert_eq!(br.collect(&Criteria::any()).len(), 1, "that flow needs no meter");
    c.send(&deletes(METER_ALL));
    assert_eq!(packet_ins(), 20);
}

#[test]
fn emptied_tables_have_no_meters() {
    let mut lab = Lab::new();
    let br = lab.bridge("br", 2);
    let c = Client::new(&br, PeerKind::Controller, Version::V13);
    let left = || (br.meter_configs(METER_ALL).expect("all").len(), br.n_flows());
    for id in [9, METER_CONTROLLER] {
        c.send(&adds(id, 100));
    }
    c.flow_mod(add(in_port(1), 1, vec![Action::Meter(9), output(2)]));
    lab.send("br-1", &[frame(1, 2)]);
    let ids: Vec<_> = br.tables().view().meters.all().iter().map(|meter| meter.datapath_id).collect();
    let in_datapath = || ids.iter().filter(|id| lab.dp.meter_get(**id).is_ok()).count();
    assert_eq!((left(), in_datapath()), ((2, 1), 2));
    // As when the bridge gets its first controller, or loses its last one.
    br.flush_flows();
    lab.switch.pass(crate::Extent::Changes);
    assert_eq!((left(), in_datapath()), ((0, 0), 0));
    assert!(c.waiting().is_empty(), "nobody is notified");
    // The numbers can be used again.
    assert!(c.send(&adds(9, 1)).is_empty());
    assert_eq!(left(), (1, 0));
}
