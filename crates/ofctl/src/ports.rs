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

/// The bits that an action changes, and whether it clears them.
fn action(name: &str) -> Option<(u32, bool)> {
    Some(match name {
        "up" => (pc::PORT_DOWN, false),
        "down" => (pc::PORT_DOWN, true),
        "stp" => (pc::NO_STP, false),
        "no-stp" => (pc::NO_STP, true),
        "receive" => (pc::NO_RECV, false),
        "no-receive" => (pc::NO_RECV, true),
        "receive-stp" => (pc::NO_RECV_STP, false),
        "no-receive-stp" => (pc::NO_RECV_STP, true),
        "flood" => (pc::NO_FLOOD, false),
        "no-flood" => (pc::NO_FLOOD, true),
        "forward" => (pc::NO_FWD, false),
        "no-forward" => (pc::NO_FWD, true),
        "packet-in" => (pc::NO_PACKET_IN, false),
        "no-packet-in" => (pc::NO_PACKET_IN, true),
        _ => return None,
    })
}

/// Changes a port.
pub fn mod_port(c: &Context, a: &[String]) -> Result {
    let (switch, name, act) = (&a[0], &a[1], &a[2]);
    let port = find_port(c, switch, name)?;
    let (mask, set) =
        action(&act.to_ascii_lowercase()).ok_or_else(|| fatal(format!("unknown mod-port command '{act}'")))?;
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
    let named = |p: &PortDesc| c.accept_names() && p.name == name.trim_matches('"');
    let found = port_descs(&mut conn)?.into_iter().find(|p| number.map_or_else(|| named(p), |n| p.port_no == n));
    found.filter(|p| p.port_no != PortNo::ANY).ok_or_else(|| fatal(format!("{switch}: couldn't find port `{name}'")))
}
