//! Unique ids of cached flows, as in `ufid:UUID`.
//!
//! A flow's id in the datapath is a counter. Its UUID is that number under a permutation of 128 bits with a secret key, so that
//! UUIDs are unique also among processes, and need no memory. `dpctl/add-flow` can give a flow another UUID, which is stored.

use base::rng::Rng;
use dpif::FlowId;
use parking_lot::Mutex;
use std::collections::HashMap;

/// The half of a block that is not the flow's number: other blocks belong to no flow.
const CHECK: u64 = 0;
const ROUNDS: usize = 6;

/// The UUIDs of flows.
#[derive(Debug)]
pub struct Ufids {
    keys: [u64; ROUNDS],
    given: Mutex<Given>,
}

#[derive(Debug, Default)]
struct Given {
    by_ufid: HashMap<u128, FlowId>,
    by_id: HashMap<FlowId, u128>,
}

impl Default for Ufids {
    fn default() -> Self {
        let mut rng = Rng::from_entropy();
        Self { keys: std::array::from_fn(|_| rng.next_u64()), given: Mutex::default() }
    }
}

/// Mixes all bits of a word (the finaliser of SplitMix64).
fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

impl Ufids {
    /// The UUID of a flow.
    pub fn of(&self, id: FlowId) -> u128 {
        if let Some(ufid) = self.given.lock().by_id.get(&id) {
            return *ufid;
        }
        // A Feistel network.
        let round = |(left, right): (u64, u64), key: &u64| (right, left ^ mix(right ^ key));
        let (left, right) = self.keys.iter().fold((CHECK, id.0), round);
        u128::from(left) << 64 | u128::from(right)
    }

    /// The flow that has this UUID, if it was ever installed.
    pub fn flow(&self, ufid: u128) -> Option<FlowId> {
        if let Some(id) = self.given.lock().by_ufid.get(&ufid) {
            return Some(*id);
        }
        let round = |(left, right): (u64, u64), key: &u64| (right ^ mix(left ^ key), left);
        let (left, right) = self.keys.iter().rev().fold(((ufid >> 64) as u64, ufid as u64), round);
        (left == CHECK).then_some(FlowId(right))
    }

    /// Gives a flow a UUID. Flows that are not `installed` any more lose theirs.
    pub fn give(&self, id: FlowId, ufid: u128, installed: impl Fn(FlowId) -> bool) {
        let mut given = self.given.lock();
        given.by_ufid.retain(|_, id| installed(*id));
        given.by_id.retain(|id, _| installed(*id));
        given.by_ufid.insert(ufid, id);
        given.by_id.insert(id, ufid);
    }

    /// The text of a flow's UUID.
    pub fn text(&self, id: FlowId) -> String {
        let ufid = self.of(id);
        format!(
            "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
            ufid >> 96,
            ufid >> 80 & 0xffff,
            ufid >> 64 & 0xffff,
            ufid >> 48 & 0xffff,
            ufid & 0xffff_ffff_ffff
        )
    }

    /// The flow of a UUID's text, with or without `ufid:` in front. `None` if the text is no UUID; the inner one if no flow
    /// ever had it.
    pub fn parse(&self, text: &str) -> Option<Option<FlowId>> {
        let (ufid, rest) = match dpif::text::split_ufid(text) {
            Some(parsed) => parsed,
            None => (dpif::text::parse_uuid(text)?, ""),
        };
        rest.is_empty().then(|| self.flow(ufid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ufids_come_back() {
        let ufids = Ufids::default();
        for id in [0, 1, 2, 1 << 40, u64::MAX].map(FlowId) {
            assert_eq!(ufids.flow(ufids.of(id)), Some(id));
            assert_eq!(ufids.parse(&ufids.text(id)), Some(Some(id)));
            assert_eq!(ufids.parse(&format!("ufid:{}", ufids.text(id))), Some(Some(id)));
            assert_eq!(ufids.flow(ufids.of(id) ^ 1), None);
        }
        assert_ne!(ufids.of(FlowId(1)), Ufids::default().of(FlowId(1)), "other processes have others");
        assert_eq!(ufids.parse("ufid:12345678-0000-0000-0000-00000000001"), None);
        assert_eq!(ufids.parse("ufid:12345678-0000-0000-0000-000000000012x"), None);
        assert_eq!(ufids.parse("12345678-0000-0000-0000-0000000000é"), None);
    }

    #[test]
    fn given_ufids_last_as_long_as_their_flows() {
        let ufids = Ufids::default();
        ufids.give(FlowId(5), 77, |_| true);
        assert_eq!((ufids.of(FlowId(5)), ufids.flow(77)), (77, Some(FlowId(5))));
        ufids.give(FlowId(6), 78, |id| id != FlowId(5));
        assert_eq!((ufids.flow(77), ufids.flow(78)), (None, Some(FlowId(6))));
    }
}
