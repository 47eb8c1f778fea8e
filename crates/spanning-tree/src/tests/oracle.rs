//! Frames and text of Open vSwitch 4.0.0.

use super::*;
use crate::show;

/// A dummy bridge of Open vSwitch with the address aa:55:aa:55:00:00, and its port with the second number.
fn like_open_vswitch(flavour: fn(u64) -> Flavour, last: u64, mac: u64, number: u16) -> BridgeSettings {
    let mut settings = bridge(flavour(0xaa55_aa55_0000 + last), 1);
    let port = settings.ports.get_mut(&PortNo(1)).unwrap();
    (port.mac, port.number) = (MacAddr::from_u64(0xaa55_aa55_0000 + mac), Some(number));
    settings
}

fn first_frame(effects: &[Effect]) -> Vec<u8> {
    let frame = |effect: &Effect| if let Effect::Send { frame, .. } = effect { Some(frame.clone()) } else { None };
    effects.iter().find_map(frame).unwrap()
}

#[test]
fn configuration_bpdus_equal_those_of_open_vswitch() {
    let mut bench = Bench::new(like_open_vswitch(stp, 0, 0x0e, 2));
    let sent =
        "0180c2000000aa55aa55000e002642420300000000008000aa55aa550000000000008000aa55aa55000080020000140002000f00";
    assert_eq!(first_frame(&bench.pass(2000)), bytes(sent));
}

#[test]
fn rst_bpdus_equal_those_of_open_vswitch() {
    let mut bench = Bench::new(like_open_vswitch(rstp, 1, 0x11, 1));
    let proposal =
        "0180c2000000aa55aa5500110027424203000002020e8000aa55aa550001000000008000aa55aa55000180010000140002000f0000";
    let forwarding =
        "0180c2000000aa55aa5500110027424203000002023e8000aa55aa550001000000008000aa55aa55000180010000140002000f0000";
    assert_eq!(first_frame(&bench.poll()), bytes(proposal));
    bench.pass(10_000);
    assert_eq!(first_frame(&bench.pass(2000)), bytes(forwarding));
}

#[test]
fn the_text_of_stp_show_equals_that_of_open_vswitch() {
    let mut settings = bridge(stp(0xaa55_aa55_0001), 3);
    for (number, port) in &mut settings.ports {
        port.name = ["", "b11", "b12", "d1"][number.0 as usize].into();
    }
    settings.name = "br1".into();
    let mut bench = Bench::new(settings);
    let root = BridgeId::new(0x8000, MacAddr::from_u64(0xaa55_aa55_0000));
    for (number, port) in [(1, 0x8002), (2, 0x8001)] {
        let mut config = of_root(0, port, Flags::default());
        (config.vector.root, config.vector.bridge) = (root, root);
        bench.input(number, Bpdu::Config(config));
    }
    let expected = "\
---- br1 ----
Root ID:
  stp-priority  32768
  stp-system-id   aa:55:aa:55:00:00
  stp-hello-time  2s
  stp-max-age     20s
  stp-fwd-delay   15s
  root-port       b12
  root-path-cost  2

Bridge ID:
  stp-priority  32768
  stp-system-id   aa:55:aa:55:00:01
  stp-hello-time  2s
  stp-max-age     20s
  stp-fwd-delay   15s

  Interface  Role       State      Cost  Pri.Nbr 
  ---------- ---------- ---------- ----- -------
  b11        alternate  blocking   2     128.1
  b12        root       listening  2     128.2
  d1         designated listening  2     128.3

";
    let status = bench.machine.status().remove(0);
    assert_eq!(show::bridge(&status), expected);
    let columns = status.stp_column();
    assert_eq!(columns[0], ("stp_bridge_id", "8000.aa55aa550001".to_owned()));
    assert_eq!(columns[2], ("stp_root_path_cost", "2".to_owned()));
    let column = status.ports[1].stp_column(Millis(4000));
    assert_eq!(column[0], ("stp_port_id", "32770".to_owned()));
    assert_eq!(column[2], ("stp_sec_in_state", "4".to_owned()));
}

#[test]
fn the_text_of_rstp_show_equals_that_of_open_vswitch() {
    let mut settings = bridge(rstp(0xaa55_aa55_0001), 3);
    for (number, port) in &mut settings.ports {
        port.name = ["", "b11", "b12", "d1"][number.0 as usize].into();
    }
    settings.name = "br1".into();
    settings.ports.get_mut(&PortNo(2)).unwrap().path_cost = 200_000_000;
    let mut bench = Bench::new(settings);
    let root = BridgeId::new(0x8000, MacAddr::from_u64(0xaa55_aa55_0000));
    for number in [1, 2] {
        let mut config = of_root(0, 0x8000 + number as u16, Flags(0x3e));
        (config.vector.root, config.vector.bridge) = (root, root);
        bench.input(number, Bpdu::Rapid(config));
    }
    bench.pass(5000);
    let expected = "\
---- br1 ----
Root ID:
  stp-priority    32768
  stp-system-id   aa:55:aa:55:00:00
  stp-hello-time  2s
  stp-max-age     20s
  stp-fwd-delay   15s
  root-port       b11
  root-path-cost  2000

Bridge ID:
  stp-priority    32768
  stp-system-id   aa:55:aa:55:00:01
  stp-hello-time  2s
  stp-max-age     20s
  stp-fwd-delay   15s

  Interface  Role       State      Cost     Pri.Nbr 
  ---------- ---------- ---------- -------- -------
  b11        Root       Forwarding 2000     128.1
  b12        Alternate  Discarding 200000000128.2
  d1         Designated Forwarding 2000     128.3

";
    let status = bench.machine.status().remove(0);
    assert_eq!(show::bridge(&status), expected);
    let columns: Vec<_> = status.rstp_column().into_iter().map(|(_, value)| value).collect();
    assert_eq!(columns, ["8.000.aa55aa550001", "8001", "8.000.aa55aa550000", "8001", "8.000.aa55aa550000", "2000"]);
    let column: Vec<_> = status.ports[1].rstp_column().into_iter().map(|(_, value)| value).collect();
    assert_eq!(column, ["8.000.aa55aa550000", "0", "8002", "8002", "Alternate", "Discarding"]);
    let counters = status.ports[0].rstp_counters(Millis(5000));
    assert_eq!(counters[3], ("rstp_uptime", 5));
}
