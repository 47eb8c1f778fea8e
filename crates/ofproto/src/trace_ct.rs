//! Traces of packets that the connection tracker returns: in the state that the caller gives, or as new ones.

use crate::switch::Switch;
use crate::trace::Traced;
use flow::{Field, FlowKey};
use openflow::{Nat, NatAddresses, NatKind};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use xlate::trace::Tracing;
use xlate::{Fork, Network, Start};

/// The largest number of recirculated packets in one trace: tables may send them to the tracker in a loop.
const RESUMED_MAX: usize = 256;

/// `ct_state=trk|new`.
const NEW: u32 = 0x21;

/// Names of the bits of `ct_state`, the lowest first.
pub const CT_STATES: [&str; 8] = ["new", "est", "rel", "rpl", "inv", "trk", "snat", "dnat"];

/// The trace of a packet that the tracker returns.
#[derive(Clone, Debug)]
pub struct Resumed {
    /// The number under which it resumes.
    pub recirc_id: u32,
    /// The connection state that the caller gave; `None` if it gave none, for a new connection.
    pub ct_state: Option<u32>,
    /// Addresses and ports before and after their translation, if the action asked for one.
    pub nat: Option<[String; 2]>,
    /// The trace.
    pub traced: Traced,
}

impl Resumed {
    /// The heading in the text.
    pub(crate) fn title(&self) -> String {
        let line = "=".repeat(79);
        let mut out = format!("\n{line}\nrecirc({:#x}) - resume conntrack with ", self.recirc_id);
        let _ = match self.ct_state {
            Some(state) => writeln!(out, "ct_state={}", state_text(state)),
            None => writeln!(out, "default ct_state=trk|new (use --ct-next to customize)"),
        };
        if let Some([before, after]) = &self.nat {
            let _ = writeln!(out, "Replacing src/dst IP/ports to simulate NAT:");
            let _ = writeln!(out, " Initial flow: {before}\n Modified flow: {after}");
        }
        let _ = writeln!(out, "{line}\n");
        out
    }

    pub(crate) fn json(&self) -> Value {
        let mut out = self.traced.json();
        if let Some(members) = out.as_object_mut() {
            members.insert("recirc-id".to_owned(), self.recirc_id.into());
            members.insert("ct-state".to_owned(), state_text(self.ct_state.unwrap_or(NEW)).into());
            if let Some([before, after]) = &self.nat {
                members.insert("nat".to_owned(), json!({"before": before, "after": after}));
            }
        }
        out
    }
}

/// The names of the bits that are set.
fn state_text(state: u32) -> String {
    let names = CT_STATES.iter().enumerate().filter(|(bit, _)| state & 1 << bit != 0);
    let names: Vec<&str> = names.map(|(_, name)| *name).collect();
    if names.is_empty() { "0".to_owned() } else { names.join("|") }
}

/// Traces packets that the tracker returns, including those of their own traces, in order.
pub(crate) fn resume(
    switch: &Switch,
    net: &Network,
    forks: Vec<Fork>,
    ct_next: &[u32],
    names: bool,
    tracing: Tracing,
) -> Result<Vec<Resumed>, String> {
    let (mut waiting, mut states, mut out) = (VecDeque::from(forks), ct_next.iter(), Vec::new());
    while let Some(Fork { mut key, nat }) = waiting.pop_front() {
        if out.len() >= RESUMED_MAX {
            return Err(format!("packets go through the connection tracker more than {RESUMED_MAX} times"));
        }
        let recirc_id = key.get(Field::RecircId) as u32;
        let ct_state = states.next().copied();
        key.set(Field::CtState, ct_state.unwrap_or(NEW).into());
        let nat = nat.map(|nat| translate(&mut key, &nat));
        let id = net.frozen.get(recirc_id).map(|kept| kept.frozen.bridge);
        let bridge = id.and_then(|id| Some((net.bridges.get(&id)?, switch.bridge(id)?)));
        let (view, bridge) = bridge.ok_or_else(|| format!("no recirculation data for recirc_id {recirc_id:#x}"))?;
        let (traced, forks) = bridge.trace_once(net, view, (&key, Start::Tables), names, tracing, None)?;
        waiting.extend(forks);
        out.push(Resumed { recirc_id, ct_state, nat, traced });
    }
    Ok(out)
}

/// Gives the packet the first addresses and ports of the translation's range. Returns both as text, before and after.
fn translate(key: &mut FlowKey, nat: &Nat) -> [String; 2] {
    let before = addresses(key, nat);
    let [address, port] = match (nat.kind, nat.addresses) {
        (None, _) | (_, NatAddresses::None) => return [before.clone(), before],
        (Some(NatKind::Src), NatAddresses::Ipv4(..)) => [Field::Ipv4Src, Field::TcpSrc],
        (Some(NatKind::Dst), NatAddresses::Ipv4(..)) => [Field::Ipv4Dst, Field::TcpDst],
        (Some(NatKind::Src), NatAddresses::Ipv6(..)) => [Field::Ipv6Src, Field::TcpSrc],
        (Some(NatKind::Dst), NatAddresses::Ipv6(..)) => [Field::Ipv6Dst, Field::TcpDst],
    };
    match nat.addresses {
        NatAddresses::None => {}
        NatAddresses::Ipv4(first, _) => key.set(address, first.to_bits().into()),
        NatAddresses::Ipv6(first, _) => key.set(address, first.to_bits()),
    }
    if let Some((first, _)) = nat.ports {
        key.set(port, first.into());
    }
    [before, addresses(key, nat)]
}

/// The addresses of the translation's family.
fn addresses(key: &FlowKey, nat: &Nat) -> String {
    let v4 = |field| Ipv4Addr::from_bits(key.get(field) as u32).to_string();
    let v6 = |field| format!("[{}]", Ipv6Addr::from_bits(key.get(field)));
    let (name, [src, dst]) = match nat.addresses {
        NatAddresses::None => return String::new(),
        NatAddresses::Ipv4(..) => ("nw", [Field::Ipv4Src, Field::Ipv4Dst].map(v4)),
        NatAddresses::Ipv6(..) => ("ipv6", [Field::Ipv6Src, Field::Ipv6Dst].map(v6)),
    };
    let [from, to] = [Field::TcpSrc, Field::TcpDst].map(|field| key.get(field));
    format!("{name}_src={src},tp_src={from},{name}_dst={dst},tp_dst={to}")
}
