//! How a port treats VLAN tags, and which other ports it reaches.

use crate::feature::Feature;
use crate::levels::{PortLevel, PortRows, PortTarget};
use crate::reader::Reader;
use base::PortNo;
use flow::extract::ethertype;
use ofproto::BundleSpec;
use ovsdb_client::columns;
use ovsdb_client::schemas::vswitch::port;
use ovsdb_client::typed::AnyColumn;
use snooping::Flooding;
use xlate::VlanMode;
use xlate::model::PriorityTags;

/// VLAN mode, tags, protection, and flooding of multicast frames of a port.
#[derive(Debug, Default)]
pub struct Vlan;

/// How a port treats tags.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VlanSpec {
    /// The mode.
    pub mode: VlanMode,
    /// Access, native or service VLAN.
    pub tag: u16,
    /// VLANs of a trunk; empty for all.
    pub trunks: Vec<u16>,
    /// Customer VLANs of a `dot1q-tunnel` port; empty for all.
    pub cvlans: Vec<u16>,
    /// Tags for priorities.
    pub priority_tags: PriorityTags,
    /// No traffic to other protected ports.
    pub protected: bool,
    /// The multicast frames that it gets with multicast snooping, whatever its table contains.
    pub multicast: Flooding,
}

impl Default for VlanSpec {
    fn default() -> Self {
        Self {
            mode: VlanMode::Trunk,
            tag: 0,
            trunks: Vec::new(),
            cvlans: Vec::new(),
            priority_tags: PriorityTags::Never,
            protected: false,
            multicast: Flooding::default(),
        }
    }
}

impl VlanSpec {
    /// The bundle of a port with these members.
    pub fn bundle(&self, name: &str, ports: Vec<PortNo>) -> BundleSpec {
        BundleSpec {
            name: name.to_owned(),
            ports,
            mode: self.mode,
            tag: self.tag,
            trunks: self.trunks.clone(),
            cvlans: self.cvlans.clone(),
            priority_tags: self.priority_tags,
            protected: self.protected,
            multicast: self.multicast,
        }
    }
}

/// The ids in a set of VLANs.
fn ids(vlans: impl IntoIterator<Item = i64>) -> Vec<u16> {
    vlans.into_iter().filter_map(|vlan| u16::try_from(vlan).ok()).collect()
}

impl Feature for Vlan {
    type Level = PortLevel;
    type Spec = VlanSpec;
    const NAME: &'static str = "vlan";
    const COLUMNS: &'static [AnyColumn] = &columns! {
        port { NAME, TAG, TRUNKS, VLAN_MODE, CVLANS, OTHER_CONFIG, PROTECTED }
    };

    fn read(reader: &Reader<'_>, rows: PortRows<'_>) -> VlanSpec {
        let (what, row) = (rows.what(), rows.port);
        let config = row.get(port::OTHER_CONFIG);
        let tag = row.get(port::TAG).filter(|t| (0..4096).contains(t)).map(|t| t as u16);
        let mode = match row.get(port::VLAN_MODE) {
            Some(Ok(port::VlanMode::Access)) => VlanMode::Access,
            Some(Ok(port::VlanMode::Trunk)) => VlanMode::Trunk,
            Some(Ok(port::VlanMode::NativeTagged)) => VlanMode::NativeTagged,
            Some(Ok(port::VlanMode::NativeUntagged)) => VlanMode::NativeUntagged,
            Some(Ok(port::VlanMode::Dot1qTunnel)) => {
                let tpid = |value: &str| match value {
                    "802.1ad" => Some(ethertype::QINQ),
                    "802.1q" => Some(ethertype::VLAN),
                    _ => None,
                };
                let tpid = reader.checked(&what, config, "qinq-ethtype", "802.1ad or 802.1q", tpid);
                VlanMode::Dot1qTunnel { tpid: tpid.unwrap_or(ethertype::QINQ) }
            }
            Some(Err(other)) => {
                reader.warn(format!("{what}: unknown vlan_mode {other}, falling back to trunk mode"));
                VlanMode::Trunk
            }
            None if tag.is_some() => VlanMode::Access,
            None => VlanMode::Trunk,
        };
        let parse = |value: &str| match value {
            "always" => Some(PriorityTags::Always),
            "if-nonzero" | "true" => Some(PriorityTags::IfNonzero),
            "never" | "false" => Some(PriorityTags::Never),
            _ => None,
        };
        let priority_tags = reader.checked(&what, config, "priority-tags", "always, if-nonzero or never", parse);
        VlanSpec {
            mode,
            tag: tag.unwrap_or(0),
            trunks: ids(row.get(port::TRUNKS)),
            cvlans: ids(row.get(port::CVLANS)),
            priority_tags: priority_tags.unwrap_or(PriorityTags::Never),
            protected: row.get(port::PROTECTED),
            multicast: Flooding {
                traffic: reader.flag(&what, config, "mcast-snooping-flood").unwrap_or(false),
                reports: reader.flag(&what, config, "mcast-snooping-flood-reports").unwrap_or(false),
            },
        }
    }

    fn apply(&mut self, _: &VlanSpec, target: &mut PortTarget) {
        target.is_bundle_changed = true;
    }
}
