//! Targets on fixed inputs: those that once failed, and others that are drawn from the corpus and the dictionary alone,
//! independent of the target's behaviour.
//!
//! The coverage of a run depends on addresses and on the keys of hash tables, which differ between runs, so that
//! inputs guided by it would differ too. Here only the files and [`SEED`] decide, as a digest of all inputs shows. No
//! instrumented build is needed.

use base::rng::Rng;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The seed of each run.
const SEED: u64 = 1;
/// The longest input.
const INPUT_LEN_MAX: usize = 4096;
/// The inputs of a run without a divisor are at least so many, if `executions` lists as many.
const LEAST: u64 = 1000;
/// How long a target may take for an input.
const LIMIT: Duration = Duration::from_secs(60);
/// Numbers at which behaviour tends to change.
const NUMBERS: [u64; 16] = [0, 1, 2, 7, 8, 16, 31, 64, 127, 255, 256, 4096, 0xffff, 0x7fff_ffff, 0xffff_ffff, u64::MAX];

/// Runs a target on the inputs that once failed, and on so many fixed ones as `executions` lists for it, divided by the
/// environment's `FUZZ_DIVISOR` (10 by default). Returns their numbers and digest, as text. An input on which the target
/// panics, or does not come to an end, is written below `artifacts`.
pub(crate) fn run(target: &str, call: impl Fn(&[u8])) -> String {
    let folder = folder();
    let runner = Runner { artifacts: folder.join("artifacts").join(target), input: Arc::default() };
    let is_done = Arc::new(AtomicBool::new(false));
    let watch = runner.watch(&is_done);
    let known = files(&folder.join("regressions").join(target));
    known.iter().for_each(|input| runner.call(&call, input));
    let words = std::fs::read_to_string(folder.join(format!("dictionaries/{target}.dict"))).unwrap_or_default();
    let mut fixed = Fixed::new(files(&folder.join("corpus").join(target)), words.lines().filter_map(word).collect());
    let executions = std::fs::read_to_string(folder.join("executions")).expect("a file `executions`");
    for _ in 0..executions_of(target, &executions) {
        let input = fixed.next(INPUT_LEN_MAX);
        runner.call(&call, &input);
    }
    is_done.store(true, Ordering::Relaxed);
    watch.join().expect("the watching thread ends");
    format!("{} inputs with digest {:016x}, {} known ones", fixed.count, fixed.digest, known.len())
}

/// The folder `fuzz`.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a folder above").to_owned()
}

/// The number of inputs of a target, by the lines of `executions`.
fn executions_of(target: &str, executions: &str) -> u64 {
    let listed = executions.lines().filter_map(|line| line.split_once(' ')).find(|(name, _)| *name == target);
    let listed: u64 = listed.and_then(|(_, count)| count.trim().parse().ok()).expect("a line in `executions`");
    let divisor = std::env::var("FUZZ_DIVISOR").map_or(10, |text| text.parse().expect("FUZZ_DIVISOR is a number"));
    (listed / divisor).max(listed.min(LEAST))
}

struct Runner {
    artifacts: PathBuf,
    /// The present input.
    input: Arc<Mutex<Vec<u8>>>,
}

impl Runner {
    fn call(&self, call: impl Fn(&[u8]), input: &[u8]) {
        *self.input.lock().unwrap_or_else(PoisonError::into_inner) = input.to_vec();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| call(input))) {
            eprintln!("the input is {}", keep(&self.artifacts, input));
            resume_unwind(panic);
        }
    }

    /// Ends the program if one input takes too long.
    fn watch(&self, is_done: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
        let (artifacts, input, is_done) = (self.artifacts.clone(), Arc::clone(&self.input), Arc::clone(is_done));
        std::thread::spawn(move || {
            let present = || input.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let (mut last, mut since) = (present(), Duration::ZERO);
            while !is_done.load(Ordering::Relaxed) {
                const STEP: Duration = Duration::from_millis(20);
                std::thread::sleep(STEP);
                let now = present();
                since = if now == last { since + STEP } else { Duration::ZERO };
                last = now;
                if since >= LIMIT {
                    eprintln!("a target takes too long for the input {}", keep(&artifacts, &last));
                    std::process::abort();
                }
            }
        })
    }
}

/// Writes an input into a folder; returns where it is.
fn keep(folder: &Path, input: &[u8]) -> String {
    let name = input.iter().fold(String::new(), |mut name, byte| {
        if name.len() < 32 {
            _ = write!(name, "{byte:02x}");
        }
        name
    });
    let path = folder.join(format!("input-{name}"));
    let written = std::fs::create_dir_all(folder).and_then(|()| std::fs::write(&path, input));
    written.map_or_else(|error| format!("{input:02x?} ({error})"), |()| path.display().to_string())
}

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
    fn numbers_of_executions() {
        let executions = "a 100000\nab 3000\nb 500\n";
        assert_eq!(["a", "ab", "b"].map(|target| executions_of(target, executions)), [10_000, 1000, 500]);
    }

    #[test]
    fn words_of_a_dictionary() {
        assert_eq!(word(r#""in_port""#).as_deref(), Some(&b"in_port"[..]));
        assert_eq!(word(r#"quote="\"a\\\x0A""#).as_deref(), Some(&b"\"a\\\n"[..]));
        assert_eq!(word("# none"), None);
        assert_eq!(word("\"open"), None);
    }
}
