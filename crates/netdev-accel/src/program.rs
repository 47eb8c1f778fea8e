//! The two programs of a port, which the kernel runs one after the other for each frame that comes in by its device, on
//! one processor and in one call: packet sockets are served just before tc.
//!
//! The *filter* stands on the packet sockets of the port. It makes the key of a plain frame (as `flow::plain` does), looks it
//! up under each mask of the port, and if a verdict covers it, leaves a note for the other program and has the socket not
//! take the frame. The *forwarder* stands at tcx, takes the note, counts, and sends the socket buffer out by the other
//! device as it is, unfinished checksum and all. Without a note it lets the frame pass to whoever is next.
//!
//! ```text
//! filter:     note the processor as busy (an odd number); no note
//!             outgoing: refuse         tagged, not plain: pass
//!             for each mask: look up (port, mask, words & mask) -> flow, target
//!             target down, or frame too long and not to be segmented: pass
//!             note = flow, device of the target; what frame it is; its TCP flags; refuse
//! forwarder:  no note, or that of another frame: next
//!             count at (processor, flow); the processor is not busy any more; redirect
//! ```
//!
//! A note says of which device and length the frame is, so that one that was never taken (as another program at tcx dropped
//! the frame) is not taken for another's.

use netdev::accelerate::PLAIN_WORDS;
use netdev_linux::bpf::asm::{If, Op, Width};
use netdev_linux::bpf::{Assembler, Helper, Label, Reg};

/// Verdicts at most.
pub(crate) const FLOWS_MAX: usize = 4096;
/// Ports at most.
pub(crate) const PORTS_MAX: usize = 1024;
/// Masks of a port at most: each is one look-up for a frame.
pub(crate) const MASKS_MAX: usize = 8;

/// Words of an entry of `processors`: busy if odd; the note: device of the target and number of the verdict from 1, 0 for
/// none; device and length of the frame; its TCP flags. A line of memory.
pub(crate) const PROCESSOR_WORDS: usize = 8;
const BUSY_AT: i16 = 0;
const NOTE_AT: i16 = 8;
const FRAME_AT: i16 = 16;
const FLAGS_AT: i16 = 24;

/// Words of an entry of `masks`: how many there are, and the masks.
pub(crate) const MASKS_WORDS: usize = 1 + MASKS_MAX * PLAIN_WORDS;

/// Words of an entry of `counts`: packets, bytes, nanoseconds of `CLOCK_MONOTONIC_COARSE`, TCP flags.
pub(crate) const COUNTS_WORDS: usize = 4;
const BYTES_AT: i16 = 8;
const USED_AT: i16 = 16;
const ALL_FLAGS_AT: i16 = 24;

/// Words of a key of `flows`: port and mask, and the words of a frame.
pub(crate) const KEY_WORDS: usize = 1 + PLAIN_WORDS;

/// The descriptors of the maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    /// By processor.
    pub(crate) processors: i32,
    /// By port.
    pub(crate) masks: i32,
    /// By port: its device (lower half, 0 while it is not to be sent to) and the longest frame that may leave there.
    pub(crate) ports: i32,
    /// By processor times [`FLOWS_MAX`] plus verdict.
    pub(crate) counts: i32,
    /// By [`first_word`] and words of a frame: verdict (lower half) and the port where they leave.
    pub(crate) flows: i32,
}

/// The first word of keys of a port under a mask.
pub(crate) fn first_word(port: u16, mask: usize) -> u64 {
    u64::from(port) << 8 | mask as u64
}

/// The words of a frame, from the beginning of its bytes: as the filter reads them.
pub(crate) fn words(headers: &[u8; HEADERS], tcp_flags: u16) -> [u64; PLAIN_WORDS] {
    let u16_at = |at: usize| u64::from(u16::from_ne_bytes([headers[at], headers[at + 1]]));
    let u32_at = |at: usize| u64::from(u32::from_ne_bytes(std::array::from_fn(|i| headers[at + i])));
    let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| headers[at + i]));
    let byte = |at: usize| u64::from(headers[at]);
    [
        u64_at(2),
        u32_at(10) | u16_at(0) << 32,
        u64_at(26),
        byte(15) << 16 | byte(22) << 8 | byte(23),
        u32_at(34) | u64::from(tcp_flags) << 32,
    ]
}

/// Bytes of Ethernet, IPv4 and UDP headers.
pub(crate) const HEADERS: usize = 42;

// Of `struct __sk_buff` (linux/bpf.h).
const LEN: i16 = 0;
const PKT_TYPE: i16 = 4;
const VLAN_PRESENT: i16 = 20;
const IFINDEX: i16 = 40;
const GSO_SIZE: i16 = 176;
/// A frame that the host sends (linux/if_packet.h).
const PACKET_OUTGOING: i32 = 4;
/// What a socket filter says to take all of a frame.
const TAKE: i32 = -1;
/// What a program at tcx says to let the next one decide.
const TCX_NEXT: i32 = -1;

// The filter's stack. The headers lie so that each load is of a number at a multiple of its length.
const INDEX: i16 = -4;
const TCP: i16 = -8;
const KEY: i16 = -64;
const FRAME: i16 = -106;
const WORDS: i16 = -152;

use Helper::{MapLookup, ProcessorId, Redirect, SkbLoadBytes, TimeCoarse};
use Reg::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use Width::{U8, U16, U32, U64};

/// `R0` = the value of `map` at the u32 of the stack at [`INDEX`].
fn look_up(code: Assembler, map: i32) -> Assembler {
    code.map(R1, map).register(Op::Mov, R2, R10).constant(Op::Add, R2, INDEX.into()).call(MapLookup)
}

/// `R7` = this processor's entry, or goes to `none`.
fn processor(code: Assembler, maps: Maps, none: Label) -> Assembler {
    let code = code.register(Op::Mov, R6, R1).call(ProcessorId).store(U32, R10, INDEX, R0).register(Op::Mov, R9, R0);
    look_up(code, maps.processors).jump_if(R0, If::Eq, 0, none).register(Op::Mov, R7, R0)
}

/// `R1` = device and length of the frame, as a note has them.
fn frame_of(code: Assembler) -> Assembler {
    code.load(U32, R1, R6, LEN).load(U32, R2, R6, IFINDEX).constant(Op::Shl, R2, 32).register(Op::Or, R1, R2)
}

/// The program for the packet sockets of a port.
pub(crate) fn filter(port: u16, maps: Maps) -> Vec<u8> {
    let mut code = Assembler::default();
    let [pass, take, refuse, hit, udp, keyed, fits] = std::array::from_fn(|_| code.label());
    code = processor(code, maps, take)
        // The next odd number, also if the last frame's forwarder never ran. The exchange keeps what is read below
        // behind it: who removes a verdict and then finds an even number knows that it is not in use.
        .load(U64, R1, R7, BUSY_AT)
        .constant(Op::Add, R1, 1)
        .constant(Op::Or, R1, 1)
        .exchange(R7, BUSY_AT, R1)
        .constant(Op::Mov, R1, 0)
        .store(U64, R7, NOTE_AT, R1)
        .load(U32, R1, R6, PKT_TYPE)
        .jump_if(R1, If::Eq, PACKET_OUTGOING, refuse)
        .load(U32, R1, R6, VLAN_PRESENT)
        .jump_if(R1, If::Ne, 0, pass);
    code = plain(code, pass, udp, keyed);
    code = code.place(keyed);
    code = key(code);
    code = frame_of(code).store(U64, R7, FRAME_AT, R1).store(U64, R7, FLAGS_AT, R9);
    code = code.constant(Op::Mov, R1, port.into()).store(U32, R10, INDEX, R1);
    code = look_up(code, maps.masks).jump_if(R0, If::Eq, 0, pass).register(Op::Mov, R8, R0).load(U64, R9, R8, 0);
    for mask in 0..MASKS_MAX {
        code = code
            .jump_if(R9, If::Le, mask as i32, pass)
            .constant(Op::Mov, R1, first_word(port, mask) as i32)
            .store(U64, R10, KEY, R1);
        for word in 0..PLAIN_WORDS {
            let at = 8 * word as i16;
            code = code
                .load(U64, R1, R10, WORDS + at)
                .load(U64, R2, R8, 8 * (1 + mask * PLAIN_WORDS) as i16 + at)
                .register(Op::And, R1, R2)
                .store(U64, R10, KEY + 8 + at, R1);
        }
        code = code
            .map(R1, maps.flows)
            .register(Op::Mov, R2, R10)
            .constant(Op::Add, R2, KEY.into())
            .call(MapLookup)
            .jump_if(R0, If::Ne, 0, hit);
    }
    code = code.jump(pass).place(hit).load(U64, R9, R0, 0).register(Op::Mov, R1, R9).constant(Op::Shr, R1, 32);
    code = look_up(code.store(U32, R10, INDEX, R1), maps.ports).jump_if(R0, If::Eq, 0, pass);
    code.load(U64, R1, R0, 0)
        .register(Op::Mov, R2, R1)
        .constant(Op::Shr, R2, 32)
        .constant(Op::Shl, R1, 32)
        .jump_if(R1, If::Eq, 0, pass)
        .load(U32, R3, R6, LEN)
        .jump_if_register(R3, If::Le, R2, fits)
        .load(U32, R3, R6, GSO_SIZE)
        .jump_if(R3, If::Eq, 0, pass)
        .place(fits)
        .constant(Op::Shl, R9, 32)
        .constant(Op::Shr, R9, 32)
        .constant(Op::Add, R9, 1)
        .register(Op::Or, R9, R1)
        .store(U64, R7, NOTE_AT, R9)
        .constant(Op::Mov, R0, 0)
        .exit()
        .place(refuse)
        .load(U64, R1, R7, BUSY_AT)
        .constant(Op::Add, R1, 1)
        .store(U64, R7, BUSY_AT, R1)
        .constant(Op::Mov, R0, 0)
        .exit()
        .place(pass)
        .load(U64, R1, R7, BUSY_AT)
        .constant(Op::Add, R1, 1)
        .store(U64, R7, BUSY_AT, R1)
        .place(take)
        .constant(Op::Mov, R0, TAKE)
        .exit()
        .finish()
}

/// Goes to `keyed` with the headers in the stack and the TCP flags in `R9` if the frame is plain, in the order in which
/// `flow::plain` looks; else to `pass`.
fn plain(code: Assembler, pass: Label, udp: Label, keyed: Label) -> Assembler {
    code.register(Op::Mov, R1, R6)
        .constant(Op::Mov, R2, 0)
        .register(Op::Mov, R3, R10)
        .constant(Op::Add, R3, FRAME.into())
        .constant(Op::Mov, R4, HEADERS as i32)
        .call(SkbLoadBytes)
        .jump_if(R0, If::Ne, 0, pass)
        .load(U16, R1, R10, FRAME + 12)
        .be16(R1)
        .jump_if(R1, If::Ne, 0x0800, pass)
        // Version 4, and a header without options.
        .load(U8, R1, R10, FRAME + 14)
        .jump_if(R1, If::Ne, 0x45, pass)
        .load(U16, R1, R10, FRAME + 20)
        .be16(R1)
        .jump_if(R1, If::Set, 0x3fff, pass)
        // The length that it states fits the frame.
        .load(U16, R8, R10, FRAME + 16)
        .be16(R8)
        .load(U32, R1, R6, LEN)
        .register(Op::Mov, R2, R8)
        .constant(Op::Add, R2, 14)
        .jump_if_register(R2, If::Gt, R1, pass)
        .constant(Op::Mov, R9, 0)
        .load(U8, R1, R10, FRAME + 23)
        .jump_if(R1, If::Eq, 17, udp)
        .jump_if(R1, If::Ne, 6, pass)
        .register(Op::Mov, R1, R6)
        .constant(Op::Mov, R2, 46)
        .register(Op::Mov, R3, R10)
        .constant(Op::Add, R3, TCP.into())
        .constant(Op::Mov, R4, 2)
        .call(SkbLoadBytes)
        .jump_if(R0, If::Ne, 0, pass)
        .load(U16, R9, R10, TCP)
        .be16(R9)
        .register(Op::Mov, R1, R9)
        .constant(Op::Shr, R1, 12)
        .constant(Op::Shl, R1, 2)
        .jump_if(R1, If::Lt, 20, pass)
        .constant(Op::Add, R1, 20)
        .jump_if_register(R1, If::Gt, R8, pass)
        .constant(Op::And, R9, 0xfff)
        .jump(keyed)
        .place(udp)
        .jump_if(R8, If::Lt, 28, pass)
}

/// Writes the words of the frame, those of [`words`], to the stack.
fn key(code: Assembler) -> Assembler {
    code.load(U64, R1, R10, FRAME + 2)
        .store(U64, R10, WORDS, R1)
        .load(U32, R1, R10, FRAME + 10)
        .load(U16, R2, R10, FRAME)
        .constant(Op::Shl, R2, 32)
        .register(Op::Or, R1, R2)
        .store(U64, R10, WORDS + 8, R1)
        .load(U64, R1, R10, FRAME + 26)
        .store(U64, R10, WORDS + 16, R1)
        .load(U8, R1, R10, FRAME + 15)
        .constant(Op::Shl, R1, 16)
        .load(U8, R2, R10, FRAME + 22)
        .constant(Op::Shl, R2, 8)
        .register(Op::Or, R1, R2)
        .load(U8, R2, R10, FRAME + 23)
        .register(Op::Or, R1, R2)
        .store(U64, R10, WORDS + 24, R1)
        .load(U32, R1, R10, FRAME + 34)
        .register(Op::Mov, R2, R9)
        .constant(Op::Shl, R2, 32)
        .register(Op::Or, R1, R2)
        .store(U64, R10, WORDS + 32, R1)
}

/// The program for tcx, the same for all ports.
pub(crate) fn forwarder(maps: Maps) -> Vec<u8> {
    let mut code = Assembler::default();
    let [next, send] = std::array::from_fn(|_| code.label());
    code = processor(code, maps, next)
        .load(U64, R8, R7, NOTE_AT)
        .jump_if(R8, If::Eq, 0, next)
        .constant(Op::Mov, R1, 0)
        .store(U64, R7, NOTE_AT, R1);
    code = frame_of(code)
        .load(U64, R2, R7, FRAME_AT)
        .jump_if_register(R1, If::Ne, R2, next)
        .constant(Op::Mul, R9, FLOWS_MAX as i32)
        .register(Op::Mov, R1, R8)
        .constant(Op::Shl, R1, 32)
        .constant(Op::Shr, R1, 32)
        .constant(Op::Add, R1, -1)
        .register(Op::Add, R9, R1)
        .store(U32, R10, INDEX, R9);
    look_up(code, maps.counts)
        .jump_if(R0, If::Eq, 0, send)
        .register(Op::Mov, R9, R0)
        .call(TimeCoarse)
        .store(U64, R9, USED_AT, R0)
        .load(U64, R1, R9, 0)
        .constant(Op::Add, R1, 1)
        .store(U64, R9, 0, R1)
        .load(U64, R1, R9, BYTES_AT)
        .load(U32, R2, R6, LEN)
        .register(Op::Add, R1, R2)
        .store(U64, R9, BYTES_AT, R1)
        .load(U64, R1, R9, ALL_FLAGS_AT)
        .load(U64, R2, R7, FLAGS_AT)
        .register(Op::Or, R1, R2)
        .store(U64, R9, ALL_FLAGS_AT, R1)
        .place(send)
        // What was counted stands before this.
        .load(U64, R1, R7, BUSY_AT)
        .constant(Op::Add, R1, 1)
        .exchange(R7, BUSY_AT, R1)
        .register(Op::Mov, R1, R8)
        .constant(Op::Shr, R1, 32)
        .constant(Op::Mov, R2, 0)
        .call(Redirect)
        .exit()
        .place(next)
        .constant(Op::Mov, R0, TCX_NEXT)
        .exit()
        .finish()
}
