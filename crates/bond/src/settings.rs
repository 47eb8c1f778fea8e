//! The configuration of a bond (ovs-vswitchd.conf.db(5), "Bonding Configuration"), and the inputs from its members.

use base::{BridgePort, MacAddr};
use std::collections::BTreeMap;
use std::sync::Arc;

/// How a bond distributes frames (Port:bond_mode).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// All frames use the active member.
    #[default]
    ActiveBackup,
    /// The source address and the VLAN select the member.
    BalanceSlb,
    /// Addresses and ports of the network and transport layers select the member. Requires LACP.
    BalanceTcp,
}

impl Mode {
    /// The name in the database.
    pub fn name(self) -> &'static str {
        match self {
            Self::ActiveBackup => "active-backup",
            Self::BalanceSlb => "balance-slb",
            Self::BalanceTcp => "balance-tcp",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::ActiveBackup, Self::BalanceSlb, Self::BalanceTcp].into_iter().find(|mode| mode.name() == name)
    }
}

/// How the bond notices that a member's link is down (Port:other_config:bond-detect-mode).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Detection {
    /// By each change of the carrier.
    #[default]
    Carrier,
    /// By polling the carrier at this interval, in milliseconds (at least 1).
    Miimon(u64),
}

/// The state of LACP on a bond.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LacpStatus {
    /// The bond has no LACP.
    #[default]
    Disabled,
    /// LACP is configured, and has no partner.
    Configured,
    /// LACP has agreed with a partner.
    Negotiated,
}

impl LacpStatus {
    /// The name in `bond/show`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disabled => "off",
            Self::Configured => "configured",
            Self::Negotiated => "negotiated",
        }
    }
}

/// The state of a member's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link {
    /// The device has a carrier.
    pub carrier: bool,
    /// LACP, BFD and CFM allow the member to be enabled.
    pub may_enable: bool,
}

impl Link {
    /// A link that is up, without a protocol that objects.
    pub const UP: Self = Self { carrier: true, may_enable: true };
    /// A link that is down.
    pub const DOWN: Self = Self { carrier: false, may_enable: true };
}

/// A member of a bond.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberSettings {
    /// Interface name.
    pub name: Arc<str>,
    /// Address of the interface.
    pub mac: MacAddr,
    /// The state of its link now. A member that is new is enabled at once if this is up.
    pub link: Link,
}

/// The configuration of a bond.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// How it distributes frames.
    pub mode: Mode,
    /// The seed of hashes.
    pub hash_basis: u32,
    /// Milliseconds for which a link must be up before its member is enabled.
    pub updelay_ms: u64,
    /// Milliseconds for which a link must be down before its member is disabled.
    pub downdelay_ms: u64,
    /// Milliseconds between attempts to rebalance; 0 for never.
    pub rebalance_interval_ms: u64,
    /// How the bond notices that a link is down.
    pub detection: Detection,
    /// The interface that is active whenever it is enabled, in `active-backup` mode.
    pub primary: Option<Arc<str>>,
    /// True if the bond is in `active-backup` mode while LACP is configured and has no partner; otherwise it does not
    /// forward then.
    pub lacp_fallback: bool,
    /// True if members that are not active deliver multicast and broadcast frames.
    pub all_members_active: bool,
    /// True if the datapath balances a bond in mode `balance-tcp` by a table of its own (`lb-output-action`); ignored in other
    /// modes.
    pub lb_output: bool,
    /// The members, all of the same bridge.
    pub members: BTreeMap<BridgePort, MemberSettings>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::default(),
            hash_basis: 0,
            updelay_ms: 0,
            downdelay_ms: 0,
            rebalance_interval_ms: REBALANCE_INTERVAL_MS,
            detection: Detection::default(),
            primary: None,
            lacp_fallback: false,
            all_members_active: false,
            lb_output: false,
            members: BTreeMap::new(),
        }
    }
}

/// Milliseconds between attempts to rebalance, unless configured otherwise.
pub const REBALANCE_INTERVAL_MS: u64 = 10_000;
/// The shortest interval between attempts to rebalance.
pub const REBALANCE_INTERVAL_MIN_MS: u64 = 1000;
/// Milliseconds between polls of the members' links, unless configured otherwise.
pub const MIIMON_INTERVAL_MS: u64 = 200;

impl Settings {
    /// Returns the primary interface if the mode, or the one that a bond without a partner falls back to, has one.
    pub(crate) fn primary(&self) -> Option<&Arc<str>> {
        let has_one = self.mode == Mode::ActiveBackup || self.mode == Mode::BalanceTcp && self.lacp_fallback;
        self.primary.as_ref().filter(|_| has_one)
    }

    /// Returns true if the datapath balances the bond by a table of its own.
    pub fn uses_lb_output(&self) -> bool {
        self.lb_output && self.mode == Mode::BalanceTcp
    }

    /// Returns the interval between attempts to rebalance, which has a minimum; `None` if the bond does not rebalance.
    pub(crate) fn rebalance_interval(&self) -> Option<u64> {
        let balances = self.mode != Mode::ActiveBackup && self.rebalance_interval_ms > 0;
        balances.then(|| self.rebalance_interval_ms.max(REBALANCE_INTERVAL_MIN_MS))
    }
}
