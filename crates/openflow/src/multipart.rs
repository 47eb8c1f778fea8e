//! Statistics, called multipart from OpenFlow 1.3 on: requests, replies, writing of replies in parts below 64 KB, and their
//! reassembly (OpenFlow 1.0 section 5.3.5, 1.3 section 7.3.5).

use crate::Version::{self, V10};
use crate::bundle_features::{BundleFeatures, BundleFeaturesRequest};
use crate::controller_status::ControllerStatus;
use crate::error::OfpError;
use crate::flow_msg::{FlowStats, FlowStatsRequest};
use crate::group::{GROUP_ALL, GroupDesc, GroupFeatures, GroupStats};
use crate::ipfix::IpfixStats;
use crate::meter::{METER_ALL, MeterConfig, MeterFeatures, MeterStats};
use crate::monitor::{FlowMonitorRequest, FlowUpdate};
use crate::nxm::Unknown;
use crate::oxs::{Counts, known};
use crate::port::{PortDesc, PortStats, put_port, read_port};
use crate::queue::{QueueConfig, QueueStats, QueueStatsRequest};
use crate::table::{TableDesc, TableFeatures, TableStats};
use crate::types::{self, MessageKind};
use crate::wire::{OptionLengths, Reader, Result, Writer};
use base::PortNo;

/// A statistics request. Nicira's forms begin with `Nx`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatsRequest {
    /// The switch's description.
    Desc,
    /// Flows.
    Flow(FlowStatsRequest),
    /// Sums over flows.
    Aggregate(FlowStatsRequest),
    /// Tables.
    Table,
    /// A port's counters; [`PortNo::ANY`] for all.
    Port(PortNo),
    /// Queues.
    Queue(QueueStatsRequest),
    /// A group's counters; [`GROUP_ALL`] for all.
    Group(u32),
    /// A group's description; [`GROUP_ALL`] for all, as always in OpenFlow 1.1 to 1.4.
    GroupDesc(u32),
    /// Group features.
    GroupFeatures,
    /// A meter's counters; [`METER_ALL`] for all.
    Meter(u32),
    /// A meter's configuration; [`METER_ALL`] for all.
    MeterConfig(u32),
    /// Meter features.
    MeterFeatures,
    /// Table features; a request with a body asks to change them.
    TableFeatures(Vec<TableFeatures>),
    /// A port's description; [`PortNo::ANY`] for all, as always in OpenFlow 1.0 to 1.4.
    PortDesc(PortNo),
    /// Descriptions of queues (OpenFlow 1.4).
    QueueDesc(QueueStatsRequest),
    /// Descriptions of tables (OpenFlow 1.4).
    TableDesc,
    /// NXST_FLOW.
    NxFlow(FlowStatsRequest),
    /// NXST_AGGREGATE.
    NxAggregate(FlowStatsRequest),
    /// Counters of flows without descriptions (OpenFlow 1.5, where [`Self::Flow`] asks for the descriptions).
    FlowCounts(FlowStatsRequest),
    /// Flow monitors to create.
    FlowMonitor(Vec<FlowMonitorRequest>),
    /// NXST_IPFIX_BRIDGE.
    IpfixBridge,
    /// NXST_IPFIX_FLOW.
    IpfixFlow,
    /// Controller status (OpenFlow 1.5).
    ControllerStatus,
    /// Bundle features (OpenFlow 1.5).
    BundleFeatures(BundleFeaturesRequest),
}

/// Reads a list to its end. On an error, `r` is left in front of the malformed entry.
pub(crate) fn list<'a, T>(r: &mut Reader<'a>, mut one: impl FnMut(&mut Reader<'a>) -> Result<T>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while !r.is_empty() {
        let mut rest = r.clone();
        all.push(one(&mut rest)?);
        *r = rest;
    }
    Ok(all)
}

impl StatsRequest {
    /// Returns the kind of message.
    pub fn kind(&self) -> MessageKind {
        match self {
            Self::Desc => MessageKind::DescRequest,
            Self::Flow(_) => MessageKind::FlowRequest,
            Self::Aggregate(_) => MessageKind::AggregateRequest,
            Self::Table => MessageKind::TableRequest,
            Self::Port(_) => MessageKind::PortRequest,
            Self::Queue(_) => MessageKind::QueueRequest,
            Self::Group(_) => MessageKind::GroupRequest,
            Self::GroupDesc(_) => MessageKind::GroupDescRequest,
            Self::GroupFeatures => MessageKind::GroupFeaturesRequest,
            Self::Meter(_) => MessageKind::MeterRequest,
            Self::MeterConfig(_) => MessageKind::MeterConfigRequest,
            Self::MeterFeatures => MessageKind::MeterFeaturesRequest,
            Self::TableFeatures(_) => MessageKind::TableFeaturesRequest,
            Self::PortDesc(_) => MessageKind::PortDescRequest,
            Self::QueueDesc(_) => MessageKind::QueueDescRequest,
            Self::TableDesc => MessageKind::TableDescRequest,
            Self::NxFlow(_) => MessageKind::NxFlowRequest,
            Self::NxAggregate(_) => MessageKind::NxAggregateRequest,
            Self::IpfixBridge => MessageKind::NxIpfixBridgeRequest,
            Self::IpfixFlow => MessageKind::NxIpfixFlowRequest,
            Self::FlowMonitor(_) => MessageKind::FlowMonitorRequest,
            Self::FlowCounts(_) => MessageKind::FlowCountsRequest,
            Self::ControllerStatus => MessageKind::ControllerStatusRequest,
            Self::BundleFeatures(_) => MessageKind::BundleFeaturesRequest,
        }
    }

    /// `unknown`: the treatment of unknown properties.
    pub(crate) fn decode(
        kind: MessageKind,
        version: Version,
        unknown: Unknown,
        r: &mut Reader<'_>,
    ) -> Option<Result<Self>> {
        let fixed = |r: &Reader<'_>, v: Self| r.finish().map(|()| v);
        let id = |r: &mut Reader<'_>| -> Result<u32> {
            let id = r.u32()?;
            r.skip(4)?;
            r.finish()?;
            Ok(id)
        };
        Some(match kind {
            MessageKind::DescRequest => fixed(r, Self::Desc),
            MessageKind::FlowRequest => FlowStatsRequest::decode(version, r).map(Self::Flow),
            MessageKind::FlowCountsRequest => FlowStatsRequest::decode(version, r).map(Self::FlowCounts),
            MessageKind::AggregateRequest => FlowStatsRequest::decode(version, r).map(Self::Aggregate),
            MessageKind::TableRequest => fixed(r, Self::Table),
            MessageKind::PortRequest => decode_port_request(version, r).map(Self::Port),
            MessageKind::QueueRequest => QueueStatsRequest::decode(version, r).map(Self::Queue),
            MessageKind::GroupRequest => id(r).map(Self::Group),
            MessageKind::GroupDescRequest if names_groups(version) => id(r).map(Self::GroupDesc),
            MessageKind::GroupDescRequest => fixed(r, Self::GroupDesc(GROUP_ALL)),
            MessageKind::GroupFeaturesRequest => fixed(r, Self::GroupFeatures),
            MessageKind::MeterRequest => id(r).map(Self::Meter),
            MessageKind::MeterConfigRequest => id(r).map(Self::MeterConfig),
            MessageKind::MeterFeaturesRequest => fixed(r, Self::MeterFeatures),
            MessageKind::TableFeaturesRequest => {
                list(r, |r| TableFeatures::decode(version, unknown, r)).map(Self::TableFeatures)
            }
            MessageKind::PortDescRequest if version >= Version::V15 => {
                decode_port_request(version, r).map(Self::PortDesc)
            }
            MessageKind::PortDescRequest => fixed(r, Self::PortDesc(PortNo::ANY)),
            MessageKind::QueueDescRequest => QueueStatsRequest::decode(version, r).map(Self::QueueDesc),
            MessageKind::TableDescRequest => fixed(r, Self::TableDesc),
            MessageKind::NxIpfixBridgeRequest => fixed(r, Self::IpfixBridge),
            MessageKind::NxIpfixFlowRequest => fixed(r, Self::IpfixFlow),
            MessageKind::ControllerStatusRequest => fixed(r, Self::ControllerStatus),
            MessageKind::BundleFeaturesRequest => BundleFeaturesRequest::decode(r).map(Self::BundleFeatures),
            MessageKind::NxFlowRequest => FlowStatsRequest::decode_nx(r).map(Self::NxFlow),
            MessageKind::NxAggregateRequest => FlowStatsRequest::decode_nx(r).map(Self::NxAggregate),
            MessageKind::FlowMonitorRequest => {
                list(r, |r| FlowMonitorRequest::decode(version, r)).map(Self::FlowMonitor)
            }
            _ => return None,
        })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        match self {
            Self::Flow(q) | Self::Aggregate(q) | Self::FlowCounts(q) => q.encode(version, out),
            Self::PortDesc(_) if version < Version::V15 => {}
            Self::Port(port) | Self::PortDesc(port) => {
                put_port(out, version, *port);
                out.zeros(if version == V10 { 6 } else { 4 });
            }
            Self::Queue(q) | Self::QueueDesc(q) => q.encode(version, out),
            Self::GroupDesc(_) if !names_groups(version) => {}
            Self::Group(id) | Self::GroupDesc(id) | Self::Meter(id) | Self::MeterConfig(id) => {
                out.put_u32(*id);
                out.zeros(4);
            }
            Self::TableFeatures(tables) => tables.iter().for_each(|t| t.encode(version, out)),
            Self::NxFlow(q) | Self::NxAggregate(q) => q.encode_nx(out),
            Self::FlowMonitor(monitors) => monitors.iter().for_each(|m| m.encode(version, out)),
            Self::BundleFeatures(request) => request.encode(out),
            Self::Desc
            | Self::Table
            | Self::GroupFeatures
            | Self::MeterFeatures
            | Self::TableDesc
            | Self::IpfixBridge
            | Self::IpfixFlow
            | Self::ControllerStatus => {}
        }
    }

    /// Returns a request for the counters of all groups.
    pub fn all_groups() -> Self {
        Self::Group(GROUP_ALL)
    }

    /// Returns a request for the counters of all meters.
    pub fn all_meters() -> Self {
        Self::Meter(METER_ALL)
    }
}

/// Returns true if a request for group descriptions names a group.
fn names_groups(version: Version) -> bool {
    version == V10 || version >= Version::V15
}

fn decode_port_request(version: Version, r: &mut Reader<'_>) -> Result<PortNo> {
    let port = read_port(version, r)?;
    r.skip(if version == V10 { 6 } else { 4 })?;
    r.finish()?;
    Ok(port)
}

/// The switch's description; strings of at most 255 bytes (the serial number: 31).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct SwitchDesc {
    pub manufacturer: String,
    pub hardware: String,
    pub software: String,
    pub serial_number: String,
    pub datapath: String,
}

/// Sums over flows. An unknown count is `u64::MAX`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct AggregateStats {
    pub packet_count: u64,
    pub byte_count: u64,
    pub flow_count: u32,
}

impl AggregateStats {
    fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        if version >= Version::V15 {
            let counts = Counts::decode(r)?;
            r.rest();
            return Ok(Self {
                packet_count: counts.packet_count.unwrap_or(u64::MAX),
                byte_count: counts.byte_count.unwrap_or(u64::MAX),
                flow_count: counts.flow_count.unwrap_or(u32::MAX),
            });
        }
        let (packet_count, byte_count, flow_count) = (r.u64()?, r.u64()?, r.u32()?);
        r.skip(4)?;
        r.finish()?;
        Ok(Self { packet_count, byte_count, flow_count })
    }

    fn encode(&self, version: Version, out: &mut Writer) {
        if version >= Version::V15 {
            let flow_count = (self.flow_count != u32::MAX).then_some(self.flow_count);
            let (packet_count, byte_count) = (known(self.packet_count), known(self.byte_count));
            return Counts { packet_count, byte_count, flow_count, ..Counts::default() }.encode(out);
        }
        out.put_u64(self.packet_count);
        out.put_u64(self.byte_count);
        out.put_u32(self.flow_count);
        out.zeros(4);
    }
}

/// A statistics reply: one message, or all parts of a reply reassembled.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum StatsReply {
    /// The switch's description.
    Desc(Box<SwitchDesc>),
    /// Flows.
    Flow(Vec<FlowStats>),
    /// Sums over flows.
    Aggregate(AggregateStats),
    /// Tables.
    Table(Vec<TableStats>),
    /// Port counters.
    Port(Vec<PortStats>),
    /// Queues.
    Queue(Vec<QueueStats>),
    /// Group counters.
    Group(Vec<GroupStats>),
    /// Group descriptions.
    GroupDesc(Vec<GroupDesc>),
    /// Group features.
    GroupFeatures(GroupFeatures),
    /// Meter counters.
    Meter(Vec<MeterStats>),
    /// Meter configurations.
    MeterConfig(Vec<MeterConfig>),
    /// Meter features.
    MeterFeatures(MeterFeatures),
    /// Table features.
    TableFeatures(Vec<TableFeatures>),
    /// Port descriptions.
    PortDesc(Vec<PortDesc>),
    /// Queue descriptions.
    QueueDesc(Vec<QueueConfig>),
    /// Table descriptions.
    TableDesc(Vec<TableDesc>),
    /// Counters of flows: each entry has table, priority, match and counts (OpenFlow 1.5).
    FlowCounts(Vec<FlowStats>),
    /// Updates of flow monitors.
    FlowMonitor(Vec<FlowUpdate>),
    /// Controller status.
    ControllerStatus(Vec<ControllerStatus>),
    /// Bundle features.
    BundleFeatures(BundleFeatures),
    /// NXST_FLOW.
    NxFlow(Vec<FlowStats>),
    /// NXST_AGGREGATE.
    NxAggregate(AggregateStats),
    /// The bridge's IPFIX exporter.
    IpfixBridge(Box<IpfixStats>),
    /// The IPFIX exporters that flows sample for.
    IpfixFlow(Vec<IpfixStats>),
}

impl StatsReply {
    /// Returns the kind of message.
    pub fn kind(&self) -> MessageKind {
        match self {
            Self::Desc(_) => MessageKind::DescReply,
            Self::Flow(_) => MessageKind::FlowReply,
            Self::Aggregate(_) => MessageKind::AggregateReply,
            Self::Table(_) => MessageKind::TableReply,
            Self::Port(_) => MessageKind::PortReply,
            Self::Queue(_) => MessageKind::QueueReply,
            Self::Group(_) => MessageKind::GroupReply,
            Self::GroupDesc(_) => MessageKind::GroupDescReply,
            Self::GroupFeatures(_) => MessageKind::GroupFeaturesReply,
            Self::Meter(_) => MessageKind::MeterReply,
            Self::MeterConfig(_) => MessageKind::MeterConfigReply,
            Self::MeterFeatures(_) => MessageKind::MeterFeaturesReply,
            Self::TableFeatures(_) => MessageKind::TableFeaturesReply,
            Self::PortDesc(_) => MessageKind::PortDescReply,
            Self::QueueDesc(_) => MessageKind::QueueDescReply,
            Self::FlowMonitor(_) => MessageKind::FlowMonitorReply,
            Self::FlowCounts(_) => MessageKind::FlowCountsReply,
            Self::ControllerStatus(_) => MessageKind::ControllerStatusReply,
            Self::BundleFeatures(_) => MessageKind::BundleFeaturesReply,
            Self::TableDesc(_) => MessageKind::TableDescReply,
            Self::NxFlow(_) => MessageKind::NxFlowReply,
            Self::NxAggregate(_) => MessageKind::NxAggregateReply,
            Self::IpfixBridge(_) => MessageKind::NxIpfixBridgeReply,
            Self::IpfixFlow(_) => MessageKind::NxIpfixFlowReply,
        }
    }

    pub(crate) fn decode(kind: MessageKind, version: Version, r: &mut Reader<'_>) -> Option<Result<Self>> {
        Some(match kind {
            MessageKind::DescReply => decode_desc(r).map(|d| Self::Desc(Box::new(d))),
            MessageKind::FlowReply => list(r, |r| FlowStats::decode(version, r)).map(Self::Flow),
            MessageKind::FlowCountsReply => list(r, FlowStats::decode_counts).map(Self::FlowCounts),
            MessageKind::AggregateReply => AggregateStats::decode(version, r).map(Self::Aggregate),
            MessageKind::TableReply => list(r, |r| TableStats::decode(version, r)).map(Self::Table),
            MessageKind::PortReply => list(r, |r| PortStats::decode(version, r)).map(Self::Port),
            MessageKind::QueueReply => list(r, |r| QueueStats::decode(version, r)).map(Self::Queue),
            MessageKind::GroupReply => list(r, |r| GroupStats::decode(version, r)).map(Self::Group),
            MessageKind::GroupDescReply => list(r, |r| GroupDesc::decode(version, r)).map(Self::GroupDesc),
            MessageKind::GroupFeaturesReply => GroupFeatures::decode(r).map(Self::GroupFeatures),
            MessageKind::MeterReply => list(r, MeterStats::decode).map(Self::Meter),
            MessageKind::MeterConfigReply => list(r, MeterConfig::decode).map(Self::MeterConfig),
            MessageKind::MeterFeaturesReply => MeterFeatures::decode(r).map(Self::MeterFeatures),
            MessageKind::TableFeaturesReply => {
                list(r, |r| TableFeatures::decode(version, Unknown::Skip, r)).map(Self::TableFeatures)
            }
            MessageKind::PortDescReply => list(r, |r| PortDesc::decode(version, r)).map(Self::PortDesc),
            MessageKind::FlowMonitorReply => list(r, |r| FlowUpdate::decode(version, r)).map(Self::FlowMonitor),
            MessageKind::QueueDescReply => list(r, QueueConfig::decode_desc).map(Self::QueueDesc),
            MessageKind::TableDescReply => list(r, TableDesc::decode).map(Self::TableDesc),
            MessageKind::NxIpfixBridgeReply => IpfixStats::decode(r).map(|s| Self::IpfixBridge(Box::new(s))),
            MessageKind::NxIpfixFlowReply => list(r, IpfixStats::decode).map(Self::IpfixFlow),
            MessageKind::ControllerStatusReply => list(r, ControllerStatus::decode).map(Self::ControllerStatus),
            MessageKind::BundleFeaturesReply => BundleFeatures::decode(r).map(Self::BundleFeatures),
            MessageKind::NxFlowReply => list(r, |r| FlowStats::decode_nx(r)).map(Self::NxFlow),
            MessageKind::NxAggregateReply => AggregateStats::decode(version, r).map(Self::NxAggregate),
            _ => return None,
        })
    }

    /// Encodes the reply as one message or several, each below 64 KB. Empty if `version` does not have it. (Leaves out entries
    /// that are too long for any message.)
    pub fn encode(&self, version: Version, xid: u32) -> Vec<Vec<u8>> {
        let Some(mut writer) = ReplyWriter::new(version, xid, self.kind()) else { return Vec::new() };
        let mut parts = self.write(&mut writer);
        parts.push(writer.finish());
        parts
    }

    /// Writes the entries of the reply. Returns the messages that are full.
    #[must_use = "messages that are full must be sent"]
    pub fn write(&self, writer: &mut ReplyWriter) -> Vec<Vec<u8>> {
        let mut parts = Vec::new();
        let mut all = |entries: &mut dyn Iterator<Item = Entry<'_>>| {
            entries.for_each(|e| parts.extend(writer.push(&e)));
        };
        match self {
            Self::Desc(d) => all(&mut std::iter::once(Entry::Desc(d))),
            Self::Flow(v) | Self::NxFlow(v) | Self::FlowCounts(v) => all(&mut v.iter().map(Entry::Flow)),
            Self::Aggregate(a) | Self::NxAggregate(a) => all(&mut std::iter::once(Entry::Aggregate(*a))),
            Self::Table(v) => all(&mut v.iter().map(Entry::Table)),
            Self::Port(v) => all(&mut v.iter().map(Entry::Port)),
            Self::Queue(v) => all(&mut v.iter().map(Entry::Queue)),
            Self::Group(v) => all(&mut v.iter().map(Entry::Group)),
            Self::GroupDesc(v) => all(&mut v.iter().map(Entry::GroupDesc)),
            Self::Meter(v) => all(&mut v.iter().map(Entry::Meter)),
            Self::MeterConfig(v) => all(&mut v.iter().map(Entry::MeterConfig)),
            Self::GroupFeatures(f) => all(&mut std::iter::once(Entry::GroupFeatures(f))),
            Self::MeterFeatures(f) => all(&mut std::iter::once(Entry::MeterFeatures(f))),
            Self::TableFeatures(v) => all(&mut v.iter().map(Entry::TableFeatures)),
            Self::PortDesc(v) => all(&mut v.iter().map(Entry::PortDesc)),
            Self::FlowMonitor(v) => all(&mut v.iter().map(Entry::FlowUpdate)),
            Self::QueueDesc(v) => all(&mut v.iter().map(Entry::QueueDesc)),
            Self::TableDesc(v) => all(&mut v.iter().map(Entry::TableDesc)),
            Self::IpfixBridge(s) => all(&mut std::iter::once(Entry::Ipfix(s))),
            Self::IpfixFlow(v) => all(&mut v.iter().map(Entry::Ipfix)),
            Self::ControllerStatus(v) => all(&mut v.iter().map(Entry::ControllerStatus)),
            Self::BundleFeatures(f) => all(&mut std::iter::once(Entry::BundleFeatures(f))),
        }
        parts
    }

    /// Appends the entries of a later part of the same reply.
    fn append(&mut self, part: Self) -> Result<()> {
        match (self, part) {
            (Self::Flow(a), Self::Flow(b))
            | (Self::NxFlow(a), Self::NxFlow(b))
            | (Self::FlowCounts(a), Self::FlowCounts(b)) => a.extend(b),
            (Self::Table(a), Self::Table(b)) => a.extend(b),
            (Self::Port(a), Self::Port(b)) => a.extend(b),
            (Self::Queue(a), Self::Queue(b)) => a.extend(b),
            (Self::Group(a), Self::Group(b)) => a.extend(b),
            (Self::GroupDesc(a), Self::GroupDesc(b)) => a.extend(b),
            (Self::Meter(a), Self::Meter(b)) => a.extend(b),
            (Self::MeterConfig(a), Self::MeterConfig(b)) => a.extend(b),
            (Self::TableFeatures(a), Self::TableFeatures(b)) => a.extend(b),
            (Self::PortDesc(a), Self::PortDesc(b)) => a.extend(b),
            (Self::FlowMonitor(a), Self::FlowMonitor(b)) => a.extend(b),
            (Self::QueueDesc(a), Self::QueueDesc(b)) => a.extend(b),
            (Self::TableDesc(a), Self::TableDesc(b)) => a.extend(b),
            (Self::IpfixFlow(a), Self::IpfixFlow(b)) => a.extend(b),
            (Self::ControllerStatus(a), Self::ControllerStatus(b)) => a.extend(b),
            _ => return Err(OfpError::BrcBadStat),
        }
        Ok(())
    }
}

fn decode_desc(r: &mut Reader<'_>) -> Result<SwitchDesc> {
    let d = SwitchDesc {
        manufacturer: r.string(256)?,
        hardware: r.string(256)?,
        software: r.string(256)?,
        serial_number: r.string(32)?,
        datapath: r.string(256)?,
    };
    r.finish()?;
    Ok(d)
}

/// One entry of a reply.
#[derive(Clone, Copy, Debug)]
#[allow(missing_docs, reason = "named as the answers")]
pub enum Entry<'a> {
    Desc(&'a SwitchDesc),
    Flow(&'a FlowStats),
    Aggregate(AggregateStats),
    Table(&'a TableStats),
    Port(&'a PortStats),
    Queue(&'a QueueStats),
    Group(&'a GroupStats),
    GroupDesc(&'a GroupDesc),
    GroupFeatures(&'a GroupFeatures),
    Meter(&'a MeterStats),
    MeterConfig(&'a MeterConfig),
    MeterFeatures(&'a MeterFeatures),
    TableFeatures(&'a TableFeatures),
    PortDesc(&'a PortDesc),
    QueueDesc(&'a QueueConfig),
    FlowUpdate(&'a FlowUpdate),
    TableDesc(&'a TableDesc),
    Ipfix(&'a IpfixStats),
    ControllerStatus(&'a ControllerStatus),
    BundleFeatures(&'a BundleFeatures),
}

/// Writes a reply entry by entry, and returns each full message: memory stays at one message.
#[derive(Debug)]
pub struct ReplyWriter {
    version: Version,
    xid: u32,
    kind: MessageKind,
    head_len: usize,
    out: Writer,
    written: usize,
    left_out: usize,
}

impl ReplyWriter {
    /// Begins a reply of this kind (`MessageKind::FlowReply`...). `None` if the version does not have it.
    pub fn new(version: Version, xid: u32, kind: MessageKind) -> Option<Self> {
        let out = types::begin(version, xid, kind, false)?;
        Some(Self { version, xid, kind, head_len: out.len(), out, written: 0, left_out: 0 })
    }

    /// Sets the lengths to which the switch maps tunnel options.
    #[must_use]
    pub fn with_option_lengths(mut self, lengths: OptionLengths) -> Self {
        self.out.set_option_lengths(lengths);
        self
    }

    /// Adds an entry. Returns a finished message if the entry did not fit into it. (Leaves out an entry that is too long for any
    /// message.)
    #[must_use = "the message that is full must be sent"]
    pub fn push(&mut self, entry: &Entry<'_>) -> Option<Vec<u8>> {
        let start = self.out.len();
        self.put(entry);
        let len = self.out.len() - start;
        if self.out.has_overflowed() || self.head_len + len > usize::from(u16::MAX) {
            self.out.rewind(start);
            self.left_out += 1;
            return None;
        }
        self.written += 1;
        if u16::try_from(self.out.len()).is_ok() {
            return None;
        }
        let mut next = types::begin(self.version, self.xid, self.kind, false)?;
        next.set_option_lengths(self.out.option_lengths());
        next.put(&self.out[start..]);
        self.out.rewind(start);
        let mut full = std::mem::replace(&mut self.out, next);
        types::set_more(&mut full);
        types::finish(full).ok()
    }

    /// The version that the reply is written in.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The kind of the reply.
    pub fn kind(&self) -> MessageKind {
        self.kind
    }

    /// The number of entries written so far.
    pub fn written(&self) -> usize {
        self.written
    }

    /// The number of entries left out so far, as they are too long for any message.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// Ends the reply: returns its last message.
    pub fn finish(self) -> Vec<u8> {
        types::finish(self.out).unwrap_or_default()
    }

    fn put(&mut self, entry: &Entry<'_>) {
        let (version, out) = (self.version, &mut self.out);
        match entry {
            Entry::Desc(d) => {
                for s in [&d.manufacturer, &d.hardware, &d.software] {
                    out.put_str(s, 256);
                }
                out.put_str(&d.serial_number, 32);
                out.put_str(&d.datapath, 256);
            }
            Entry::Flow(f) if self.kind == MessageKind::NxFlowReply => f.encode_nx(out),
            Entry::Flow(f) if self.kind == MessageKind::FlowCountsReply => f.encode_counts(out),
            Entry::Flow(f) => f.encode(version, out),
            Entry::Aggregate(a) => a.encode(version, out),
            Entry::Table(t) => t.encode(version, out),
            Entry::Port(p) => p.encode(version, out),
            Entry::Queue(q) => q.encode(version, out),
            Entry::Group(g) => g.encode(version, out),
            Entry::GroupDesc(g) => g.encode(version, out),
            Entry::GroupFeatures(f) => f.encode(out),
            Entry::Meter(m) => m.encode(out),
            Entry::MeterConfig(m) => m.encode(out),
            Entry::MeterFeatures(f) => f.encode(out),
            Entry::TableFeatures(t) => t.encode(version, out),
            Entry::PortDesc(p) => p.encode(version, out),
            Entry::FlowUpdate(u) => u.encode(version, out),
            Entry::QueueDesc(q) => q.encode_desc(out),
            Entry::TableDesc(t) => t.encode(out),
            Entry::Ipfix(s) => s.encode(out),
            Entry::ControllerStatus(c) => c.encode(out),
            Entry::BundleFeatures(f) => f.encode(out),
        }
    }
}

/// Reassembles the parts of a reply, on the requester's side.
#[derive(Debug)]
pub struct Reassembly {
    parts: Option<StatsReply>,
    bytes: usize,
    bytes_max: usize,
}

impl Reassembly {
    /// Accepts at most `bytes_max` bytes of messages.
    pub fn new(bytes_max: usize) -> Self {
        Self { parts: None, bytes: 0, bytes_max }
    }

    /// Adds a part of `len` bytes; returns the whole reply after the last one.
    ///
    /// Errors: `OFPBRC_BAD_STAT` for a part of another kind, `OFPBRC_MULTIPART_BUFFER_OVERFLOW` beyond `bytes_max`.
    pub fn push(&mut self, part: StatsReply, more: bool, len: usize) -> Result<Option<StatsReply>> {
        self.bytes = self.bytes.saturating_add(len);
        if self.bytes > self.bytes_max {
            return Err(OfpError::BrcMultipartBufferOverflow);
        }
        let whole = match self.parts.take() {
            None => part,
            Some(mut whole) => {
                whole.append(part)?;
                whole
            }
        };
        if more {
            self.parts = Some(whole);
            return Ok(None);
        }
        self.bytes = 0;
        Ok(Some(whole))
    }
}

/// Returns true if `version` has statistics of this kind, so that a client can report an error before it asks.
pub fn has(version: Version, kind: MessageKind) -> bool {
    types::begin(version, 0, kind, false).is_some()
}
