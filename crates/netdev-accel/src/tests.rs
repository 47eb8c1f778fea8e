//! The programs, tried on frames without devices, beside a list of verdicts and `flow::plain`.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use base::PortNo;
use base::rng::Rng;
use flow::{PlainKey, Words, layout, plain::extract_plain};
use netdev::accelerate::{Accelerator, PLAIN_WORDS, Refusal, Room, Verdict};
use netdev::{Netdev, Options};
use netdev_linux::bpf::{self, Kind};

use crate::kernel::{Maps, Tcx};
use crate::program;

/// `None`, with a word about it, where the kernel lets us load no programs.
fn maps() -> Option<Maps> {
    match Maps::new() {
        Ok(maps) => Some(maps),
        Err(e) => {
            println!("skipped: no BPF maps ({e})");
            None
        }
    }
}

/// The verdict that is noted, by its handle, and the note is taken.
fn take_note(tcx: &Tcx) -> Option<u32> {
    let notes = tcx.maps().processors.entries().iter().map(|words| words[1].swap(0, Ordering::SeqCst));
    let noted: Vec<u64> = notes.filter(|note| *note != 0).collect();
    assert!(noted.len() <= 1);
    noted.first().map(|note| {
        assert_eq!(note >> 32, u64::from(Tcx::TEST_IFINDEX));
        *note as u32 - 1
    })
}

fn device() -> Arc<dyn Netdev> {
    netdev::memory::open("null0", "null", &Options::new()).expect("a device in memory")
}

fn words_of(key: &PlainKey) -> [u64; PLAIN_WORDS] {
    let words = [layout::ETH_DST, layout::ETH_SRC, layout::IPV4, layout::IP_MISC, layout::TP].map(|w| key.word(w));
    [words[0] & !0xffff, words[1], words[2], words[3], words[4]]
}

/// A frame of few values at each place, most often plain.
fn frame(rng: &mut Rng) -> Vec<u8> {
    let mut frame = vec![0; 14 + 20 + 20 + rng.below(40) as usize];
    let pick = |rng: &mut Rng, of: &[u8]| of[rng.below(of.len() as u64) as usize];
    for at in [5, 11, 15, 22, 29, 33, 35, 37] {
        frame[at] = rng.below(3) as u8;
    }
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    let total = (frame.len() - 14) as u16;
    frame[16..18].copy_from_slice(&total.to_be_bytes());
    frame[23] = pick(rng, &[6, 6, 17, 17, 1]);
    frame[46..48].copy_from_slice(&[0x50, pick(rng, &[0x02, 0x10, 0x18])]);
    match rng.below(12) {
        0 => frame[14] = 0x46,
        1 => frame[20] = 0x20,
        2 => frame[12] = 0x86,
        3 => frame[46] = pick(rng, &[0x40, 0x60, 0xf0]),
        4 => frame[17] = rng.below(120) as u8,
        // The kernel tries programs on no frame that ends within its IPv4 header.
        5 => frame.truncate(34 + rng.below(20) as usize),
        6 => frame[rng.below(48) as usize] = rng.next_u64() as u8,
        _ => {}
    }
    frame
}

#[test]
fn the_filter_finds_what_a_list_of_verdicts_has() {
    let Some(maps) = maps() else { return };
    let tcx = Tcx::for_test(maps, &[device(), device()]);
    let load = |port| {
        bpf::load(Kind::Tcx, &program::filter(port, tcx.maps().descriptors()), "flowstone_try")
            .expect("a valid program")
    };
    // As programs for tcx: those for sockets are tried on frames without Ethernet headers.
    let (filter, of_another_port) = (load(0), load(1));
    let mut rng = Rng::seeded(11);
    let (mut hits, mut frames, mut plain, rounds) = (0, 0, 0, 150);
    for _ in 0..rounds {
        let masks: Vec<[u64; PLAIN_WORDS]> = (0..=rng.below(10))
            .map(|_| {
                let some = |rng: &mut Rng| [0, u64::MAX, rng.next_u64()][rng.below(3) as usize];
                let mut mask = std::array::from_fn(|_| some(&mut rng));
                mask[0] &= !0xffff;
                mask[1] &= !0xffff;
                mask[3] &= 0xff_ffff;
                mask[4] &= !0xf000_ffff;
                mask
            })
            .collect();
        let mut verdicts = Vec::new();
        for _ in 0..rng.below(40) {
            let Some(key) = extract_plain(&frame(&mut rng), PortNo(1)) else { continue };
            let mask = masks[rng.below(masks.len() as u64) as usize];
            let words = words_of(&key);
            let key = std::array::from_fn(|i| words[i] & mask[i]);
            let verdict = Verdict { from: 0, to: 1, key, mask };
            match tcx.put(&verdict) {
                Ok(handle) => verdicts.push((handle, verdict)),
                Err(Refusal::Taken) => assert!(verdicts.iter().any(|(_, v)| *v == verdict)),
                Err(refusal) => assert_eq!(refusal, Refusal::TooManyMasks),
            }
        }
        if !verdicts.is_empty() && rng.below(2) == 0 {
            let (handle, _) = verdicts.swap_remove(rng.below(verdicts.len() as u64) as usize);
            tcx.remove(&[handle], &mut |_, forwarded| assert_eq!(forwarded.packets, 0));
        }
        for _ in 0..60 {
            let frame = frame(&mut rng);
            let key = extract_plain(&frame, PortNo(1)).map(|key| words_of(&key));
            let covers =
                |v: &Verdict, key: &[u64; PLAIN_WORDS]| (0..PLAIN_WORDS).all(|i| (key[i] ^ v.key[i]) & v.mask[i] == 0);
            let expected: Vec<u32> = key
                .iter()
                .flat_map(|key| verdicts.iter().filter(|(_, v)| covers(v, key)).map(|(handle, _)| *handle))
                .collect();
            let run = bpf::test_run(filter.as_fd(), &frame, 1).expect("a frame to try it on");
            let noted = take_note(&tcx);
            assert_eq!(noted.is_some(), !expected.is_empty(), "{frame:x?}");
            assert!(noted.is_none_or(|handle| expected.contains(&handle)));
            assert_eq!(run.result, if noted.is_some() { 0 } else { u32::MAX });
            bpf::test_run(of_another_port.as_fd(), &frame, 1).expect("a frame to try it on");
            assert_eq!(take_note(&tcx), None);
            (hits, frames, plain) =
                (hits + usize::from(noted.is_some()), frames + 1, plain + usize::from(key.is_some()));
        }
        let handles: Vec<u32> = verdicts.iter().map(|(handle, _)| *handle).collect();
        tcx.remove(&handles, &mut |_, _| {});
        assert_eq!((tcx.room().flows, tcx.room().masks), (0, 0));
    }
    assert!(hits > 500 && plain - hits > 500, "{hits} of {plain}");
    // For the record; nothing depends on it.
    let verdict = |n: usize| Verdict { from: 0, to: 1, key: [0, 0, 1 << n, 0, 0], mask: [0, 0, 1 << n, 0, 0] };
    let udp = frame_of_udp();
    let cost = |n: usize| {
        assert!((0..n).all(|n| matches!(tcx.put(&verdict(n)), Ok(_) | Err(Refusal::Taken))));
        bpf::test_run(filter.as_fd(), &udp, 20_000).map_or(0, |run| run.ns)
    };
    let (none, one, all) = (cost(0), cost(1), cost(program::MASKS_MAX));
    tally::report!(
        "{frames} frames, {plain} plain, {hits} covered; {none} ns a frame without a mask, {one} with one, {all} with all"
    );
}

fn frame_of_udp() -> Vec<u8> {
    let mut frame = vec![0; 60];
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17]);
    frame
}

#[test]
fn frames_that_do_not_fit_and_ports_that_are_down_are_left_to_userspace() {
    let Some(maps) = maps() else { return };
    let tcx = Tcx::for_test(maps, &[device(), device()]);
    let filter = bpf::load(Kind::Tcx, &program::filter(0, tcx.maps().descriptors()), "flowstone_try").expect("valid");
    let frame = frame_of_udp();
    let verdict = Verdict { from: 0, to: 1, key: [0; PLAIN_WORDS], mask: [0; PLAIN_WORDS] };
    let handle = tcx.put(&verdict).expect("room");
    let found = |longest: u64, ifindex: u64| {
        tcx.set_port_for_test(1, ifindex | longest << 32);
        let run = bpf::test_run(filter.as_fd(), &frame, 1).expect("a frame to try it on");
        (take_note(&tcx), run.result == 0)
    };
    let ifindex = u64::from(Tcx::TEST_IFINDEX);
    assert_eq!(found(60, ifindex), (Some(handle), true));
    assert_eq!(found(59, ifindex), (None, false));
    assert_eq!(found(60, 0), (None, false));
}

#[test]
fn the_forwarder_is_accepted_and_lets_frames_pass_without_a_note() {
    let Some(maps) = maps() else { return };
    let forwarder = bpf::load(Kind::Tcx, &program::forwarder(maps.descriptors()), "flowstone_send").expect("valid");
    assert_eq!(bpf::test_run(forwarder.as_fd(), &[0; 60], 1).expect("a frame to try it on").result, u32::MAX);
}

#[test]
fn there_is_room_for_so_many() {
    let Some(maps) = maps() else { return };
    let tcx = Tcx::for_test(maps, &[device(), device()]);
    let mut mask = [0; PLAIN_WORDS];
    mask[2] = u64::MAX;
    let verdict = |n: u64| Verdict { from: 0, to: 1, key: [0, 0, n, 0, 0], mask };
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
    assert_eq!(tcx.room(), Room { flows_max: program::FLOWS_MAX, masks_max: program::MASKS_MAX, ..Room::default() });
}
