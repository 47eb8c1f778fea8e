//! The index arithmetic of the rings that a socket shares with the kernel (Linux
//! Documentation/networking/af_xdp.rst), without their memory: which side may access which slot.
//!
//! A ring has a power of two of slots and two monotonic indices, modulo 2^32: the producer's counts the entries put
//! in, and the consumer's the entries taken out. Each side writes its own index and reads the other one. Entry `n` is
//! in slot `n mod size`, also when `n` wraps, as the size divides 2^32.
//!
//! Invariants: `tail <= published <= head` and `head - tail <= size` for a [`Producer`], `taken <= head` and `head -
//! released <= size` for a [`Consumer`], all modulo 2^32. Writes of the other side cannot break them: an impossible
//! index is ignored.

/// The side of a ring that puts entries in.
#[derive(Clone, Debug)]
pub(crate) struct Producer {
    size: u32,
    /// Entries put in so far.
    head: u32,
    /// The entries published to the other side.
    published: u32,
    /// The entries known to be taken out by the other side.
    tail: u32,
}

impl Producer {
    /// An empty ring of `size` slots, a power of two, with both indices at `at`.
    pub(crate) fn new(size: u32, at: u32) -> Self {
        debug_assert!(size.is_power_of_two(), "slots are a power of two");
        Self { size, head: at, published: at, tail: at }
    }

    /// Reads the consumer's present index. Returns the number of entries taken since.
    pub(crate) fn update(&mut self, consumer: u32) -> u32 {
        let taken = consumer.wrapping_sub(self.tail);
        if taken > self.published.wrapping_sub(self.tail) {
            return 0;
        }
        self.tail = consumer;
        taken
    }

    /// Number of free slots.
    pub(crate) fn free_slots(&self) -> u32 {
        self.size - self.head.wrapping_sub(self.tail)
    }

    /// Number of published entries not known to be taken out.
    pub(crate) fn waiting(&self) -> u32 {
        self.published.wrapping_sub(self.tail)
    }

    /// Returns the slot of the next entry, which this side may write until [`Producer::publish`]. `None` if the ring
    /// is full.
    pub(crate) fn put(&mut self) -> Option<u32> {
        if self.free_slots() == 0 {
            return None;
        }
        let slot = self.head & (self.size - 1);
        self.head = self.head.wrapping_add(1);
        Some(slot)
    }

    /// Returns the producer's index to be stored, which publishes the entries put in; `None` if there are none.
    pub(crate) fn publish(&mut self) -> Option<u32> {
        if self.head == self.published {
            return None;
        }
        self.published = self.head;
        Some(self.published)
    }
}

/// The consuming side of a ring.
#[derive(Clone, Debug)]
pub(crate) struct Consumer {
    size: u32,
    /// Entries that the other side put in, as far as we know.
    head: u32,
    /// Entries taken out so far.
    taken: u32,
    /// The taken entries that the other side knows of.
    released: u32,
}

impl Consumer {
    /// An empty ring of `size` slots, a power of two, with both indices at `at`.
    pub(crate) fn new(size: u32, at: u32) -> Self {
        debug_assert!(size.is_power_of_two(), "slots are a power of two");
        Self { size, head: at, taken: at, released: at }
    }

    /// Takes the producer's index as it is now.
    pub(crate) fn update(&mut self, producer: u32) {
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

    /// Returns the slot of the entry `ahead` of the next one, which this side may read; `None` if it does not exist
    /// yet.
    pub(crate) fn peek(&self, ahead: u32) -> Option<u32> {
        (ahead < self.available()).then(|| self.taken.wrapping_add(ahead) & (self.size - 1))
    }

    /// Takes `n` entries out, or as many as there are. Their slots stay ours until [`Consumer::release`].
    pub(crate) fn advance(&mut self, n: u32) {
        self.taken = self.taken.wrapping_add(n.min(self.available()));
    }

    /// Returns the consumer's index to be stored, which returns slots to the other side; `None` if nothing was taken.
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
        /// One side puts in, or takes out, this number of entries.
        Put(u32),
        Publish,
        Take(u32),
        Release,
        /// One side reads the other's index.
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
        /// A producer and a consumer over one memory are a queue, wherever the indices begin. The naive twin is a
        /// `VecDeque` of the entries put in and not taken out.
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
                            None => prop_assert_eq!(producer.free_slots(), 0),
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
                        producer.update(memory.consumer);
                        let held = (queue.len() + unpublished.len()) as u32 + unreleased;
                        prop_assert_eq!(producer.free_slots(), size - held);
                    }
                    Step::ConsumerLooks => {
                        consumer.update(memory.producer);
                        prop_assert_eq!(consumer.available() as usize, queue.len());
                    }
                }
                prop_assert!(producer.free_slots() <= size && consumer.available() <= size);
            }
        }

        /// Whatever indices the other side writes, no more slots are used than exist.
        #[test]
        fn invalid_indices_of_the_other_side_are_ignored(bits in 0u32..5, at: u32, said: Vec<u32>) {
            let size = 1 << bits;
            let (mut producer, mut consumer) = (Producer::new(size, at), Consumer::new(size, at));
            for said in said {
                producer.update(said);
                producer.put();
                producer.publish();
                prop_assert!(producer.free_slots() <= size && producer.waiting() <= size);
                consumer.update(said);
                prop_assert!(consumer.available() <= size);
                consumer.advance(1);
            }
        }
    }

    #[test]
    fn an_index_that_decreases_is_ignored() {
        let mut consumer = Consumer::new(8, 0);
        consumer.update(4);
        consumer.update(2);
        consumer.update(9);
        assert_eq!(consumer.available(), 4);
        let mut producer = Producer::new(8, 0);
        producer.put();
        assert_eq!((producer.update(1), producer.publish(), producer.update(1)), (0, Some(1), 1));
        assert_eq!((producer.update(0), producer.waiting()), (0, 0));
    }
}
