//! Port counters (OpenFlow 1.0 section 5.3.5, 1.3 and 1.4 section 7.3.5.6), with the counters that Open vSwitch adds as
//! experimenter properties.

use super::{ETHERNET, put_duration, put_port, read_duration, read_port};
use crate::OfpError;
use crate::Version::{self, V10, V13, V14};
use crate::nxm::Unknown;
use crate::property;
use crate::wire::{Reader, Result, Writer};
use base::PortNo;

/// Bytes of an entry from OpenFlow 1.4 on, without properties.
const LEN14: usize = 80;
/// The experimenter id of Intel, which defined these properties.
const INTEL: u32 = 0xaa01;
const RFC2819: u32 = 1;
const CUSTOM: u32 = 2;
/// Largest name of a counter in bytes.
const NAME_LEN_MAX: usize = 63;
const N_RFC2819: usize = 21;

/// Counters of RFC 2819, in the order of the wire. `u64::MAX` means unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Rfc2819([u64; N_RFC2819]);

impl Rfc2819 {
    const NAMES: [&'static str; 7] = [
        "1_to_64_packets",
        "65_to_127_packets",
        "128_to_255_packets",
        "256_to_511_packets",
        "512_to_1023_packets",
        "1024_to_1522_packets",
        "1523_to_max_packets",
    ];

    fn named<const N: usize>(&self, rest: [(usize, &'static str); N], first: usize) -> Vec<(&'static str, u64)> {
        let sizes = Self::NAMES.into_iter().enumerate().map(|(i, name)| (first + i, name));
        sizes.chain(rest).map(|(i, name)| (name, self.0[i])).collect()
    }

    /// Names and counts of received packets.
    pub fn rx(&self) -> Vec<(&'static str, u64)> {
        let rest = [
            (15, "broadcast_packets"),
            (17, "undersized_errors"),
            (18, "oversize_errors"),
            (19, "rx_fragmented_errors"),
            (20, "rx_jabber_errors"),
        ];
        self.named(rest, 0)
    }

    /// Names and counts of sent packets.
    pub fn tx(&self) -> Vec<(&'static str, u64)> {
        self.named([(14, "multicast_packets"), (16, "broadcast_packets")], 7)
    }
}

/// A port's counters. `u64::MAX` means unknown.
#[derive(Clone, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "named as the specification names them")]
pub struct PortStats {
    pub port_no: PortNo,
    pub rx_packets: u64,
    pub tx_packets: u64,
    pub rx_bytes: u64,
    pub tx_bytes: u64,
    pub rx_dropped: u64,
    pub tx_dropped: u64,
    pub rx_errors: u64,
    pub tx_errors: u64,
    pub rx_frame_err: u64,
    pub rx_over_err: u64,
    pub rx_crc_err: u64,
    pub collisions: u64,
    /// How long the port has existed, in seconds and nanoseconds; `None` if unknown (OpenFlow 1.0).
    pub duration: Option<(u32, u32)>,
    /// Packets by size and error (OpenFlow 1.4, in Open vSwitch's form).
    pub rfc2819: Option<Box<Rfc2819>>,
    /// Counters specific to the type of port, with their names of at most 63 bytes (likewise).
    pub custom: Vec<(String, u64)>,
}

impl PortStats {
    /// Returns the counters of a port with all of them unknown.
    pub fn unknown(port_no: PortNo) -> Self {
        let no = u64::MAX;
        Self {
            port_no,
            rx_packets: no,
            tx_packets: no,
            rx_bytes: no,
            tx_bytes: no,
            rx_dropped: no,
            tx_dropped: no,
            rx_errors: no,
            tx_errors: no,
            rx_frame_err: no,
            rx_over_err: no,
            rx_crc_err: no,
            collisions: no,
            duration: None,
            rfc2819: None,
            custom: Vec::new(),
        }
    }

    /// The counters that every type of port has, in the order of the wire.
    fn common(&mut self) -> [&mut u64; 8] {
        [
            &mut self.rx_packets,
            &mut self.tx_packets,
            &mut self.rx_bytes,
            &mut self.tx_bytes,
            &mut self.rx_dropped,
            &mut self.tx_dropped,
            &mut self.rx_errors,
            &mut self.tx_errors,
        ]
    }

    /// The counters of Ethernet.
    fn ethernet(&mut self) -> [&mut u64; 4] {
        [&mut self.rx_frame_err, &mut self.rx_over_err, &mut self.rx_crc_err, &mut self.collisions]
    }

    pub(crate) fn decode(version: Version, r: &mut Reader<'_>) -> Result<Self> {
        if version >= V14 {
            return Self::decode14(r);
        }
        let mut stats = Self::unknown(read_port(version, r)?);
        r.skip(if version == V10 { 6 } else { 4 })?;
        read_all(stats.common(), r)?;
        read_all(stats.ethernet(), r)?;
        stats.duration = if version < V13 { None } else { read_duration(r)? };
        Ok(stats)
    }

    /// From OpenFlow 1.4 on, properties hold the counters that some types of ports lack (section 7.3.5.6).
    fn decode14(r: &mut Reader<'_>) -> Result<Self> {
        let len = usize::from(r.u16()?);
        let mut r = r.sub(len.checked_sub(2).filter(|_| len >= LEN14).ok_or(OfpError::BrcBadLen)?)?;
        r.skip(2)?;
        let mut stats = Self::unknown(r.port11()?);
        stats.duration = read_duration(&mut r)?;
        read_all(stats.common(), &mut r)?;
        let mut n_custom = 0;
        property::each(&mut r, |p| match (p.ty, p.experimenter) {
            (ETHERNET, _) => p.read(|r| {
                r.skip(4)?;
                read_all(stats.ethernet(), r)?;
                r.finish()
            }),
            (_, Some((INTEL, RFC2819))) => p.read(|r| {
                r.skip(4)?;
                let mut counters = Box::new(Rfc2819([0; N_RFC2819]));
                read_all(&mut counters.0, r)?;
                stats.rfc2819 = Some(counters);
                r.finish()
            }),
            (_, Some((INTEL, CUSTOM))) => p.read(|r| {
                n_custom += 1;
                // As in Open vSwitch, a second list is not read, and the first one is lost.
                stats.custom = if n_custom == 1 { read_custom(r)? } else { Vec::new() };
                Ok(())
            }),
            _ => p.unknown(Unknown::Skip),
        })?;
        Ok(stats)
    }

    pub(crate) fn encode(&self, version: Version, out: &mut Writer) {
        let mut counters = self.clone();
        if version >= V14 {
            return counters.encode14(out);
        }
        put_port(out, version, self.port_no);
        out.zeros(if version == V10 { 6 } else { 4 });
        put_all(counters.common(), out);
        put_all(counters.ethernet(), out);
        if version >= V13 {
            put_duration(out, self.duration);
        }
    }

    fn encode14(&mut self, out: &mut Writer) {
        let start = out.len();
        out.zeros(4);
        out.put_u32(self.port_no.0);
        put_duration(out, self.duration);
        put_all(self.common(), out);
        property::put(out, ETHERNET, |out| {
            out.zeros(4);
            put_all(self.ethernet(), out);
        });
        if let Some(counters) = &mut self.rfc2819 {
            property::put_experimenter(out, INTEL, RFC2819, |out| {
                out.zeros(4);
                put_all(&mut counters.0, out);
            });
        }
        if !self.custom.is_empty() {
            property::put_experimenter(out, INTEL, CUSTOM, |out| put_custom(out, &self.custom));
        }
        out.set_len16(start, start);
    }
}

fn read_all<'a>(counters: impl IntoIterator<Item = &'a mut u64>, r: &mut Reader<'_>) -> Result<()> {
    counters.into_iter().try_for_each(|n| {
        *n = r.u64()?;
        Ok(())
    })
}

fn put_all<'a>(counters: impl IntoIterator<Item = &'a mut u64>, out: &mut Writer) {
    counters.into_iter().for_each(|n| out.put_u64(*n));
}

fn read_custom(r: &mut Reader<'_>) -> Result<Vec<(String, u64)>> {
    r.skip(2)?;
    let n = r.u16()?;
    let mut counters = Vec::new();
    for _ in 0..n {
        let len = usize::from(r.u8()?);
        let mut name = r.string(len)?;
        name.truncate(name.floor_char_boundary(NAME_LEN_MAX));
        counters.push((name, r.u64()?));
    }
    Ok(counters)
}

fn put_custom(out: &mut Writer, counters: &[(String, u64)]) {
    out.zeros(2);
    out.put_len16(counters.len());
    for (name, n) in counters {
        let name = &name[..name.floor_char_boundary(NAME_LEN_MAX)];
        out.put_len8(name.len());
        out.put(name.as_bytes());
        out.put_u64(*n);
    }
}
