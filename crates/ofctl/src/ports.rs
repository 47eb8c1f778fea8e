//! Commands that change ports.

use crate::error::{Result, fatal};
use crate::options::Context;
use crate::switch::{Target, open, port_descs, transact_noreply};
use base::PortNo;
use flow::text::{NoNames, parse_port};
use openflow::Message;
use openflow::message::Options;
use openflow::port::config as pc;
use openflow::port::{PortDesc, PortMod};

/// The bits that an action changes, and whether it sets them. Each word has an opposite, which `no` before it means, with a
/// hyphen or without.
fn action(name: &str) -> Option<(u32, bool)> {
    let name = name.to_ascii_lowercase();
    let (name, opposite) = match name.strip_prefix("no") {
        Some(rest) => (rest.strip_prefix('-').unwrap_or(rest), true),
        None => (name.as_str(), false),
    };
    let (bits, sets) = match name {
        "up" => (pc::PORT_DOWN, false),
        "down" => (pc::PORT_DOWN, true),
        "stp" => (pc::NO_STP, false),
        "receive" => (pc::NO_RECV, false),
        "receive-stp" => (pc::NO_RECV_STP, false),
        "flood" => (pc::NO_FLOOD, false),
        "forward" => (pc::NO_FWD, false),
        "packet-in" => (pc::NO_PACKET_IN, false),
        _ => return None,
    };
    Some((bits, sets != opposite))
}

/// Changes a port.
pub fn mod_port(c: &Context, a: &[String]) -> Result {
    let (switch, name, act) = (&a[0], &a[1], &a[2]);
    let port = find_port(c, switch, name)?;
    let (mask, set) = action(act).ok_or_else(|| fatal(format!("unknown mod-port command '{act}'")))?;
    let request = PortMod {
        port_no: port.port_no,
        hw_addr: port.hw_addr,
        config: if set { mask } else { 0 },
        mask,
        advertise: 0,
    };
    let mut conn = open(c, switch, Target::Mgmt)?;
    transact_noreply(c, &mut conn, &Message::PortMod(request), Options::default())
}

fn find_port(c: &Context, switch: &str, name: &str) -> Result<PortDesc> {
    let mut conn = open(c, switch, Target::Mgmt)?;
    let number = parse_port(name, &NoNames);
    // Unlike in flows, a port may be named here whether names are accepted or not.
    let named = |p: &PortDesc| p.name == name.trim_matches('"');
    let found = port_descs(&mut conn)?.into_iter().find(|p| number.map_or_else(|| named(p), |n| p.port_no == n));
    found.filter(|p| p.port_no != PortNo::ANY).ok_or_else(|| fatal(format!("{switch}: couldn't find port `{name}'")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_an_opposite_with_and_without_hyphen() {
        for (word, bits, sets) in [
            ("up", pc::PORT_DOWN, false),
            ("noup", pc::PORT_DOWN, true),
            ("no-up", pc::PORT_DOWN, true),
            ("down", pc::PORT_DOWN, true),
            ("nodown", pc::PORT_DOWN, false),
            ("NOFLOOD", pc::NO_FLOOD, true),
            ("nostp", pc::NO_STP, true),
            ("noreceive", pc::NO_RECV, true),
            ("no-receive-stp", pc::NO_RECV_STP, true),
            ("noforward", pc::NO_FWD, true),
            ("nopacket-in", pc::NO_PACKET_IN, true),
            ("packet-in", pc::NO_PACKET_IN, false),
        ] {
            assert_eq!(action(word), Some((bits, sets)), "{word}");
        }
        for word in ["", "no", "no--flood", "nonoflood", "no-packet_in", "floods"] {
            assert_eq!(action(word), None, "{word}");
        }
    }
}
