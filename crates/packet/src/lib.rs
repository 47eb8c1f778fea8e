//! Packet buffers with offload marks, batches, header views and checksums.
