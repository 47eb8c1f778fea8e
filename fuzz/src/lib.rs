//! The common part of the fuzz targets: values drawn from the fuzzer's bytes, front to back, so that a change of one
//! byte changes one value. After the end of the bytes, all values are zero.

pub mod database;

#[cfg(feature = "libfuzzer")]
pub use libfuzzer_sys;

use base::PortNo;
use flow::field::FIELDS;
use flow::{Field, Match};
use openflow::{Action, Subfield};

/// A target: a function of the bytes, which libFuzzer calls.
#[cfg(feature = "libfuzzer")]
#[macro_export]
macro_rules! target {
    (|$bytes:ident: &[u8]| $body:block) => {
        $crate::libfuzzer_sys::fuzz_target!(|$bytes: &[u8]| $body);
    };
}

/// A target: a function of the bytes, `fuzz_target`, which tests call.
#[cfg(not(feature = "libfuzzer"))]
#[macro_export]
macro_rules! target {
    (|$bytes:ident: &[u8]| $body:block) => {
        pub(crate) fn fuzz_target($bytes: &[u8]) $body
    };
}

/// The remaining bytes.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// The next `n` bytes, or all remaining ones.
    pub fn take(&mut self, n: usize) -> &'a [u8] {
        let (front, rest) = self.0.split_at(n.min(self.0.len()));
        self.0 = rest;
        front
    }

    /// A number of `n` bytes.
    pub fn number(&mut self, n: usize) -> u128 {
        self.take(n).iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
    }

    /// A number below `n`, which is at most 256.
    pub fn below(&mut self, n: usize) -> usize {
        self.number(1) as usize % n
    }

    /// Returns true if no bytes remain.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Any field.
    pub fn field(&mut self) -> Field {
        FIELDS[self.number(1) as usize % FIELDS.len()].id
    }

    /// A field, a value of it, and a mask: the whole field, or any bits.
    pub fn masked(&mut self) -> (Field, u128, u128) {
        let field = self.field();
        let (bytes, full) = (field.info().wire_bytes(), field.info().full_mask());
        let value = self.number(bytes) & full;
        let mask = if self.below(2) == 0 { full } else { self.number(bytes) & full };
        (field, value & mask, mask)
    }

    /// Bits of a field.
    pub fn subfield(&mut self) -> Subfield {
        let field = self.field();
        let width = field.info().n_bits;
        let offset = self.number(2) as u16 % width;
        let n_bits = 1 + self.number(1) as u16 % (width - offset).min(64);
        Subfield { field, offset, n_bits }
    }

    /// A frame, behind its length: so that what follows it stays in place when it changes.
    pub fn frame(&mut self) -> &'a [u8] {
        let len = self.number(2) as usize % 2048;
        self.take(len)
    }

    /// A match of up to four fields, most of them such that a packet of a small network agrees.
    pub fn matching(&mut self) -> Match {
        let mut matching = Match::ANY;
        for _ in 0..self.below(5) {
            match self.below(8) {
                0 => matching.set(Field::InPortOxm, 1 + self.number(1) % 4),
                1 => matching.set(Field::EthType, [0x800, 0x86dd, 0x806, 0x8847][self.below(4)]),
                2 => matching.set(Field::IpProto, [6, 17, 1, 58][self.below(4)]),
                3 => matching.set_masked(Field::VlanTci, self.number(2), self.number(2)),
                _ => {
                    let (field, value, mask) = self.masked();
                    matching.set_masked(field, value, mask);
                }
            }
        }
        matching
    }

    /// An output port in a small network.
    pub fn port(&mut self) -> PortNo {
        const NAMED: [PortNo; 7] = [
            PortNo::NORMAL,
            PortNo::FLOOD,
            PortNo::ALL,
            PortNo::IN_PORT,
            PortNo::LOCAL,
            PortNo::CONTROLLER,
            PortNo::TABLE,
        ];
        let n = self.below(16);
        NAMED.get(n).copied().unwrap_or_else(|| PortNo((n - NAMED.len()) as u32))
    }

    /// Actions and instructions in any order, nested at most `depth` times.
    pub fn actions(&mut self, depth: usize) -> Vec<Action> {
        (0..self.below(8)).map(|_| self.action(depth)).collect()
    }

    fn action(&mut self, depth: usize) -> Action {
        match self.below(24) {
            0..=2 => Action::Output { port: self.port(), max_len: self.number(2) as u16 },
            3 => Action::OutputReg { src: self.subfield(), max_len: 0 },
            4 => Action::OutputTrunc { port: self.port(), max_len: 14 + self.number(2) as u32 },
            5 | 6 => Action::Resubmit { in_port: None, table: Some(self.below(4) as u8) },
            7 => Action::Resubmit { in_port: Some(PortNo(self.number(1) as u32)), table: None },
            8 => Action::GotoTable(self.below(4) as u8),
            9 | 10 => {
                let (field, value, mask) = self.masked();
                Action::SetField { field, value, mask }
            }
            11 => Action::RegLoad { dst: self.subfield(), value: self.number(4) as u64 as u128 },
            12 => {
                let (src, mut dst) = (self.subfield(), self.subfield());
                dst.n_bits = dst.n_bits.min(src.n_bits);
                Action::RegMove { src: Subfield { n_bits: dst.n_bits, ..src }, dst }
            }
            13 => Action::StackPush(self.subfield()),
            14 => Action::StackPop(self.subfield()),
            15 => Action::PushVlan([0x8100, 0x88a8][self.below(2)]),
            16 => Action::PopVlan,
            17 => Action::SetVlanVid { vid: self.number(2) as u16 & 0xfff, push_if_needed: self.below(2) == 0 },
            18 => Action::DecTtl([None, Some(vec![0, 1])][self.below(2)].clone()),
            19 => Action::SetL4Dst(self.number(2) as u16),
            20 if depth > 0 => Action::Clone(self.actions(depth - 1)),
            21 if depth > 0 => Action::WriteActions(self.actions(depth - 1)),
            22 => Action::WriteMetadata { value: self.number(1) as u64, mask: self.number(1) as u64 },
            23 => Action::SetIpDscp(self.number(1) as u8 & 0xfc),
            _ => Action::Exit,
        }
    }
}

/// As text, if it is text; most bytes are.
pub fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
