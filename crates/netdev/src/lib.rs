//! The port trait, and ports without a kernel: in-memory, dummy, pcap.
