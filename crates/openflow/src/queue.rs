//! Queues: statistics and configuration (OpenFlow 1.0 section 5.2.2, 1.3 sections 7.2.2, 7.3.5.8, 7.3.6).

use crate::Version::{self, V10, V13, V14};
use crate::error::OfpError;
use crate::multipart::list;
use crate::nxm::Unknown;
use crate::port::{put_duration, put_port, read_duration, read_port};
use crate::property;
use crate::wire::{Reader, Result, Writer};
use base::PortNo;

/// All queues, in requests.
pub const QUEUE_ALL: u32 = 0xffff_ffff;

/// A queue statistics request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QueueStatsRequest {
    /// The port; [`PortNo::ANY`] for all. (OpenFlow 1.0 writes ALL.)
    pub port_no: PortNo,
    /// The queue; [`QUEUE_ALL`] for all.
    pub queue_id: u32,
}

impl QueueStatsRequest {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        let port_no = read_port(version, r)?;
        r.skip(if version == V10 { 2 } else { 0 })?;
        let port_no = if version == V10 && port_no == PortNo::ALL { PortNo::ANY } else { port_no };
        Ok(Self { port_no, queue_id: r.u32()? })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let port = if version == V10 && self.port_no == PortNo::ANY { PortNo::ALL } else { self.port_no };
        put_port(out, version, port);
        out.zeros(if version == V10 { 2 } else { 0 });
        out.put_u32(self.queue_id);
    }
}

/// A queue's counters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueStats {
    /// The port.
    pub port_no: PortNo,
    /// The queue's number.
    pub queue_id: u32,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped.
    pub tx_errors: u64,
    /// How long the queue has existed, in seconds and nanoseconds, if known.
    pub duration: Option<(u32, u32)>,
}

impl QueueStats {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        if version >= V14 {
            return Self::decode14(r);
        }
        let port_no = read_port(version, r)?;
        r.skip(if version == V10 { 2 } else { 0 })?;
        let queue_id = r.u32()?;
        let [tx_bytes, tx_packets, tx_errors] = [r.u64()?, r.u64()?, r.u64()?];
        let duration = if version < V13 { None } else { read_duration(r)? };
        Ok(Self { port_no, queue_id, tx_bytes, tx_packets, tx_errors, duration })
    }

    /// Reads an entry from OpenFlow 1.4 on, which has a length, and properties of which none are known (section 7.3.5.8), so
    /// that it does not look at them.
    fn decode14(r: &mut Reader<'_>) -> Result<Self> {
        let len = usize::from(r.u16()?);
        let mut r = r.sub(len.checked_sub(2).filter(|_| len >= STATS_LEN14).ok_or(OfpError::BrcBadLen)?)?;
        r.skip(6)?;
        Self::decode(V13, &mut r)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let start = out.len();
        out.zeros(if version >= V14 { 8 } else { 0 });
        put_port(out, version, self.port_no);
        out.zeros(if version == V10 { 2 } else { 0 });
        out.put_u32(self.queue_id);
        for n in [self.tx_bytes, self.tx_packets, self.tx_errors] {
            out.put_u64(n);
        }
        if version >= V13 {
            put_duration(out, self.duration);
        }
        if version >= V14 {
            out.set_len16(start, start);
        }
    }
}

/// Bytes of a queue's counters without properties, from OpenFlow 1.4 on.
const STATS_LEN14: usize = 48;

/// A queue's configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueConfig {
    /// The port.
    pub port_no: PortNo,
    /// The queue's number.
    pub queue_id: u32,
    /// Guaranteed rate in tenths of a percent.
    pub min_rate: Option<u16>,
    /// Largest rate in tenths of a percent.
    pub max_rate: Option<u16>,
}

impl QueueConfig {
    /// The rates with their property types.
    fn rates(&self) -> impl Iterator<Item = (u16, u16)> {
        [(MIN_RATE, self.min_rate), (MAX_RATE, self.max_rate)].into_iter().filter_map(|(ty, rate)| Some((ty, rate?)))
    }

    fn set_rate(&mut self, ty: u16, rate: u16) {
        if ty == MIN_RATE {
            self.min_rate = Some(rate);
        } else {
            self.max_rate = Some(rate);
        }
    }

    /// Reads a queue description of OpenFlow 1.4 (section 7.3.5.15).
    pub(crate) fn decode_desc(r: &mut Reader<'_>) -> Result<Self> {
        // A truncated head counts before an unknown port in it.
        r.clone().skip(16)?;
        let (port_no, queue_id) = (r.port11()?, r.u32()?);
        let len = usize::from(r.u16()?);
        let mut props = r.sub(len.checked_sub(10).filter(|_| len.is_multiple_of(8)).ok_or(OfpError::BrcBadLen)?)?;
        props.skip(6)?;
        let mut q = Self { port_no, queue_id, min_rate: None, max_rate: None };
        property::each(&mut props, |p| match p.ty {
            ty @ (MIN_RATE | MAX_RATE) => p.u16().map(|rate| q.set_rate(ty, rate)),
            _ => p.unknown(Unknown::Skip),
        })?;
        Ok(q)
    }

    pub(crate) fn encode_desc(&self, out: &mut Writer) {
        let start = out.len();
        out.put_u32(self.port_no.0);
        out.put_u32(self.queue_id);
        out.zeros(8);
        self.rates().for_each(|(ty, rate)| property::put_u16(out, ty, rate));
        out.set_len16(start + 8, start);
    }
}

/// All queues of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueGetConfigReply {
    /// The port of the request.
    pub port_no: PortNo,
    /// Its queues.
    pub queues: Vec<QueueConfig>,
}

const MIN_RATE: u16 = 1;
const MAX_RATE: u16 = 2;

impl QueueGetConfigReply {
    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        // A reply without queues does not state its port.
        let port_no = read_port(version, &mut r.clone());
        let port_no = if r.len() == 8 { port_no.unwrap_or(PortNo::ANY) } else { port_no? };
        r.skip(8)?;
        Ok(Self { port_no, queues: list(r, |r| decode_queue(version, port_no, r))? })
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        put_port(out, version, self.port_no);
        out.zeros(if version == V10 { 6 } else { 4 });
        for q in &self.queues {
            let start = out.len();
            out.put_u32(q.queue_id);
            let head = if version < Version::V12 { 8 } else { 16 };
            if head == 16 {
                out.put_u32(q.port_no.0);
            }
            out.put_len16(head + 16 * q.rates().count());
            out.zeros(head - (out.len() - start));
            for (ty, rate) in q.rates() {
                out.put_u16(ty);
                out.put_u16(16);
                out.zeros(4);
                out.put_u16(rate);
                out.zeros(6);
            }
        }
    }
}

fn decode_queue(version: Version, port_no: PortNo, r: &mut Reader<'_>) -> Result<QueueConfig> {
    let queue_id = r.u32()?;
    // Later versions repeat the port, which is ignored.
    let (port_no, head) =
        if version < Version::V12 { (port_no, 8) } else { (PortNo::from_of11(r.u32()?).unwrap_or(port_no), 16) };
    let len = usize::from(r.u16()?);
    r.skip(if head == 8 { 2 } else { 6 })?;
    let mut q = QueueConfig { port_no, queue_id, min_rate: None, max_rate: None };
    let mut props = r.sub(len.checked_sub(head).ok_or(OfpError::BrcBadLen)?)?;
    while !props.is_empty() {
        let (ty, len) = (props.u16()?, usize::from(props.u16()?));
        let mut p = props.sub(len.checked_sub(4).ok_or(OfpError::BrcBadLen)?)?;
        if ty == MIN_RATE || ty == MAX_RATE {
            p.skip(4)?;
            q.set_rate(ty, p.u16()?);
        }
    }
    Ok(q)
}
