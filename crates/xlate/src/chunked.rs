//! An ordered map whose clones share unchanged chunks.
//!
//! The entries are in chunks of at most [`CHUNK_MAX`], behind a list of chunks. A clone shares all chunks, and a change
//! copies one of them and the list: with 10,000 entries, some 200 pointers and 64 entries.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Index;
use std::sync::Arc;

/// The largest number of entries of a chunk.
const CHUNK_MAX: usize = 64;
/// Neighbouring chunks with at most this many entries together are merged.
const CHUNK_MIN: usize = CHUNK_MAX / 2;

/// An ordered map. See the module's documentation.
pub struct ChunkedMap<K, V> {
    /// No chunk is empty, and their keys ascend.
    chunks: Vec<Chunk<K, V>>,
    len: usize,
}

struct Chunk<K, V> {
    /// A lower bound of the chunk's keys, greater than all keys of the previous chunk.
    bound: K,
    /// Sorted by key.
    entries: Arc<Vec<(K, V)>>,
}

impl<K: Clone, V> Clone for Chunk<K, V> {
    fn clone(&self) -> Self {
        Self { bound: self.bound.clone(), entries: Arc::clone(&self.entries) }
    }
}

impl<K: Clone, V> Clone for ChunkedMap<K, V> {
    fn clone(&self) -> Self {
        Self { chunks: self.chunks.clone(), len: self.len }
    }
}

impl<K, V> Default for ChunkedMap<K, V> {
    fn default() -> Self {
        Self { chunks: Vec::new(), len: 0 }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for ChunkedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

impl<K, V> ChunkedMap<K, V> {
    /// The number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if there are no entries.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries, by key.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&K, &V)> {
        self.chunks.iter().flat_map(|chunk| chunk.entries.iter().map(|(key, value)| (key, value)))
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// The values, by key.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// Returns the index of the only chunk that may have the key, and the result of the binary search in it.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(usize, Result<usize, usize>)>
    where
        K: Borrow<Q>,
    {
        let chunk = self.chunks.partition_point(|chunk| chunk.bound.borrow() <= key).checked_sub(1)?;
        let entries = &self.chunks.get(chunk)?.entries;
        Some((chunk, entries.binary_search_by(|(other, _)| other.borrow().cmp(key))))
    }

    /// Returns the value of a key.
    pub fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let (chunk, Ok(at)) = self.find(key)? else { return None };
        self.chunks.get(chunk)?.entries.get(at).map(|(_, value)| value)
    }

    /// Returns true if there is an entry with this key.
    pub fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }
}

impl<K: Ord + Clone, V: Clone> ChunkedMap<K, V> {
    /// Adds an entry. Returns the value that it replaces.
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        if self.chunks.is_empty() {
            self.chunks.push(Chunk { bound: key.clone(), entries: Arc::default() });
        }
        let (index, place) = self.find(&key).unwrap_or((0, Err(0)));
        let chunk = &mut self.chunks[index];
        let entries = Arc::make_mut(&mut chunk.entries);
        let at = match place {
            Ok(at) => return Some(std::mem::replace(&mut entries[at].1, value)),
            Err(at) => at,
        };
        if key < chunk.bound {
            chunk.bound = key.clone();
        }
        entries.insert(at, (key, value));
        self.len += 1;
        if entries.len() > CHUNK_MAX {
            let upper = entries.split_off(CHUNK_MAX / 2);
            let bound = upper[0].0.clone();
            self.chunks.insert(index + 1, Chunk { bound, entries: Arc::new(upper) });
        }
        None
    }

    /// Removes an entry. Returns its value.
    pub fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (index, Ok(at)) = self.find(key)? else { return None };
        let entries = Arc::make_mut(&mut self.chunks[index].entries);
        let (_, value) = entries.remove(at);
        self.len -= 1;
        if entries.is_empty() {
            self.chunks.remove(index);
        } else if !self.merge(index) && index > 0 {
            self.merge(index - 1);
        }
        Some(value)
    }

    /// Merges a chunk with the next one, if both are small. Returns true if it did.
    fn merge(&mut self, index: usize) -> bool {
        let [first, second, ..] = &mut self.chunks[index..] else { return false };
        if first.entries.len() + second.entries.len() > CHUNK_MIN {
            return false;
        }
        Arc::make_mut(&mut first.entries).extend(second.entries.iter().cloned());
        self.chunks.remove(index + 1);
        true
    }
}

impl<K: Ord + Clone, V: Clone> FromIterator<(K, V)> for ChunkedMap<K, V> {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let sorted: Vec<(K, V)> = entries.into_iter().collect::<BTreeMap<K, V>>().into_iter().collect();
        // Room for changes remains in each chunk.
        let chunk = |entries: &[(K, V)]| Chunk { bound: entries[0].0.clone(), entries: Arc::new(entries.to_vec()) };
        Self { len: sorted.len(), chunks: sorted.chunks(CHUNK_MAX / 4 * 3).map(chunk).collect() }
    }
}

impl<K: Borrow<Q>, Q: Ord + ?Sized, V> Index<&Q> for ChunkedMap<K, V> {
    type Output = V;

    fn index(&self, key: &Q) -> &V {
        self.get(key).expect("the key is in the map")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check_structure(map: &ChunkedMap<u16, u8>) -> Result<(), TestCaseError> {
        let keys: Vec<u16> = map.keys().copied().collect();
        prop_assert!(keys.is_sorted_by(|a, b| a < b));
        prop_assert_eq!(map.len(), keys.len());
        for (at, chunk) in map.chunks.iter().enumerate() {
            prop_assert!((1..=CHUNK_MAX).contains(&chunk.entries.len()));
            prop_assert!(chunk.bound <= chunk.entries[0].0);
            if let Some(before) = at.checked_sub(1) {
                let last = map.chunks[before].entries.last().map(|(key, _)| *key);
                prop_assert!(last < Some(chunk.bound));
                prop_assert!(map.chunks[before].entries.len() + chunk.entries.len() > CHUNK_MIN);
            }
        }
        Ok(())
    }

    tally::proptest! {
        /// Compares with an ordered map, keeping each version.
        #[test]
        fn each_version_agrees_with_an_ordered_map(
            first in prop::collection::vec((0u16..600, any::<u8>()), 0..300),
            steps in prop::collection::vec((0u8..2, 0u16..600, 1u16..80, any::<u8>()), 1..30),
        ) {
            let mut map: ChunkedMap<u16, u8> = first.iter().copied().collect();
            let mut twin: BTreeMap<u16, u8> = first.into_iter().collect();
            let mut versions = vec![(map.clone(), twin.clone())];
            for (is_removal, key, n, value) in steps {
                for key in key..key + n {
                    if is_removal == 1 {
                        prop_assert_eq!(map.remove(&key), twin.remove(&key));
                    } else {
                        prop_assert_eq!(map.insert(key, value), twin.insert(key, value));
                    }
                }
                check_structure(&map)?;
                versions.push((map.clone(), twin.clone()));
            }
            for (map, twin) in versions {
                prop_assert!(map.iter().eq(twin.iter()));
                prop_assert!(map.iter().rev().eq(twin.iter().rev()));
                prop_assert_eq!(map.is_empty(), twin.is_empty());
                for key in 0..700 {
                    prop_assert_eq!(map.get(&key), twin.get(&key));
                }
            }
        }
    }

    #[test]
    fn a_change_copies_one_chunk_of_ten_thousand_entries() {
        let before: ChunkedMap<u32, u32> = (0..10_000).map(|n| (n, n)).collect();
        let mut after = before.clone();
        after.insert(5_000, 0);
        after.insert(10_000, 0);
        let is_shared =
            |chunk: &&Chunk<u32, u32>| before.chunks.iter().any(|c| Arc::ptr_eq(&c.entries, &chunk.entries));
        assert_eq!(after.chunks.iter().filter(|chunk| !is_shared(chunk)).count(), 2);
        assert_eq!((before[&5_000], after[&5_000]), (5_000, 0));
    }
}
