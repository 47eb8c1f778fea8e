//! The machine against Open vSwitch 4.0.0 (recorded runs and output), against a second copy of itself over links that
//! lose, repeat and reorder frames, and against naive twins.

mod links;
mod recorded;
mod units;

use super::*;
use crate::pdu::{Info, Pdu, State};
use crate::select::Currency;
use base::PortNo;

const SYSTEM: MacAddr = MacAddr([0xaa, 0x66, 0xaa, 0x66, 0, 0]);

fn port(number: u32) -> BridgePort {
    BridgePort { bridge: 1, port: PortNo(number) }
}

fn member(number: u32) -> (BridgePort, MemberSettings) {
    let settings = MemberSettings {
        name: format!("p{number}"),
        mac: MacAddr::from_u64(0xaa55_aa55_0000 | u64::from(number)),
        port_id: number as u16,
        port_priority: 65535,
        key: 0,
        carrier: Carrier { up: true, resets: 0 },
    };
    (port(number), settings)
}

/// The settings of a bond with members of these numbers.
fn bond(mode: Mode, timeout: Timeout, numbers: impl IntoIterator<Item = u32>) -> BondSettings {
    BondSettings {
        mode,
        timeout,
        system: SYSTEM,
        system_priority: 65534,
        fallback: Fallback::Off,
        members: numbers.into_iter().map(member).collect(),
    }
}

fn settings(bond: BondSettings) -> Settings {
    Settings { bonds: [((1, "bond0".into()), bond)].into() }
}

fn machine(bond: BondSettings, now: Millis) -> Lacp {
    let mut lacp = Lacp::new(now);
    lacp.configure(settings(bond), now);
    lacp
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|n| u8::from_str_radix(&hex[2 * n..2 * n + 2], 16).unwrap()).collect()
}

fn frames(effects: Vec<Effect>) -> Vec<(BridgePort, Vec<u8>)> {
    let sent = |effect| if let Effect::Send { port, frame } = effect { Some((port, frame)) } else { None };
    effects.into_iter().filter_map(sent).collect()
}
