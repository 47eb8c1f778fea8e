//! Tests the programs on frames without devices, against a list of verdicts and `flow::plain`.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::PortNo;
use base::rng::Rng;
use flow::layout::{ETH_DST, ETH_SRC, IP_MISC, IPV4, IPV6_DST, IPV6_SRC, TP, VLAN};
use flow::{Field, extract::extract, plain::extract_plain};
use netdev::accelerate::{Accelerator, Capacity, Common, Network, PLAIN_WORDS, Refusal, Tag, Verdict};
use netdev::{Netdev, Options};
use netdev_linux::bpf::asm::Op;
use netdev_linux::bpf::{self, Assembler, Helper, ProgramKind, Reg};

use crate::kernel::{Maps, Tcx};
use crate::program;

/// Returns `None` where the kernel refuses BPF maps, and says so. Panics in CI, where these tests must run.
fn maps() -> Option<Maps> {
    match Maps::new() {
        Ok(maps) => Some(maps),
        Err(e) => {
            assert!(std::env::var_os("CI").is_none(), "these tests need BPF maps: {e}");
            println!("skipped: no BPF maps ({e})");
            None
        }
    }
}

/// Returns the handle of the noted verdict, and takes the note, which a run of many frames leaves on each processor
/// that it moved to.
fn take_note(tcx: &Tcx) -> Option<u32> {
    let notes = tcx.maps().processors.entries().iter().map(|words| words[1].swap(0, Ordering::SeqCst));
    let mut noted: Vec<u64> = notes.filter(|note| *note != 0).collect();
    noted.dedup();
    assert!(noted.len() <= 1, "{noted:x?}");
    noted.first().map(|note| {
        assert_eq!(note >> 32, u64::from(Tcx::TEST_IFINDEX));
        *note as u32 - 1
    })
}

fn device() -> Arc<dyn Netdev> {
    netdev::memory::open("null0", "null", &Options::new()).expect("a device in memory")
}

/// The network of a plain frame, and its words: from its key, and where its headers are.
fn plain(frame: &[u8]) -> Option<(Network, [u64; PLAIN_WORDS])> {
    let (key, layers) = extract(frame, PortNo(1));
    let word = |at: usize| key.0[at];
    let (start, protocol) = if word(ETH_SRC) & 0xffff == 0 { (14, 0) } else { (18, 0x8100 << 48) };
    let (network, header) = match key.eth_type() {
        0x0800 => (Network::Ipv4, 20),
        0x86dd => (Network::Ipv6, 40),
        _ => return None,
    };
    // A key tells neither of the version nor of options.
    let version = [0x45, frame[start] & 0xf | 0x60][network as usize];
    let l4 = frame.get(start + header..layers.end)?;
    let whole = match key.ip_proto() {
        6 => l4.len() >= 20 && (20..=l4.len()).contains(&(usize::from(l4[12] >> 4) * 4)),
        17 => l4.len() >= 8,
        _ => false,
    };
    let headers = (layers.l3.map(usize::from), layers.l4.map(usize::from)) == (Some(start), Some(start + header));
    let is_plain = headers && frame[start] == version && key.get(Field::IpFrag) == 0 && whole && word(VLAN) == protocol;
    let addresses = match network {
        Network::Ipv4 => [word(IPV4), 0, 0, 0],
        Network::Ipv6 => [IPV6_SRC, IPV6_SRC + 1, IPV6_DST, IPV6_DST + 1].map(word),
    };
    let [a, b, c, d] = addresses;
    is_plain.then(|| (network, [word(ETH_DST) & !0xffff, word(ETH_SRC), word(IP_MISC), word(TP), a, b, c, d]))
}

fn pick<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
    of[rng.below(of.len() as u64) as usize]
}

/// A frame of few values at each place, most often plain, without a tag.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let network = pick(rng, &Network::ALL);
    let l4 = [34, 54][network as usize];
    let mut frame = vec![0; l4 + 20 + rng.below(40) as usize];
    let len = frame.len();
    for at in [5, 11, 15, l4 + 1, l4 + 3] {
        frame[at] = rng.below(3) as u8;
    }
    let proto = pick(rng, &[6, 6, 17, 17, 1]);
    match network {
        Network::Ipv4 => {
            frame[12..15].copy_from_slice(&[8, 0, 0x45]);
            frame[16..18].copy_from_slice(&((len - 14) as u16).to_be_bytes());
            (frame[22], frame[23], frame[29], frame[33]) = (rng.below(3) as u8, proto, rng.below(3) as u8, proto);
        }
        Network::Ipv6 => {
            frame[12..15].copy_from_slice(&[0x86, 0xdd, 0x60]);
            frame[18..20].copy_from_slice(&((len - 54) as u16).to_be_bytes());
            (frame[17], frame[20], frame[21]) = (rng.below(3) as u8, proto, rng.below(3) as u8);
            [22, 37, 53].into_iter().for_each(|at| frame[at] = rng.below(2) as u8);
        }
    }
    frame[l4 + 12..l4 + 14].copy_from_slice(&[0x50, pick(rng, &[0x02, 0x10, 0x18])]);
    match rng.below(14) {
        0 => frame[14] ^= 3,
        // A fragment; strange over IPv6.
        1 => frame[20] = 0x20,
        2 => frame[12] = 0x81,
        3 => frame[l4 + 12] = pick(rng, &[0x40, 0x60, 0xf0]),
        4 => frame[[17, 19][network as usize]] = rng.below(120) as u8,
        // The kernel rejects test runs on frames that end within their IP header.
        5 | 6 => frame.truncate(l4 + rng.below(20) as usize),
        7 => frame[rng.below(len.min(68) as u64) as usize] = rng.next_u64() as u8,
        // UDP whose length fits the frame that is shorter than a TCP header.
        8 => {
            frame.truncate(l4 + 8 + rng.below(8) as usize);
            let len = frame.len() as u16;
            match network {
                Network::Ipv4 => (frame[17], frame[23]) = (len as u8 - 14, 17),
                Network::Ipv6 => (frame[19], frame[20]) = (len as u8 - 54, 17),
            }
        }
        _ => {}
    }
    frame
}

/// Protocol and control information of a VLAN tag, as the sender has it.
type Control = (u16, u16);
const TAGS: [Option<Control>; 5] = [None, None, Some((0x8100, 7)), Some((0x8100, 0x3007)), Some((0x88a8, 7))];

/// The filter of a port as a program for tcx, as the kernel tests socket filters on frames without Ethernet headers.
/// Before it, the frame gets this tag, in the kernel's form of a tagged frame.
fn filter(tcx: &Tcx, port: u16, tag: Option<Control>) -> OwnedFd {
    with_tag(tag, &program::filter(port, tcx.maps().descriptors()))
}

/// A program, before which the frame gets this tag.
fn with_tag(tag: Option<Control>, program: &[u8]) -> OwnedFd {
    let mut code = Assembler::default();
    if let Some((protocol, tci)) = tag {
        code = code
            .register(Op::Mov, Reg::R6, Reg::R1)
            .constant(Op::Mov, Reg::R2, protocol.to_be().into())
            .constant(Op::Mov, Reg::R3, tci.into())
            .call(Helper::SkbVlanPush)
            .register(Op::Mov, Reg::R1, Reg::R6);
    }
    let code = [&code.finish(), program].concat();
    bpf::load(ProgramKind::Tcx, &code, "flowstone_try").expect("a valid program")
}

/// The frame with the tag in its bytes.
fn tagged(frame: &[u8], tag: Option<Control>) -> Vec<u8> {
    let mut frame = frame.to_vec();
    if let Some((protocol, tci)) = tag {
        frame.splice(12..12, [protocol, tci].into_iter().flat_map(u16::to_be_bytes));
    }
    frame
}

/// A mask of a network's plain frames.
fn mask(rng: &mut Rng, network: Network) -> [u64; PLAIN_WORDS] {
    let mut mask = std::array::from_fn(|_| [0, 0, u64::MAX, rng.next_u64()][rng.below(4) as usize]);
    mask[0] &= !0xffff;
    mask[2] &= [0xff_ffff, 0xf_ffff_00ff_ffff][network as usize];
    mask[3] &= !0xf000_ffff;
    mask[network.words()..].fill(0);
    mask
}

#[test]
fn the_filter_agrees_with_a_list_of_verdicts() {
    let Some(maps) = maps() else { return };
    let tcx = Tcx::for_test(maps, &[device(), device()]);
    let filters = TAGS.map(|tag| (tag, filter(&tcx, 0, tag)));
    let of_another_port = filter(&tcx, 1, None);
    let mut rng = Rng::seeded(11);
    // By network.
    let (mut hits, mut plains, mut tags, mut frames, rounds) = ([0; 2], [0; 2], [0; 2], 0, 200);
    for _ in 0..rounds {
        let masks: Vec<[_; 2]> =
            (0..=rng.below(10)).map(|_| Network::ALL.map(|network| mask(&mut rng, network))).collect();
        let mut verdicts: Vec<(u32, Verdict)> = Vec::new();
        for _ in 0..rng.below(40) {
            // Of one network, or of both.
            let mut of = [None; 2];
            for _ in 0..=rng.below(2) {
                let Some((network, words)) = plain(&tagged(&frame(&mut rng), pick(&mut rng, &TAGS))) else { continue };
                let mask = pick(&mut rng, &masks)[network as usize];
                of[network as usize] = Some(Common { key: std::array::from_fn(|i| words[i] & mask[i]), mask });
            }
            let verdict = Verdict { from: 0, to: 1, tag: Tag::Keep, frames: of };
            match tcx.put(&verdict) {
                Ok(handle) => verdicts.push((handle, verdict)),
                Err(Refusal::Taken) => {
                    let same = |v: &Verdict| (0..2).any(|n| of[n].is_some() && of[n] == v.frames[n]);
                    assert!(verdicts.iter().any(|(_, v)| same(v)));
                }
                Err(refusal) => assert_eq!(refusal, Refusal::TooManyMasks),
            }
        }
        if !verdicts.is_empty() && rng.below(2) == 0 {
            let (handle, _) = verdicts.swap_remove(rng.below(verdicts.len() as u64) as usize);
            tcx.remove(&[handle], &mut |_, forwarded| assert_eq!(forwarded.packets, 0));
        }
        for _ in 0..60 {
            let frame = frame(&mut rng);
            let (tag, filter) = &filters[rng.below(filters.len() as u64) as usize];
            let whole = tagged(&frame, *tag);
            let found = plain(&whole);
            if tag.is_none() {
                // Compact keys have more kinds of frames than the filter: ICMP, and VLAN tags within the bytes.
                let compact = extract_plain(&whole, PortNo(1)).map(|key| key.expand()).filter(|key| {
                    [6, 17].contains(&key.ip_proto()) && (key.0[VLAN], key.0[ETH_SRC] & 0xffff) == (0, 0)
                });
                let ipv4 = found.filter(|(network, _)| *network == Network::Ipv4);
                assert_eq!(ipv4.is_some(), compact.is_some(), "{whole:x?}");
            }
            let covers = |v: &Verdict, network: Network, words: &[u64; PLAIN_WORDS]| {
                let frames = v.frames[network as usize];
                frames.is_some_and(|of| (0..PLAIN_WORDS).all(|i| (words[i] ^ of.key[i]) & of.mask[i] == 0))
            };
            let expected: Vec<u32> = found
                .iter()
                .flat_map(|(n, words)| verdicts.iter().filter(|(_, v)| covers(v, *n, words)).map(|(handle, _)| *handle))
                .collect();
            let run = bpf::test_run(filter.as_fd(), &frame, 1).expect("a frame to try it on");
            let noted = take_note(&tcx);
            assert_eq!(noted.is_some(), !expected.is_empty(), "{whole:x?}");
            assert!(noted.is_none_or(|handle| expected.contains(&handle)));
            assert_eq!(run.result, if noted.is_some() { 0 } else { u32::MAX });
            bpf::test_run(of_another_port.as_fd(), &frame, 1).expect("a frame to try it on");
            assert_eq!(take_note(&tcx), None);
            frames += 1;
            if let Some((network, _)) = found {
                plains[network as usize] += 1;
                hits[network as usize] += usize::from(noted.is_some());
                tags[network as usize] += usize::from(noted.is_some() && tag.is_some());
            }
        }
        let handles: Vec<u32> = verdicts.iter().map(|(handle, _)| *handle).collect();
        tcx.remove(&handles, &mut |_, _| {});
        assert_eq!((tcx.capacity().flows, tcx.capacity().masks), (0, 0));
    }
    assert!(
        (0..2).all(|n| hits[n] > 300 && tags[n] > 100 && plains[n] - hits[n] > 300),
        "{hits:?} {tags:?} {plains:?}"
    );
    tally::report!("{frames} frames; of each network {plains:?} plain, {hits:?} covered, {tags:?} of them tagged");
}

/// For the record; nothing depends on it.
#[test]
fn cost_of_the_filter() {
    let Some(maps) = maps() else { return };
    let tcx = Tcx::for_test(maps, &[device(), device()]);
    let filter = filter(&tcx, 0, None);
    for (network, frame) in Network::ALL.into_iter().zip(frames_of_each()) {
        // Of a word that is compared last.
        let covered = |n: usize, bit: u64| {
            let mut of = Common { key: [0; PLAIN_WORDS], mask: [0; PLAIN_WORDS] };
            (of.key[4], of.mask[4]) = (bit, 1 << n);
            let mut frames = [None; 2];
            frames[network as usize] = Some(of);
            Verdict { from: 0, to: 1, tag: Tag::Keep, frames }
        };
        let ns = || bpf::test_run(filter.as_fd(), &frame, 200_000).map_or(0, |run| run.ns);
        let cost = |n: usize| {
            let missing = (0..n).map(|n| tcx.put(&covered(n, 1 << n)).expect("room")).collect::<Vec<_>>();
            let ns = ns();
            tcx.remove(&missing, &mut |_, _| {});
            ns
        };
        let (none, one, all) = (cost(0), cost(1), cost(program::MASKS_MAX));
        let handle = tcx.put(&covered(0, 0)).expect("room");
        let hit = ns();
        assert_eq!(take_note(&tcx), Some(handle));
        tcx.remove(&[handle], &mut |_, _| {});
        tally::report!(
            "{network:?}: {none} ns a frame without a mask, {one} with one, {all} with all; {hit} with a flow"
        );
    }
}

/// A UDP frame of each network.
fn frames_of_each() -> [Vec<u8>; 2] {
    let mut frames = [vec![0; 60], vec![0; 80]];
    frames[0][12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frames[1][12..22].copy_from_slice(&[0x86, 0xdd, 0x60, 0, 0, 0, 0, 26, 17, 64]);
    frames
}

/// All frames of both networks.
fn all_frames() -> Verdict {
    let all = Common { key: [0; PLAIN_WORDS], mask: [0; PLAIN_WORDS] };
    Verdict { from: 0, to: 1, tag: Tag::Keep, frames: [Some(all); 2] }
}

#[test]
fn userspace_gets_frames_over_the_mtu_or_to_ports_that_are_down() {
    let Some(maps) = maps() else { return };
    let tcx = Tcx::for_test(maps, &[device(), device()]);
    let filter = filter(&tcx, 0, None);
    let handle = tcx.put(&all_frames()).expect("room");
    for frame in frames_of_each() {
        let found = |longest: u64, ifindex: u64| {
            tcx.set_port_for_test(1, ifindex | longest << 32);
            let run = bpf::test_run(filter.as_fd(), &frame, 1).expect("a frame to try it on");
            (take_note(&tcx), run.result == 0)
        };
        let (ifindex, len) = (u64::from(Tcx::TEST_IFINDEX), frame.len() as u64);
        assert_eq!(found(len, ifindex), (Some(handle), true));
        assert_eq!(found(len - 1, ifindex), (None, false));
        assert_eq!(found(len, 0), (None, false));
    }
}

#[test]
fn the_forwarder_is_accepted_and_lets_frames_pass_without_a_note() {
    let Some(maps) = maps() else { return };
    let forwarder =
        bpf::load(ProgramKind::Tcx, &program::forwarder(maps.descriptors()), "flowstone_send").expect("valid");
    assert_eq!(bpf::test_run(forwarder.as_fd(), &[0; 60], 1).expect("a frame to try it on").result, u32::MAX);
}

/// Each frame is redirected once, whether its tag changes or not, and with its original bytes.
#[test]
fn the_forwarder_redirects_and_counts_noted_frames() {
    /// The return code of a program at tcx for a redirected frame (`TC_ACT_REDIRECT`).
    const REDIRECTED: u32 = 7;
    let Some(maps) = maps() else { return };
    let tcx = Tcx::for_test(maps, &[device(), device()]);
    for (had, tag) in [(0, Tag::Keep), (0, Tag::Push(0x1007)), (4, Tag::Keep), (4, Tag::Pop)] {
        let before = (had > 0).then_some((0x8100, 7));
        let filter = filter(&tcx, 0, before);
        let forwarder = with_tag(before, &program::forwarder(tcx.maps().descriptors()));
        let handle = tcx.put(&Verdict { tag, ..all_frames() }).expect("room");
        for (n, frame) in (1..).zip(frames_of_each()) {
            let run = |program: &OwnedFd| bpf::test_run(program.as_fd(), &frame, 1).expect("a frame").result;
            // The processor may be another one, which has no note.
            let once = || {
                assert_eq!(run(&filter), 0);
                run(&forwarder)
            };
            assert_eq!((0..100).map(|_| once()).find(|result| *result != u32::MAX), Some(REDIRECTED));
            let forwarded = tcx.forwarded(handle);
            let bytes: usize = frames_of_each()[..n as usize].iter().map(|frame| frame.len() + had).sum();
            assert_eq!((forwarded.packets, forwarded.bytes), (n, bytes as u64), "{tag:?}");
        }
        tcx.remove(&[handle], &mut |_, forwarded| assert_eq!(forwarded.packets, 2));
    }
}

#[test]
fn capacity_is_limited() {
    let Some(maps) = maps() else { return };
    let tcx = Tcx::for_test(maps, &[device(), device()]);
    let verdict = |n: u64| {
        let (mut key, mut mask) = ([0; PLAIN_WORDS], [0; PLAIN_WORDS]);
        (key[4], mask[4]) = (n, u64::MAX);
        Verdict { from: 0, to: 1, tag: Tag::Keep, frames: [Some(Common { key, mask }), None] }
    };
    let begin = Instant::now();
    let handles: Vec<u32> = (0..program::FLOWS_MAX as u64).map(|n| tcx.put(&verdict(n)).expect("room")).collect();
    let taken = begin.elapsed();
    assert_eq!(tcx.put(&verdict(u64::MAX)), Err(Refusal::Full));
    assert_eq!(tcx.put(&verdict(0)), Err(Refusal::Taken));
    tcx.remove(&handles[..1], &mut |_, _| {});
    assert_eq!(tcx.put(&verdict(u64::MAX)), Ok(handles[0]));
    let begin = Instant::now();
    handles.iter().for_each(|handle| tcx.remove(&[*handle], &mut |_, _| {}));
    let each = |all: Duration| all.as_nanos() / handles.len() as u128;
    tally::report!("{} ns to take a flow, {} to give it up", each(taken), each(begin.elapsed()));
    assert_eq!(
        tcx.capacity(),
        Capacity { flows_max: program::FLOWS_MAX, masks_max: program::MASKS_MAX, ..Capacity::default() }
    );
}
