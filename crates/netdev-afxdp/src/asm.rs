//! A small assembler for eBPF (RFC 9669): the instructions that an XDP program of ours needs, by functions whose types
//! say what goes where. There is no compiler and no object file: what is loaded stands in `program` to be read.

/// A register of the machine; `R10` is the frame pointer and is not written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Reg {
    /// Results of helpers, and of the program.
    R0 = 0,
    /// First argument; at the start, the context.
    R1 = 1,
    /// Second argument.
    R2 = 2,
    /// Third argument.
    R3 = 3,
}

/// Functions of the kernel that programs call (`enum bpf_func_id` of linux/bpf.h).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i32)]
pub(crate) enum Helper {
    /// `bpf_redirect_map(map, key, flags)`: sends the packet where the map's entry says; without an entry, the answer
    /// is in the two lowest bits of `flags`.
    RedirectMap = 51,
}

const BPF_LDX: u8 = 0x01;
const BPF_LD: u8 = 0x00;
const BPF_W: u8 = 0x00;
const BPF_DW: u8 = 0x18;
const BPF_MEM: u8 = 0x60;
const BPF_IMM: u8 = 0x00;
const BPF_ALU64: u8 = 0x07;
const BPF_MOV: u8 = 0xb0;
const BPF_JMP: u8 = 0x05;
const BPF_CALL: u8 = 0x80;
const BPF_EXIT: u8 = 0x90;
/// The constant is the descriptor of a map, which the kernel replaces by its address.
const BPF_PSEUDO_MAP_FD: u8 = 1;

/// Bytes of an instruction.
pub(crate) const INSTRUCTION_LEN: usize = 8;

/// A program in the making: the kernel's encoding, in the machine's byte order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Assembler(Vec<u8>);

impl Assembler {
    /// `to = *(u32 *)(from + offset)`
    pub(crate) fn load_u32(self, to: Reg, from: Reg, offset: i16) -> Self {
        self.instruction(BPF_LDX | BPF_W | BPF_MEM, to, from as u8, offset, 0)
    }

    /// `to = value`, extended with its sign
    pub(crate) fn constant(self, to: Reg, value: i32) -> Self {
        self.instruction(BPF_ALU64 | BPF_MOV, to, 0, 0, value)
    }

    /// `to = map`, by the map's descriptor
    pub(crate) fn map(self, to: Reg, descriptor: i32) -> Self {
        // One of 64 bits takes two places.
        self.instruction(BPF_LD | BPF_DW | BPF_IMM, to, BPF_PSEUDO_MAP_FD, 0, descriptor).instruction(
            0,
            Reg::R0,
            0,
            0,
            0,
        )
    }

    /// `R0 = helper(R1, R2, ...)`
    pub(crate) fn call(self, helper: Helper) -> Self {
        self.instruction(BPF_JMP | BPF_CALL, Reg::R0, 0, 0, helper as i32)
    }

    /// Ends with what `R0` holds.
    pub(crate) fn exit(self) -> Self {
        self.instruction(BPF_JMP | BPF_EXIT, Reg::R0, 0, 0, 0)
    }

    /// The program's bytes, [`INSTRUCTION_LEN`] for each place.
    pub(crate) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn instruction(mut self, code: u8, to: Reg, from: u8, offset: i16, value: i32) -> Self {
        // Two registers of four bits, which stand in the byte as the machine orders bits.
        let to = to as u8;
        let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
        self.0.extend([code, registers]);
        self.0.extend(offset.to_ne_bytes());
        self.0.extend(value.to_ne_bytes());
        self
    }
}

#[cfg(test)]
#[cfg(target_endian = "little")]
mod tests {
    use super::*;

    /// As `llvm-mc` and the examples of RFC 9669 have them.
    #[test]
    fn instructions_have_the_bytes_of_the_specification() {
        let bytes = Assembler::default()
            .load_u32(Reg::R2, Reg::R1, 16)
            .map(Reg::R1, 5)
            .constant(Reg::R3, -2)
            .call(Helper::RedirectMap)
            .exit()
            .finish();
        let expected = [
            [0x61, 0x12, 0x10, 0, 0, 0, 0, 0],
            [0x18, 0x11, 0, 0, 5, 0, 0, 0],
            [0, 0, 0, 0, 0, 0, 0, 0],
            [0xb7, 0x03, 0, 0, 0xfe, 0xff, 0xff, 0xff],
            [0x85, 0, 0, 0, 51, 0, 0, 0],
            [0x95, 0, 0, 0, 0, 0, 0, 0],
        ];
        assert_eq!(bytes.chunks(INSTRUCTION_LEN).collect::<Vec<_>>(), expected);
    }
}
