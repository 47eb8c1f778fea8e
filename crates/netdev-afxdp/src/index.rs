//! The arithmetic of the rings that a socket shares with the kernel (Linux Documentation/networking/af_xdp.rst), without
//! the memory: who may touch which slot.
//!
//! A ring has a power of two of slots and two indices that only grow, modulo 2^32: the producer's, up to which entries
//! were put in, and the consumer's, up to which they were taken out. Each side writes its own and reads the other's.
//! Entry `n` stands in slot `n mod size`, also where `n` wraps, as the size divides 2^32.
//!
//! Invariants: `tail <= published <= head` and `head - tail <= size` for a [`Producer`], `taken <= head` and `head -
//! released <= size` for a [`Consumer`], all modulo 2^32. What the other side writes cannot break them: an index that
//! it cannot have is ignored.

/// The side of a ring that puts entries in.
#[derive(Clone, Debug)]
pub(crate) struct Producer {
    size: u32,
    /// Entries put in so far.
    head: u32,
    /// Of these, those that the other side knows of.
    published: u32,
    /// Entries that the other side took out, as far as we know.
    tail: u32,
}

impl Producer {
    /// Of an empty ring of `size` slots, a power of two, both of whose indices are `at`.
    pub(crate) fn new(size: u32, at: u32) -> Self {
        debug_assert!(size.is_power_of_two(), "slots are a power of two");
        Self { size, head: at, published: at, tail: at }
    }

    /// Takes the consumer's index as it is now. Returns how many entries it took since.
    pub(crate) fn saw(&mut self, consumer: u32) -> u32 {
        let taken = consumer.wrapping_sub(self.tail);
        if taken > self.published.wrapping_sub(self.tail) {
            return 0;
        }
        self.tail = consumer;
        taken
    }

    /// Entries for which there is room.
    pub(crate) fn room(&self) -> u32 {
        self.size - self.head.wrapping_sub(self.tail)
    }

    /// Entries that the other side knows of and did not take out, as far as we know.
    pub(crate) fn waiting(&self) -> u32 {
        self.published.wrapping_sub(self.tail)
    }

    /// The slot for the next entry, which is ours to write until [`Producer::publish`]. `None` if there is no room.
    pub(crate) fn put(&mut self) -> Option<u32> {
        if self.room() == 0 {
            return None;
        }
        let slot = self.head & (self.size - 1);
        self.head = self.head.wrapping_add(1);
        Some(slot)
    }

    /// The producer's index to store, so that the other side sees what was put in; `None` if nothing was.
    pub(crate) fn publish(&mut self) -> Option<u32> {
        if self.head == self.published {
            return None;
        }
        self.published = self.head;
        Some(self.published)
    }
}

/// The side of a ring that takes entries out.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    size: u32,
    /// Entries that the other side put in, as far as we know.
    head: u32,
    /// Entries taken out so far.
    taken: u32,
    /// Of these, those that the other side knows of.
    released: u32,
}

impl Consumer {
    /// Of an empty ring of `size` slots, a power of two, both of whose indices are `at`.
    pub(crate) fn new(size: u32, at: u32) -> Self {
        debug_assert!(size.is_power_of_two(), "slots are a power of two");
        Self { size, head: at, taken: at, released: at }
    }

    /// Takes the producer's index as it is now.
    pub(crate) fn saw(&mut self, producer: u32) {
        let known = self.head.wrapping_sub(self.released);
        let now = producer.wrapping_sub(self.released);
        if now >= known && now <= self.size {
            self.head = producer;
        }
    }

    /// Entries that wait, as far as we know.
    pub(crate) fn available(&self) -> u32 {
        self.head.wrapping_sub(self.taken)
    }

    /// The slot of the entry `ahead` of the next one, which is ours to read; `None` if it is not there yet.
    pub(crate) fn peek(&self, ahead: u32) -> Option<u32> {
        (ahead < self.available()).then(|| self.taken.wrapping_add(ahead) & (self.size - 1))
    }

    /// Takes `n` entries out, or as many as there are. Their slots stay ours until [`Consumer::release`].
    pub(crate) fn advance(&mut self, n: u32) {
        self.taken = self.taken.wrapping_add(n.min(self.available()));
    }

    /// The consumer's index to store, so that the other side has the slots back; `None` if nothing was taken.
    pub(crate) fn release(&mut self) -> Option<u32> {
        if self.taken == self.released {
            return None;
        }
        self.released = self.taken;
        Some(self.released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::some;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// The ring as memory: slots and the two indices. Both sides are played with it.
    struct Memory {
        slots: Vec<u64>,
        producer: u32,
        consumer: u32,
    }

    #[derive(Clone, Debug)]
    enum Step {
        /// We (or the kernel) put so many in, or take so many out.
        Put(u32),
        Publish,
        Take(u32),
        Release,
        /// One side looks at what the other did.
        ProducerLooks,
        ConsumerLooks,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0u32..12).prop_map(Step::Put),
            Just(Step::Publish),
            (0u32..12).prop_map(Step::Take),
            Just(Step::Release),
            Just(Step::ProducerLooks),
            Just(Step::ConsumerLooks),
        ];
        prop::collection::vec(step, 1..some(200))
    }

    tally::proptest! {
        /// Producer and consumer over one memory are a queue, wherever the indices begin. The naive twin is a
        /// `VecDeque` of what was put in and not taken out.
        #[test]
        fn both_sides_make_a_queue(bits in 0u32..5, before in 0u32..40, steps in steps()) {
            let size = 1 << bits;
            let at = 0u32.wrapping_sub(before);
            let mut memory = Memory { slots: vec![0; size as usize], producer: at, consumer: at };
            let (mut producer, mut consumer) = (Producer::new(size, at), Consumer::new(size, at));
            let (mut queue, mut unpublished) = (VecDeque::new(), VecDeque::new());
            let (mut next, mut unreleased) = (1u64, 0);
            for step in steps {
                match step {
                    Step::Put(n) => for _ in 0..n {
                        match producer.put() {
                            Some(slot) => {
                                memory.slots[slot as usize] = next;
                                unpublished.push_back(next);
                                next += 1;
                            }
                            None => prop_assert_eq!(producer.room(), 0),
                        }
                    },
                    Step::Publish => {
                        prop_assert_eq!(producer.clone().publish().is_none(), unpublished.is_empty());
                        memory.producer = producer.publish().unwrap_or(memory.producer);
                        queue.append(&mut unpublished);
                    }
                    Step::Take(n) => {
                        for ahead in 0..n {
                            let Some(slot) = consumer.peek(ahead) else { break };
                            prop_assert_eq!(Some(&memory.slots[slot as usize]), queue.get(ahead as usize));
                        }
                        let n = n.min(consumer.available());
                        consumer.advance(n);
                        queue.drain(..n as usize);
                        unreleased += n;
                    }
                    Step::Release => {
                        prop_assert_eq!(consumer.clone().release().is_none(), unreleased == 0);
                        memory.consumer = consumer.release().unwrap_or(memory.consumer);
                        unreleased = 0;
                    }
                    Step::ProducerLooks => {
                        producer.saw(memory.consumer);
                        let held = (queue.len() + unpublished.len()) as u32 + unreleased;
                        prop_assert_eq!(producer.room(), size - held);
                    }
                    Step::ConsumerLooks => {
                        consumer.saw(memory.producer);
                        prop_assert_eq!(consumer.available() as usize, queue.len());
                    }
                }
                prop_assert!(producer.room() <= size && consumer.available() <= size);
            }
        }

        /// Whatever the other side writes, no more slots are used than there are.
        #[test]
        fn nonsense_of_the_other_side_changes_nothing(bits in 0u32..5, at: u32, said: Vec<u32>) {
            let size = 1 << bits;
            let (mut producer, mut consumer) = (Producer::new(size, at), Consumer::new(size, at));
            for said in said {
                producer.saw(said);
                producer.put();
                producer.publish();
                prop_assert!(producer.room() <= size && producer.waiting() <= size);
                consumer.saw(said);
                prop_assert!(consumer.available() <= size);
                consumer.advance(1);
            }
        }
    }

    #[test]
    fn an_index_that_goes_back_is_ignored() {
        let mut consumer = Consumer::new(8, 0);
        consumer.saw(4);
        consumer.saw(2);
        consumer.saw(9);
        assert_eq!(consumer.available(), 4);
        let mut producer = Producer::new(8, 0);
        producer.put();
        assert_eq!((producer.saw(1), producer.publish(), producer.saw(1)), (0, Some(1), 1));
        assert_eq!((producer.saw(0), producer.waiting()), (0, 0));
    }
}
