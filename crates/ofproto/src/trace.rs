//! `ofproto/trace`: what would become of a packet, in words.

use crate::bridge::Ofproto;
use flow::text::{NoNames, PortNames};
use flow::{FlowKey, Match};
use std::fmt::Write;
use xlate::{Start, translate_from};

impl Ofproto {
    /// Traces a packet with this key (ingress port in the bridge's numbering) and lays the result out as Open vSwitch
    /// does: the flow, each table and action, the final flow, the megaflow, the datapath actions. Nothing is changed
    /// by it. An error if the bridge is not part of a switch any more.
    pub fn trace(&self, key: &FlowKey, names: bool) -> Result<String, String> {
        let switch = self.switch().ok_or("bridge is being removed")?;
        let net = switch.network();
        let bridge = net.bridges.get(&self.id()).ok_or("bridge is being removed")?;
        let ports: &dyn PortNames = if names { self } else { &NoNames };
        let mut verdict = translate_from(&net, bridge, key, Start::Tables, true);
        let mut out = format!("Flow: {}\n", flow::text::flow_key_to_string(key, ports));
        xlate::trace::format(&verdict.trace, &mut out);
        out.push('\n');
        let unchanged = verdict.final_key == *key;
        let last =
            if unchanged { "unchanged".into() } else { flow::text::flow_key_to_string(&verdict.final_key, ports) };
        let _ = writeln!(out, "Final flow: {last}");
        let megaflow = Match::new(key, verdict.reads.mask().clone());
        let _ = writeln!(out, "Megaflow: {}", flow::text::megaflow_to_string(&megaflow, ports));
        let actions = crate::upcall::dp_actions(&mut verdict);
        let text = dpif::text::format_actions(&actions, key.eth_type(), &|dp_port| {
            let (id, no) = net.ports.get(&dp_port)?;
            names.then(|| net.bridges.get(id)?.ports.get(no).map(|p| p.name.clone())).flatten()
        });
        let _ = writeln!(out, "Datapath actions: {text}");
        if let Some(error) = verdict.error {
            let _ = writeln!(out, "Translation failed ({error}), packet is dropped.");
        }
        Ok(out)
    }

    /// Sends `packet`, whose key is `key`, through the bridge's tables as if it had come in on the key's port.
    pub fn inject(&self, key: &FlowKey, packet: packet::Packet) {
        self.run(key, packet, Start::Tables);
    }

    /// Translates `packet` from `start` on, applies the effects and has the datapath do the rest.
    pub(crate) fn run(&self, key: &FlowKey, packet: packet::Packet, start: Start<'_>) {
        let Some(switch) = self.switch() else { return };
        let net = switch.network();
        let Some(bridge) = net.bridges.get(&self.id()) else { return };
        let mut verdict = translate_from(&net, bridge, key, start, false);
        let now = switch.clock().now();
        switch.apply(&verdict.effects, 1, packet.len() as u64, now, crate::effects::Seen::Now);
        let port = match bridge.ports.get(&key.in_port()).map(|p| p.out) {
            Some(xlate::PortOut::Device(port)) => port,
            _ => base::DpPort::NONE,
        };
        let actions = crate::upcall::dp_actions(&mut verdict);
        if let Some(dpif) = switch.dpif()
            && let Err(e) = dpif.execute(port, packet, &actions)
        {
            tracing::debug!(target: "ofproto_dpif", "{}: {e}", self.name());
        }
    }

    /// Parses a flow for a trace: every field that is not named is zero.
    pub fn parse_trace_flow(&self, text: &str) -> Result<FlowKey, String> {
        flow::text::parse_exact(text, self).map_err(|e| format!("Bad openflow flow syntax: {text}: {e}"))
    }
}
