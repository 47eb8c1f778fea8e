//! Bytes of messages from random choices: numbers that are likely to matter, headers, properties, ports.

use base::rng::Rng;
use openflow::Version;
use openflow::types::WireNumber;

pub(crate) const NICIRA: u32 = 0x2320;
/// The experimenter that defined the port counters which Open vSwitch adds.
pub(crate) const INTEL: u32 = 0xaa01;
pub(crate) const ONF: u32 = 0x4f4e_4600;

/// A generator of random choices.
pub(crate) struct Gen {
    rng: Rng,
}

impl Gen {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: Rng::seeded(seed) }
    }

    /// A number below `n`.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.rng.below(n)
    }

    /// True once in `n` times.
    pub(crate) fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub(crate) fn of<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.below(list.len() as u64) as usize].clone()
    }

    fn bits(&mut self, width: u32) -> u64 {
        let all = u64::MAX >> (64 - width);
        match self.below(8) {
            0 => 0,
            1 => all,
            2 => all - 1,
            3 => 1 << self.below(width.into()),
            4 => self.rng.next_u64() & all,
            _ => self.below(300) & all,
        }
    }

    pub(crate) fn u8(&mut self) -> u8 {
        self.bits(8) as u8
    }

    pub(crate) fn u16(&mut self) -> u16 {
        self.bits(16) as u16
    }

    pub(crate) fn u32(&mut self) -> u32 {
        self.bits(32) as u32
    }

    pub(crate) fn u64(&mut self) -> u64 {
        self.bits(64)
    }

    pub(crate) fn some(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.rng.next_u64() as u8).collect()
    }

    /// Padding: zeros, except for a few bytes.
    pub(crate) fn pad(&mut self, n: usize) -> Vec<u8> {
        if self.once_in(40) { self.some(n) } else { vec![0; n] }
    }

    /// Flags, most often some of `known`.
    pub(crate) fn flags(&mut self, known: u64) -> u64 {
        match self.below(12) {
            0 => self.u64(),
            1 => known,
            2 => 0,
            _ => self.rng.next_u64() & known,
        }
    }

    /// Most often a number up to `last`.
    pub(crate) fn choice(&mut self, last: u64) -> u64 {
        if self.once_in(15) { self.u64() } else { self.below(last + 1) }
    }

    pub(crate) fn mac(&mut self) -> Vec<u8> {
        match self.below(4) {
            0 => vec![0; 6],
            1 => vec![0xff; 6],
            _ => self.some(6),
        }
    }

    /// A port, as wide as it is in `version`.
    pub(crate) fn port(&mut self, version: Version) -> Vec<u8> {
        let wide = version > Version::V10;
        let n = match self.below(12) {
            0..=6 => 1 + self.below(4) as u32,
            7 => 0xfeff,
            8 | 9 => {
                let reserved = 0xffff_fff8 + self.below(8) as u32;
                if wide { reserved } else { reserved & 0xffff }
            }
            10 if wide => self.of(&[0xff00, 0xffff, 0x10000, 0xffff_ff00, 0xffff_fff7, 0]),
            10 => self.of(&[0xff00, 0xfff7, 0, 0xfff6]),
            _ => self.u32(),
        };
        if wide { n.to_be_bytes().to_vec() } else { (n as u16).to_be_bytes().to_vec() }
    }

    /// A name in `n` bytes, ended by a zero most of the time.
    pub(crate) fn name(&mut self, n: usize) -> Vec<u8> {
        let name: &[u8] = self.of(&[
            &b"eth0"[..],
            b"br-int",
            b"p 1",
            b"",
            b"a\"b\\",
            b"tab\tle",
            b"\xc3\xa9t\xc3\xa9",
            b"\xff\xfe",
            b"0",
            b"a-very-long-name-of-something-or-other-in-many-more-bytes-than-a-port's",
            b"in_port",
            b"LOCAL",
            b"x.y_z",
        ]);
        let mut out = name[..name.len().min(n)].to_vec();
        if !self.once_in(20) {
            out.truncate(n - 1);
        }
        out.resize(n, 0);
        out
    }

    /// A frame of some kind, or a piece of one.
    pub(crate) fn frame(&mut self) -> Vec<u8> {
        let ethernet = "0011223344556677889900aa";
        let frames = [
            // TCP, UDP, ICMP over IPv4; ARP; ICMPv6 neighbour solicitation; MPLS; VLAN with IPv6; LLDP; SCTP; NSH
            "08004500002800010000400600000a0000010a000002303900500000000000000000500200000000 0000",
            "08004500001c0001000040110000c0a80001c0a800020035003500080000",
            "08004500001c000100004001 00000a0000010a0000020800f7ff00000000",
            "08060001080006040001001122334455c0a80001000000000000c0a80002",
            "86dd6000000000203aff fe800000000000000000000000000001ff02000000000000000000000000000287000000000000000000000000000000000000000000000201010011223344550000",
            "8847000051ff45000014000000004001000001020304 05060708",
            "8100600586dd6000000000083a40 00000000000000000000000000000001 000000000000000000000000000000020102030405060708",
            "88cc0207040011223344550403050607",
            "08004500002000010000408400000a0000010a00000200070008000000000000000000000000",
            "894f0fc6010300000aff000000000000000000000000000000000123",
            "0800450000",
            "05dc",
            "",
        ];
        let mut out = hex(&format!("{ethernet}{}", self.of(&frames)));
        match self.below(5) {
            0 => out.truncate(self.below(out.len() as u64 + 1) as usize),
            1 => out.resize(64, 0),
            _ => {}
        }
        out
    }

    /// Properties with types and bodies from `one`.
    pub(crate) fn properties(&mut self, most: u64, one: &mut dyn FnMut(&mut Self) -> (u16, Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        for _ in 0..self.below(most + 1) {
            let (ty, body) = one(self);
            out.extend(property(ty, &body));
        }
        out
    }

    /// An experimenter property.
    pub(crate) fn experimenter(&mut self) -> (u16, Vec<u8>) {
        let vendor = self.of(&[NICIRA, ONF, 7]);
        let subtype = self.below(3) as u32;
        let rest = self.of(&[0, 4, 8]);
        (0xffff, cat(&[&vendor.to_be_bytes(), &subtype.to_be_bytes(), &vec![1; rest]]))
    }
}

/// Concatenates bytes.
pub(crate) fn cat(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Appends zeros up to a multiple of eight bytes.
pub(crate) fn padded(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes
}

/// Type, length, body, and zeros up to a multiple of eight bytes.
pub(crate) fn property(ty: u16, body: &[u8]) -> Vec<u8> {
    padded(cat(&[&ty.to_be_bytes(), &(body.len() as u16 + 4).to_be_bytes(), body]))
}

/// An entry of a list: `body` after its length.
pub(crate) fn entry(body: &[u8]) -> Vec<u8> {
    cat(&[&(body.len() as u16 + 2).to_be_bytes(), body])
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let digit = |b: u8| char::from(b).to_digit(16).expect("hexadecimal") as u8;
    digits.chunks_exact(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// A whole message.
pub(crate) fn message(version: Version, xid: u32, wire_number: WireNumber, more: bool, body: &[u8]) -> Vec<u8> {
    let old = version == Version::V10;
    let stats = |reply: bool, ty: u16, vendor: Option<(u32, u32)>| {
        let number = if old { 16 } else { 18 } + u8::from(reply);
        let pad: &[u8] = if old { &[] } else { &[0; 4] };
        let mut out = cat(&[&ty.to_be_bytes(), &u16::from(more).to_be_bytes(), pad]);
        if let Some((vendor, subtype)) = vendor {
            out.extend(cat(&[&vendor.to_be_bytes(), &subtype.to_be_bytes()]));
            // In OpenFlow 1.0 these 16 bytes are eight bytes of header and eight of padding.
            out.resize(16, 0);
        }
        (number, out)
    };
    let vendor = |vendor: u32, subtype: u32| (4, cat(&[&vendor.to_be_bytes(), &subtype.to_be_bytes()]));
    let (number, headers) = match wire_number {
        WireNumber::Type(n) => (n, Vec::new()),
        WireNumber::Nicira(n) => vendor(NICIRA, n),
        WireNumber::Onf(n) => vendor(ONF, n),
        WireNumber::Request(n) => stats(false, n, None),
        WireNumber::Reply(n) => stats(true, n, None),
        WireNumber::NiciraRequest(n) => stats(false, 0xffff, Some((NICIRA, n))),
        WireNumber::NiciraReply(n) => stats(true, 0xffff, Some((NICIRA, n))),
        WireNumber::OnfRequest(n) => stats(false, 0xffff, Some((ONF, n))),
        WireNumber::OnfReply(n) => stats(true, 0xffff, Some((ONF, n))),
    };
    let mut out = cat(&[&[version.wire(), number, 0, 0], &xid.to_be_bytes(), &headers, body]);
    set_length(&mut out);
    out
}

/// Sets the length in the header.
pub(crate) fn set_length(message: &mut Vec<u8>) {
    message.truncate(0xfff8);
    let length = (message.len() as u16).to_be_bytes();
    message[2..4].copy_from_slice(&length);
}
