//! Links and ports selected by a hash of the flow: `multipath`, `bundle` and `bundle_load` (ovs-actions(7)).
//!
//! The hashed fields are read, so that all packets of a megaflow have the same result.

use crate::trace::NodeKind;
use crate::translate::Xlate;
use base::PortNo;
use flow::{Field, Prereq};
use openflow::{BundleAction, HashFields, LinkAlgorithm, MemberAlgorithm, Multipath};

/// The largest number of links that are weighed one by one; for more, the hash modulo their number selects.
const WEIGHED_MAX: u32 = 64;
/// The largest number of tries of the iterated hash, so that an `arg` far above the number of links has a bounded cost.
const TRIES_MAX: u64 = 1024;

impl Xlate<'_> {
    /// Executes the `multipath` action.
    pub(crate) fn multipath(&mut self, m: &Multipath) {
        let hash = self.hash_of(m.fields, m.basis);
        let link = link(hash, m);
        self.write_subfield(m.dst, link.into());
        self.note_bits(m.dst);
    }

    /// Executes the actions `bundle` and `bundle_load`.
    pub(crate) fn bundle(&mut self, bundle: &BundleAction) {
        let chosen = self.choose_member(bundle);
        match (bundle.dst, chosen) {
            (Some(dst), port) => {
                self.write_subfield(dst, port.unwrap_or(PortNo::NONE).to_of10().into());
                self.note_bits(dst);
            }
            (None, Some(port)) => self.output(port, 0),
            (None, None) => self.tracer.note(NodeKind::Detail, || "no live bundle member".into()),
        }
    }

    fn choose_member(&mut self, bundle: &BundleAction) -> Option<PortNo> {
        let live: Vec<(usize, PortNo)> =
            bundle.members.iter().copied().enumerate().filter(|(_, port)| self.is_port_live(*port)).collect();
        // The switch accepts numbers without meaning, as Open vSwitch does, which would abort here.
        if matches!(bundle.algorithm, MemberAlgorithm::Unknown(_)) || matches!(bundle.fields, HashFields::Unknown(_)) {
            return None;
        }
        // Without a choice, the selection reads nothing.
        if bundle.algorithm == MemberAlgorithm::ActiveBackup || live.len() < 2 {
            return live.first().map(|(_, port)| *port);
        }
        let hash = self.hash_of(bundle.fields, bundle.basis);
        live.into_iter().max_by_key(|(i, _)| (weight(hash, *i as u64), std::cmp::Reverse(*i))).map(|(_, port)| port)
    }

    fn is_port_live(&mut self, port: PortNo) -> bool {
        match port {
            PortNo::IN_PORT | PortNo::TABLE | PortNo::NORMAL | PortNo::FLOOD | PortNo::ALL => true,
            PortNo::CONTROLLER | PortNo::NONE => false,
            port => self.pos.bridge.ports.get(&port).is_some_and(|p| p.live) && self.state_of(port).live,
        }
    }

    /// Hashes these fields of the flow.
    fn hash_of(&mut self, fields: HashFields, basis: u16) -> u64 {
        use HashFields as F;
        let start = mix(0, basis.into());
        match fields {
            F::EthSrc => self.hash_field(Field::EthSrc, start),
            F::NwSrc => self.hash_address(Field::Ipv4Src, Field::Ipv6Src, start),
            F::NwDst => self.hash_address(Field::Ipv4Dst, Field::Ipv6Dst, start),
            F::SymmetricL3 => self.hash_l3(start),
            F::SymmetricL3L4 => self.hash_l3l4(start, false),
            F::SymmetricL3L4Udp => self.hash_l3l4(start, true),
            F::SymmetricL4 => self.hash_flow(start),
            F::Unknown(_) => start,
        }
    }

    /// Hashes the flow without UDP ports, which may differ in each packet of a tunnel.
    pub(crate) fn hash_flow(&mut self, hash: u64) -> u64 {
        let hash = self.hash_pair(Field::EthSrc, Field::EthDst, hash);
        let mut hash = mix(hash, self.packet.key.eth_type().into());
        if self.has_vlan() {
            hash = mix(hash, self.read_bits(Field::VlanVid, 0xfff) as u64);
        }
        self.hash_l3l4(hash, false)
    }

    fn hash_l3(&mut self, hash: u64) -> u64 {
        match self.packet.key.eth_type() {
            0x0800 => self.hash_pair(Field::Ipv4Src, Field::Ipv4Dst, hash),
            0x86dd => self.hash_pair(Field::Ipv6Src, Field::Ipv6Dst, hash),
            _ => hash,
        }
    }

    fn hash_l3l4(&mut self, hash: u64, udp: bool) -> u64 {
        if !self.has(Prereq::Ip) {
            return hash;
        }
        let hash = self.hash_l3(hash);
        let hash = self.hash_field(Field::IpProto, hash);
        if self.has(Prereq::Tcp) || self.has(Prereq::Sctp) || udp && self.has(Prereq::Udp) {
            // The ports of all three protocols have the same place.
            return self.hash_pair(Field::TcpSrc, Field::TcpDst, hash);
        }
        hash
    }

    /// Hashes an IPv4 field or its IPv6 counterpart, whichever the packet has.
    fn hash_address(&mut self, v4: Field, v6: Field, hash: u64) -> u64 {
        match self.packet.key.eth_type() {
            0x0800 => self.hash_field(v4, hash),
            0x86dd => self.hash_field(v6, hash),
            _ => hash,
        }
    }

    fn hash_field(&mut self, field: Field, hash: u64) -> u64 {
        let value = self.read_bits(field, u128::MAX);
        mix(hash, (value ^ value >> 64) as u64)
    }

    /// Hashes two fields symmetrically.
    fn hash_pair(&mut self, a: Field, b: Field, hash: u64) -> u64 {
        let both = self.read_bits(a, u128::MAX) ^ self.read_bits(b, u128::MAX);
        mix(hash, (both ^ both >> 64) as u64)
    }
}

/// Returns the link for a flow with this hash.
fn link(hash: u64, m: &Multipath) -> u16 {
    let n_links = u32::from(m.max_link) + 1;
    // The algorithms are specified for hashes of this width.
    let narrow = (hash >> 32) as u32;
    let rest = || (narrow % n_links) as u16;
    match m.algorithm {
        LinkAlgorithm::ModuloN => rest(),
        LinkAlgorithm::HashThreshold if n_links == 1 => 0,
        LinkAlgorithm::HashThreshold => (narrow / (u32::MAX / n_links + 1)) as u16,
        LinkAlgorithm::HighestRandomWeight if n_links > WEIGHED_MAX => rest(),
        LinkAlgorithm::HighestRandomWeight => {
            let heaviest = (0..n_links).max_by_key(|i| (weight(hash, (*i).into()), std::cmp::Reverse(*i)));
            heaviest.unwrap_or(0) as u16
        }
        LinkAlgorithm::IterHash => {
            let range = if m.arg >= n_links { u64::from(m.arg) } else { u64::from(n_links).next_power_of_two() };
            let mut tries = (1..=TRIES_MAX).map(|i| weight(hash, i) % range);
            tries.find(|n| *n < n_links.into()).map_or_else(rest, |n| n as u16)
        }
    }
}

fn weight(hash: u64, i: u64) -> u64 {
    mix(hash, i) >> 32
}

/// Mixes `value` into `hash`.
pub(crate) fn mix(hash: u64, value: u64) -> u64 {
    let x = (hash ^ value.wrapping_add(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ x >> 29).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 32
}

#[cfg(test)]
mod tests {
    use super::*;
    use openflow::Subfield;

    fn multipath(algorithm: LinkAlgorithm, n_links: u32, arg: u32) -> Multipath {
        let dst = Subfield::whole(Field::Reg0);
        Multipath { fields: HashFields::EthSrc, basis: 0, algorithm, max_link: (n_links - 1) as u16, arg, dst }
    }

    const ALGORITHMS: [LinkAlgorithm; 4] = [
        LinkAlgorithm::ModuloN,
        LinkAlgorithm::HashThreshold,
        LinkAlgorithm::HighestRandomWeight,
        LinkAlgorithm::IterHash,
    ];

    /// Links of 20,000 flows.
    fn links(m: &Multipath) -> Vec<u16> {
        (0..20_000).map(|flow| link(mix(7, flow), m)).collect()
    }

    #[test]
    fn flows_are_spread_evenly() {
        for algorithm in ALGORITHMS {
            for n in [1u32, 2, 5, 16, 64, 65, 200] {
                let mut counts = vec![0u32; n as usize];
                links(&multipath(algorithm, n, 0)).iter().for_each(|l| counts[usize::from(*l)] += 1);
                let expected = 20_000.0 / f64::from(n);
                // Chi square, with n - 1 degrees of freedom: six standard deviations above the expected value.
                let chi: f64 = counts.iter().map(|c| (f64::from(*c) - expected).powi(2) / expected).sum();
                let df = f64::from(n) - 1.0;
                assert!(chi <= df + 6.0 * (2.0 * df).sqrt(), "{algorithm:?} {n}: {chi}");
            }
        }
    }

    #[test]
    fn adding_a_link_moves_few_flows() {
        let moved = |algorithm, arg| {
            let [before, after] = [15, 16].map(|n| links(&multipath(algorithm, n, arg)));
            before.iter().zip(&after).filter(|(a, b)| a != b).count() as f64 / 20_000.0
        };
        // Adding a link to sixteen ideally moves one in seventeen flows.
        for (algorithm, arg, from, to) in [
            (LinkAlgorithm::ModuloN, 0, 0.9, 1.0),
            (LinkAlgorithm::HashThreshold, 0, 0.25, 0.55),
            (LinkAlgorithm::HighestRandomWeight, 0, 0.05, 0.08),
            (LinkAlgorithm::IterHash, 32, 0.05, 0.08),
        ] {
            let share = moved(algorithm, arg);
            assert!((from..=to).contains(&share), "{algorithm:?}: {share}");
        }
    }
}
