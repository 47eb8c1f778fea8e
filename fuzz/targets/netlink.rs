//! Any bytes as a datagram from the kernel's netlink.
#![no_main]

use netdev_linux::netlink::messages;

fuzz::target!(|bytes: &[u8]| {
    // Each message takes at least its header.
    assert!(messages(bytes).len() <= bytes.len() / 16);
});
