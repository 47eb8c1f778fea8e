//! TCP segments and pipelines with connection tracking, for the examples that measure it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::DpPort;
use conntrack::{Action, Commit, Nat, NatKind, state};
use dpif::{ControllerUpcall, DpAction, DpActions, DpFlow, DpFlowStats, FlowId, Upcall, UpcallHandler, UpcallReply};
use flow::{Field, Reads, layout};
use packet::Packet;
use packet::checksum::{checksum, pseudo_v4};

pub(crate) const FIN: u16 = 0x01;
pub(crate) const SYN: u16 = 0x02;
pub(crate) const ACK: u16 = 0x10;
pub(crate) const PSH: u16 = 0x08;

/// Recirculation ids from this one on are those of packets that pass the zones backwards.
const BACKWARDS: u32 = 100;
/// The public address of translated clients.
pub(crate) const PUBLIC: [u8; 4] = [198, 51, 100, 1];
/// A TCP segment over IPv4 between these ends.
pub(crate) fn tcp(src: ([u8; 4], u16), dst: ([u8; 4], u16), seq: u32, ack: u32, flags: u16, payload: usize) -> Packet {
    let mut segment = [&src.1.to_be_bytes()[..], &dst.1.to_be_bytes(), &seq.to_be_bytes(), &ack.to_be_bytes()].concat();
    segment.extend((0x5000 | flags).to_be_bytes());
    segment.extend([0xff, 0xff, 0, 0, 0, 0]);
    segment.resize(20 + payload, 0x55);
    let sum = pseudo_v4(src.0, dst.0, 6, segment.len() as u16).bytes(&segment).finish();
    segment[16..18].copy_from_slice(&sum.to_be_bytes());
    let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 6, 0, 0];
    ip[2..4].copy_from_slice(&(20 + segment.len() as u16).to_be_bytes());
    ip.extend([src.0, dst.0].concat());
    let sum = checksum(&ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Packet::from_slice(&[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..], &ip, &segment].concat())
}

/// A pipeline of the zones in this order: packets without a connection are committed in each.
pub(crate) struct Pipeline {
    /// Zones, and whether they translate.
    zones: Vec<(u16, bool)>,
    /// The port of packets that begin a connection.
    new_to: DpPort,
    /// The timeout policy of connections.
    pub(crate) timeout: Option<Arc<str>>,
    next_id: AtomicU64,
}

impl std::fmt::Debug for Pipeline {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pipeline")
    }
}

impl Pipeline {
    /// Packets of known connections leave by port 2, the others by `new_to`.
    pub(crate) fn new(zones: Vec<(u16, bool)>, new_to: DpPort) -> Self {
        Self { zones, new_to, timeout: None, next_id: AtomicU64::new(1) }
    }

    fn action(&self, at: usize, commit: bool) -> DpAction {
        let (zone, translates) = self.zones[at];
        let address = u64::from(u32::from_be_bytes(PUBLIC));
        let nat = translates.then(|| Nat {
            kind: commit.then_some(NatKind::Src),
            addresses: commit.then_some(([0, address], [0, address], false)),
            ..Nat::default()
        });
        let (commit, timeout) = (commit.then_some(Commit::Plain), self.timeout.clone());
        DpAction::Ct(Arc::new(Action { zone, commit, nat, timeout, ..Action::default() }))
    }

    /// The actions of a packet in its pass. Packets to clients pass several zones backwards.
    pub(crate) fn actions(&self, pass: usize, is_new: bool, is_to_client: bool) -> Vec<DpAction> {
        let backwards = is_to_client && self.zones.len() > 1;
        let mut actions = Vec::new();
        let zone = |pass: usize| if backwards { self.zones.len() - 1 - pass } else { pass };
        if is_new && pass > 0 {
            actions.push(self.action(zone(pass - 1), true));
        }
        if pass < self.zones.len() {
            let next = pass as u32 + 1 + if backwards { BACKWARDS } else { 0 };
            actions.extend([self.action(zone(pass), false), DpAction::Recirc(next)]);
        } else {
            actions.push(DpAction::Output(if is_new { self.new_to } else { DpPort(2) }));
        }
        actions
    }
}

impl UpcallHandler for Pipeline {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut reads = Reads::new();
        reads.note(layout::PORTS, u64::MAX);
        reads.note(layout::ETH_DST, 0xffff);
        reads.note_field(Field::IpFrag);
        let id = upcall.key.get(Field::RecircId) as u32;
        let mut is_to_client = id >= BACKWARDS;
        if id == 0 && self.zones.len() > 1 {
            reads.note(layout::IPV4, 0xffff_ffff);
            is_to_client = upcall.key.get(Field::Ipv4Dst) as u32 == u32::from_be_bytes(PUBLIC);
        }
        let pass = (id % BACKWARDS) as usize;
        let ct_state = upcall.key.get(Field::CtState) as u32;
        if pass > 0 {
            reads.note(layout::CT, u64::from(state::NEW | state::EST | state::TRK | state::INV) << 32);
        }
        let actions = DpActions::from(self.actions(pass, ct_state & state::NEW != 0, is_to_client));
        let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
        let flow = DpFlow::new(upcall.key, reads.order(), Arc::clone(&actions), 0);
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}
