//! Flow formats: an OpenFlow version together with its form of matches and tables, as `ovs-ofctl -F` names them, and the
//! formats that can carry a field, an action or a flow.

use super::action::Action;
use super::action::check::{Limits, check_text};
use super::error::OfpError;
use super::version::Version;
use flow::{Field, Match};
use std::fmt;
use std::ops::{BitAnd, BitOr};

/// A set of flow formats.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Protocols(pub u16);

impl Protocols {
    /// No format.
    pub const NONE: Self = Self(0);
    /// OpenFlow 1.0 with the standard match, without table ids in flow mods.
    pub const OF10_STD: Self = Self(1);
    /// OpenFlow 1.0 with the standard match and table ids (`NXT_FLOW_MOD_TABLE_ID`).
    pub const OF10_STD_TID: Self = Self(1 << 1);
    /// OpenFlow 1.0 with Nicira's messages.
    pub const OF10_NXM: Self = Self(1 << 2);
    /// OpenFlow 1.0 with Nicira's messages and table ids.
    pub const OF10_NXM_TID: Self = Self(1 << 3);
    /// OpenFlow 1.1.
    pub const OF11_STD: Self = Self(1 << 4);
    /// OpenFlow 1.2.
    pub const OF12_OXM: Self = Self(1 << 5);
    /// OpenFlow 1.3.
    pub const OF13_OXM: Self = Self(1 << 6);
    /// OpenFlow 1.4.
    pub const OF14_OXM: Self = Self(1 << 7);
    /// OpenFlow 1.5.
    pub const OF15_OXM: Self = Self(1 << 8);
    /// OpenFlow 1.0 with the standard match.
    pub const OF10_ANY: Self = Self(0b11);
    /// OpenFlow 1.0 with Nicira's messages.
    pub const NXM_ANY: Self = Self(0b1100);
    /// OpenFlow 1.2 and later.
    pub const OXM_ANY: Self = Self(0b1_1110_0000);
    /// OpenFlow 1.3 and later.
    pub const OF13_UP: Self = Self(0b1_1100_0000);
    /// OpenFlow 1.1 and later.
    pub const OF11_UP: Self = Self(0b1_1111_0000);
    /// Formats whose flow mods name a table.
    pub const TID: Self = Self(0b1_1111_1010);
    /// Nicira's and OXM: the formats that can carry every field.
    pub const EXTENDED: Self = Self(0b1_1110_1100);
    /// All formats.
    pub const ANY: Self = Self(0b1_1111_1111);

    /// Returns true if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns true if the set contains all of `other`.
    pub fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the preferred format of the set: of the oldest version, the plainest.
    pub fn first(self) -> Option<Self> {
        (self.0 != 0).then(|| Self(1 << self.0.trailing_zeros()))
    }

    /// Returns the formats of the set, one at a time, in order of preference.
    pub fn iter(self) -> impl Iterator<Item = Self> {
        (0..9).map(|i| Self(1 << i)).filter(move |p| self.contains(*p))
    }

    /// Returns the formats that a connection of this version can carry.
    pub fn of_version(version: Version) -> Self {
        match version {
            Version::V10 => Self::OF10_ANY | Self::NXM_ANY,
            Version::V11 => Self::OF11_STD,
            Version::V12 => Self::OF12_OXM,
            Version::V13 => Self::OF13_OXM,
            Version::V14 => Self::OF14_OXM,
            Version::V15 => Self::OF15_OXM,
        }
    }

    /// Returns the version of a single format; `None` for an empty set.
    pub fn version(self) -> Option<Version> {
        Version::ALL.into_iter().find(|v| !(Self::of_version(*v) & self).is_empty())
    }

    /// Parses a list of format names separated by commas: `any`, `OpenFlow10`, `NXM-table_id` and the like, in any case.
    /// The error is the name that is unknown.
    pub fn from_names(text: &str) -> Result<Self, String> {
        text.split([',', ' ']).filter(|name| !name.is_empty()).try_fold(Self::NONE, |set, name| {
            let known = NAMES.iter().find(|(n, _)| n.eq_ignore_ascii_case(name));
            known.map(|(_, p)| set | *p).ok_or_else(|| name.to_owned())
        })
    }

    /// Returns the formats that can carry this part of a match. (ovs-fields(7) lists versions and masks of each field.)
    pub fn of_field(field: Field, mask: u128) -> Self {
        let full = field.info().full_mask();
        let exact = mask & full == full;
        let any_version = Self::ANY;
        let from_11 = Self::EXTENDED | Self::OF11_STD;
        match field {
            _ if mask == 0 => Self::ANY,
            Field::InPort | Field::EthType | Field::IpProto | Field::IpDscp | Field::IpDscpShifted => any_version,
            Field::DlVlan | Field::DlVlanPcp | Field::VlanPcp | Field::ArpOp => any_version,
            Field::VlanTci | Field::VlanVid if exact => any_version,
            Field::EthSrc | Field::EthDst => {
                if exact {
                    any_version
                } else {
                    from_11
                }
            }
            Field::Ipv4Src | Field::Ipv4Dst | Field::ArpSpa | Field::ArpTpa => {
                let prefix = (mask as u32).leading_ones() == (mask as u32).count_ones();
                if prefix { any_version } else { from_11 }
            }
            Field::TcpSrc | Field::TcpDst | Field::UdpSrc | Field::UdpDst if exact => any_version,
            Field::Icmpv4Type | Field::Icmpv4Code => any_version,
            Field::SctpSrc | Field::SctpDst if exact => from_11,
            Field::InPortOxm | Field::IpEcn | Field::MplsLabel | Field::MplsTc | Field::Metadata => from_11,
            // Only packets have these fields.
            Field::TunTos | Field::TunTtl | Field::SkbPriority => Self::NONE,
            _ => Self::EXTENDED,
        }
    }

    /// Returns the formats that can carry these actions, without those whose rules the actions break for a flow of this match.
    ///
    /// Errors: those of [`check`](super::action::check::check) that apply in all versions.
    pub fn of_actions(actions: &[Action], matching: &Match, table: u8) -> Result<Self, OfpError> {
        let limits = |version| Limits { n_tables: 255, ..Limits::new(version, table) };
        check_text(actions, matching, &limits(Version::V10))?;
        let consistent = match check_text(actions, matching, &limits(Version::V13)) {
            Ok(()) => Self::ANY,
            Err(_) => Self::OF10_ANY | Self::NXM_ANY,
        };
        Ok(consistent & Self::of_each(actions))
    }

    /// Returns the formats that can carry these actions in a context without instructions, whatever the match.
    pub fn of_action_list(actions: &[Action]) -> Self {
        let metered = actions.iter().any(|a| matches!(a, Action::Meter(_)));
        Self::of_each(actions) & if metered { Self::OF15_OXM } else { Self::ANY }
    }

    fn of_each(actions: &[Action]) -> Self {
        actions.iter().fold(Self::ANY, |set, a| set & Self::of_action(a))
    }

    fn of_action(action: &Action) -> Self {
        match action {
            Action::SetTunOption(_) => Self::EXTENDED,
            Action::PushVlan(_) | Action::CopyTtlOut | Action::CopyTtlIn => Self::OF11_UP,
            Action::Meter(_) | Action::Encap(_) | Action::PushPbb | Action::PopPbb => Self::OF13_UP,
            Action::WriteMetadata { .. } => Self::EXTENDED | Self::OF11_STD,
            Action::SetField { field, .. } => Self::of_field(*field, field.info().full_mask()),
            Action::Clone(actions) | Action::WriteActions(actions) => Self::of_each(actions),
            Action::Ct(ct) => Self::of_each(&ct.exec),
            _ => Self::ANY,
        }
    }
}

/// Names of sets, larger sets first, in the order of printing.
const NAMES: [(&str, Protocols); 13] = [
    ("any", Protocols::ANY),
    ("OpenFlow10", Protocols::OF10_ANY),
    ("NXM", Protocols::NXM_ANY),
    ("OXM", Protocols::OXM_ANY),
    ("OpenFlow10-table_id", Protocols::OF10_STD),
    ("OpenFlow10+table_id", Protocols::OF10_STD_TID),
    ("NXM-table_id", Protocols::OF10_NXM),
    ("NXM+table_id", Protocols::OF10_NXM_TID),
    ("OpenFlow11", Protocols::OF11_STD),
    ("OXM-OpenFlow12", Protocols::OF12_OXM),
    ("OXM-OpenFlow13", Protocols::OF13_OXM),
    ("OXM-OpenFlow14", Protocols::OF14_OXM),
    ("OXM-OpenFlow15", Protocols::OF15_OXM),
];

impl BitAnd for Protocols {
    type Output = Self;

    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for Protocols {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Display for Protocols {
    /// Formats as `any` or `NXM,OXM,OpenFlow11`; `none` for the empty set.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("none");
        }
        let (mut left, mut names) = (*self, Vec::new());
        for (name, set) in NAMES {
            if left.contains(set) {
                names.push(name);
                left = Self(left.0 & !set.0);
            }
        }
        f.write_str(&names.join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FlowModCommand, parse_flow};

    #[test]
    fn formats_that_a_text_leaves() {
        for (text, usable) in [
            ("vlan_vid=0x1005,actions=drop", Ok("any")),
            ("vlan_vid=0x1005/0xffff,actions=drop", Ok("any")),
            ("vlan_vid=0x1005/0x1fff,actions=drop", Ok("NXM,OXM")),
            ("vlan_vid=0/0,actions=drop", Ok("any")),
            ("packet_type=(0,0),actions=drop", Ok("NXM,OXM")),
            ("actions=mod_vlan_vid:5", Ok("any")),
            ("actions=set_vlan_vid:5", Ok("OpenFlow10,NXM")),
            ("actions=set_vlan_pcp:3", Ok("OpenFlow10,NXM")),
            ("vlan_tci=0x1000/0x1000,actions=set_vlan_pcp:3", Ok("NXM,OXM")),
            // The switch refuses a load to a field that actions cannot write.
            ("actions=load:1->eth_type[]", Ok("any")),
            ("actions=move:reg0[0..15]->eth_type[]", Err("OFPBAC_BAD_SET_ARGUMENT")),
            ("actions=move:ct_state[]->reg0[]", Ok("any")),
        ] {
            let parsed = parse_flow(text, FlowModCommand::Add, &flow::NoNames);
            let shown = parsed.map(|flow| flow.usable.to_string()).map_err(|e| e.to_string());
            let expected = usable.map(str::to_owned);
            assert_eq!(
                shown,
                expected.map_err(|e| format!("actions are invalid with specified match ({e})")),
                "{text}"
            );
        }
    }

    #[test]
    fn names() {
        assert_eq!(Protocols::ANY.to_string(), "any");
        assert_eq!(Protocols::TID.to_string(), "OXM,OpenFlow10+table_id,NXM+table_id,OpenFlow11");
        assert_eq!((Protocols::EXTENDED | Protocols::OF11_STD).to_string(), "NXM,OXM,OpenFlow11");
        assert_eq!(Protocols::from_names("nxm,OpenFlow11"), Ok(Protocols(0b1_1100)));
        assert_eq!(Protocols::from_names("nxm,x"), Err("x".into()));
        assert_eq!(Protocols::ANY.first(), Some(Protocols::OF10_STD));
        assert_eq!(Protocols::EXTENDED.first().and_then(Protocols::version), Some(Version::V10));
        assert_eq!(Protocols::EXTENDED.iter().count(), 6);
    }
}
