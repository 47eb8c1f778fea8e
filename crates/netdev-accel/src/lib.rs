//! Forwarding between containers of a host in the kernel: an accelerator below the datapath's index of flows
//! ([`netdev::accelerate`]).
//!
//! Frames of a container come in by the host's end of a veth pair, up to 64 KiB long and with partial checksums. On the way to
//! userspace and back they are copied twice. [`Tcx`] holds the verdicts of flows that only send plain frames from
//! one such device to another, and its programs execute these in the kernel's receive path, which passes a frame on
//! unchanged. Frames without a verdict in the programs go to userspace by the packet socket, as without them.
//!
//! - [`kernel`]: [`Tcx`], which owns the maps, and a pair of programs for each port;
//! - `program`: the programs.
//!
//! # Why not XDP
//!
//! Both ways were measured (`bench/run local`). A frame that an XDP program redirects loses the flag of its partial
//! checksum, and a veth with an XDP program accepts no large frames: between containers that is a fifth of the rate of
//! the kernel's bridge, and TCP gets through only if the containers turn their offload off. A program at tcx redirects
//! socket buffers as they are, at about the bridge's rate. Of its two ways, `bpf_redirect` was chosen: `bpf_redirect_peer`
//! has a few more short transactions, but no `tcpdump` on the device sees its frames.
//!
//! # Which frames are whose
//!
//! Packet sockets are served just before tcx, for the same frame, on the same processor, in the same call. So the decision
//! is made once, by the filter of the packet socket, and a frame is either userspace's or the kernel's.

pub mod kernel;
mod program;
#[cfg(test)]
mod tests;

pub use kernel::Tcx;
