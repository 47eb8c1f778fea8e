//! Timeouts of connections, and named policies that replace the defaults (CT_Timeout_Policy of ovs-vswitchd.conf.db(5)).
//!
//! Invariants: policy 0 has the default values, cannot be removed, and is what each unset value and each unused slot falls
//! back to. A reader takes no lock: it loads one atomic number of a slot.

use std::collections::{HashMap, VecDeque};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use parking_lot::RwLock;
use thiserror::Error;

/// A state of a connection that has a timeout of its own.
///
/// The states of the tracker map to these names as in the userspace datapath of Open vSwitch. Five of the names exist only
/// for kernel datapaths: policies keep their values, and no connection is in these states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Timeout {
    /// TCP: only the initiator has sent segments.
    TcpSynSent,
    /// TCP: both peers have sent segments, and one has not been acknowledged.
    TcpSynRecv,
    /// TCP: established.
    TcpEstablished,
    /// TCP: one peer has sent a FIN.
    TcpFinWait,
    /// TCP: a FIN was acknowledged (kernel datapaths only).
    TcpCloseWait,
    /// TCP: both peers have sent a FIN (kernel datapaths only).
    TcpLastAck,
    /// TCP: both peers have sent a FIN.
    TcpTimeWait,
    /// TCP: both FINs were acknowledged, or the connection was reset.
    TcpClose,
    /// TCP: simultaneous open (kernel datapaths only).
    TcpSynSent2,
    /// TCP: too many retransmissions (kernel datapaths only).
    TcpRetransmit,
    /// TCP: picked up without a SYN (kernel datapaths only).
    TcpUnack,
    /// UDP, SCTP and others: one packet.
    UdpFirst,
    /// UDP, SCTP and others: several packets of one direction.
    UdpSingle,
    /// UDP, SCTP and others: packets of both directions.
    UdpMultiple,
    /// ICMP: only requests.
    IcmpFirst,
    /// ICMP: requests and replies.
    IcmpReply,
}

/// The number of states with a timeout.
pub const COUNT: usize = Timeout::ALL.len();

impl Timeout {
    /// All of them, by [`Timeout::index`].
    pub const ALL: [Self; 16] = [
        Self::TcpSynSent,
        Self::TcpSynRecv,
        Self::TcpEstablished,
        Self::TcpFinWait,
        Self::TcpCloseWait,
        Self::TcpLastAck,
        Self::TcpTimeWait,
        Self::TcpClose,
        Self::TcpSynSent2,
        Self::TcpRetransmit,
        Self::TcpUnack,
        Self::UdpFirst,
        Self::UdpSingle,
        Self::UdpMultiple,
        Self::IcmpFirst,
        Self::IcmpReply,
    ];

    /// Its position in [`Timeout::ALL`].
    #[inline]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its key in the database's column CT_Timeout_Policy:timeouts.
    pub fn name(self) -> &'static str {
        match self {
            Self::TcpSynSent => "tcp_syn_sent",
            Self::TcpSynRecv => "tcp_syn_recv",
            Self::TcpEstablished => "tcp_established",
            Self::TcpFinWait => "tcp_fin_wait",
            Self::TcpCloseWait => "tcp_close_wait",
            Self::TcpLastAck => "tcp_last_ack",
            Self::TcpTimeWait => "tcp_time_wait",
            Self::TcpClose => "tcp_close",
            Self::TcpSynSent2 => "tcp_syn_sent2",
            Self::TcpRetransmit => "tcp_retransmit",
            Self::TcpUnack => "tcp_unack",
            Self::UdpFirst => "udp_first",
            Self::UdpSingle => "udp_single",
            Self::UdpMultiple => "udp_multiple",
            Self::IcmpFirst => "icmp_first",
            Self::IcmpReply => "icmp_reply",
        }
    }

    /// The state with this key.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|timeout| timeout.name() == name)
    }

    /// Its default in seconds: for states that connections are in, that of the userspace datapath of Open vSwitch.
    pub const fn default_seconds(self) -> u32 {
        match self {
            Self::TcpSynSent | Self::TcpSynRecv | Self::TcpClose | Self::TcpLastAck => 30,
            Self::TcpEstablished => 24 * 60 * 60,
            Self::TcpFinWait => 15 * 60,
            Self::TcpTimeWait => 45,
            Self::TcpCloseWait | Self::UdpFirst | Self::UdpSingle | Self::IcmpFirst => 60,
            Self::TcpSynSent2 => 120,
            Self::TcpRetransmit | Self::TcpUnack => 300,
            Self::UdpMultiple | Self::IcmpReply => 30,
        }
    }
}

/// The values of a policy in seconds, by [`Timeout::index`]; `None` for the default.
pub type Values = [Option<u32>; COUNT];

/// A timeout policy of a tracker. 0 is the default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PolicyId(pub u16);

/// Why a policy was not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum PolicyError {
    /// All slots are taken.
    #[error("more than {MAX_POLICIES} timeout policies")]
    Full,
}

/// How many named policies a tracker has at most.
pub const MAX_POLICIES: usize = CHUNKS * CHUNK - 1;

const CHUNKS: usize = 64;
const CHUNK: usize = 64;

/// A value that is not set.
const UNSET: u32 = u32::MAX;

/// The values of one policy.
type Slot = [AtomicU32; COUNT];

/// Named timeout policies.
///
/// A connection refers to its policy by [`PolicyId`]. After the policy was removed, the defaults apply to the connection.
/// The longest unused id is reused first, and only if no fresh one is left.
#[derive(Debug)]
pub struct Policies {
    /// Slots, allocated by chunks when their first policy is set.
    chunks: [OnceLock<Box<[Slot; CHUNK]>>; CHUNKS],
    registry: RwLock<Registry>,
}

#[derive(Debug, Default)]
struct Registry {
    by_name: HashMap<String, (PolicyId, Values)>,
    /// The highest id ever given.
    last: u16,
    /// Ids of removed policies, longest unused first.
    free: VecDeque<PolicyId>,
}

impl Default for Policies {
    fn default() -> Self {
        Self::new()
    }
}

impl Policies {
    /// No policy but the default.
    pub fn new() -> Self {
        Self { chunks: std::array::from_fn(|_| OnceLock::new()), registry: RwLock::default() }
    }

    /// The timeout of a state in seconds. Unknown policies have the default values.
    #[inline]
    pub fn seconds(&self, policy: PolicyId, timeout: Timeout) -> u32 {
        if policy.0 == 0 { timeout.default_seconds() } else { self.named_seconds(policy, timeout) }
    }

    fn named_seconds(&self, policy: PolicyId, timeout: Timeout) -> u32 {
        let index = usize::from(policy.0);
        let chunk = self.chunks.get(index / CHUNK).and_then(OnceLock::get);
        match chunk.map(|chunk| chunk[index % CHUNK][timeout.index()].load(Ordering::Relaxed)) {
            None | Some(UNSET) => timeout.default_seconds(),
            Some(seconds) => seconds,
        }
    }

    /// Sets the values of a policy, which is new or gets other values. Connections of the policy use them from their next
    /// packet on.
    pub fn set(&self, name: &str, values: Values) -> Result<PolicyId, PolicyError> {
        let mut registry = self.registry.write();
        let id = match registry.by_name.get(name) {
            Some((id, _)) => *id,
            None => registry.allocate().ok_or(PolicyError::Full)?,
        };
        registry.by_name.insert(name.to_owned(), (id, values));
        self.store(id, &values);
        Ok(id)
    }

    /// Removes a policy; returns false if there is none with this name.
    pub fn remove(&self, name: &str) -> bool {
        let mut registry = self.registry.write();
        let Some((id, _)) = registry.by_name.remove(name) else { return false };
        self.store(id, &[None; COUNT]);
        registry.free.push_back(id);
        true
    }

    /// The policy with a name.
    pub fn lookup(&self, name: &str) -> Option<PolicyId> {
        self.registry.read().by_name.get(name).map(|(id, _)| *id)
    }

    /// All named policies with their values, by name.
    pub fn list(&self) -> Vec<(String, Values)> {
        let registry = self.registry.read();
        let mut list: Vec<_> = registry.by_name.iter().map(|(name, (_, values))| (name.clone(), *values)).collect();
        list.sort();
        list
    }

    /// Publishes the values of a slot. Readers may see some old and some new values while it runs.
    fn store(&self, id: PolicyId, values: &Values) {
        let index = usize::from(id.0);
        let unset = || Box::new(std::array::from_fn(|_| std::array::from_fn(|_| AtomicU32::new(UNSET))));
        let chunk = self.chunks[index / CHUNK].get_or_init(unset);
        for (slot, value) in chunk[index % CHUNK].iter().zip(values) {
            // The largest number is taken; one second less in 136 years is no difference.
            slot.store(value.map_or(UNSET, |seconds| seconds.min(UNSET - 1)), Ordering::Relaxed);
        }
    }
}

impl Registry {
    /// An id for a new policy.
    fn allocate(&mut self) -> Option<PolicyId> {
        if usize::from(self.last) < MAX_POLICIES {
            self.last += 1;
            return Some(PolicyId(self.last));
        }
        self.free.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    #[test]
    fn names_are_unique_and_found() {
        for (n, timeout) in Timeout::ALL.into_iter().enumerate() {
            assert_eq!(timeout.index(), n);
            assert_eq!(Timeout::from_name(timeout.name()), Some(timeout));
        }
        assert_eq!(Timeout::from_name("udp"), None);
    }

    #[test]
    fn unset_values_and_removed_policies_fall_back_to_the_default() {
        let policies = Policies::new();
        let mut values = [None; COUNT];
        values[Timeout::UdpFirst.index()] = Some(7);
        values[Timeout::UdpSingle.index()] = Some(u32::MAX);
        let id = policies.set("a", values).unwrap();
        assert_ne!(id, PolicyId::default());
        assert_eq!(policies.lookup("a"), Some(id));
        assert_eq!(policies.seconds(id, Timeout::UdpFirst), 7);
        assert_eq!(policies.seconds(id, Timeout::UdpSingle), u32::MAX - 1);
        assert_eq!(policies.seconds(id, Timeout::UdpMultiple), 30);
        assert_eq!(policies.seconds(PolicyId(0), Timeout::UdpFirst), 60);
        assert_eq!(policies.seconds(PolicyId(u16::MAX), Timeout::UdpFirst), 60);
        assert_eq!(policies.list(), [("a".to_owned(), values)]);
        assert!(policies.remove("a"));
        assert!(!policies.remove("a"));
        assert_eq!(policies.lookup("a"), None);
        assert_eq!(policies.seconds(id, Timeout::UdpFirst), 60);
    }

    #[test]
    fn a_removed_id_is_reused_only_when_no_other_is_left() {
        let policies = Policies::new();
        for n in 0..MAX_POLICIES {
            policies.set(&n.to_string(), [Some(n as u32); COUNT]).unwrap();
        }
        assert_eq!(policies.set("x", [None; COUNT]), Err(PolicyError::Full));
        let (first, second) = (policies.lookup("100").unwrap(), policies.lookup("5").unwrap());
        policies.remove("100");
        policies.remove("5");
        assert_eq!(policies.set("x", [None; COUNT]), Ok(first));
        assert_eq!(policies.set("y", [Some(1); COUNT]), Ok(second));
        assert_eq!(policies.seconds(PolicyId(4095), Timeout::TcpClose), 4094);
    }

    #[test]
    fn policies_agree_with_a_map() {
        let mut rng = Rng::seeded(3);
        let policies = Policies::new();
        let mut twin: HashMap<String, Values> = HashMap::new();
        let steps = 20_000;
        for _ in 0..steps {
            let name = rng.below(50).to_string();
            match rng.below(4) {
                0 => assert_eq!(policies.remove(&name), twin.remove(&name).is_some()),
                1 => {
                    let values = std::array::from_fn(|_| (rng.below(2) == 0).then(|| rng.below(1000) as u32));
                    // Fresh ids run out after some thousand removals; a freed one is there then.
                    policies.set(&name, values).unwrap();
                    twin.insert(name, values);
                }
                _ => {
                    let timeout = Timeout::ALL[rng.below(COUNT as u64) as usize];
                    let value = twin.get(&name).map(|values| values[timeout.index()]);
                    let expected = value.flatten().unwrap_or(timeout.default_seconds());
                    let id = policies.lookup(&name);
                    assert_eq!(id.is_some(), value.is_some());
                    assert_eq!(policies.seconds(id.unwrap_or_default(), timeout), expected);
                }
            }
        }
        tally::report!("{steps} steps");
    }
}
