//! eBPF of our own (RFC 9669; Linux Documentation/bpf): programs are put together here and given to bpf(2) as they
//! stand, so that neither a compiler nor a loader of object files is needed.
//!
//! - [`asm`]: an assembler, by functions whose types say what goes where;
//! - [`load`], [`attach`], [`test_run`]: programs of a [`Kind`], onto devices, and tried on a frame;
//! - [`XskMap`], [`Hash`] and [`Mapped`]: maps; the last kind is memory shared with programs.
//!
//! Programs are attached by links, which are descriptors: when one is closed, by us or by the kernel when the process
//! ends, the program is off the device.
//!
//! `unsafe` stands in `sys` and `mapped` only.

pub mod asm;
mod mapped;
mod sys;

pub use asm::{Assembler, Helper, INSTRUCTION_LEN, Label, Reg};
pub use mapped::Mapped;
pub use sys::{Hash, Kind, Point, TestRun, XskMap, attach, load, processors, test_run, wait_for_programs};
