//! `ofproto/trace`: describes the treatment of a packet.

use crate::bridge::Ofproto;
use crate::switch::Switch;
use crate::trace_ct::Resumed;
use base::PortNo;
use dpif::{DpAction, DpActions, Execution};
use flow::text::{NoNames, PortNames};
use flow::{FlowKey, Match};
use openflow::Action;
use serde_json::{Value, json};
use std::fmt::Write;
use std::sync::Arc;
use xlate::freeze::RecircState;
use xlate::trace::{Node, NodeKind, PortText, Tracing};
use xlate::{Bridge, Effect, Fork, Network, Start, translate_from};

/// The result of a trace.
#[derive(Clone, Debug)]
pub struct Traced {
    /// The packet's key.
    pub flow: String,
    /// Bridges, tables and actions.
    pub nodes: Vec<Node>,
    /// The key after all actions; `None` if they did not change it.
    pub final_flow: Option<String>,
    /// The match of the megaflow.
    pub megaflow: String,
    /// The datapath actions.
    pub datapath_actions: String,
    /// True if each packet takes the slow path.
    pub slow: bool,
    /// The error that ended the translation, if there was one.
    pub error: Option<String>,
    /// The traces of copies that the connection tracker returns, in order; empty in these themselves.
    pub resumed: Vec<Resumed>,
}

impl Traced {
    fn settle(&mut self, learned: bool) {
        self.nodes = xlate::trace::settle(std::mem::take(&mut self.nodes), learned);
        self.resumed.iter_mut().for_each(|resumed| resumed.traced.settle(learned));
    }

    /// Formats the trace like Open vSwitch.
    pub fn text(&self) -> String {
        let mut out = format!("Flow: {}\n", self.flow);
        xlate::trace::format(&self.nodes, &mut out);
        let last = self.final_flow.as_deref().unwrap_or("unchanged");
        let _ = writeln!(out, "\nFinal flow: {last}");
        let _ = writeln!(out, "Megaflow: {}", self.megaflow);
        let _ = writeln!(out, "Datapath actions: {}", self.datapath_actions);
        if let Some(error) = &self.error {
            let _ = writeln!(out, "Translation failed ({error}), packet is dropped.");
        }
        if self.slow {
            out.push_str("This flow is handled by the userspace slow path because it:\n");
            out.push_str("  - Uses action(s) not supported by datapath.\n");
        }
        for resumed in &self.resumed {
            out.push_str(&resumed.title());
            out.push_str(&resumed.traced.text());
        }
        out
    }

    /// Returns the trace as an object: `final-flow` is the whole key, changed or not; `error`, `slow-path` and
    /// `resumed` are present if there is one.
    pub fn json(&self) -> Value {
        let mut out = json!({
            "flow": self.flow,
            "trace": nodes_json(&self.nodes),
            "final-flow": self.final_flow.as_ref().unwrap_or(&self.flow),
            "megaflow": self.megaflow,
            "datapath-actions": self.datapath_actions,
        });
        if let (Some(error), Some(members)) = (&self.error, out.as_object_mut()) {
            members.insert("error".to_owned(), error.as_str().into());
        }
        if let (true, Some(members)) = (self.slow, out.as_object_mut()) {
            members.insert("slow-path".to_owned(), true.into());
        }
        if let (false, Some(members)) = (self.resumed.is_empty(), out.as_object_mut()) {
            members.insert("resumed".to_owned(), self.resumed.iter().map(Resumed::json).collect());
        }
        out
    }
}

fn nodes_json(nodes: &[Node]) -> Value {
    let kind = |kind| match kind {
        NodeKind::Bridge => "bridge",
        NodeKind::Table => "table",
        NodeKind::Bucket => "bucket",
        NodeKind::Action => "action",
        NodeKind::Learned | NodeKind::Multicast | NodeKind::Detail => "detail",
        NodeKind::Warning => "warning",
        NodeKind::Error => "error",
    };
    nodes
        .iter()
        .map(|node| {
            let mut out = json!({"kind": kind(node.kind), "text": node.text.trim()});
            if let (false, Some(members)) = (node.subs.is_empty(), out.as_object_mut()) {
                members.insert("nodes".to_owned(), nodes_json(&node.subs));
            }
            out
        })
        .collect()
}

impl Ofproto {
    /// Traces a packet with this key (ingress port in the bridge's numbering), without side effects. Fails if the
    /// bridge is not part of a switch any more.
    pub fn trace(&self, key: &FlowKey, names: bool) -> Result<Traced, String> {
        self.trace_from(key, Start::Tables, names, &[], None)
    }

    /// Does [`Ofproto::trace`] from `start` on: with the actions of a packet-out, for instance. Copies that the
    /// connection tracker returns have the states `ct_next` (`ct_state`), one after the other; further ones are new. If
    /// there is a `packet`, the caller applies [`Ofproto::side_effects`], and the trace lists what it teaches.
    pub fn trace_from(
        &self,
        key: &FlowKey,
        start: Start<'_>,
        names: bool,
        ct_next: &[u32],
        packet: Option<&packet::Packet>,
    ) -> Result<Traced, String> {
        let switch = self.switch().ok_or("bridge is being removed")?;
        let net = switch.network();
        let bridge = net.bridges.get(&self.id()).ok_or("bridge is being removed")?;
        let ports = if names { PortText::Names } else { PortText::Numbers };
        let tracing = if packet.is_some() { Tracing::WithEffects(ports) } else { Tracing::Dry(ports) };
        let (mut traced, forks) = self.trace_once(&net, bridge, (key, start), names, tracing, packet)?;
        traced.resumed = crate::trace_ct::resume(&switch, &net, forks, ct_next, names, tracing)?;
        traced.settle(packet.is_some());
        Ok(traced)
    }

    /// Traces a packet up to its recirculation, and returns the recirculated copies.
    pub(crate) fn trace_once(
        &self,
        net: &Network,
        bridge: &Bridge,
        (key, start): (&FlowKey, Start<'_>),
        names: bool,
        tracing: Tracing,
        packet: Option<&packet::Packet>,
    ) -> Result<(Traced, Vec<Fork>), String> {
        let ports: &dyn PortNames = if names { self } else { &NoNames };
        let mut verdict = translate_from(net, bridge, key, start, tracing);
        let text = |key: &FlowKey| self.key_text(key, ports);
        let mut mask = verdict.mask();
        mask.add_mask(flow::Field::PacketType, u32::MAX.into());
        let mut megaflow = Match::new(key, mask);
        if is_of_tunnel(key) {
            self.extract_options(&mut megaflow);
        }
        let actions = crate::upcall::dp_actions(&mut verdict);
        let datapath_actions = dpif::text::format_actions(&actions, key.eth_type(), &|dp_port| {
            let (id, no) = net.ports.get(&dp_port)?;
            names.then(|| net.bridges.get(id)?.ports.get(no).map(|p| p.name.to_string())).flatten()
        });
        let trace = verdict.trace.ok_or("nothing was traced")?;
        let mut multicast = Switch::multicast_notes(net, &verdict.effects, packet).into_iter();
        let traced = Traced {
            flow: text(key),
            final_flow: (trace.final_key != *key).then(|| text(&trace.final_key)),
            megaflow: flow::text::megaflow_to_string(&megaflow, ports),
            datapath_actions,
            slow: verdict.slow,
            error: verdict.error.map(|e| e.summary().to_owned()),
            nodes: xlate::trace::note_multicast(trace.nodes, &mut multicast),
            resumed: Vec::new(),
        };
        Ok((traced, trace.forks))
    }

    /// Formats a key, with tunnel options if the packet is from a tunnel.
    fn key_text(&self, key: &FlowKey, ports: &dyn PortNames) -> String {
        let options = if is_of_tunnel(key) { self.options_of(key) } else { Vec::new() };
        flow::text::flow_key_to_string_with(key, options, ports)
    }

    /// Applies the side effects of a packet with this key: learns addresses and sends it to controllers,
    /// but neither outputs nor counts it.
    pub fn side_effects(&self, key: &FlowKey, start: Start<'_>, packet: packet::Packet) {
        let Some(switch) = self.switch() else { return };
        let net = switch.network();
        let Some(bridge) = net.bridges.get(&self.id()) else { return };
        let verdict = translate_from(&net, bridge, key, start, false);
        let learned: Vec<Effect> = verdict
            .effects
            .iter()
            .filter(|e| matches!(e, Effect::LearnMac { .. } | Effect::Learn(_)))
            .cloned()
            .collect();
        switch.learn_multicast(&verdict.effects, &packet);
        switch.apply(&learned, 1, packet.len() as u64, switch.clock().now(), crate::effects::Seen::Now);
        let unsent = without_output(&verdict.actions);
        if unsent.iter().any(|a| matches!(a, DpAction::Controller(_)) || a.nested().next().is_some())
            && let Some(dpif) = switch.dpif()
            && let Err(e) = dpif.execute(base::DpPort::NONE, packet, &unsent)
        {
            tracing::debug!(target: "ofproto_dpif", "{}: {e}", self.name());
        }
    }

    /// Translates `packet` from `start` on and applies the effects. The datapath actions remain ([`Self::execute`]).
    pub(crate) fn decide(&self, key: &FlowKey, packet: packet::Packet, start: Start<'_>) -> Option<Execution> {
        let switch = self.switch()?;
        let net = switch.network();
        let bridge = net.bridges.get(&self.id())?;
        Some(decided(&switch, bridge, key, packet, translate_from(&net, bridge, key, start, false)))
    }

    /// Sends a frame of the bridge's own port through the flow tables.
    pub fn send_from_local(&self, frame: &[u8]) {
        let Some(switch) = self.switch() else { return };
        let key = switch.key_of(frame, PortNo::LOCAL);
        let packet = packet::Packet::from_slice(frame);
        let table = [Action::Output { port: PortNo::TABLE, max_len: 0 }];
        self.execute(&mut self.decide(&key, packet, Start::Actions(&table)).into_iter().collect());
    }

    /// Resumes a packet that a controller returned.
    pub(crate) fn resume_packet(&self, state: &Arc<RecircState>, key: &FlowKey, packet: packet::Packet) {
        let Some(switch) = self.switch() else { return };
        let net = switch.network();
        let Some(bridge) = net.bridges.get(&self.id()) else { return };
        let verdict = xlate::resume_paused(&net, key, state);
        self.execute(&mut vec![decided(&switch, bridge, key, packet, verdict)]);
    }

    /// Executes datapath actions.
    pub(crate) fn execute(&self, executions: &mut Vec<Execution>) {
        if executions.is_empty() {
            return;
        }
        let switch = self.switch();
        match switch.as_ref().and_then(|switch| switch.dpif()) {
            Some(dpif) => dpif.execute_all(executions, &mut |e| {
                tracing::debug!(target: "ofproto_dpif", "{}: {e}", self.name());
            }),
            None => executions.clear(),
        }
    }

    /// Parses a flow for a trace: every field that is not named is zero.
    pub fn parse_trace_flow(&self, text: &str) -> Result<FlowKey, String> {
        flow::text::parse_exact_with(text, self, &self.option_table())
            .map_err(|e| format!("Bad openflow flow syntax: {text}: {e}"))
    }
}

/// Applies a verdict's effects, and returns the datapath actions.
fn decided(
    switch: &Switch,
    bridge: &xlate::Bridge,
    key: &FlowKey,
    packet: packet::Packet,
    mut verdict: xlate::Verdict,
) -> Execution {
    let now = switch.clock().now();
    switch.apply(&verdict.effects, 1, packet.len() as u64, now, crate::effects::Seen::Now);
    let port = match bridge.ports.get(&key.in_port()).map(|p| p.out) {
        Some(xlate::PortOut::Device(port)) => port,
        _ => base::DpPort::NONE,
    };
    Execution { port, packet, actions: crate::upcall::dp_actions(&mut verdict).into() }
}

/// Returns true if the key has a tunnel destination: the text of other packets has no options.
fn is_of_tunnel(key: &FlowKey) -> bool {
    key.get(flow::Field::TunDst) != 0 || key.get(flow::Field::TunIpv6Dst) != 0
}

fn without_output(actions: &[DpAction]) -> DpActions {
    let keep = |action: &DpAction| match action {
        DpAction::Output(_) | DpAction::LbOutput(_) | DpAction::Trunc(_) | DpAction::Meter(_) | DpAction::Drop(_) => {
            None
        }
        DpAction::Ct(_) | DpAction::CtClear => None,
        // The recirculated packet would be output.
        DpAction::Hash(..) | DpAction::Recirc(_) => None,
        other => Some(other.with_nested(without_output)),
    };
    actions.iter().filter_map(keep).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_json() {
        let node = |kind, text: &str, subs| Node { kind, text: text.to_owned(), subs };
        let traced = Traced {
            flow: "in_port=1".to_owned(),
            nodes: vec![node(
                NodeKind::Bridge,
                "bridge(\"br0\")",
                vec![node(NodeKind::Table, " 0. priority 0", vec![node(NodeKind::Action, "drop", vec![])])],
            )],
            final_flow: None,
            megaflow: "recirc_id=0,eth".to_owned(),
            datapath_actions: "drop".to_owned(),
            slow: true,
            error: Some("Too many resubmits".to_owned()),
            resumed: Vec::new(),
        };
        assert_eq!(
            traced.text(),
            "Flow: in_port=1\n\nbridge(\"br0\")\n-------------\n 0. priority 0\n    drop\n\nFinal flow: unchanged\n\
             Megaflow: recirc_id=0,eth\nDatapath actions: drop\n\
             Translation failed (Too many resubmits), packet is dropped.\n\
             This flow is handled by the userspace slow path because it:\n  \
             - Uses action(s) not supported by datapath.\n"
        );
        assert_eq!(
            traced.json(),
            json!({
                "flow": "in_port=1",
                "trace": [{"kind": "bridge", "text": "bridge(\"br0\")", "nodes": [
                    {"kind": "table", "text": "0. priority 0", "nodes": [{"kind": "action", "text": "drop"}]}
                ]}],
                "final-flow": "in_port=1",
                "megaflow": "recirc_id=0,eth",
                "datapath-actions": "drop",
                "error": "Too many resubmits",
                "slow-path": true,
            })
        );
    }
}
