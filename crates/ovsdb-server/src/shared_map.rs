//! A sorted map whose copies share unchanged parts: the rows of a table, which a compaction copies while transactions
//! continue.
//!
//! Entries are stored in ordered chunks, which copies share. Copying the map copies the list of chunks, a hundredth
//! of its entries; changing an entry first copies its chunk if another map shares it.
//!
//! Invariants: no chunk is empty or longer than [`CHUNK_MAX`]; a chunk's keys ascend, are not below its bound, and
//! are below the bound of the next chunk. So bounds ascend, too; the bound of the first chunk is the lowest possible
//! key.

use std::sync::Arc;

use ovsdb::Uuid;

/// Maximum number of entries of a chunk: the cost of the first change after a copy, and the ratio of the map to a
/// copy.
const CHUNK_MAX: usize = 128;

type Chunk<V> = Vec<(Uuid, V)>;

/// A map from UUIDs, in their order.
#[derive(Debug, Clone)]
pub(crate) struct SharedMap<V> {
    /// Chunks with their bounds.
    chunks: Vec<(Uuid, Arc<Chunk<V>>)>,
    length: usize,
}

impl<V> Default for SharedMap<V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), length: 0 }
    }
}

impl<V: PartialEq> PartialEq for SharedMap<V> {
    fn eq(&self, other: &Self) -> bool {
        self.length == other.length && self.iter().eq(other.iter())
    }
}

impl<V> SharedMap<V> {
    /// Number of entries.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The entry of a key.
    pub(crate) fn get(&self, key: Uuid) -> Option<&V> {
        let (_, chunk) = self.chunks.get(self.chunk_of(key))?;
        let (_, value) = chunk.get(find(chunk, key).ok()?)?;
        Some(value)
    }

    /// All entries, by rising keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Uuid, V)> {
        self.chunks.iter().flat_map(|(_, chunk)| chunk.iter())
    }

    /// All values, by rising keys.
    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Which chunk a key is in, or would be.
    fn chunk_of(&self, key: Uuid) -> usize {
        self.chunks.partition_point(|(bound, _)| *bound <= key).saturating_sub(1)
    }
}

impl<V: Clone> SharedMap<V> {
    /// Inserts a value; returns the value that it replaces.
    pub(crate) fn insert(&mut self, key: Uuid, value: V) -> Option<V> {
        let at = self.chunk_of(key);
        let is_last = at + 1 >= self.chunks.len();
        let Some((_, shared)) = self.chunks.get_mut(at) else {
            self.chunks.push((Uuid::ZERO, Arc::new(vec![(key, value)])));
            self.length = 1;
            return None;
        };
        let place = match find(shared, key) {
            Ok(place) => {
                let (_, old) = Arc::make_mut(shared).get_mut(place)?;
                return Some(std::mem::replace(old, value));
            }
            Err(place) => place,
        };
        self.length += 1;
        if shared.len() < CHUNK_MAX {
            let chunk = Arc::make_mut(shared);
            if chunk.len() == chunk.capacity() {
                // Grows at most to a full chunk, which automatic growth after a copy would exceed.
                chunk.reserve_exact(chunk.len().min(CHUNK_MAX - chunk.len()).max(1));
            }
            chunk.insert(place, (key, value));
        } else if is_last && place == CHUNK_MAX {
            // Files have their rows in order: then chunks are full.
            self.chunks.push((key, Arc::new(vec![(key, value)])));
        } else {
            let lower = Arc::make_mut(shared);
            let mut upper = lower.split_off(CHUNK_MAX / 2);
            match place.checked_sub(lower.len()) {
                Some(place) if place > 0 => upper.insert(place, (key, value)),
                _ => lower.insert(place, (key, value)),
            }
            let bound = upper.first().map_or(key, |(first, _)| *first);
            self.chunks.insert(at + 1, (bound, Arc::new(upper)));
        }
        None
    }

    /// Removes a key; returns its value.
    pub(crate) fn remove(&mut self, key: Uuid) -> Option<V> {
        let at = self.chunk_of(key);
        let (_, shared) = self.chunks.get_mut(at)?;
        let place = find(shared, key).ok()?;
        let chunk = Arc::make_mut(shared);
        let (_, value) = chunk.remove(place);
        let left = chunk.len();
        self.length -= 1;
        if left == 0 {
            self.chunks.remove(at);
            if let Some((bound, _)) = self.chunks.first_mut() {
                *bound = Uuid::ZERO;
            }
        } else if left < CHUNK_MAX / 4 {
            self.join_next(at);
        }
        Some(value)
    }

    /// Puts the next chunk into this one if they are both small.
    fn join_next(&mut self, at: usize) {
        let length = |at: usize| self.chunks.get(at).map_or(CHUNK_MAX, |(_, chunk)| chunk.len());
        if length(at) + length(at + 1) > CHUNK_MAX / 2 {
            return;
        }
        let (_, next) = self.chunks.remove(at + 1);
        if let Some((_, chunk)) = self.chunks.get_mut(at) {
            Arc::make_mut(chunk).extend(Arc::unwrap_or_clone(next));
        }
    }
}

/// Where a key is in a chunk, or where it belongs.
fn find<V>(chunk: &Chunk<V>, key: Uuid) -> Result<usize, usize> {
    chunk.binary_search_by_key(&key, |(key, _)| *key)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn key(number: u16) -> Uuid {
        let mut bytes = [0; 16];
        bytes[..2].copy_from_slice(&number.to_be_bytes());
        Uuid::from_bytes(bytes)
    }

    #[derive(Debug, Clone)]
    enum Step {
        Insert(u16),
        /// As many in order, as from a file.
        Row(u16, u16),
        Remove(u16),
        /// The entries from here on.
        Clear(u16, u16),
        Copy,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0u16..2000).prop_map(Step::Insert),
            2 => (0u16..2000, 1u16..400).prop_map(|(from, n)| Step::Row(from, n)),
            3 => (0u16..2000).prop_map(Step::Remove),
            2 => (0u16..2000, 1u16..400).prop_map(|(from, n)| Step::Clear(from, n)),
            1 => Just(Step::Copy),
        ]
    }

    fn check(map: &SharedMap<u32>, twin: &BTreeMap<Uuid, u32>) {
        assert_eq!(map.len(), twin.len());
        assert_eq!(map.is_empty(), twin.is_empty());
        assert!(map.iter().map(|(key, value)| (key, value)).eq(twin.iter()));
        assert!(map.values().eq(twin.values()));
        assert!(map.chunks.first().is_none_or(|(bound, _)| bound.is_zero()));
        assert!(map.chunks.is_sorted_by(|(bound, _), (next, _)| bound < next));
        for (at, (bound, chunk)) in map.chunks.iter().enumerate() {
            assert!(!chunk.is_empty() && chunk.len() <= CHUNK_MAX);
            assert!(chunk.iter().all(|(key, _)| key >= bound));
            assert!(map.chunks.get(at + 1).is_none_or(|(next, _)| chunk.iter().all(|(key, _)| key < next)));
        }
    }

    tally::proptest! {
        #[test]
        fn it_is_a_map_and_copies_stay_as_they_were(steps in proptest::collection::vec(step(), 0..120)) {
            let (mut map, mut twin) = (SharedMap::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (at, step) in steps.into_iter().enumerate() {
                let value = at as u32;
                match step {
                    Step::Insert(k) => assert_eq!(map.insert(key(k), value), twin.insert(key(k), value)),
                    Step::Row(from, n) => for k in from..from + n {
                        assert_eq!(map.insert(key(k), value), twin.insert(key(k), value));
                    },
                    Step::Remove(k) => assert_eq!(map.remove(key(k)), twin.remove(&key(k))),
                    Step::Clear(from, n) => for k in from..from + n {
                        assert_eq!(map.remove(key(k)), twin.remove(&key(k)));
                    },
                    Step::Copy => copies.push((map.clone(), twin.clone())),
                }
                prop_assert_eq!(map.get(key(at as u16)), twin.get(&key(at as u16)));
                check(&map, &twin);
            }
            for (map, twin) in &copies {
                check(map, twin);
            }
            // Maps with equal contents are equal, whatever their chunks.
            let mut other = SharedMap::default();
            twin.iter().for_each(|(&key, &value)| _ = other.insert(key, value));
            prop_assert!(map == other);
        }
    }
}
