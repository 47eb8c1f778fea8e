//! Events of datapaths in the debug log of the modules `dpif` and `dpif_netdev`, in the words of Open vSwitch.
//!
//! Open vSwitch gives each flow a UUID of its key (`ufid`) and one of its match (`mega_ufid`). A flow has one UUID here,
//! which stands for both.

use crate::ufid::Ufids;
use base::{Clock, DpPort, Millis};
use dpif::text::{Detail, format_actions, format_key, packet_key_to_string};
use dpif::{DpActions, DpFlowEntry, DpFlowStats, Dpif, EventLog, FlowId, Upcall};
use flow::ReceivedOptions;
use flow::text::NoNames;
use packet::Packet;
use std::sync::{Arc, Weak};
use vlog::{RateLimit, dbg_rl};

/// The port of a datapath's own device, which datapaths made by hand have.
const OWN: DpPort = DpPort(0);
/// Limit on lines about operations.
static OPERATIONS: RateLimit = RateLimit::new(600, 600);
/// Limit on lines about misses and what follows from them.
static UPCALLS: RateLimit = RateLimit::new(600, 600);

/// The log of one datapath.
#[derive(Debug)]
pub(crate) struct Events {
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) dpif: Weak<dyn Dpif>,
    pub(crate) ufids: Arc<Ufids>,
    pub(crate) clock: Clock,
}

/// The TCP flags that a flow has seen, a letter each.
pub(crate) fn flags_text(stats: &DpFlowStats) -> String {
    "FSRP.UECN".chars().enumerate().filter(|(bit, _)| stats.tcp_flags >> bit & 1 != 0).map(|(_, c)| c).collect()
}

/// What a flow has done until `now`, as `packets:3, bytes:180, used:0.512s, flags:S.`.
pub(crate) fn stats_text(stats: &DpFlowStats, now: Millis) -> String {
    let used = stats.used.map_or_else(
        || "never".to_owned(),
        |used| {
            let ms = now.since(used);
            format!("{}.{:03}s", ms / 1000, ms % 1000)
        },
    );
    let flags = flags_text(stats);
    let flags = if flags.is_empty() { flags } else { format!(", flags:{flags}") };
    format!("packets:{}, bytes:{}, used:{used}{flags}", stats.packets, stats.bytes)
}

fn no_name(_: DpPort) -> Option<String> {
    None
}

fn actions_text(flow: &DpFlowEntry) -> String {
    format_actions(&flow.actions, flow.key.eth_type(), &no_name)
}

/// A packet's headers. Metadata is not part of it.
fn packet_text(packet: &Packet) -> String {
    let packet_type = packet.l3_type.map_or(0, |ty| 1 << 16 | u32::from(ty));
    openflow::packet_to_string(packet.data(), packet_type, &NoNames)
}

impl Events {
    /// The options in the keys of packets from tunnels.
    fn options(&self) -> Arc<ReceivedOptions> {
        self.dpif.upgrade().map(|dpif| dpif.tunnel_options()).unwrap_or_default()
    }

    fn key_text(&self, flow: &DpFlowEntry, detail: Detail) -> String {
        let mut text = String::new();
        format_key((&flow.key, &flow.mask), detail, &self.options(), &no_name, &mut text);
        text
    }

    /// `ufid:UUID mega_ufid:UUID KEY`.
    fn flow_text(&self, flow: &DpFlowEntry) -> String {
        let ufid = self.ufids.text(flow.id);
        format!("ufid:{ufid} mega_ufid:{ufid} {}", self.key_text(flow, Detail::Matched))
    }
}

impl EventLog for Events {
    fn missed(&self, upcall: &Upcall<'_>) {
        dbg_rl!(
            &UPCALLS,
            target: "dpif_netdev",
            "{}: miss upcall:\n{}\n{}",
            self.name,
            packet_key_to_string(upcall.key, &self.options()),
            packet_text(upcall.packet)
        );
    }

    fn flow_added(&self, flow: &DpFlowEntry) {
        dbg_rl!(
            &UPCALLS,
            target: "dpif_netdev",
            "flow_add: {}, actions:{}",
            self.flow_text(flow),
            actions_text(flow)
        );
    }

    fn flow_put(&self, flow: &DpFlowEntry, old: Option<&DpFlowEntry>) {
        let operation = match old {
            None => {
                self.flow_added(flow);
                "create"
            }
            Some(old) => {
                dbg_rl!(
                    &UPCALLS,
                    target: "dpif_netdev",
                    "flow_mod: {}, old_actions:{}, actions:{}",
                    self.flow_text(flow),
                    actions_text(old),
                    actions_text(flow)
                );
                "modify"
            }
        };
        dbg_rl!(
            &OPERATIONS,
            target: "dpif",
            "{}@{}: put[{operation}] ufid:{} {}, actions:{}",
            self.kind,
            self.name,
            self.ufids.text(flow.id),
            // This line leaves out flags that are not matched.
            self.key_text(flow, Detail::All).replace(",tcp_flags(0/0)", ""),
            actions_text(flow)
        );
    }

    fn flow_deleted(&self, id: FlowId, stats: &DpFlowStats) {
        dbg_rl!(
            &OPERATIONS,
            target: "dpif",
            "{}@{}: flow_del ufid:{} , {}",
            self.kind,
            self.name,
            self.ufids.text(id),
            stats_text(stats, self.clock.now())
        );
    }

    fn executing(&self, packet: &Packet, actions: &DpActions) {
        dbg_rl!(
            &OPERATIONS,
            target: "dpif",
            // A packet has no metadata yet when it is executed, and no limit of its own.
            "{}@{}: execute {} on packet {}\n with metadata skb_priority(0),skb_mark(0) mtu 0",
            self.kind,
            self.name,
            format_actions(actions, 0, &no_name),
            packet_text(packet)
        );
    }

    fn port_added(&self, name: &str, port: DpPort) {
        // The datapath's own port comes and goes with it.
        if port != OWN {
            dbg_rl!(&OPERATIONS, target: "dpif", "{}@{}: added {name} as port {port}", self.kind, self.name);
        }
    }

    fn port_deleted(&self, port: DpPort) {
        if port != OWN {
            dbg_rl!(&OPERATIONS, target: "dpif", "{}@{}: port_del({port})", self.kind, self.name);
        }
    }
}
