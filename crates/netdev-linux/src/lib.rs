//! Ports of the Linux kernel: AF_PACKET with virtio-net headers, tap, and netlink.
