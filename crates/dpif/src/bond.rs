//! Bonds that the datapath balances ([`DpAction::LbOutput`](crate::DpAction::LbOutput)): the member for each bucket of hashes.
//!
//! The switch decides which member has a bucket, and replaces the table of a bond when that changes. Flows name the bond
//! only, so that they stay as they are.

use base::DpPort;

/// Number of buckets of a bond: the low byte of a packet's hash selects one.
pub const LB_BUCKETS: usize = 256;

/// The id of a bond of a datapath.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct BondId(pub u32);

/// The table by which a bond chooses the port of a packet: the port of each bucket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BondTable {
    /// The basis of the hash [`HashKind::L4`](crate::HashKind::L4).
    pub hash_basis: u32,
    /// The member of each bucket; `None` if the bond has no member for it.
    pub buckets: Box<[Option<DpPort>; LB_BUCKETS]>,
}

impl Default for BondTable {
    fn default() -> Self {
        Self { hash_basis: 0, buckets: Box::new([None; LB_BUCKETS]) }
    }
}

/// Bonds of a datapath.
pub trait Bonds {
    /// Adds a bond, or replaces its table. A batch of packets is balanced by one table; batches that begin after the call use
    /// the new one. Loads continue.
    fn bond_set(&self, id: BondId, table: &BondTable);

    /// Removes a bond. The caller must first remove all flows that use it: the datapath drops packets for a bond that it does
    /// not have ([`DropReason::NoBond`](base::DropReason::NoBond)).
    fn bond_del(&self, id: BondId);

    /// All bonds, by id.
    fn bonds(&self) -> Vec<(BondId, BondTable)>;

    /// Returns the bytes that each bucket of a bond has sent since the last call; `None` without such a bond.
    fn bond_take_loads(&self, id: BondId) -> Option<Box<[u64; LB_BUCKETS]>>;
}
