//! Any steps of both sides of a ring shared with the kernel, and any indices that the other side may write there.
#![no_main]

#[allow(dead_code, reason = "what the crate uses of it is more than what is tried here")]
#[path = "../../crates/netdev-afxdp/src/index.rs"]
mod index;

use std::collections::VecDeque;

use index::{Consumer, Producer};

/// Both sides follow the protocol: together they are a queue, and no slot is written while it waits to be read.
fn queue(size: u32, at: u32, steps: &[u8]) {
    let (mut producer, mut consumer) = (Producer::new(size, at), Consumer::new(size, at));
    let (mut consumer_index, mut released) = (at, at);
    // The contents of slots, and the entries put in, published and not, and not taken out.
    let mut slots = vec![None; size as usize];
    let (mut queue, mut hidden) = (VecDeque::new(), VecDeque::new());
    let mut taken = Vec::new();
    let mut next = 0u32;
    for step in steps {
        match step % 6 {
            0 => match producer.put() {
                Some(slot) => {
                    assert!(slots[slot as usize].replace(next).is_none(), "a slot that waits to be read or given back");
                    hidden.push_back(next);
                    next += 1;
                }
                None => assert_eq!(producer.free_slots(), 0),
            },
            1 => {
                assert_eq!(producer.publish().map(|index| consumer_index = index).is_none(), hidden.is_empty());
                queue.append(&mut hidden);
            }
            2 => consumer.update(consumer_index),
            3 => {
                let ahead = u32::from(step / 6);
                match consumer.peek(ahead) {
                    Some(slot) => assert_eq!(slots[slot as usize], queue.get(ahead as usize).copied()),
                    None => assert!(ahead >= consumer.available()),
                }
            }
            4 => {
                let n = u32::from(step / 6).min(consumer.available());
                taken.extend((0..n).filter_map(|ahead| consumer.peek(ahead)));
                consumer.advance(n);
                queue.drain(..n as usize);
            }
            _ => {
                assert_eq!(consumer.release().map(|index| released = index).is_none(), taken.is_empty());
                taken.drain(..).for_each(|slot| slots[slot as usize] = None);
                producer.update(released);
            }
        }
        assert!(producer.free_slots() <= size && consumer.available() as usize <= queue.len());
    }
}

/// The other side writes arbitrary indices: no more slots are ours than there are.
fn nonsense(size: u32, at: u32, steps: &[u8]) {
    let (mut producer, mut consumer) = (Producer::new(size, at), Consumer::new(size, at));
    for step in steps.chunks(5) {
        let &[what, a, b, c, d] = step else { break };
        let said = u32::from_le_bytes([a, b, c, d]);
        match what % 4 {
            0 => drop(producer.update(said)),
            1 => consumer.update(said),
            2 => {
                (0..said % 64).for_each(|_| assert!(producer.put().is_none_or(|slot| slot < size)));
                producer.publish();
            }
            _ => {
                assert!(consumer.peek(said).is_none_or(|slot| slot < size && said < size));
                consumer.advance(said);
                consumer.release();
            }
        }
        assert!(producer.free_slots() <= size && producer.waiting() <= size && consumer.available() <= size);
    }
}

fuzz::target!(|bytes: &[u8]| {
    let &[mode, a, b, c, d, ref steps @ ..] = bytes else { return };
    let (size, at) = (1 << ((mode >> 1) % 6), u32::from_le_bytes([a, b, c, d]));
    if mode & 1 == 0 { queue(size, at, steps) } else { nonsense(size, at, steps) }
});
