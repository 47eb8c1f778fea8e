//! What packet threads have done, as numbers.

/// What a packet thread has done so far.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ThreadStats {
    /// Packets received.
    pub packets: u64,
    /// Batches that they came in.
    pub batches: u64,
    /// Batches of one packet, of two, and so on.
    pub batch_sizes: Vec<u64>,
    /// Packets that the microflow cache had the flow for.
    pub exact_hits: u64,
    /// Packets that the megaflow index had the flow for.
    pub megaflow_hits: u64,
    /// Look-ups in parts of the index: nodes of the tree or tables of tuple space search.
    pub probes: u64,
    /// Times that a packet came back to be looked up once more.
    pub recirculations: u64,
    /// Packets that no flow covered.
    pub misses: u64,
    /// Of these, packets that were dropped, as the queue of their port was full.
    pub lost: u64,
    /// Packets that were decided about afresh.
    pub checks: u64,
    /// Of these, packets whose flow was wrong.
    pub checks_failed: u64,
    /// Packets that it sent: those that devices took.
    pub tx_packets: u64,
    /// Batches that they left in.
    pub tx_batches: u64,
    /// Rounds over the thread's queues.
    pub rounds: u64,
    /// Times that the thread went to sleep.
    pub sleeps: u64,
    /// Nanoseconds in rounds that moved packets.
    pub busy_ns: u64,
    /// Nanoseconds in rounds that moved none, and asleep.
    pub idle_ns: u64,
    /// Of these, nanoseconds asleep.
    pub sleep_ns: u64,
    /// Rounds that moved packets, by how many: at place 1 those with one, at 2 with two or three, and so on: at place n
    /// those below 2^n. The last place counts all beyond.
    pub rounds_by_packets: Vec<u64>,
    /// The same, by nanoseconds.
    pub rounds_by_ns: Vec<u64>,
    /// The same, by nanoseconds a packet.
    pub rounds_by_packet_ns: Vec<u64>,
    /// Panics in processing; each lost the packets of a batch.
    pub panics: u64,
}

impl ThreadStats {
    /// What was done since it had done `before`.
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
            exact_hits: self.exact_hits - before.exact_hits,
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
