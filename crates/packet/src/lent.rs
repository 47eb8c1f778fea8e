//! Memory that packets lie in: their own, or a device's.
//!
//! A device whose frames come in memory that it shares with others (netdev-afxdp) lends it to the packet, as a slice that
//! nobody else has: so what is safe about it is the language's to check. Whoever drops the packet, wherever that is, sends
//! the memory home, by the one function that the lender named.

use std::sync::OnceLock;

/// Takes memory back, by [`Lent::forget`] at last: what is dropped comes again.
type Home = fn(Lent);

static HOME: OnceLock<Home> = OnceLock::new();

/// Says where all lent memory goes that nobody needs any more. There is one lender in a process: the first call counts.
/// Without one, that memory is lost.
pub fn set_home(home: Home) {
    let _ = HOME.set(home);
}

/// Memory of a device that a packet lies in. Nobody gets more out of it than borrows: so the lender knows that when it is
/// back, nobody else has any of it.
///
/// It is never empty, as its address tells the lender what it is.
#[derive(Debug)]
pub struct Lent(&'static mut [u8]);

impl Lent {
    /// Lends `bytes`, at least one.
    #[inline]
    pub fn new(bytes: &'static mut [u8]) -> Self {
        Self(bytes)
    }

    /// The memory: from where the lender's began to the end of the frame in it.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        self.0
    }

    /// Ends it without sending it home, for the lender, who has noted its address.
    #[inline]
    pub fn forget(mut self) {
        self.0 = &mut [];
    }
}

impl Drop for Lent {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_empty()
            && let Some(home) = HOME.get()
        {
            home(Self(std::mem::take(&mut self.0)));
        }
    }
}

/// The memory of a packet.
///
/// The slice of a lent one has the place of the vector's pointer and length, so that nothing has to be decided to get at
/// the bytes.
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
    /// A copy is the packet's own.
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

    /// Own memory with the same bytes.
    #[inline]
    pub(crate) fn own(&mut self) -> &mut Vec<u8> {
        if let Self::Lent(lent) = self {
            *self = Self::Own(lent.0.to_vec());
        }
        self.emptied()
    }

    /// Own memory; what was there is of no use any more, and is given back if it was lent.
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

    /// Cuts off what is behind the first `len` bytes.
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

    /// Addresses of memory that came home.
    static AT_HOME: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

    fn lent(frame: &[u8], room: usize) -> (Packet, usize) {
        set_home(|lent| {
            assert!(AT_HOME.lock().expect("a lock").insert(lent.bytes().as_ptr() as usize));
            lent.forget();
        });
        let memory = [&vec![0; room], frame].concat().leak();
        let at = memory.as_ptr() as usize;
        let mut packet = Packet::from_slice(b"another");
        packet.passes = 9;
        packet.lend(Lent::new(memory), room);
        (packet, at)
    }

    fn is_home(at: usize) -> bool {
        AT_HOME.lock().expect("a lock").contains(&at)
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
        /// A packet in lent memory behaves as one in its own; and the memory goes home once, when it is of no use any more.
        #[test]
        fn lent_memory_is_as_good_as_own(len in 1usize..90, room in 0usize..60, steps in steps()) {
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
                prop_assert_eq!(packet.lent().is_none(), is_home(at));
                prop_assert!(packet.clone().lent().is_none());
            }
            drop(packet);
            prop_assert!(is_home(at));
        }
    }

    #[test]
    fn memory_that_is_taken_or_given_back_leaves_an_empty_packet() {
        let (mut packet, at) = lent(b"frame", 3);
        let memory = packet.take_lent().expect("it was lent");
        assert_eq!((memory.bytes(), packet.len(), is_home(at)), (&b"\0\0\0frame"[..], 0, false));
        memory.forget();
        assert!(!is_home(at));
        assert!(packet.take_lent().is_none() && packet.own_len().is_none());
        packet.refill(b"next");
        assert_eq!((packet.data(), packet.own_len()), (&b"next"[..], Some(crate::buf::HEADROOM + 4)));
        let (mut packet, at) = lent(b"frame", 3);
        drop(packet.take_lent());
        assert!(is_home(at) && packet.is_empty());
        let (packet, at) = lent(b"frame", 3);
        assert_eq!((packet.into_vec(), is_home(at)), (b"\0\0\0frame".to_vec(), true));
    }
}
