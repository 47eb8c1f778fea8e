//! The flows of the bridges: values, and the flow mods that add and delete them.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{MacAddr, PortNo};
use flow::{Field, Match};
use openflow::{Action, FlowMod, FlowModCommand, Learn, LearnDst, LearnSpec, LearnSrc, Subfield};

/// The table in which a logical switch finds destinations.
pub(crate) const DESTINATIONS: u8 = 1;
/// The cookie of learned flows.
pub(crate) const LEARNED_COOKIE: u64 = 0x5000;
/// Priority of learned flows, above that of [`REMOTE_PRIORITY`]: a frame that arrived here is the newer information.
pub(crate) const LEARNED_PRIORITY: u16 = 1000;
/// Priority of flows for addresses that the controller has reported.
pub(crate) const REMOTE_PRIORITY: u16 = 900;
/// Seconds without frames to an address after which it is forgotten, unless it sends any.
const LEARNED_IDLE_S: u16 = 15;

/// The packets that a flow applies to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Matching {
    /// All of them.
    Any,
    /// From this port.
    Port(u16),
    /// From this port, with this VLAN.
    PortVlan(u16, u16),
    /// To this address.
    Destination(MacAddr),
}

/// What happens to the packets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Treatment {
    /// They leave through these ports, but not through the one they came from.
    Output(Vec<u16>),
    /// They leave through this port, without their VLAN tag.
    Untag(u16),
    /// They leave through this port with a VLAN tag.
    Tag { vlan: u16, port: u16 },
    /// Their destination is looked up.
    LookUp,
    /// Their source is learned, and their destination looked up.
    Learn,
}

/// The identity of a flow in its bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct FlowId {
    pub(crate) table: u8,
    pub(crate) priority: u16,
    pub(crate) matching: Matching,
}

/// The flows of a bridge.
pub(crate) type Flows = BTreeMap<FlowId, Treatment>;

impl Matching {
    /// The match in terms of OpenFlow.
    pub(crate) fn to_match(self) -> Match {
        let mut matching = Match::ANY;
        match self {
            Self::Any => {}
            Self::Port(port) => matching.set(Field::InPort, port.into()),
            Self::PortVlan(port, vlan) => {
                matching.set(Field::InPort, port.into());
                matching.set(Field::DlVlan, vlan.into());
            }
            Self::Destination(mac) => matching.set(Field::EthDst, mac.to_u64().into()),
        }
        matching
    }
}

impl Treatment {
    /// The actions in terms of OpenFlow.
    pub(crate) fn to_actions(&self) -> Vec<Action> {
        let output = |port: &u16| Action::Output { port: PortNo((*port).into()), max_len: 0 };
        let look_up = Action::Resubmit { in_port: None, table: Some(DESTINATIONS) };
        match self {
            Self::Output(ports) => ports.iter().map(output).collect(),
            Self::Untag(port) => vec![Action::PopVlan, output(port)],
            Self::Tag { vlan, port } => vec![Action::SetVlanVid { vid: *vlan, push_if_needed: true }, output(port)],
            Self::LookUp => vec![look_up],
            Self::Learn => vec![learn(), look_up],
        }
    }
}

/// Adds a flow that sends frames to the source address of this one to the port that it came from.
fn learn() -> Action {
    let source = Subfield::whole(Field::EthSrc);
    let port = Subfield::whole(Field::InPort);
    Action::Learn(Arc::new(Learn {
        table: DESTINATIONS,
        priority: LEARNED_PRIORITY,
        idle_timeout: LEARNED_IDLE_S,
        cookie: LEARNED_COOKIE,
        specs: vec![
            LearnSpec {
                src: LearnSrc::Field(source),
                dst: LearnDst::Match(Subfield::whole(Field::EthDst)),
                n_bits: source.n_bits,
            },
            LearnSpec { src: LearnSrc::Field(port), dst: LearnDst::Output, n_bits: port.n_bits },
        ],
        ..Learn::default()
    }))
}

impl FlowId {
    /// The flow of an address that the controller has reported.
    pub(crate) fn remote(mac: MacAddr) -> Self {
        Self { table: DESTINATIONS, priority: REMOTE_PRIORITY, matching: Matching::Destination(mac) }
    }

    /// The flow that a frame from an address makes.
    pub(crate) fn learned(mac: MacAddr) -> Self {
        Self { priority: LEARNED_PRIORITY, ..Self::remote(mac) }
    }

    fn flow_mod(self, command: FlowModCommand) -> FlowMod {
        FlowMod {
            table_id: Some(self.table),
            priority: self.priority,
            matching: self.matching.to_match(),
            ..FlowMod::new(command)
        }
    }

    /// Adds the flow.
    pub(crate) fn add(self, treatment: &Treatment) -> FlowMod {
        FlowMod { actions: treatment.to_actions(), ..self.flow_mod(FlowModCommand::Add) }
    }

    /// Deletes the flow.
    pub(crate) fn delete(self) -> FlowMod {
        self.flow_mod(FlowModCommand::DeleteStrict)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::text::NoNames;
    use openflow::message::{Form, Options, decode_with, encode_with};
    use openflow::{Message, Version, parse_flow};

    fn cases() -> Vec<(FlowId, Treatment, &'static str)> {
        let id = |table, priority, matching| FlowId { table, priority, matching };
        let mac = MacAddr([2, 0, 0, 0, 0, 7]);
        vec![
            (id(0, 0, Matching::Any), Treatment::Output(vec![]), "priority=0,actions=drop"),
            (
                id(0, 200, Matching::PortVlan(3, 7)),
                Treatment::Untag(4),
                "priority=200,in_port=3,dl_vlan=7,actions=strip_vlan,output:4",
            ),
            (
                id(0, 200, Matching::Port(4)),
                Treatment::Tag { vlan: 7, port: 3 },
                "priority=200,in_port=4,actions=mod_vlan_vid:7,output:3",
            ),
            (id(0, 1000, Matching::Port(5)), Treatment::LookUp, "priority=1000,in_port=5,actions=resubmit(,1)"),
            (
                id(0, 0x8000, Matching::Port(1)),
                Treatment::Learn,
                "in_port=1,actions=learn(table=1,priority=1000,idle_timeout=15,cookie=0x5000,\
                 NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],output:NXM_OF_IN_PORT[]),resubmit(,1)",
            ),
            (
                FlowId::remote(mac),
                Treatment::Output(vec![1, 2]),
                "table=1,priority=900,dl_dst=02:00:00:00:00:07,actions=output:1,output:2",
            ),
        ]
    }

    #[test]
    fn flow_mods_are_those_of_their_text() {
        for (id, treatment, text) in cases() {
            let text = if text.contains("table=1,priority=900") { text.to_owned() } else { format!("table=0,{text}") };
            let parsed = parse_flow(&text, FlowModCommand::Add, &NoNames).expect("a flow").flow_mod;
            assert_eq!(id.add(&treatment), parsed, "{text}");
        }
    }

    #[test]
    fn the_switch_reads_the_same_flow_mods() {
        let options = Options { flow_mod_table_id: true, ..Options::default() };
        for (id, treatment, text) in cases() {
            for sent in [id.add(&treatment), id.delete()] {
                let message = Message::FlowMod(Form::Nicira, Box::new(sent.clone()));
                let bytes = encode_with(Version::V10, 1, &message, options);
                let (_, _, read) = decode_with(&bytes, options).expect("a message");
                let Message::FlowMod(Form::Nicira, read) = read else { panic!("{read:?}") };
                // A message cannot say whether a modification changes cookies.
                assert_eq!(FlowMod { modify_cookie: false, ..*read }, sent, "{text}");
            }
        }
    }
}
