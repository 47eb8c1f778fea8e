//! The selection logic: which members of a bond are attached, so that all of them lead to the same partner.
//!
//! Members cannot be attached together unless their partners have the same system identifier and key. Of several
//! groups, the one with the best member, the lead, is attached. The decision is that of Open vSwitch 4.0.0, which
//! replaces the aggregator selection of IEEE 802.1AX-2020 6.4.12.

use crate::pdu::{Info, State};
use base::MacAddr;

/// How current a member's information about its partner is (IEEE 802.1AX-2020 6.4.11, the receive machine).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Currency {
    /// A LACPDU arrived within the timeout.
    Current,
    /// The timeout is over; the partner has another one to answer.
    Expired,
    /// The member has no partner.
    Defaulted,
}

impl Currency {
    /// As `lacp/show` prints it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Expired => "expired",
            Self::Defaulted => "defaulted",
        }
    }
}

/// A member to be selected.
#[derive(Clone, Copy, Debug)]
pub struct Candidate {
    /// How current the information about its partner is.
    pub currency: Currency,
    /// Whether it has been attached so far.
    pub attached: bool,
    /// The member's own information.
    pub actor: Info,
    /// Its partner's.
    pub partner: Info,
}

/// What members without a partner do (`lacp-fallback-ab`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Fallback {
    /// They carry no traffic.
    #[default]
    Off,
    /// Without any partner, the bond works as an active-backup bond.
    ActiveBackup,
}

/// The outcome of a selection.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Selection {
    /// Whether each candidate is attached.
    pub attached: Vec<bool>,
    /// Whether there is a lead member.
    pub has_lead: bool,
    /// The members whose partner is their own system.
    pub loopbacks: Vec<usize>,
}

impl Candidate {
    /// The information by which the better of both systems ranks its ports: lower is better. Keys and states do not count.
    fn priority(&self) -> Info {
        let system = |info: &Info| (info.system_priority, info.system);
        let decides = if system(&self.actor) < system(&self.partner) { self.actor } else { self.partner };
        Info { key: 0, state: State::EMPTY, ..decides }
    }

    fn partner_group(&self) -> (MacAddr, u16) {
        (self.partner.system, self.partner.key)
    }
}

/// Selects members of a bond whose own system identifier is `system`.
pub fn select(candidates: &[Candidate], system: MacAddr, fallback: Fallback) -> Selection {
    let is_loopback = |candidate: &Candidate| candidate.partner.system == system;
    let has_partner = |candidate: &Candidate| !is_loopback(candidate) && candidate.currency != Currency::Defaulted;
    let is_working = |candidate: &Candidate| candidate.attached && candidate.currency == Currency::Current;
    // Partners may announce the same port on two links; then an attached member is better.
    let rank = |candidate: &&Candidate| (candidate.priority(), !candidate.attached);
    let best = |is_eligible: &dyn Fn(&Candidate) -> bool| {
        candidates.iter().filter(|candidate| is_eligible(candidate)).min_by_key(rank)
    };
    // A partner that works is kept, although members with a better priority lead elsewhere.
    let lead = best(&is_working).or_else(|| best(&has_partner));
    let is_attached = |candidate: &Candidate| match lead {
        Some(lead) => has_partner(candidate) && candidate.partner_group() == lead.partner_group(),
        None => fallback == Fallback::ActiveBackup && !is_loopback(candidate),
    };
    Selection {
        attached: candidates.iter().map(is_attached).collect(),
        has_lead: lead.is_some(),
        loopbacks: (0..candidates.len()).filter(|n| is_loopback(&candidates[*n])).collect(),
    }
}
