//! Sampling for collectors of IPFIX and on this host (monitor.rs: for sFlow collectors): by the action `sample`, or of all packets
//! that enter or leave a bridge.

use crate::model::PortOut;
use crate::trace::NodeKind;
use crate::translate::Xlate;
use base::{DpPort, DropReason, PortNo};
use dpif::{Collectors, Cookie, DpAction, Observe, Psample, SamplePoint, SampledFlow, TunnelOutput};
use openflow::action::{ObservationId, Sample, SampleDirection};

impl Xlate<'_> {
    /// Executes the `sample` action. Whether its collector set has IPFIX collectors is checked when a packet is sampled.
    pub(crate) fn sample(&mut self, action: &Sample) {
        let local = self.pos.bridge.local.as_ref().filter(|_| self.net.psample);
        let group = local.and_then(|local| Some((*local.groups.get(&action.collector_set_id)?, local.explicit_drops)));
        let port = self.pos.bridge.ipfix.is_some().then(|| self.sampling_port(action));
        if let Some(Err(())) = port {
            let port = action.sampling_port;
            self.tracer.note(NodeKind::Error, || format!("can't use unknown port {port} in flow sample action"));
        }
        let port = port.and_then(Result::ok);
        if port.is_none() && group.is_none() {
            return;
        }
        let (domain, point) = (self.observation_id(action.obs_domain_id), self.observation_id(action.obs_point_id));
        let mut reports = Vec::new();
        if let Some((group, explicit_drops)) = group {
            self.out.explicit_drops |= explicit_drops;
            reports.push(DpAction::Psample(Psample { group, cookie: Cookie::of_observation(domain, point) }));
        }
        if let Some((output, tunnel)) = port {
            let direction = match action.direction {
                SampleDirection::Default => None,
                SampleDirection::Ingress => Some(SamplePoint::Ingress),
                SampleDirection::Egress => Some(SamplePoint::Egress),
            };
            let (probability, set) = (action.probability, action.collector_set_id);
            let flow = SampledFlow { probability, set, domain, point, direction };
            reports.push(self.report_to_exporter(Collectors::Set(flow), output, tunnel));
        }
        self.commit();
        // Converts from a fraction of 65,535, which samples all packets.
        let probability = u32::from(action.probability) << 16 | u32::from(action.probability);
        self.emit_sample(probability, reports);
    }

    /// Returns an observation id, which may be the value of a field of the packet at this point.
    fn observation_id(&mut self, id: ObservationId) -> u32 {
        match id {
            ObservationId::Number(id) => id,
            ObservationId::Field(part) => self.read_subfield(part) as u32,
        }
    }

    /// Returns the datapath port that an action names, and the tunnel behind it. Reports always include the ingress port.
    fn sampling_port(&self, action: &Sample) -> Result<(Option<DpPort>, Option<TunnelOutput>), ()> {
        let (bridge, port) = (self.pos.bridge, action.sampling_port);
        if port == PortNo::ANY || port == self.packet.key.in_port() {
            return Ok((None, None));
        }
        match bridge.ports.get(&port).map(|port| port.out) {
            Some(PortOut::Device(device)) => Ok((Some(device), None)),
            Some(PortOut::Tunnel(dp_port)) => {
                let sets = bridge.ipfix.as_ref().map(|ipfix| &ipfix.tunnel_sets);
                let with_headers = sets.is_some_and(|sets| sets.contains(&action.collector_set_id));
                Ok((Some(dp_port), Some(TunnelOutput { port, with_headers })))
            }
            _ => Err(()),
        }
    }

    /// Samples the packet at its ingress port.
    pub(crate) fn sample_ingress(&mut self) {
        if let Some(probability) = self.pos.bridge.ipfix.as_ref().and_then(|ipfix| ipfix.ingress)
            && self.pos.bridge.ports.contains_key(&self.packet.key.in_port())
        {
            let report = self.report_to_exporter(Collectors::Bridge, None, None);
            self.emit_sample(probability, vec![report]);
        }
    }

    /// Samples the packet at an egress port. The exception is a tunnel: as in Open vSwitch, only the bridge that sends the
    /// outer packet samples it.
    pub(crate) fn sample_egress(&mut self, port: DpPort) {
        if let Some(probability) = self.pos.bridge.ipfix.as_ref().and_then(|ipfix| ipfix.egress) {
            let report = self.report_to_exporter(Collectors::Bridge, Some(port), None);
            self.emit_sample(probability, vec![report]);
        }
    }

    fn report_to_exporter(
        &mut self,
        collectors: Collectors,
        output: Option<DpPort>,
        tunnel: Option<TunnelOutput>,
    ) -> DpAction {
        self.out.explicit_drops |= self.pos.bridge.ipfix.as_ref().is_some_and(|ipfix| ipfix.explicit_drops);
        self.report(collectors, output, tunnel)
    }

    /// The action that reports the packet to collectors of the bridge.
    pub(crate) fn report(
        &mut self,
        collectors: Collectors,
        output: Option<DpPort>,
        tunnel: Option<TunnelOutput>,
    ) -> DpAction {
        self.out.observed = true;
        let what = Observe { bridge: self.pos.bridge.id, collectors, output, tunnel, forwarded: false };
        DpAction::Observe(what.into())
    }

    /// Emits reports on the packet, with this probability.
    pub(crate) fn emit_sample(&mut self, probability: u32, reports: Vec<DpAction>) {
        if probability == u32::MAX {
            return reports.into_iter().for_each(|report| self.emit(report));
        }
        self.usage.action_bytes += reports.iter().map(crate::commit::size_of_action).sum::<usize>();
        self.emit(DpAction::Sample { probability, actions: reports.into() });
    }

    /// Adds a drop if the last action samples and a bridge asks for that, whether or not an action before it outputs the
    /// packet: so does Open vSwitch.
    pub(crate) fn drop_sampled(&mut self) {
        if self.out.explicit_drops && self.out.actions.last().is_some_and(samples) {
            let reason = self.out.drop.unwrap_or(DropReason::Action);
            self.emit(DpAction::Drop(reason));
        }
    }

    /// Marks the sampled packets as forwarded if any copy is output, which is known at the end only.
    pub(crate) fn mark_forwarded(&mut self) {
        if self.out.observed && self.out.actions.iter().any(sends) {
            self.out.actions.iter_mut().for_each(|action| *action = forwarded(action));
        }
    }
}

/// Returns true if the action only reports packets to collectors.
fn samples(action: &DpAction) -> bool {
    match action {
        DpAction::Observe(_) | DpAction::Psample(_) => true,
        DpAction::Sample { actions, .. } => actions.iter().all(samples),
        _ => false,
    }
}

/// Returns true if the action outputs the packet, or may when the packet is recirculated.
fn sends(action: &DpAction) -> bool {
    matches!(action, DpAction::Output(_) | DpAction::LbOutput(_) | DpAction::Recirc(_) | DpAction::Ct(_))
        || action.nested().any(|list| list.iter().any(sends))
}

fn forwarded(action: &DpAction) -> DpAction {
    match action {
        DpAction::Observe(what) => DpAction::Observe(Observe { forwarded: true, ..(**what).clone() }.into()),
        other => other.with_nested(|list| list.iter().map(forwarded).collect()),
    }
}
