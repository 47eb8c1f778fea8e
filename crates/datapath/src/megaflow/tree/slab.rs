//! References of the tree: 32 bits instead of pointers, and the slabs that they point into.

/// What stands at the end of an edge: a node, a leaf, an inner node of a prefix node's trie, or nothing.
///
/// Two bits say which. An inner node's reference also says, in four bits, which four bits of the value it tests, so
/// that the way down needs one load a level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ref(u32);

/// A [`Ref`] taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Node(usize),
    Leaf(usize),
    Inner(usize),
    None,
}

const NODE: u32 = 0;
const LEAF: u32 = 1 << 30;
const INNER: u32 = 2 << 30;
const INDEX: u32 = (1 << 30) - 1;
const INNER_INDEX: u32 = (1 << 26) - 1;

impl Ref {
    pub(super) const NONE: Self = Self(u32::MAX);

    pub(super) fn node(index: usize) -> Self {
        debug_assert!(index <= INDEX as usize);
        Self(NODE | index as u32)
    }

    pub(super) fn leaf(index: usize) -> Self {
        debug_assert!(index <= INDEX as usize);
        Self(LEAF | index as u32)
    }

    /// Tests the `nibble`-th four bits, counted from the most significant.
    pub(super) fn inner(index: usize, nibble: u32) -> Self {
        debug_assert!(index <= INNER_INDEX as usize && nibble < 16);
        Self(INNER | nibble << 26 | index as u32)
    }

    #[inline]
    pub(super) fn kind(self) -> Kind {
        match self.0 >> 30 {
            0 => Kind::Node((self.0 & INDEX) as usize),
            1 => Kind::Leaf((self.0 & INDEX) as usize),
            2 => Kind::Inner((self.0 & INNER_INDEX) as usize),
            _ => Kind::None,
        }
    }

    #[inline]
    pub(super) fn is_inner(self) -> bool {
        self.0 >> 30 == 2
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    #[inline]
    pub(super) fn is_leaf(self) -> bool {
        self.0 >> 30 == 1
    }

    /// Whether a way down ends here: at a leaf, or nowhere.
    #[inline]
    pub(super) fn is_end(self) -> bool {
        // Of all kinds, just these two have this bit.
        self.0 & LEAF != 0
    }

    /// Of an inner node: its index.
    #[inline]
    pub(super) fn inner_index(self) -> usize {
        (self.0 & INNER_INDEX) as usize
    }

    /// Of an inner node: which four bits it tests.
    #[inline]
    pub(super) fn nibble(self) -> u32 {
        self.0 >> 26 & 15
    }
}

/// Values that keep their index for as long as they are there. A place that is free holds the default.
#[derive(Debug, Default)]
pub(super) struct Slab<T> {
    pub(super) items: Vec<T>,
    free: Vec<u32>,
}

impl<T: Default> Slab<T> {
    pub(super) fn add(&mut self, item: T) -> usize {
        match self.free.pop() {
            Some(index) => {
                self.items[index as usize] = item;
                index as usize
            }
            None => {
                self.items.push(item);
                self.items.len() - 1
            }
        }
    }

    pub(super) fn take(&mut self, index: usize) -> T {
        self.free.push(index as u32);
        std::mem::take(&mut self.items[index])
    }

    /// Forgets the last place, which is free. Nothing may be added any more.
    pub(super) fn pop_free(&mut self) {
        self.items.pop();
        self.free.pop();
    }

    /// Values that are there.
    pub(super) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Bytes, without what items hold on the heap.
    pub(super) fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}
