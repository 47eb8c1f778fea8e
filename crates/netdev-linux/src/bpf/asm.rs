//! A small assembler for eBPF (RFC 9669), limited to the instructions that this project's programs need. Operands are
//! typed.
//!
//! Jumps go forward to labels, which are placed once. [`Assembler::finish`] rejects a program that jumps to a label
//! without a position.

/// A register of the virtual machine. `R10` is the frame pointer and read-only.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Reg {
    /// Result of helpers and of the program.
    R0 = 0,
    /// First argument; the context when the program starts.
    R1 = 1,
    /// Second argument.
    R2 = 2,
    /// Third argument.
    R3 = 3,
    /// Fourth argument.
    R4 = 4,
    /// Fifth argument. Helper calls clobber R1 to R5.
    R5 = 5,
    /// Preserved by calls, like the next three.
    R6 = 6,
    /// Kept over calls.
    R7 = 7,
    /// Kept over calls.
    R8 = 8,
    /// Kept over calls.
    R9 = 9,
    /// The upper end of the stack of 512 bytes.
    R10 = 10,
}

/// Kernel functions that programs call (`enum bpf_func_id` of linux/bpf.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub enum Helper {
    /// `bpf_map_lookup_elem(map, key)`: the address of the value, or 0.
    MapLookup = 1,
    /// `bpf_get_smp_processor_id()`
    ProcessorId = 8,
    /// `bpf_skb_vlan_push(skb, protocol, tci)`: 0, or an error. The protocol is in network byte order.
    SkbVlanPush = 18,
    /// `bpf_skb_vlan_pop(skb)`: 0, or an error.
    SkbVlanPop = 19,
    /// `bpf_redirect(ifindex, flags)`: the program's return value for sending the packet out of another device.
    Redirect = 23,
    /// `bpf_skb_load_bytes(skb, offset, to, len)`: 0, or an error if the packet is too short.
    SkbLoadBytes = 26,
    /// `bpf_redirect_map(map, key, flags)`: redirects the packet to the map's entry; without an entry, returns the two
    /// lowest bits of `flags`.
    RedirectMap = 51,
    /// `bpf_ktime_get_coarse_ns()`: `CLOCK_MONOTONIC_COARSE` in nanoseconds.
    TimeCoarse = 160,
}

/// The width of a load or store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Width {
    /// A byte.
    U8 = 0x10,
    /// Two.
    U16 = 0x08,
    /// Four.
    U32 = 0x00,
    /// Eight.
    U64 = 0x18,
}

/// An arithmetic operation on a register and another register or a constant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Op {
    /// Addition.
    Add = 0x00,
    /// Multiplication.
    Mul = 0x20,
    /// Bits of either.
    Or = 0x40,
    /// Bits of both.
    And = 0x50,
    /// To the left.
    Shl = 0x60,
    /// Logical shift to the right.
    Shr = 0x70,
    /// The value itself.
    Mov = 0xb0,
}

/// The condition of a jump; comparisons are unsigned.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum If {
    /// Equal.
    Eq = 0x10,
    /// Greater.
    Gt = 0x20,
    /// Any of these bits is set.
    Set = 0x40,
    /// Not equal.
    Ne = 0x50,
    /// Less.
    Lt = 0xa0,
    /// Less or equal.
    Le = 0xb0,
}

const BPF_LD: u8 = 0x00;
const BPF_LDX: u8 = 0x01;
const BPF_STX: u8 = 0x03;
const BPF_ALU: u8 = 0x04;
const BPF_ALU64: u8 = 0x07;
const BPF_MEM: u8 = 0x60;
const BPF_ATOMIC: u8 = 0xc0;
const BPF_IMM: u8 = 0x00;
const BPF_X: u8 = 0x08;
const BPF_END: u8 = 0xd0;
/// With [`BPF_END`]: converts between native and network byte order.
const BPF_TO_BE: u8 = 0x08;
const BPF_XCHG: i32 = 0xe1;
const BPF_JMP: u8 = 0x05;
const BPF_JA: u8 = 0x00;
const BPF_CALL: u8 = 0x80;
const BPF_EXIT: u8 = 0x90;
/// The constant is a map's descriptor, which the kernel replaces by the map's address.
const BPF_PSEUDO_MAP_FD: u8 = 1;

/// Bytes of an instruction.
pub const INSTRUCTION_LEN: usize = 8;

/// A jump target.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label(usize);

/// A program under construction, in the kernel's encoding and native byte order.
#[derive(Clone, Debug, Default)]
pub struct Assembler {
    code: Vec<u8>,
    /// The position of each label, counted in instructions.
    places: Vec<Option<usize>>,
    /// Jump instructions and their labels.
    jumps: Vec<(usize, Label)>,
}

impl Assembler {
    /// Creates a label without a position.
    pub fn label(&mut self) -> Label {
        self.places.push(None);
        Label(self.places.len() - 1)
    }

    /// Places a label here.
    #[must_use]
    pub fn place(mut self, label: Label) -> Self {
        self.places[label.0] = Some(self.len());
        self
    }

    /// `to = *(width *)(from + offset)`
    #[must_use]
    pub fn load(self, width: Width, to: Reg, from: Reg, offset: i16) -> Self {
        self.instruction(BPF_LDX | width as u8 | BPF_MEM, to, from as u8, offset, 0)
    }

    /// `*(width *)(to + offset) = from`
    #[must_use]
    pub fn store(self, width: Width, to: Reg, offset: i16, from: Reg) -> Self {
        self.instruction(BPF_STX | width as u8 | BPF_MEM, to, from as u8, offset, 0)
    }

    /// Atomically exchanges the u64 at `to + offset` with `with`; a full memory barrier on the executing CPU.
    #[must_use]
    pub fn exchange(self, to: Reg, offset: i16, with: Reg) -> Self {
        self.instruction(BPF_STX | Width::U64 as u8 | BPF_ATOMIC, to, with as u8, offset, BPF_XCHG)
    }

    /// `to = to op value` in 64 bits; the value is sign-extended.
    #[must_use]
    pub fn constant(self, op: Op, to: Reg, value: i32) -> Self {
        self.instruction(BPF_ALU64 | op as u8, to, 0, 0, value)
    }

    /// `to = to op from` in 64 bits.
    #[must_use]
    pub fn register(self, op: Op, to: Reg, from: Reg) -> Self {
        self.instruction(BPF_ALU64 | BPF_X | op as u8, to, from as u8, 0, 0)
    }

    /// `to = value`
    #[must_use]
    pub fn constant_u64(self, to: Reg, value: u64) -> Self {
        self.wide(to, 0, value)
    }

    /// Converts the lowest two bytes of a register from network byte order, and clears the others.
    #[must_use]
    pub fn be16(self, to: Reg) -> Self {
        self.instruction(BPF_ALU | BPF_TO_BE | BPF_END, to, 0, 0, 16)
    }

    /// `to = map`, by the map's descriptor
    #[must_use]
    pub fn map(self, to: Reg, descriptor: i32) -> Self {
        self.wide(to, BPF_PSEUDO_MAP_FD, u64::from(descriptor as u32))
    }

    /// `R0 = helper(R1, R2, ...)`
    #[must_use]
    pub fn call(self, helper: Helper) -> Self {
        self.instruction(BPF_JMP | BPF_CALL, Reg::R0, 0, 0, helper as i32)
    }

    /// Goes to a label.
    #[must_use]
    pub fn jump(self, label: Label) -> Self {
        self.to(label).instruction(BPF_JMP | BPF_JA, Reg::R0, 0, 0, 0)
    }

    /// Jumps to a label if the comparison of a register with a constant holds.
    #[must_use]
    pub fn jump_if(self, left: Reg, how: If, right: i32, label: Label) -> Self {
        self.to(label).instruction(BPF_JMP | how as u8, left, 0, 0, right)
    }

    /// Jumps to a label if the comparison of two registers holds.
    #[must_use]
    pub fn jump_if_register(self, left: Reg, how: If, right: Reg, label: Label) -> Self {
        self.to(label).instruction(BPF_JMP | BPF_X | how as u8, left, right as u8, 0, 0)
    }

    /// Exits and returns `R0`.
    #[must_use]
    pub fn exit(self) -> Self {
        self.instruction(BPF_JMP | BPF_EXIT, Reg::R0, 0, 0, 0)
    }

    /// The program's bytes, [`INSTRUCTION_LEN`] for each instruction slot.
    ///
    /// # Panics
    /// If it jumps to a label without a position, backwards, or too far: a bug in the program.
    pub fn finish(mut self) -> Vec<u8> {
        for (at, label) in self.jumps {
            let to = self.places[label.0].expect("each label is placed");
            let offset = i16::try_from(to - at - 1).expect("jumps go forward, by less than 2^15 instructions");
            self.code[at * INSTRUCTION_LEN + 2..][..2].copy_from_slice(&offset.to_ne_bytes());
        }
        self.code
    }

    /// Instructions so far.
    fn len(&self) -> usize {
        self.code.len() / INSTRUCTION_LEN
    }

    /// The next instruction jumps to `label`.
    fn to(mut self, label: Label) -> Self {
        self.jumps.push((self.len(), label));
        self
    }

    /// A 64-bit constant takes two slots.
    fn wide(self, to: Reg, from: u8, value: u64) -> Self {
        self.instruction(BPF_LD | Width::U64 as u8 | BPF_IMM, to, from, 0, value as i32).instruction(
            0,
            Reg::R0,
            0,
            0,
            (value >> 32) as i32,
        )
    }

    fn instruction(mut self, code: u8, to: Reg, from: u8, offset: i16, value: i32) -> Self {
        // Two 4-bit fields, whose order in the byte depends on the byte order.
        let to = to as u8;
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.code.extend([code, registers]);
        self.code.extend(offset.to_ne_bytes());
        self.code.extend(value.to_ne_bytes());
        self
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    /// Encodings of `llvm-mc` and of the examples in RFC 9669.
    #[test]
    fn instructions_have_the_bytes_of_the_specification() {
        let mut program = Assembler::default();
        let end = program.label();
        let bytes = program
            .load(Width::U32, Reg::R2, Reg::R1, 16)
            .map(Reg::R1, 5)
            .constant(Op::Mov, Reg::R3, -2)
            .jump_if(Reg::R2, If::Eq, 7, end)
            .store(Width::U64, Reg::R10, -8, Reg::R3)
            .exchange(Reg::R10, -8, Reg::R3)
            .register(Op::And, Reg::R3, Reg::R2)
            .be16(Reg::R3)
            .call(Helper::RedirectMap)
            .place(end)
            .exit()
            .finish();
        let expected = [
            [0x61, 0x12, 0x10, 0, 0, 0, 0, 0],
            [0x18, 0x11, 0, 0, 5, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0],
            [0xb7, 0x03, 0, 0, 0xfe, 0xff, 0xff, 0xff],
            [0x15, 0x02, 5, 0, 7, 0, 0, 0],
            [0x7b, 0x3a, 0xf8, 0xff, 0, 0, 0, 0],
            [0xdb, 0x3a, 0xf8, 0xff, 0xe1, 0, 0, 0],
            [0x5f, 0x23, 0, 0, 0, 0, 0, 0],
            [0xdc, 0x03, 0, 0, 16, 0, 0, 0],
            [0x85, 0, 0, 0, 51, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes.chunks(INSTRUCTION_LEN).collect::<Vec<_>>(), expected);
    }

    #[test]
    #[should_panic(expected = "each label is placed")]
    fn a_label_without_a_position_is_an_error() {
        let mut program = Assembler::default();
        let nowhere = program.label();
        drop(program.jump(nowhere).finish());
    }
}
