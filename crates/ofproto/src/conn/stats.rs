//! Statistics ("multipart") requests and their replies, which are written message by message.

use super::asynchronous::port_desc;
use super::handle::writable;
use super::peer::{Peer, PendingRequest};
use super::table_features;
use crate::bridge::{OfPort, Ofproto};
use crate::dump_order::{DumpOrder, Placed, Position};
use crate::flow_table::Criteria;
use base::PortNo;
use netdev::qos::{QosReport, QueueCounters, QueueReport};
use openflow::flow_msg::{FlowStats, FlowStatsRequest};
use openflow::multipart::{AggregateStats, Entry, ReplyWriter, StatsReply, StatsRequest, SwitchDesc};
use openflow::port::PortStats;
use openflow::queue::{QUEUE_ALL, QueueConfig, QueueStats, QueueStatsRequest};
use openflow::types::MessageKind;
use openflow::{OfpError, Version};
use std::sync::atomic::Ordering;
use xlate::{PortOut, Rule};

/// A dump of flows in progress.
///
/// While the peer reads, the dump holds the remaining flows. As soon as the peer stalls, it holds its position only
/// ([`FlowDump::park`]), and collects the flows after that again when the peer continues to read.
#[derive(Debug)]
pub(crate) struct FlowDump {
    criteria: Criteria,
    /// The version of the tables that is dumped. Flows removed since may be missing; later ones are not included.
    version: u64,
    order: DumpOrder,
    /// `None` while the dump is parked.
    rules: Option<std::vec::IntoIter<Placed>>,
    last: Option<Position>,
    /// The writer, until the last message is sent.
    writer: Option<ReplyWriter>,
}

impl FlowDump {
    /// Drops the remaining flows, which a peer that does not read would keep in memory.
    pub(super) fn park(&mut self) {
        self.rules = None;
    }

    /// The remaining flows.
    fn rules(&mut self, bridge: &Ofproto) -> &mut std::vec::IntoIter<Placed> {
        let Self { criteria, version, order, last, .. } = self;
        let collect = || {
            order.begin(bridge, criteria);
            let mut rules = bridge.collect(criteria);
            rules.retain(|rule| rule.versions.added() <= *version);
            order.sort(rules, *last)
        };
        self.rules.get_or_insert_with(collect)
    }
}

/// A statistics request, to be answered in turns with other connections.
#[derive(Debug)]
pub(crate) struct Statistics {
    pub(super) version: Version,
    pub(super) xid: u32,
    pub(super) body: StatsRequest,
    /// The last message of the request.
    pub(super) request: Box<[u8]>,
}

/// The largest number of ports whose statistics and descriptions the control thread writes.
const PORTS_HERE_MAX: usize = 64;

/// Returns true if a reply has counters of packets, which cached flows count.
pub(super) fn counts_packets(body: &StatsRequest) -> bool {
    use StatsRequest::{Aggregate, Flow, FlowCounts, Group, NxAggregate, NxFlow, Table};
    matches!(body, Flow(_) | NxFlow(_) | FlowCounts(_) | Aggregate(_) | NxAggregate(_) | Group(_) | Table)
}

impl Ofproto {
    /// Returns true if a worker thread writes the reply to a request: it waits for statistics, or is long.
    pub(super) fn is_long_answer(&self, body: &StatsRequest) -> bool {
        let of_ports = matches!(body, StatsRequest::Port(PortNo::ANY) | StatsRequest::PortDesc(PortNo::ANY));
        counts_packets(body) || of_ports && self.n_ports() > PORTS_HERE_MAX
    }

    /// Replies to a deferred request. A part of the work may remain again.
    pub(super) fn finish_stats(&self, peer: &Peer, Statistics { version, xid, body, request }: Statistics) {
        if let Err(error) = self.stats(peer, version, xid, body) {
            self.send_error(peer, error, &request);
        }
    }

    pub(crate) fn stats(&self, peer: &Peer, version: Version, xid: u32, body: StatsRequest) -> Result<(), OfpError> {
        let reply = |body: StatsReply| {
            let Some(mut writer) = peer.reply_writer(version, xid, body.kind()) else { return Ok(()) };
            body.write(&mut writer).into_iter().for_each(|bytes| peer.send_bytes(bytes));
            peer.finish_reply(writer).map(|last| peer.send_bytes(last))
        };
        match body {
            StatsRequest::Desc => {
                let id = self.identity();
                reply(StatsReply::Desc(Box::new(SwitchDesc {
                    manufacturer: id.mfr_desc,
                    hardware: id.hw_desc,
                    software: id.sw_desc,
                    serial_number: id.serial_desc,
                    datapath: id.dp_desc,
                })))?;
            }
            StatsRequest::Flow(q) => self.flow_stats(peer, version, xid, &q, MessageKind::FlowReply)?,
            StatsRequest::NxFlow(q) => self.flow_stats(peer, version, xid, &q, MessageKind::NxFlowReply)?,
            StatsRequest::FlowCounts(q) => self.flow_stats(peer, version, xid, &q, MessageKind::FlowCountsReply)?,
            StatsRequest::Aggregate(q) => reply(StatsReply::Aggregate(self.aggregate(&q)?))?,
            StatsRequest::NxAggregate(q) => reply(StatsReply::NxAggregate(self.aggregate(&q)?))?,
            StatsRequest::Table => reply(StatsReply::Table(self.table_stats(version)))?,
            StatsRequest::Port(PortNo::ANY) => {
                reply(StatsReply::Port(self.ports().iter().map(|p| self.port_stats(p)).collect()))?;
            }
            StatsRequest::Port(no) => {
                // A port that does not exist has no statistics, which is no error.
                reply(StatsReply::Port(self.port(no).iter().map(|p| self.port_stats(p)).collect()))?;
            }
            StatsRequest::PortDesc(port_no) => {
                let ports = self.ports();
                let ports = ports.iter().filter(|p| port_no == PortNo::ANY || p.spec.no == port_no);
                reply(StatsReply::PortDesc(ports.map(port_desc).collect()))?;
            }
            StatsRequest::Queue(q) => {
                let queues = self.queues(q)?.into_iter();
                reply(StatsReply::Queue(queues.map(|(no, id, report)| queue_stats(no, id, report)).collect()))?;
            }
            StatsRequest::Group(id) => {
                self.push_stats();
                reply(StatsReply::Group(self.group_stats(id)))?;
            }
            StatsRequest::GroupDesc(id) => reply(StatsReply::GroupDesc(self.group_descs(id)))?,
            StatsRequest::Meter(id) => reply(StatsReply::Meter(self.meter_stats(id)?))?,
            StatsRequest::MeterConfig(id) => reply(StatsReply::MeterConfig(self.meter_configs(id)?))?,
            StatsRequest::GroupFeatures => {
                reply(StatsReply::GroupFeatures(crate::groups::features(table_features::actions(version))))?;
            }
            StatsRequest::MeterFeatures => reply(StatsReply::MeterFeatures(crate::meters::FEATURES))?,
            StatsRequest::TableFeatures(requested) => {
                if !requested.is_empty() {
                    writable(peer)?;
                    self.change_table_features(&requested, version)?;
                }
                reply(StatsReply::TableFeatures(self.table_features(version)))?;
            }
            StatsRequest::TableDesc => reply(StatsReply::TableDesc(self.table_descs()))?,
            StatsRequest::QueueDesc(q) => {
                let configs = self.queue_configs(q).map_err(|error| self.without_description(q, error))?;
                reply(StatsReply::QueueDesc(configs))?;
            }
            StatsRequest::IpfixBridge => {
                let stats = self.ipfix_bridge_stats().ok_or(OfpError::NxstNotConfigured)?;
                reply(StatsReply::IpfixBridge(Box::new(stats)))?;
            }
            StatsRequest::IpfixFlow => {
                reply(StatsReply::IpfixFlow(self.ipfix_flow_stats().ok_or(OfpError::NxstNotConfigured)?))?;
            }
            StatsRequest::ControllerStatus => reply(StatsReply::ControllerStatus(self.controller_statuses()))?,
            StatsRequest::BundleFeatures(request) => {
                let features = super::bundles::features(&request)?;
                reply(StatsReply::BundleFeatures(features))?;
            }
            StatsRequest::FlowMonitor(requests) => self.monitor_flows(peer, (version, xid), requests)?,
        }
        Ok(())
    }

    fn flow_stats(
        &self,
        peer: &Peer,
        version: Version,
        xid: u32,
        q: &FlowStatsRequest,
        kind: MessageKind,
    ) -> Result<(), OfpError> {
        let mut criteria = criteria(q)?;
        self.place_options(&mut criteria.matching)?;
        let writer = peer.reply_writer(version, xid, kind).ok_or(OfpError::BrcBadStat)?;
        self.push_stats();
        let version = self.tables().view().version;
        let order = DumpOrder::default();
        let mut dump = FlowDump { criteria, version, order, rules: None, last: None, writer: Some(writer) };
        // The thread that has collected the flows begins the reply.
        if self.continue_reply(peer, &mut dump)? {
            *peer.pending.lock() = Some(PendingRequest::Flows(Box::new(dump)));
        }
        Ok(())
    }

    /// Queues messages of a reply while there is room for them, at least one. Returns true if
    /// there is more.
    ///
    /// Errors: those of [`Peer::finish_reply`], if nothing was sent.
    pub(super) fn continue_reply(&self, peer: &Peer, dump: &mut FlowDump) -> Result<bool, OfpError> {
        while self.answer_some(peer, dump)? {
            if !peer.has_room_for_answer() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Queues the next message of a reply. Returns true if there is more.
    fn answer_some(&self, peer: &Peer, dump: &mut FlowDump) -> Result<bool, OfpError> {
        let mut full = None;
        while full.is_none()
            && let Some((position, rule)) = dump.rules(self).next()
        {
            dump.last = Some(position);
            full = dump.writer.as_mut().and_then(|writer| writer.push(&Entry::Flow(&self.flow_stats_of(&rule))));
        }
        let more = full.is_some();
        let last = || dump.writer.take().map_or(Ok(Vec::new()), |writer| peer.finish_reply(writer));
        peer.send_bytes(full.map_or_else(last, Ok)?);
        Ok(more)
    }

    fn flow_stats_of(&self, rule: &Rule) -> FlowStats {
        let now = self.now();
        let age = now.since(rule.created);
        let secs = |ms: u64| u32::try_from(ms / 1000).unwrap_or(u32::MAX);
        FlowStats {
            table_id: rule.table,
            priority: rule.openflow_priority(),
            matching: self.match_of(rule),
            cookie: rule.cookie,
            duration_sec: (age / 1000) as u32,
            duration_nsec: (age % 1000) as u32 * 1_000_000,
            idle_timeout: rule.idle_timeout,
            hard_timeout: rule.hard_timeout,
            importance: rule.importance,
            idle_age: Some(secs(now.since(rule.used()))),
            hard_age: Some(secs(now.since(rule.modified()))),
            flags: rule.flags,
            packet_count: rule.stats().packets.load(Ordering::Relaxed),
            byte_count: rule.stats().bytes.load(Ordering::Relaxed),
            actions: rule.actions.to_vec(),
        }
    }

    fn aggregate(&self, q: &FlowStatsRequest) -> Result<AggregateStats, OfpError> {
        let mut criteria = criteria(q)?;
        self.place_options(&mut criteria.matching)?;
        self.push_stats();
        let rules = self.collect(&criteria);
        let sum = |f: &dyn Fn(&Rule) -> u64| rules.iter().map(|r| f(r)).sum();
        Ok(AggregateStats {
            packet_count: sum(&|r| r.stats().packets.load(Ordering::Relaxed)),
            byte_count: sum(&|r| r.stats().bytes.load(Ordering::Relaxed)),
            flow_count: rules.len() as u32,
        })
    }

    /// Pushes statistics on this thread if there is no statistics thread. Otherwise the connection has waited for it
    /// ([`Peer::awaits`]).
    pub(super) fn push_stats(&self) {
        if let Some(switch) = self.switch().filter(|switch| !switch.has_revalidator()) {
            switch.revalidate();
        }
    }

    /// The queues that a request asks for, with their ports, and what is known of them.
    ///
    /// Errors: `OFPQOFC_BAD_PORT` for a port that does not exist, `OFPQOFC_BAD_QUEUE` if no port has the queue.
    fn queues(&self, request: QueueStatsRequest) -> Result<Vec<(PortNo, u32, Option<QueueReport>)>, OfpError> {
        let ports = match request.port_no {
            PortNo::ANY => self.ports(),
            no => vec![self.port(no).ok_or(OfpError::QofcBadPort)?],
        };
        let mut found = Vec::new();
        for port in &ports {
            let wanted = |id: &u32| request.queue_id == QUEUE_ALL || request.queue_id == *id;
            let no = port.spec.no;
            match self.qos(port) {
                Some(report) => {
                    let queues = report.queues.into_iter().filter(|(id, _)| wanted(id));
                    found.extend(queues.map(|(id, queue)| (no, id, Some(queue))));
                }
                None => {
                    let queues = port.spec.device.as_ref().map(|device| device.queues()).unwrap_or_default();
                    found.extend(queues.into_iter().filter(wanted).map(|id| (no, id, None)));
                }
            }
        }
        if found.is_empty() && request.queue_id != QUEUE_ALL { Err(OfpError::QofcBadQueue) } else { Ok(found) }
    }

    /// The error for descriptions of a queue that does not exist: as in Open vSwitch another one than for its statistics, but
    /// for ports that have the queues of their device only.
    fn without_description(&self, request: QueueStatsRequest, error: OfpError) -> OfpError {
        let has_own_queues = |port: OfPort| {
            self.qos(&port).is_none() && port.spec.device.is_some_and(|device| !device.queues().is_empty())
        };
        if error == OfpError::QofcBadQueue && !self.port(request.port_no).is_some_and(has_own_queues) {
            return OfpError::NxqofcQueueError;
        }
        error
    }

    /// The QoS of a port, of the kernel or in userspace.
    pub fn qos(&self, port: &OfPort) -> Option<QosReport> {
        let kernel = port.spec.device.as_ref().and_then(|device| device.kernel_qos()?.report());
        kernel.or_else(|| match port.spec.out {
            PortOut::Device(dp_port) => self.switch()?.dpif()?.port_qos(dp_port),
            _ => None,
        })
    }

    /// The queues that a request asks for, without rates: as in Open vSwitch, as theirs are no parts of a link's speed. Errors
    /// as [`Ofproto::queues`].
    pub(super) fn queue_configs(&self, request: QueueStatsRequest) -> Result<Vec<QueueConfig>, OfpError> {
        let config = |(port_no, queue_id, _)| QueueConfig { port_no, queue_id, min_rate: None, max_rate: None };
        Ok(self.queues(request)?.into_iter().map(config).collect())
    }

    fn port_stats(&self, port: &OfPort) -> PortStats {
        let age = self.now().0.saturating_sub(port.created_ms);
        let mut stats = PortStats::unknown(port.spec.no);
        stats.duration = Some(((age / 1000) as u32, (age % 1000) as u32 * 1_000_000));
        match &port.spec.device {
            Some(device) if port.spec.tunnel.is_none() => {
                let s = device.stats();
                let unknown = u64::MAX;
                stats.rx_packets = s.rx_packets.unwrap_or(unknown);
                stats.tx_packets = s.tx_packets.unwrap_or(unknown);
                stats.rx_bytes = s.rx_bytes.unwrap_or(unknown);
                stats.tx_bytes = s.tx_bytes.unwrap_or(unknown);
                stats.rx_dropped = s.rx_dropped.unwrap_or(unknown);
                stats.tx_dropped = s.tx_dropped.unwrap_or(unknown);
                stats.rx_errors = s.rx_errors.unwrap_or(unknown);
                stats.tx_errors = s.tx_errors.unwrap_or(unknown);
                stats.rx_frame_err = s.rx_frame_errors.unwrap_or(unknown);
                stats.rx_over_err = s.rx_over_errors.unwrap_or(unknown);
                stats.rx_crc_err = s.rx_crc_errors.unwrap_or(unknown);
                stats.collisions = s.collisions.unwrap_or(unknown);
                stats.custom = s.custom;
                stats.custom.sort();
            }
            _ => {
                stats.rx_packets = port.counters.rx_packets.load(Ordering::Relaxed);
                stats.rx_bytes = port.counters.rx_bytes.load(Ordering::Relaxed);
                stats.tx_packets = port.counters.tx_packets.load(Ordering::Relaxed);
                stats.tx_bytes = port.counters.tx_bytes.load(Ordering::Relaxed);
            }
        }
        stats
    }
}

fn criteria(q: &FlowStatsRequest) -> Result<Criteria, OfpError> {
    if q.table_id.is_some_and(|t| usize::from(t) >= xlate::model::N_TABLES) {
        return Err(OfpError::BrcBadTableId);
    }
    Ok(Criteria {
        table_id: q.table_id,
        matching: q.matching.clone(),
        strict_priority: None,
        cookie: q.cookie,
        cookie_mask: q.cookie_mask,
        out_port: q.out_port,
        out_group: q.out_group,
    })
}

/// The counters of a queue; unknown ones are [`u64::MAX`].
fn queue_stats(port_no: PortNo, queue_id: u32, report: Option<QueueReport>) -> QueueStats {
    let counters = report.as_ref().and_then(|report| report.counters);
    let counter = |of: fn(QueueCounters) -> u64| counters.map_or(u64::MAX, of);
    QueueStats {
        port_no,
        queue_id,
        tx_bytes: counter(|c| c.tx_bytes),
        tx_packets: counter(|c| c.tx_packets),
        tx_errors: counter(|c| c.tx_errors),
        duration: report.map(|report| (report.age.as_secs() as u32, report.age.subsec_nanos())),
    }
}
