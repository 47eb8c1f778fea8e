//! The inputs of a fixed run: drawn from the corpus and the dictionary alone, independent of the target's behaviour.
//!
//! The coverage of a run depends on addresses and on the keys of hash tables, which differ between runs, so that
//! inputs guided by it would differ too. Here only the files and [`SEED`] decide, and a digest of all inputs so far
//! is printed regularly, which shows that two runs had the same inputs.

use base::rng::Rng;
use std::path::Path;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The seed of each fixed run.
const SEED: u64 = 1;
/// The number of inputs between digests.
const DIGEST_EVERY: u64 = 1000;
/// Numbers at which behaviour tends to change.
const NUMBERS: [u64; 16] = [0, 1, 2, 7, 8, 16, 31, 64, 127, 255, 256, 4096, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

static FIXED: LazyLock<Option<Mutex<Fixed>>> = LazyLock::new(|| {
    let target = std::env::var("FUZZ_FIXED").ok()?;
    let corpus = files(&Path::new("corpus").join(&target));
    let words = std::fs::read_to_string(format!("dictionaries/{target}.dict")).unwrap_or_default();
    Some(Mutex::new(Fixed::new(corpus, words.lines().filter_map(word).collect())))
});

/// The contents of a folder's files, in the order of their names.
fn files(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    paths.iter().filter_map(|path| std::fs::read(path).ok()).collect()
}

/// The word of a line of a dictionary, `"word"` or `name="word"`, with `\"`, `\\` and `\xNN` in it.
fn word(line: &str) -> Option<Vec<u8>> {
    let (_, quoted) = line.split_once('"')?;
    let mut out = Vec::new();
    let mut bytes = quoted.bytes();
    loop {
        match bytes.next()? {
            b'"' => return Some(out),
            b'\\' => match bytes.next()? {
                b'x' => {
                    let mut digit = || char::from(bytes.next()?).to_digit(16);
                    out.push((digit()? << 4 | digit()?) as u8);
                }
                escaped => out.push(escaped),
            },
            byte => out.push(byte),
        }
    }
}

/// Writes the next input of a fixed run into `data`, and returns its length; `None` if this is no fixed run.
pub fn next_input(data: &mut [u8], max_size: usize) -> Option<usize> {
    let mut fixed = FIXED.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner);
    let input = fixed.next(max_size.min(data.len()));
    data[..input.len()].copy_from_slice(&input);
    Some(input.len())
}

struct Fixed {
    rng: Rng,
    corpus: Vec<Vec<u8>>,
    words: Vec<Vec<u8>>,
    count: u64,
    digest: u64,
}

impl Fixed {
    fn new(mut corpus: Vec<Vec<u8>>, mut words: Vec<Vec<u8>>) -> Self {
        if corpus.is_empty() {
            corpus.push(vec![b'0']);
        }
        if words.is_empty() {
            words.push(vec![0]);
        }
        Self { rng: Rng::seeded(SEED), corpus, words, count: 0, digest: 0 }
    }

    /// An input of the corpus after some changes; not empty, and at most `max_size` bytes.
    fn next(&mut self, max_size: usize) -> Vec<u8> {
        let mut input = self.any_of_corpus().to_vec();
        // One change half of the time, two a quarter of it, and so on.
        let changes = 1 + (self.rng.next_u64() | 1 << 5).trailing_zeros();
        for _ in 0..changes {
            // Each change has something to change.
            if input.is_empty() {
                input.push(b'0');
            }
            self.change(&mut input);
            input.truncate(max_size);
        }
        if input.is_empty() {
            input.push(b'0');
        }
        self.count += 1;
        for byte in &input {
            self.digest = (self.digest ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        self.digest = self.digest.rotate_left(17) ^ input.len() as u64;
        if self.count.is_multiple_of(DIGEST_EVERY) {
            eprintln!("inputs: {} digest: {:016x}", self.count, self.digest);
        }
        input
    }

    fn any_of_corpus(&mut self) -> &[u8] {
        let n = self.below(self.corpus.len());
        &self.corpus[n]
    }

    /// A number below `n`, or 0.
    fn below(&mut self, n: usize) -> usize {
        self.rng.below(n.max(1) as u64) as usize
    }

    /// Two places in order, often close together.
    fn range(&mut self, len: usize) -> (usize, usize) {
        let start = self.below(len + 1);
        let width = if self.below(2) == 0 { 8.min(len - start) } else { len - start };
        (start, start + self.below(width + 1))
    }

    fn number(&mut self) -> u64 {
        match self.below(3) {
            0 => NUMBERS[self.below(NUMBERS.len())],
            1 => {
                let any = self.rng.next_u64();
                any >> self.below(64)
            }
            _ => NUMBERS[self.below(NUMBERS.len())].wrapping_add(self.rng.next_u64() % 5).wrapping_sub(2),
        }
    }

    /// Some bytes: a word, part of another input, of this one, or one byte repeated.
    fn material(&mut self, input: &[u8]) -> Vec<u8> {
        match self.below(5) {
            0 | 1 => {
                let n = self.below(self.words.len());
                self.words[n].clone()
            }
            2 => {
                let other = self.any_of_corpus().to_vec();
                let (start, end) = self.range(other.len());
                other[start..end].to_vec()
            }
            3 => {
                let (start, end) = self.range(input.len());
                input[start..end].to_vec()
            }
            _ => vec![self.rng.next_u64() as u8; 1 + self.below(16)],
        }
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len());
        match self.below(9) {
            0 => input[at] ^= 1 << self.below(8),
            1 => input[at] = self.rng.next_u64() as u8,
            2 => {
                let (start, end) = self.range(input.len());
                input.drain(start..end);
            }
            3 | 4 => {
                let material = self.material(input);
                let at = self.below(input.len() + 1);
                input.splice(at..at, material);
            }
            5 => {
                let material = self.material(input);
                let (start, end) = self.range(input.len());
                input.splice(start..end, material);
            }
            6 => {
                let other = self.any_of_corpus().to_vec();
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            7 => self.change_digits(input, at),
            _ => self.change_binary(input, at),
        }
    }

    /// Another number in the place of the digits at or after `at`.
    fn change_digits(&mut self, input: &mut Vec<u8>, at: usize) {
        let Some(start) = input[at..].iter().position(u8::is_ascii_digit).map(|n| at + n) else { return };
        let end = input[start..].iter().position(|b| !b.is_ascii_digit()).map_or(input.len(), |n| start + n);
        let number = self.number();
        let digits = if self.below(3) == 0 { format!("{number:#x}") } else { number.to_string() };
        input.splice(start..end, digits.into_bytes());
    }

    /// Another number of 1, 2, 4 or 8 bytes at `at`, in either order, or the one there plus or minus a little.
    fn change_binary(&mut self, input: &mut [u8], at: usize) {
        let width = (1 << self.below(4)).min(input.len() - at);
        let place = &mut input[at..at + width];
        let little = self.below(4) == 0;
        if little {
            place.reverse();
        }
        let mut old = [0; 8];
        old[8 - width..].copy_from_slice(place);
        let new = match self.below(2) {
            0 => self.number(),
            _ => u64::from_be_bytes(old).wrapping_add(self.rng.next_u64() % 33).wrapping_sub(16),
        };
        place.copy_from_slice(&new.to_be_bytes()[8 - width..]);
        if little {
            place.reverse();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixed() -> Fixed {
        Fixed::new(vec![b"in_port=1,tcp".to_vec(), Vec::new(), vec![0xff; 40]], vec![b"nw_src=".to_vec()])
    }

    #[test]
    fn inputs_are_the_same_each_time_and_fit() {
        let (mut a, mut b) = (fixed(), fixed());
        let mut different = std::collections::BTreeSet::new();
        for _ in 0..20_000 {
            let input = a.next(64);
            assert_eq!(input, b.next(64));
            assert!((1..=64).contains(&input.len()));
            different.insert(input);
        }
        assert_eq!(a.digest, b.digest);
        assert!(different.len() > 10_000, "{}", different.len());
    }

    #[test]
    fn words_of_a_dictionary() {
        assert_eq!(word(r#""in_port""#).as_deref(), Some(&b"in_port"[..]));
        assert_eq!(word(r#"quote="\"a\\\x0A""#).as_deref(), Some(&b"\"a\\\n"[..]));
        assert_eq!(word("# none"), None);
        assert_eq!(word("\"open"), None);
    }
}
