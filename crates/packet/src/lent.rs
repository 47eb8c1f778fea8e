//! The memory of a packet: its own, or lent by a device.
//!
//! A device whose frames arrive in a shared memory area (netdev-afxdp) lends each frame's slice to the packet,
//! exclusively, so that the borrow checker covers all accesses. When the packet is dropped, on whatever thread, the
//! function that the device registered returns the slice to the device's pool.

use std::sync::OnceLock;

/// Returns memory to its pool. It must end with [`Lent::forget`], as dropping the value calls it again.
type Return = fn(Lent);

static RETURN: OnceLock<Return> = OnceLock::new();

/// Registers the function that returns lent memory to its pool. A process has one lender: further calls have no effect.
/// Without a registered function, lent memory is leaked.
pub fn set_return_to_pool(to_pool: Return) {
    let _ = RETURN.set(to_pool);
}

/// A slice of device memory, owned by one packet. The slice itself cannot be taken out, only borrowed, so the lender
/// has exclusive access again once it gets this value back.
///
/// It is never empty, as the lender identifies the frame by its address.
#[derive(Debug)]
pub struct Lent(&'static mut [u8]);

impl Lent {
    /// Lends `bytes`, which must not be empty.
    #[inline]
    pub fn new(bytes: &'static mut [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes, from the start of the lent slice to the end of the frame.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0
    }

    /// Drops the value without returning its memory. The lender calls this after taking note of the address.
    #[inline]
    pub fn forget(mut self) {
        self.0 = &mut [];
    }
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_empty()
            && let Some(to_pool) = RETURN.get()
        {
            to_pool(Self(std::mem::take(&mut self.0)));
        }
    }
}

/// The memory of a packet.
///
/// The pointer and length of a lent slice have the same offsets as the vector's pointer and length, so that access to
/// the bytes takes no branch.
#[derive(Debug)]
pub(crate) enum Memory {
    Own(Vec<u8>),
    Lent(Lent),
}

impl Default for Memory {
    #[inline]
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl Clone for Memory {
    /// Clones into owned memory.
    fn clone(&self) -> Self {
        Self::Own(self.bytes().to_vec())
    }
}

impl Memory {
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(lent) => lent.0,
        }
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(lent) => lent.0,
        }
    }

    pub(crate) fn into_vec(self) -> Vec<u8> {
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(lent) => lent.0.to_vec(),
        }
    }

    /// Makes the memory owned, copying the bytes if it was lent.
    #[inline]
    pub(crate) fn own(&mut self) -> &mut Vec<u8> {
        if let Self::Lent(lent) = self {
            *self = Self::Own(lent.0.to_vec());
        }
        self.emptied()
    }

    /// Makes the memory owned without keeping its content; lent memory returns to its pool.
    #[inline]
    pub(crate) fn emptied(&mut self) -> &mut Vec<u8> {
        if let Self::Lent(_) = self {
            *self = Self::default();
        }
        match self {
            Self::Own(bytes) => bytes,
            Self::Lent(_) => unreachable!("just replaced"),
        }
    }

    /// Truncates to the first `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        match self {
            Self::Own(bytes) => bytes.truncate(len),
            Self::Lent(lent) if len > 0 => {
                let bytes = std::mem::take(&mut lent.0);
                let len = len.min(bytes.len());
                lent.0 = &mut bytes[..len];
            }
            Self::Lent(_) => *self = Self::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Packet;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use std::sync::Mutex;

    /// Addresses of memory that returned to the pool.
    static RETURNED: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

    fn lent(frame: &[u8], room: usize) -> (Packet, usize) {
        set_return_to_pool(|lent| {
            assert!(RETURNED.lock().expect("a lock").insert(lent.bytes().as_ptr() as usize));
            lent.forget();
        });
        let memory = [&vec![0; room], frame].concat().leak();
        let at = memory.as_ptr() as usize;
        let mut packet = Packet::from_slice(b"another");
        packet.passes = 9;
        packet.lend(Lent::new(memory), room);
        (packet, at)
    }

    fn is_returned(at: usize) -> bool {
        RETURNED.lock().expect("a lock").contains(&at)
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(usize, usize),
        Remove(usize, usize),
        Truncate(usize),
        Append(usize),
        Write(u8),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            (0usize..80, 0usize..40).prop_map(|(at, n)| Step::Insert(at, n)),
            (0usize..80, 0usize..20).prop_map(|(at, n)| Step::Remove(at, n)),
            (0usize..80).prop_map(Step::Truncate),
            (0usize..5).prop_map(Step::Append),
            any::<u8>().prop_map(Step::Write),
        ];
        prop::collection::vec(step, 0..12)
    }

    tally::proptest! {
        /// A packet in lent memory behaves like one in owned memory, and the lent memory is returned once, when no
        /// longer used.
        #[test]
        fn lent_memory_behaves_like_owned_memory(len in 1usize..90, room in 0usize..60, steps in steps()) {
            let frame: Vec<u8> = (0..len as u8).collect();
            let ((mut packet, at), mut twin) = (lent(&frame, room), Packet::from_slice(&frame));
            prop_assert_eq!((packet.headroom(), packet.passes), (room, 0));
            for step in steps {
                for packet in [&mut packet, &mut twin] {
                    match step {
                        Step::Insert(at, n) => packet.insert(at, n).fill(7),
                        Step::Remove(at, n) => drop(packet.remove(at, n)),
                        Step::Truncate(len) => packet.truncate(len),
                        Step::Append(n) => packet.append(&vec![3; n]),
                        Step::Write(byte) => packet.data_mut().iter_mut().take(3).for_each(|b| *b = byte),
                    }
                }
                prop_assert_eq!(&packet, &twin);
                prop_assert_eq!(packet.lent().is_none(), is_returned(at));
                prop_assert!(packet.clone().lent().is_none());
            }
            drop(packet);
            prop_assert!(is_returned(at));
        }
    }

    #[test]
    fn taking_lent_memory_leaves_an_empty_packet() {
        let (mut packet, at) = lent(b"frame", 3);
        let memory = packet.take_lent().expect("it was lent");
        assert_eq!((memory.bytes(), packet.len(), is_returned(at)), (&b"\0\0\0frame"[..], 0, false));
        memory.forget();
        assert!(!is_returned(at));
        assert!(packet.take_lent().is_none() && packet.own_capacity().is_none());
        packet.refill(b"next");
        assert_eq!(packet.data(), b"next");
        assert!(packet.own_capacity() >= Some(crate::buf::HEADROOM + 4));
        let (mut packet, at) = lent(b"frame", 3);
        drop(packet.take_lent());
        assert!(is_returned(at) && packet.is_empty());
        let (packet, at) = lent(b"frame", 3);
        assert_eq!((packet.into_vec(), is_returned(at)), (b"\0\0\0frame".to_vec(), true));
    }
}
