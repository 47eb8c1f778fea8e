//! eBPF programs and maps (RFC 9669; Linux Documentation/bpf). Programs are assembled here and passed to bpf(2)
//! directly, without a compiler or a loader of object files.
//!
//! - [`asm`]: an assembler with typed operands;
//! - [`load`], [`attach`], [`test_run`]: load programs of a [`ProgramKind`], attach them to devices, and run them on a test
//!   frame;
//! - [`XskMap`], [`Hash`] and [`Mapped`]: maps; [`Mapped`] is memory shared with programs.
//!
//! Programs are attached by links, which are descriptors. When a link is closed, at the latest when the process exits,
//! the kernel detaches the program.
//!
//! Only `sys` and `mapped` contain `unsafe`.

pub mod asm;
mod mapped;
mod sys;

pub use asm::{Assembler, Helper, INSTRUCTION_LEN, Label, Reg};
pub use mapped::Mapped;
pub use sys::{Hash, Point, ProgramKind, TestRun, XskMap, attach, load, processors, test_run, wait_for_programs};
