//! References within the tree, which are 32 bits instead of pointers, and the slabs that they index.

/// A reference to a node, a leaf, an inner node of a prefix node's trie, or nothing.
///
/// Two bits encode the type; [`Ref::NONE`] is encoded as a leaf with an index that no leaf has. A reference to an inner node also has the index of
/// the four bits that it tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ref(u32);

/// A [`Ref`] taken apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RefKind {
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
    pub(super) const NONE: Self = Self(LEAF | INDEX);

    pub(super) fn node(index: usize) -> Self {
        debug_assert!(index <= INDEX as usize);
        Self(NODE | index as u32)
    }

    pub(super) fn leaf(index: usize) -> Self {
        debug_assert!(index < INDEX as usize);
        Self(LEAF | index as u32)
    }

    /// Tests four bits of index `nibble`, counted from the most significant.
    pub(super) fn inner(index: usize, nibble: u32) -> Self {
        debug_assert!(index <= INNER_INDEX as usize && nibble < 16);
        Self(INNER | nibble << 26 | index as u32)
    }

    #[inline]
    pub(super) fn kind(self) -> RefKind {
        match self.0 >> 30 {
            0 => RefKind::Node((self.0 & INDEX) as usize),
            1 if self.is_none() => RefKind::None,
            1 => RefKind::Leaf((self.0 & INDEX) as usize),
            _ => RefKind::Inner((self.0 & INNER_INDEX) as usize),
        }
    }

    #[inline]
    pub(super) fn is_inner(self) -> bool {
        // Only this type has this bit.
        self.0 & INNER != 0
    }

    #[inline]
    pub(super) fn is_none(self) -> bool {
        self == Self::NONE
    }

    #[inline]
    pub(super) fn is_leaf(self) -> bool {
        self.is_end() && !self.is_none()
    }

    /// Whether a descent ends here: at a leaf, or at nothing.
    #[inline]
    pub(super) fn is_end(self) -> bool {
        // Only these two types have this bit.
        self.0 & LEAF != 0
    }

    /// The index of the leaf at which a descent ends; for [`Ref::NONE`] an index that no leaf has.
    #[inline]
    pub(super) fn end_index(self) -> usize {
        (self.0 & INDEX) as usize
    }

    /// A value whose highest bit is clear only for a node. The bitwise AND of the values of several references has that bit
    /// unless one of them is a node.
    #[inline]
    pub(super) fn not_node(self) -> u32 {
        self.0 | self.0 << 1
    }

    /// The index of an inner node.
    #[inline]
    pub(super) fn inner_index(self) -> usize {
        (self.0 & INNER_INDEX) as usize
    }

    /// The index of the four bits that an inner node tests.
    #[inline]
    pub(super) fn nibble(self) -> u32 {
        self.0 >> 26 & 15
    }
}

/// Tables up to this size are reallocated quickly.
pub(super) const SMALL: usize = 512;

/// Whether `n` more values fit into `items`, or reallocating it is quick.
pub(super) fn has_room<T>(items: &Vec<T>, free: usize, n: usize) -> bool {
    items.capacity() - items.len() + free >= n || items.len() < SMALL
}

/// Appends a value. Large tables grow by a quarter, as an index has two copies of them. The more frequent reallocations
/// do not delay lookups.
pub(super) fn push<T>(items: &mut Vec<T>, item: T) {
    if items.len() == items.capacity() && items.len() >= SMALL {
        items.reserve_exact(items.len() / 4);
    }
    items.push(item);
}

/// Values with stable indexes. Free entries hold the default.
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
                push(&mut self.items, item);
                self.items.len() - 1
            }
        }
    }

    /// Whether `n` more values can be added without reallocating a large table.
    pub(super) fn has_room(&self, n: usize) -> bool {
        has_room(&self.items, self.free.len(), n)
    }

    pub(super) fn take(&mut self, index: usize) -> T {
        self.free.push(index as u32);
        std::mem::take(&mut self.items[index])
    }

    /// Discards the last entry, which is free. Nothing may be added any more.
    pub(super) fn pop_free(&mut self) {
        self.items.pop();
        self.free.pop();
    }

    /// Values that are there.
    pub(super) fn len(&self) -> usize {
        self.items.len() - self.free.len()
    }

    /// Bytes, without the heap memory of items.
    pub(super) fn bytes(&self) -> usize {
        self.items.capacity() * size_of::<T>() + self.free.capacity() * size_of::<u32>()
    }
}
