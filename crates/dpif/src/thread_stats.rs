//! Counters of packet threads.

/// Counters of a packet thread.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadStats {
    /// Packets received.
    pub packets: u64,
    /// Received batches.
    pub batches: u64,
    /// Number of batches with one packet, two packets, and so on.
    pub batch_sizes: Vec<u64>,
    /// Packets that hit the microflow cache.
    pub microflow_hits: u64,
    /// Packets that hit the megaflow index.
    pub megaflow_hits: u64,
    /// Parts of the index visited: nodes of the tree or subtables of tuple space search.
    pub probes: u64,
    /// Recirculations: each lookup of a packet after its first.
    pub recirculations: u64,
    /// Packets that matched no flow.
    pub misses: u64,
    /// Misses that were dropped because the thread's upcall queue at their port was full.
    pub lost: u64,
    /// Packets that were translated again to check their flow.
    pub checks: u64,
    /// Checks that found a wrong flow.
    pub checks_failed: u64,
    /// Packets sent, as devices accepted them.
    pub tx_packets: u64,
    /// Batches sent.
    pub tx_batches: u64,
    /// Rounds over the thread's queues.
    pub rounds: u64,
    /// Number of sleeps.
    pub sleeps: u64,
    /// Nanoseconds in rounds that moved packets.
    pub busy_ns: u64,
    /// Nanoseconds in rounds that moved no packets, and asleep.
    pub idle_ns: u64,
    /// Nanoseconds asleep, part of `idle_ns`.
    pub sleep_ns: u64,
    /// Histogram of packets per round, of rounds that moved packets: bucket n counts rounds with 2^(n-1) to 2^n - 1
    /// packets, and the last bucket all larger ones.
    pub rounds_by_packets: Vec<u64>,
    /// Histogram of nanoseconds per round, with the same buckets.
    pub rounds_by_ns: Vec<u64>,
    /// Histogram of nanoseconds per packet, with the same buckets.
    pub rounds_by_packet_ns: Vec<u64>,
    /// Panics in processing; each lost the packets of a batch.
    pub panics: u64,
}

/// What a packet thread did in a round over its queues, or in the rounds that ended in one millisecond.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RoundSample {
    /// The number of the round, or of the millisecond.
    pub at: u64,
    /// Rounds.
    pub rounds: u64,
    /// Nanoseconds awake.
    pub ns: u64,
    /// Packets received.
    pub packets: u64,
    /// Received batches.
    pub batches: u64,
    /// Packets that matched no flow.
    pub upcalls: u64,
}

impl RoundSample {
    /// Adds a later round.
    pub fn merge(&mut self, other: Self) {
        self.rounds += other.rounds;
        self.ns += other.ns;
        self.packets += other.packets;
        self.batches += other.batches;
        self.upcalls += other.upcalls;
    }
}

/// The last rounds and milliseconds of a packet thread, the newest first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoundHistory {
    /// Rounds.
    pub rounds: Vec<RoundSample>,
    /// Milliseconds.
    pub milliseconds: Vec<RoundSample>,
}

impl ThreadStats {
    /// The difference to earlier counters of the same thread.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let each = |now: &[u64], before: &[u64]| {
            let before = before.iter().copied().chain(std::iter::repeat(0));
            now.iter().zip(before).map(|(now, before)| now - before).collect()
        };
        Self {
            packets: self.packets - before.packets,
            batches: self.batches - before.batches,
            batch_sizes: each(&self.batch_sizes, &before.batch_sizes),
            microflow_hits: self.microflow_hits - before.microflow_hits,
            megaflow_hits: self.megaflow_hits.saturating_sub(before.megaflow_hits),
            probes: self.probes - before.probes,
            recirculations: self.recirculations - before.recirculations,
            misses: self.misses - before.misses,
            lost: self.lost - before.lost,
            checks: self.checks - before.checks,
            checks_failed: self.checks_failed - before.checks_failed,
            tx_packets: self.tx_packets - before.tx_packets,
            tx_batches: self.tx_batches - before.tx_batches,
            rounds: self.rounds - before.rounds,
            sleeps: self.sleeps - before.sleeps,
            busy_ns: self.busy_ns - before.busy_ns,
            idle_ns: self.idle_ns - before.idle_ns,
            sleep_ns: self.sleep_ns - before.sleep_ns,
            rounds_by_packets: each(&self.rounds_by_packets, &before.rounds_by_packets),
            rounds_by_ns: each(&self.rounds_by_ns, &before.rounds_by_ns),
            rounds_by_packet_ns: each(&self.rounds_by_packet_ns, &before.rounds_by_packet_ns),
            panics: self.panics - before.panics,
        }
    }
}
