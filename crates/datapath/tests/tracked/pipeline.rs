//! Random stateful pipelines: a decision tree for each pass, whose leaves are lists of actions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::rng::Rng;
use base::{DpPort, DropReason, MacAddr};
use dpif::{Commit, Ct, DpAction, DpActions, HashKind, Nat, NatKind, Protocol, Punt, TunnelPop};
use flow::{Field, FlowKey, FlowMask};

/// What may happen in a round.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Traffic {
    /// Packets that a batch has of a connection have the same direction and the same headers, so that they stay in order. No
    /// zone's connections change after a packet of the batch has read them.
    Uniform,
    /// A batch has at most one packet of each connection.
    Single,
}

/// Recirculation ids are a stage, plus this times a variant.
const VARIANT: u128 = 10;

/// `ct_state`: new, and tracked.
const NEW: u128 = 0x01;
const NEW_AND_TRACKED: u128 = 0x21;

/// The port of the tunnels that packets come from, in some rounds.
pub const TUNNELS: DpPort = DpPort(9);

/// The bits of tunnels that a decision may depend on, too.
const TUNNEL_TESTS: [(Field, u128); 3] = [(Field::TunId, 1), (Field::TunSrc, 3), (Field::TunTtl, 0xff)];

/// The bits that a decision may depend on.
const TESTS: [(Field, u128); 25] = [
    (Field::Ipv4Dst, 0xff),
    (Field::Ipv4Src, 0x300),
    (Field::Ipv6Dst, 0xff),
    (Field::UdpDst, 1),
    (Field::UdpSrc, 1),
    (Field::EthSrc, 1),
    (Field::PktMark, 3),
    (Field::DpHash, 1),
    (Field::DpHash, 1),
    (Field::DpHash, 2),
    (Field::DpHash, 3),
    (Field::DpHash, 4),
    (Field::IpFrag, 3),
    (Field::IpProto, 0xff),
    (Field::CtState, 0xff),
    (Field::CtState, 0x1a),
    (Field::CtZone, 0xffff),
    (Field::CtMark, 3),
    (Field::CtLabel, 1 << 64 | 1),
    (Field::CtNwSrc, 0x3ff),
    (Field::CtNwDst, 0xff),
    (Field::CtIpv6Src, 0xff),
    (Field::CtNwProto, 0xff),
    (Field::CtTpSrc, 1),
    (Field::CtTpDst, 1),
];

/// See the module documentation.
#[derive(Debug)]
pub struct Pipeline {
    traffic: Traffic,
    seed: u64,
    stages: Vec<Vec<(Field, u128)>>,
    /// Fragments of a datagram take the same flows as each other, so that they may share a batch with other packets.
    pub mixes_fragments: bool,
    /// All packets come from tunnels, whose headers the first pass removes.
    pub is_tunneled: bool,
    /// Some verdicts change with it.
    pub revision: AtomicU64,
}

fn mix(hash: u64, value: u128) -> u64 {
    Rng::seeded(hash ^ Rng::seeded(value as u64 ^ (value >> 64) as u64).next_u64()).next_u64()
}

impl Pipeline {
    pub fn random(rng: &mut Rng, traffic: Traffic) -> Self {
        let n = if rng.below(6) == 0 { 9 } else { 2 + rng.below(4) };
        let (mixes_fragments, is_tunneled) = (rng.below(2) == 0, rng.below(3) == 0);
        // Later IPv6 fragments have another protocol (44) than the first one. If fragments take different actions, the last one
        // that the tracker collects decides what happens to the datagram: that depends on the order of flows in a batch.
        let differs = [Field::UdpDst, Field::UdpSrc, Field::IpFrag, Field::IpProto, Field::DpHash];
        let stage = |i| {
            let mut tests = Vec::new();
            if i > 0 && (traffic == Traffic::Uniform || rng.below(4) > 0) {
                tests.push((Field::CtState, NEW_AND_TRACKED));
            }
            tests.extend((0..rng.below(4)).map(|_| TESTS[rng.below(TESTS.len() as u64) as usize]));
            if is_tunneled && rng.below(3) == 0 {
                tests.push(TUNNEL_TESTS[rng.below(TUNNEL_TESTS.len() as u64) as usize]);
            }
            if mixes_fragments {
                tests.retain(|(field, _)| !differs.contains(field));
            } else if traffic == Traffic::Single && rng.below(3) == 0 {
                tests.push((Field::TcpFlags, 0x17));
            }
            tests
        };
        let stages = (0..n).map(stage).collect();
        Self { traffic, seed: rng.next_u64(), stages, mixes_fragments, is_tunneled, revision: AtomicU64::new(0) }
    }

    /// The actions for a packet, and the mask of all packets with the same decisions.
    pub fn answer(&self, key: &FlowKey) -> (DpActions, FlowMask) {
        if self.is_tunneled && key.in_port().0 != TUNNELS.0 {
            let mask = FlowKey::mask_of(Field::InPortOxm);
            return ([DpAction::TunnelPop(TunnelPop::of(TUNNELS))].into(), mask);
        }
        let id = key.get(Field::RecircId);
        let at = (id % VARIANT) as usize;
        let mut mask = FlowKey::mask_of(Field::InPortOxm);
        let always = [Field::RecircId, Field::EthType, Field::PacketType, Field::VlanTci];
        always.iter().for_each(|field| mask.add_mask(*field, field.info().full_mask()));
        let mut hash = mix(self.seed, at as u128 | u128::from(key.eth_type()) << 8 | u128::from(key.vlan_tci()) << 32);
        let Some(stage) = self.stages.get(at) else { return ([].into(), mask) };
        for (field, bits) in stage {
            mask.add_mask(*field, *bits);
            hash = mix(hash, key.get(*field) & bits);
            if hash >> 60 == 0 {
                break;
            }
        }
        if hash >> 62 == 0 {
            hash = mix(hash, self.revision.load(Ordering::Relaxed).into());
        }
        let is_new =
            mask.get(Field::CtState) & NEW != 0 && key.get(Field::CtState) & NEW_AND_TRACKED == NEW_AND_TRACKED;
        (self.verdict(&mut Rng::seeded(hash), at, is_new, key).into(), mask)
    }

    fn verdict(&self, rng: &mut Rng, at: usize, is_new: bool, key: &FlowKey) -> Vec<DpAction> {
        let is_last = at + 1 == self.stages.len();
        let next = at as u128 + 1 + VARIANT * u128::from(rng.below(8) == 0);
        let next = if rng.below(60) == 0 { at.max(1) as u128 } else { next };
        let recirc = DpAction::Recirc(next as u32);
        let tracks = !is_last && rng.below(100) < if at == 0 { 90 } else { 60 };
        if tracks { self.tracking(rng, at, is_new, key, recirc) } else { self.sending(rng, is_last, key, recirc) }
    }

    fn tracking(&self, rng: &mut Rng, at: usize, is_new: bool, key: &FlowKey, recirc: DpAction) -> Vec<DpAction> {
        let ct = DpAction::Ct(Arc::new(self.ct(rng, at, is_new, key)));
        let is_tagged = key.vlan_tci() != 0;
        let is_frame = key.get(Field::PacketType) == 0;
        let mark = DpAction::Set { field: Field::PktMark, value: rng.below(3).into(), mask: 3 };
        let is_ip = matches!(key.eth_type(), 0x800 | 0x86dd);
        let ttl = DpAction::Set { field: Field::IpTtl, value: rng.below(9).into(), mask: 0xff };
        let hash = DpAction::Hash([HashKind::L4, HashKind::SymmetricL4][rng.below(2) as usize], rng.below(3) as u32);
        let push = DpAction::PushVlan { tpid: 0x8100, tci: 5 };
        match rng.below(32) {
            0 => vec![DpAction::CtClear, ct, recirc],
            1 => {
                let zone = 20 + at as u16;
                vec![DpAction::Ct(Arc::new(Ct { zone, ..Ct::default() })), ct, recirc]
            }
            2 => vec![mark, ct, recirc],
            3 if !is_tagged && is_frame => vec![push, ct, recirc],
            4 if is_tagged => vec![DpAction::PopVlan, ct, recirc],
            5 => vec![output(rng), ct, recirc],
            6 => vec![ct, output(rng), recirc],
            7 => vec![ct, DpAction::Hash(HashKind::L4, 3), recirc],
            14..17 => vec![ct, hash, recirc],
            17 => vec![hash, ct, recirc],
            18 if is_ip => vec![ct, ttl, hash, DpAction::Hash(HashKind::L4, 4), recirc],
            19 if is_frame && !is_tagged => vec![hash, push.clone(), ct, push, recirc],
            20 if is_frame && is_tagged => vec![ct, DpAction::PopVlan, hash, recirc],
            21 if is_frame && is_tagged => {
                vec![DpAction::PopVlan, DpAction::PushVlan { tpid: 0x88a8, tci: 5 }, ct, recirc]
            }
            8 => vec![ct, recirc, output(rng)],
            9 if is_frame && !is_tagged => vec![DpAction::PopEth, ct, recirc],
            10 if is_frame => {
                vec![DpAction::Set { field: Field::EthDst, value: 0x0200_0000_0007, mask: u128::MAX }, ct, recirc]
            }
            11 if is_ip => vec![ttl, ct, recirc],
            12 if is_ip => vec![DpAction::CtClear, ttl, DpAction::Hash(HashKind::L4, 5), ct, recirc],
            13 if is_ip => vec![ct, ttl, recirc],
            _ => vec![ct, recirc],
        }
    }

    fn ct(&self, rng: &mut Rng, at: usize, is_new: bool, key: &FlowKey) -> Ct {
        let stage = at as u16;
        let (zone, commits) = match self.traffic {
            // A zone that packets were looked up in changes by new connections only.
            Traffic::Uniform if is_new && rng.below(3) > 0 => (stage, true),
            Traffic::Uniform => (stage + 1, rng.below(6) == 0),
            Traffic::Single => (rng.below(3) as u16, rng.below(if is_new { 2 } else { 5 }) == 0),
        };
        let forces = self.traffic == Traffic::Single && rng.below(4) == 0;
        let commit = commits.then_some(if forces { Commit::Force } else { Commit::Plain });
        let mark = (commits && rng.below(2) == 0).then(|| (rng.below(4) as u32, 3));
        let label = (commits && rng.below(3) == 0).then(|| (u128::from(rng.below(2)) << 64 | 1, 1 << 64 | 1));
        let nat = (rng.below(3) == 0).then(|| nat(rng, commits, key));
        Ct { zone, commit, mark, label, nat, ..Ct::default() }
    }

    fn sending(&self, rng: &mut Rng, is_last: bool, key: &FlowKey, recirc: DpAction) -> Vec<DpAction> {
        if key.get(Field::PacketType) != 0 {
            let push = DpAction::PushEth { dst: MacAddr([2; 6]), src: MacAddr([4; 6]) };
            return if rng.below(5) == 0 { vec![output(rng)] } else { vec![push, output(rng)] };
        }
        let commit = |rng: &mut Rng| {
            let zone = if self.traffic == Traffic::Uniform { 30 } else { rng.below(3) as u16 };
            DpAction::Ct(Arc::new(Ct { zone, commit: Some(Commit::Plain), ..Ct::default() }))
        };
        let is_ip = matches!(key.eth_type(), 0x800 | 0x86dd);
        match rng.below(24) {
            0 => vec![],
            1 => vec![DpAction::Drop(DropReason::Action)],
            2 => vec![output(rng), output(rng)],
            3 if self.traffic == Traffic::Single => vec![DpAction::Trunc(60), output(rng)],
            4 => vec![DpAction::Clone([commit(rng), output(rng)].into()), output(rng)],
            5 => vec![commit(rng), output(rng)],
            6 if key.vlan_tci() != 0 => vec![DpAction::PopVlan, output(rng)],
            7 => vec![DpAction::PushVlan { tpid: 0x8100, tci: 7 }, output(rng)],
            8 if is_ip => vec![DpAction::Set { field: Field::IpTtl, value: 9, mask: 0xff }, output(rng)],
            9 => vec![DpAction::Set { field: Field::PktMark, value: 2, mask: 3 }, output(rng)],
            10 => vec![DpAction::Punt(Punt::to(Protocol::LLDP)), output(rng)],
            11..13 if !is_last => vec![DpAction::Hash(HashKind::SymmetricL4, 1), recirc],
            13 if !is_last => vec![DpAction::CtClear, recirc],
            14 if !is_last => vec![DpAction::Set { field: Field::PktMark, value: 1, mask: 1 }, recirc],
            15 | 18..21 if !is_last => vec![DpAction::Hash(HashKind::L4, 2), recirc],
            16 if !is_last => vec![DpAction::Clone([recirc].into()), output(rng)],
            17 => vec![DpAction::CtClear, output(rng)],
            _ => vec![output(rng)],
        }
    }
}

fn output(rng: &mut Rng) -> DpAction {
    DpAction::Output(DpPort(1 + rng.below(3) as u32))
}

/// A translation to a single address, so that it does not depend on chance.
fn nat(rng: &mut Rng, commits: bool, key: &FlowKey) -> Nat {
    let is_v6 = key.eth_type() == 0x86dd;
    let kind = [NatKind::Src, NatKind::Dst][rng.below(2) as usize];
    let last = if kind == NatKind::Src { 1 } else { 2 };
    let address = if is_v6 { [0xfd00 << 48, 0x200 | last] } else { [0, 0x0a00_0200 | last] };
    match rng.below(3) {
        _ if !commits => Nat::default(),
        0 => Nat::default(),
        _ => Nat { kind: Some(kind), addresses: Some((address, address, is_v6)), ..Nat::default() },
    }
}
