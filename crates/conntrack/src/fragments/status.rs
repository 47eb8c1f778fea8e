//! Settings, counters, and a description of the held fragments (`dpctl/ipf-*` of ovs-vswitchd(8)).

use std::net::IpAddr;

use thiserror::Error;

use super::{FRAGMENTS_LIMIT, Fragments, MIN_SIZE_LIMIT};

/// An address family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// By the flag of a parsed packet.
    pub fn of(is_v6: bool) -> Self {
        if is_v6 { Self::V6 } else { Self::V4 }
    }
}

/// Settings of a family.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) enabled: bool,
    pub(super) min_size: u32,
}

/// Counters of fragments of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Fragments that were held, or that completed a datagram.
    pub accepted: u64,
    /// Fragments of complete datagrams.
    pub completed: u64,
    /// Fragments dropped after their time was over.
    pub expired: u64,
    /// Fragments below the minimum size.
    pub too_small: u64,
    /// Fragments that overlapped others.
    pub overlapped: u64,
    /// Fragments dropped long after their time was over, or because all were dropped.
    pub purged: u64,
}

/// Settings and counters of a family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FamilyStatus {
    /// Whether its fragments are reassembled.
    pub enabled: bool,
    /// Minimum size of fragments other than the last, in bytes from the IP header on.
    pub min_size: u32,
    /// Its counters.
    pub counters: Counters,
}

/// Settings and counters of both families.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Status {
    /// IPv4.
    pub v4: FamilyStatus,
    /// IPv6.
    pub v6: FamilyStatus,
    /// Maximum number of held fragments.
    pub max_fragments: u32,
    /// Number of held fragments.
    pub fragments: usize,
}

/// An incomplete datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListStatus {
    /// Source address.
    pub src: IpAddr,
    /// Destination address.
    pub dst: IpAddr,
    /// Recirculation id of the fragments.
    pub recirc_id: u32,
    /// Identification.
    pub id: u32,
    /// Family, for the Ethernet type.
    pub family: Family,
    /// Zone.
    pub zone: u16,
    /// Protocol; 0 for IPv6.
    pub proto: u8,
    /// Number of fragments.
    pub fragments: usize,
    /// Which of them are there.
    pub state: ListState,
}

/// Which fragments of a datagram have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListState {
    /// Neither the first nor the last ("other frag").
    Other,
    /// The first one, but not the last ("first frag").
    First,
    /// The last one, but not the first ("last frag").
    Last,
    /// The first and the last ("first/last frag").
    FirstLast,
}

/// A setting outside of its range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum SettingError {
    /// The minimum size of fragments is too small.
    #[error("minimum fragment size {0} is below {MIN_SIZE_LIMIT}")]
    MinSize(u32),
    /// The maximum number of fragments is too large.
    #[error("maximum number of fragments {0} is above {FRAGMENTS_LIMIT}")]
    MaxFragments(u32),
}

impl Fragments {
    /// Enables or disables reassembly for a family. Fragments that are held stay held.
    pub fn set_enabled(&mut self, family: Family, enabled: bool) {
        self.settings[family as usize].enabled = enabled;
    }

    /// Returns true if the fragments of a family are reassembled.
    pub fn is_enabled(&self) -> bool {
        self.settings.iter().any(|settings| settings.enabled)
    }

    /// Sets the minimum size of fragments other than the last, in bytes from the IP header on, at least
    /// [`MIN_SIZE_LIMIT`].
    pub fn set_min_size(&mut self, family: Family, bytes: u32) -> Result<(), SettingError> {
        if bytes < MIN_SIZE_LIMIT {
            return Err(SettingError::MinSize(bytes));
        }
        self.settings[family as usize].min_size = bytes;
        Ok(())
    }

    /// Sets the maximum number of held fragments of both families, at most [`FRAGMENTS_LIMIT`]. Fragments that are held
    /// stay held.
    pub fn set_max_fragments(&mut self, max: u32) -> Result<(), SettingError> {
        if max > FRAGMENTS_LIMIT {
            return Err(SettingError::MaxFragments(max));
        }
        self.max_fragments = max;
        Ok(())
    }

    /// Settings and counters.
    pub fn status(&self) -> Status {
        let of = |family: Family| FamilyStatus {
            enabled: self.settings[family as usize].enabled,
            min_size: self.settings[family as usize].min_size,
            counters: self.counters[family as usize],
        };
        Status { v4: of(Family::V4), v6: of(Family::V6), max_fragments: self.max_fragments, fragments: self.held }
    }

    /// The incomplete datagrams, oldest first.
    pub fn lists(&self) -> impl Iterator<Item = ListStatus> + '_ {
        self.by_age.values().filter_map(|key| Some(self.lists.get(key)?.status(key)))
    }
}
