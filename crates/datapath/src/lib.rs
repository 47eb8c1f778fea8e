//! The userspace datapath: poll loop, cache, action execution.
