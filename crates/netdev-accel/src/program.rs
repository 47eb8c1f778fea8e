//! The two programs of a port. The kernel runs them one after the other for each frame that its device receives, on
//! one processor and in one call: packet sockets are served just before tc.
//!
//! The *filter* is attached to the port's packet sockets. It builds the key of a plain frame (as `flow::extract` does), looks it
//! up under each mask that the port has for frames of its network, and if a verdict covers it, leaves a note for the other
//! program and makes the socket refuse the frame. The *forwarder* at tcx takes the note, counts, and redirects the socket
//! buffer to the other device as it is, with its partial checksum, except for a VLAN tag to push or pop. Without a note it
//! passes the frame to the next program.
//!
//! ```text
//! filter:     note the processor as busy (an odd number); no note
//!             outgoing: refuse         tag of a provider, not plain: pass
//!             for each mask of the network: look up (port, mask, words & mask) -> flow, target
//!             target down, or frame too long and not to be segmented: pass
//!             note = flow, device of the target; what frame it is; its TCP flags; what becomes of its tag; refuse
//! forwarder:  no note, or that of another frame: next
//!             count at (processor, flow); the processor is not busy any more; tag; redirect
//! ```
//!
//! A note contains the device and length of its frame, so that a note that was never taken (because another program at tcx
//! dropped the frame) does not apply to another frame.
//!
//! IPv4 and IPv6 have separate masks and maps, so that frames of IPv4, whose keys are shorter, do not pay for IPv6:
//! with one larger key each lookup of IPv4 would mask and hash eight words instead of five.
//!
//! The kernel removes the outermost VLAN tag from the frame before either program sees it: the bytes are those of an
//! untagged frame, and the tag is metadata.

use netdev::accelerate::{Network, PLAIN_WORDS, Tag};
use netdev_linux::bpf::asm::{If, Op, Width};
use netdev_linux::bpf::{Assembler, Helper, Label, Reg};

/// Maximum number of verdicts.
pub(crate) const FLOWS_MAX: usize = 4096;
/// Maximum number of ports.
pub(crate) const PORTS_MAX: usize = 1024;
/// Maximum number of masks of a port and network: each costs a lookup for a frame.
pub(crate) const MASKS_MAX: usize = 8;

/// Words of an entry of `processors`: busy if odd; the note: device of the target and number of the verdict from 1, 0 for
/// none; device and length of the frame; its TCP flags; the change of its tag ([`tag_word`]). A cache line.
pub(crate) const PROCESSOR_WORDS: usize = 8;
const BUSY_AT: i16 = 0;
const NOTE_AT: i16 = 8;
const FRAME_AT: i16 = 16;
const FLAGS_AT: i16 = 24;
const TAG_AT: i16 = 32;

/// Words of an entry of `masks`: the number of masks of each network, and the masks.
pub(crate) const MASKS_WORDS: usize = mask_at(Network::Ipv6, MASKS_MAX);

/// The offset of a mask in an entry of `masks`. The number of masks of a network is at the network's number.
pub(crate) const fn mask_at(network: Network, mask: usize) -> usize {
    let first = match network {
        Network::Ipv4 => Network::ALL.len(),
        Network::Ipv6 => mask_at(Network::Ipv4, MASKS_MAX),
    };
    first + mask * network.words()
}

/// Words of an entry of `counts`: packets, bytes, nanoseconds of `CLOCK_MONOTONIC_COARSE`, TCP flags.
pub(crate) const COUNTS_WORDS: usize = 4;
const BYTES_AT: i16 = 8;
const USED_AT: i16 = 16;
const ALL_FLAGS_AT: i16 = 24;

/// Maximum number of words of a key of `flows`: port and mask, and the words of a frame.
pub(crate) const KEY_WORDS: usize = 1 + PLAIN_WORDS;

/// Words of a key of the `flows` of a network.
pub(crate) const fn key_words(network: Network) -> usize {
    1 + network.words()
}

/// The descriptors of the maps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Maps {
    /// By processor.
    pub(crate) processors: i32,
    /// By port.
    pub(crate) masks: i32,
    /// By port: its device (lower half, 0 while sending to it is disabled) and the longest frame that may leave there.
    pub(crate) ports: i32,
    /// By processor times [`FLOWS_MAX`] plus verdict.
    pub(crate) counts: i32,
    /// By network; by [`first_word`] and words of a frame: verdict (lower half), the port of exit (the next 16
    /// bits), and the change of the tag ([`tag_word`]).
    pub(crate) flows: [i32; Network::ALL.len()],
}

/// The change of a tag, in 16 bits: 0 for none, bit 12 and the control information of a tag to push, 1 to pop it.
pub(crate) const fn tag_word(tag: Tag) -> u16 {
    match tag {
        Tag::Keep => 0,
        Tag::Push(tci) => tci | PRESENT as u16,
        Tag::Pop => 1,
    }
}

/// The first word of keys of a port under a mask.
pub(crate) fn first_word(port: u16, mask: usize) -> u64 {
    u64::from(port) << 8 | mask as u64
}

/// The words of a frame of a network, in the order of its bytes, as the filter reads them. The addresses precede the
/// ports, as in the frame; `tci` is that of a [`Common`](netdev::accelerate::Common).
pub(crate) fn words(network: Network, headers: &[u8; HEADERS], tci: u16, tcp_flags: u16) -> [u64; PLAIN_WORDS] {
    let u16_at = |at: usize| u64::from(u16::from_ne_bytes([headers[at], headers[at + 1]]));
    let u32_at = |at: usize| u64::from(u32::from_ne_bytes(std::array::from_fn(|i| headers[at + i])));
    let u64_at = |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| headers[at + i]));
    let tp = |at: usize| u32_at(at) | u64::from(tcp_flags) << 32;
    let (dst, src) = (u64_at(2), u32_at(10) | u16_at(0) << 32 | u64::from(tci) << 48);
    match network {
        Network::Ipv4 => [dst, src, u64::from(headers[15]) | u16_at(22) << 16, u64_at(ADDRESSES), tp(PORTS), 0, 0, 0],
        Network::Ipv6 => {
            let addresses: [u64; 4] = std::array::from_fn(|i| u64_at(ADDRESSES_6 + 8 * i));
            let [a, b, c, d] = addresses;
            [dst, src, u32_at(14) | u16_at(20) << 32, a, b, c, d, tp(PORTS_6)]
        }
    }
}

/// Maximum length of the headers: Ethernet, IPv6, and TCP up to its flags.
pub(crate) const HEADERS: usize = FLAGS_6 + 2;

// Offsets of the fields in the headers.
const ADDRESSES: usize = 26;
const PORTS: usize = 34;
const TCP_FLAGS: usize = 46;
/// Ethernet, IPv4, and UDP.
const SHORTEST: usize = 42;
const ADDRESSES_6: usize = 22;
const PORTS_6: usize = 54;
const FLAGS_6: usize = 66;
/// Ethernet, IPv6, and UDP.
const SHORTEST_6: usize = 62;

// Of `struct __sk_buff` (linux/bpf.h).
const LEN: i16 = 0;
const PKT_TYPE: i16 = 4;
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;
const VLAN_PROTO: i16 = 28;
const IFINDEX: i16 = 40;
const GSO_SIZE: i16 = 176;
/// A frame that the host sends (linux/if_packet.h).
const PACKET_OUTGOING: i32 = 4;
/// Result of a socket filter that accepts the whole frame.
const TAKE: i32 = -1;
/// Results of a program at tcx: let the next one decide, and drop the frame.
const TCX_NEXT: i32 = -1;
const TCX_DROP: i32 = 2;
/// In control information: there is a tag.
const PRESENT: i32 = 0x1000;
const VLAN_PROTOCOL: u16 = 0x8100;

// The filter's stack, laid out so that each load is aligned to its size.
const INDEX: i16 = -4;
/// [`KEY_WORDS`].
const KEY: i16 = -80;
/// [`PLAIN_WORDS`] and some bytes, as those of IPv6 from the addresses on are those of the frame.
const WORDS: i16 = -152;
/// The frame up to the flags of TCP over IPv4.
const FRAME: i16 = -202;

use Helper::{MapLookup, ProcessorId, Redirect, SkbLoadBytes, SkbVlanPop, SkbVlanPush, TimeCoarse};
use Reg::{R0, R1, R2, R3, R4, R6, R7, R8, R9, R10};
use Width::{U8, U16, U32, U64};

/// `R0` = the value of `map` at the u32 of the stack at [`INDEX`].
fn look_up(code: Assembler, map: i32) -> Assembler {
    code.map(R1, map).register(Op::Mov, R2, R10).constant(Op::Add, R2, INDEX.into()).call(MapLookup)
}

/// `R7` = this processor's entry, or jumps to `none`.
fn processor(code: Assembler, maps: Maps, none: Label) -> Assembler {
    let code = code.register(Op::Mov, R6, R1).call(ProcessorId).store(U32, R10, INDEX, R0).register(Op::Mov, R9, R0);
    look_up(code, maps.processors).jump_if(R0, If::Eq, 0, none).register(Op::Mov, R7, R0)
}

/// `R1` = device and length of the frame, in the format of a note.
fn frame_of(code: Assembler) -> Assembler {
    code.load(U32, R1, R6, LEN).load(U32, R2, R6, IFINDEX).constant(Op::Shl, R2, 32).register(Op::Or, R1, R2)
}

/// The program for the packet sockets of a port.
pub(crate) fn filter(port: u16, maps: Maps) -> Vec<u8> {
    let mut code = Assembler::default();
    let [pass, take, refuse, hit, fits, untagged, loaded, ipv6] = std::array::from_fn(|_| code.label());
    code = processor(code, maps, take)
        // The next odd number, also if the last frame's forwarder never ran. The exchange orders the reads below
        // behind it: a thread that removes a verdict and then reads an even number knows that the verdict is not in use.
        .load(U64, R1, R7, BUSY_AT)
        .constant(Op::Add, R1, 1)
        .constant(Op::Or, R1, 1)
        .exchange(R7, BUSY_AT, R1)
        .constant(Op::Mov, R1, 0)
        .store(U64, R7, NOTE_AT, R1)
        .load(U32, R1, R6, PKT_TYPE)
        .jump_if(R1, If::Eq, PACKET_OUTGOING, refuse)
        .constant(Op::Mov, R9, 0)
        .load(U32, R1, R6, VLAN_PRESENT)
        .jump_if(R1, If::Eq, 0, untagged)
        .load(U32, R1, R6, VLAN_PROTO)
        .be16(R1)
        .jump_if(R1, If::Ne, VLAN_PROTOCOL.into(), pass)
        .load(U32, R9, R6, VLAN_TCI)
        .constant(Op::Or, R9, PRESENT)
        .constant(Op::Shl, R9, 48)
        .place(untagged);
    code = load_bytes(code, 0, FRAME, TCP_FLAGS + 2).jump_if(R0, If::Eq, 0, loaded);
    // A shorter one is not TCP: its flags are read as zero, with the header's length.
    code = load_bytes(code, 0, FRAME, SHORTEST).jump_if(R0, If::Ne, 0, pass).place(loaded);
    code = code
        .load(U64, R1, R10, FRAME + 2)
        .store(U64, R10, WORDS, R1)
        .load(U32, R1, R10, FRAME + 10)
        .load(U16, R2, R10, FRAME)
        .constant(Op::Shl, R2, 32)
        .register(Op::Or, R1, R2)
        .register(Op::Or, R1, R9)
        .store(U64, R10, WORDS + 8, R1)
        .load(U16, R1, R10, FRAME + 12)
        .be16(R1)
        .jump_if(R1, If::Eq, 0x86dd, ipv6)
        .jump_if(R1, If::Ne, 0x0800, pass);
    code = plain_ipv4(code, pass);
    code = look_for_flow(code, port, Network::Ipv4, maps, pass, hit).place(ipv6);
    code = plain_ipv6(code, pass);
    code = look_for_flow(code, port, Network::Ipv6, maps, pass, hit).place(hit);
    code = frame_of(code.load(U64, R9, R0, 0)).store(U64, R7, FRAME_AT, R1);
    code = code
        .register(Op::Mov, R1, R9)
        .constant(Op::Shr, R1, 32)
        .register(Op::Mov, R2, R1)
        .constant(Op::Shr, R2, 16)
        .store(U64, R7, TAG_AT, R2)
        .constant(Op::And, R1, 0xffff)
        .store(U32, R10, INDEX, R1);
    look_up(code, maps.ports)
        .jump_if(R0, If::Eq, 0, pass)
        .load(U64, R1, R0, 0)
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

/// `R0` = 0 if the frame has `len` bytes from `at` on, which are then at `to` in the stack; else there are zeros.
fn load_bytes(code: Assembler, at: usize, to: i16, len: usize) -> Assembler {
    code.register(Op::Mov, R1, R6)
        .constant(Op::Mov, R2, at as i32)
        .register(Op::Mov, R3, R10)
        .constant(Op::Add, R3, to.into())
        .constant(Op::Mov, R4, len as i32)
        .call(SkbLoadBytes)
}

/// Continues with the words of the frame in the stack and its TCP flags in `R9` if it is plain, in the order of
/// the checks in `flow::plain`; else jumps to `pass`.
fn plain_ipv4(mut code: Assembler, pass: Label) -> Assembler {
    let [udp, keyed] = std::array::from_fn(|_| code.label());
    let at = |offset: usize| FRAME + offset as i16;
    code = code
        // Version 4, and a header without options.
        .load(U8, R1, R10, at(14))
        .jump_if(R1, If::Ne, 0x45, pass)
        .load(U16, R1, R10, at(20))
        .be16(R1)
        .jump_if(R1, If::Set, 0x3fff, pass)
        // The length in the header fits the frame.
        .load(U16, R8, R10, at(16))
        .be16(R8)
        .load(U32, R1, R6, LEN)
        .register(Op::Mov, R2, R8)
        .constant(Op::Add, R2, 14)
        .jump_if_register(R2, If::Gt, R1, pass)
        .constant(Op::Mov, R9, 0)
        .load(U8, R1, R10, at(23))
        .jump_if(R1, If::Eq, 17, udp)
        .jump_if(R1, If::Ne, 6, pass)
        .load(U16, R9, R10, at(TCP_FLAGS));
    code = tcp(code, 20, pass).jump(keyed).place(udp).jump_if(R8, If::Lt, 28, pass).place(keyed);
    code = code
        .load(U16, R1, R10, at(22))
        .constant(Op::Shl, R1, 16)
        .load(U8, R2, R10, at(15))
        .register(Op::Or, R1, R2)
        .store(U64, R10, WORDS + 16, R1)
        .load(U64, R1, R10, at(ADDRESSES))
        .store(U64, R10, WORDS + 24, R1);
    ports_and_flags(code, at(PORTS), WORDS + 32)
}

/// Writes a word of the ports at `from` and the TCP flags in `R9` to `to`, both offsets in the stack.
fn ports_and_flags(code: Assembler, from: i16, to: i16) -> Assembler {
    code.load(U32, R1, R10, from)
        .register(Op::Mov, R2, R9)
        .constant(Op::Shl, R2, 32)
        .register(Op::Or, R1, R2)
        .store(U64, R10, to, R1)
}

/// The same for IPv6.
fn plain_ipv6(mut code: Assembler, pass: Label) -> Assembler {
    const AT: i16 = WORDS + 24;
    let [loaded, udp, keyed] = std::array::from_fn(|_| code.label());
    let (frame, behind) = (|offset: usize| FRAME + offset as i16, |offset: usize| AT + (offset - ADDRESSES_6) as i16);
    code = code
        .load(U8, R1, R10, frame(14))
        .constant(Op::Shr, R1, 4)
        .jump_if(R1, If::Ne, 6, pass)
        .load(U16, R8, R10, frame(18))
        .be16(R8)
        .load(U32, R1, R6, LEN)
        .register(Op::Mov, R2, R8)
        .constant(Op::Add, R2, PORTS_6 as i32)
        .jump_if_register(R2, If::Gt, R1, pass)
        .load(U32, R1, R10, frame(14))
        .load(U16, R2, R10, frame(20))
        .constant(Op::Shl, R2, 32)
        .register(Op::Or, R1, R2)
        .store(U64, R10, WORDS + 16, R1);
    // The rest is as in the frame. A shorter one is not TCP, as above.
    code = load_bytes(code, ADDRESSES_6, AT, HEADERS - ADDRESSES_6).jump_if(R0, If::Eq, 0, loaded);
    code = load_bytes(code, ADDRESSES_6, AT, SHORTEST_6 - ADDRESSES_6).jump_if(R0, If::Ne, 0, pass).place(loaded);
    code = code
        .constant(Op::Mov, R9, 0)
        .load(U8, R1, R10, frame(20))
        .jump_if(R1, If::Eq, 17, udp)
        .jump_if(R1, If::Ne, 6, pass)
        .load(U16, R9, R10, behind(FLAGS_6));
    code = tcp(code, 0, pass).jump(keyed).place(udp).jump_if(R8, If::Lt, 8, pass).place(keyed);
    ports_and_flags(code, behind(PORTS_6), behind(PORTS_6))
}

/// Converts `R9`, two bytes of a TCP header, to its flags; jumps to `pass` if the header's length does not fit `R8` bytes less
/// `before`.
fn tcp(code: Assembler, before: i32, pass: Label) -> Assembler {
    code.be16(R9)
        .register(Op::Mov, R1, R9)
        .constant(Op::Shr, R1, 12)
        .constant(Op::Shl, R1, 2)
        .jump_if(R1, If::Lt, 20, pass)
        .constant(Op::Add, R1, before)
        .jump_if_register(R1, If::Gt, R8, pass)
        .constant(Op::And, R9, 0xfff)
}

/// Looks the frame up under each mask of the port and network: jumps to `hit` with the entry at `R0`, or to `pass`.
fn look_for_flow(code: Assembler, port: u16, network: Network, maps: Maps, pass: Label, hit: Label) -> Assembler {
    let word = |at: usize| 8 * at as i16;
    let code = code.store(U64, R7, FLAGS_AT, R9).constant(Op::Mov, R1, port.into()).store(U32, R10, INDEX, R1);
    let mut code = look_up(code, maps.masks).jump_if(R0, If::Eq, 0, pass).register(Op::Mov, R8, R0).load(
        U64,
        R9,
        R8,
        word(network as usize),
    );
    for mask in 0..MASKS_MAX {
        code = code
            .jump_if(R9, If::Le, mask as i32, pass)
            .constant(Op::Mov, R1, first_word(port, mask) as i32)
            .store(U64, R10, KEY, R1);
        for at in 0..network.words() {
            code = code
                .load(U64, R1, R10, WORDS + word(at))
                .load(U64, R2, R8, word(mask_at(network, mask) + at))
                .register(Op::And, R1, R2)
                .store(U64, R10, KEY + word(1 + at), R1);
        }
        code = code
            .map(R1, maps.flows[network as usize])
            .register(Op::Mov, R2, R10)
            .constant(Op::Add, R2, KEY.into())
            .call(MapLookup)
            .jump_if(R0, If::Ne, 0, hit);
    }
    code.jump(pass)
}

/// The program for tcx, the same for all ports.
pub(crate) fn forwarder(maps: Maps) -> Vec<u8> {
    let mut code = Assembler::default();
    let [next, send, push, tagged, redirect] = std::array::from_fn(|_| code.label());
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
        // A tag has four bytes.
        .load(U32, R2, R6, VLAN_PRESENT)
        .constant(Op::Shl, R2, 2)
        .register(Op::Add, R1, R2)
        .store(U64, R9, BYTES_AT, R1)
        .load(U64, R1, R9, ALL_FLAGS_AT)
        .load(U64, R2, R7, FLAGS_AT)
        .register(Op::Or, R1, R2)
        .store(U64, R9, ALL_FLAGS_AT, R1)
        .place(send)
        // The counts are ordered before this.
        .load(U64, R1, R7, BUSY_AT)
        .constant(Op::Add, R1, 1)
        .exchange(R7, BUSY_AT, R1)
        .load(U64, R3, R7, TAG_AT)
        .jump_if(R3, If::Eq, 0, redirect)
        .register(Op::Mov, R1, R6)
        .jump_if(R3, If::Set, PRESENT, push)
        .call(SkbVlanPop)
        .jump(tagged)
        .place(push)
        .constant(Op::And, R3, 0xffff & !PRESENT)
        .constant(Op::Mov, R2, VLAN_PROTOCOL.to_be().into())
        .call(SkbVlanPush)
        .place(tagged)
        // Both change metadata of the frame only, and succeed; the kernel would count this drop at the device.
        .jump_if(R0, If::Eq, 0, redirect)
        .constant(Op::Mov, R0, TCX_DROP)
        .exit()
        .place(redirect)
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
