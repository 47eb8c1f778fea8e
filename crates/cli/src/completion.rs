//! Completion of command lines in a shell: the candidates for an incomplete word.
//!
//! The shell passes the line up to the cursor and receives words ([`Line`]). The programs derive the candidates from the
//! tables by which they parse their command lines ([`Vocabulary`]).

use std::time::Duration;

use crate::options::{Arg, Opt};

/// The environment variable for the number of seconds that completion waits for a server's reply, instead of
/// [`PATIENCE`].
const PATIENCE_VARIABLE: &str = "FLOWSTONE_COMPLETION_TIMEOUT";
/// Time limit for one answer while a user waits for candidates.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long completion waits for an answer of a server: not zero.
///
/// # Errors
///
/// A line for the user if the environment variable for it holds something else than a number of seconds.
pub fn patience() -> Result<Duration, String> {
    patience_of(std::env::var_os(PATIENCE_VARIABLE).map(|value| value.to_string_lossy().into_owned()).as_deref())
}

fn patience_of(value: Option<&str>) -> Result<Duration, String> {
    let Some(value) = value else { return Ok(PATIENCE) };
    match value.parse::<u32>() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds.into())),
        _ => Err(format!("{PATIENCE_VARIABLE}: \"{value}\" is not a number of seconds greater than zero")),
    }
}

/// A command line up to the cursor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// The words that are finished, the program's name first.
    pub words: Vec<String>,
    /// The word that is begun; empty after a space.
    pub current: String,
}

impl Line {
    /// Splits a line into words like a shell: at spaces, except within quotes or after a backslash. The command
    /// follows the last `;`, `|` or `&` outside of them.
    pub fn parse(line: &str) -> Self {
        let (mut words, mut word) = (Vec::new(), None::<String>);
        let (mut quote, mut chars) = (None, line.chars());
        while let Some(c) = chars.next() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '\'' | '"') => {
                    quote = Some(c);
                    word.get_or_insert_default();
                }
                (None | Some('"'), '\\') => word.get_or_insert_default().extend(chars.next()),
                (None, ';' | '|' | '&') => {
                    words.clear();
                    word = None;
                }
                (None, c) if c.is_whitespace() => words.extend(word.take()),
                (_, c) => word.get_or_insert_default().push(c),
            }
        }
        Self { words, current: word.unwrap_or_default() }
    }

    /// The candidates that start with the current word, in order and without duplicates, as the shell needs them: quoted, and
    /// without the text up to the last of the characters `breaks` in the current word, where readline starts words. If no
    /// candidate starts with the word as typed, the comparison ignores case and equates `-` with `_`, as the programs do for
    /// names of tables and columns.
    pub fn answer(&self, candidates: impl IntoIterator<Item = String>, breaks: &str) -> Vec<String> {
        let kept = self.current.rfind(|c: char| breaks.contains(c)).map_or(0, |at| at + 1);
        let fold = |c: u8| if c == b'-' { b'_' } else { c.to_ascii_lowercase() };
        let abbreviates = |candidate: &String| {
            candidate.len() >= self.current.len()
                && candidate.bytes().zip(self.current.bytes()).all(|(a, b)| fold(a) == fold(b))
        };
        let mut fitting: Vec<String> = candidates.into_iter().filter(abbreviates).collect();
        if fitting.iter().any(|candidate| candidate.starts_with(&self.current)) {
            fitting.retain(|candidate| candidate.starts_with(&self.current));
        }
        let rest = |candidate: &String| quoted(candidate.get(kept..).unwrap_or(""));
        let mut answers: Vec<String> = fitting.iter().map(rest).collect();
        answers.sort();
        answers.dedup();
        answers
    }
}

/// A word with a backslash before each character that means something to a shell.
fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=,@%+".contains(c);
    let escape = |c: char| (!plain(c)).then_some('\\').into_iter().chain([c]);
    word.chars().flat_map(escape).collect()
}

/// The options and commands of a program.
#[derive(Debug, Clone, Default)]
pub struct Vocabulary {
    /// All options.
    pub options: Vec<Opt>,
    /// The names of all commands.
    pub commands: Vec<String>,
}

/// The position of a word in its command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WordPosition {
    /// It is an option, or the beginning of one.
    Option,
    /// It is the value of the option of this identity.
    Value(&'static str),
    /// It is the name of the command.
    Command,
    /// It is an argument; the words before it, the command first.
    Argument(Vec<String>),
}

impl Vocabulary {
    /// The vocabulary of a program with these fragments of options.
    pub fn new<'a>(fragments: &[&[Opt]], commands: impl IntoIterator<Item = &'a str>) -> Self {
        let options = fragments.iter().flat_map(|fragment| fragment.iter().copied()).collect();
        Self { options, commands: commands.into_iter().map(str::to_owned).collect() }
    }

    /// The option that a word is, without a value.
    pub fn option(&self, word: &str) -> Option<&Opt> {
        match word.strip_prefix("--") {
            Some(long) => self.options.iter().find(|opt| !long.is_empty() && opt.long == long),
            None => {
                let mut letters = word.strip_prefix('-')?.chars();
                let letter = letters.next().filter(|_| letters.next().is_none())?;
                self.options.iter().find(|opt| opt.short == Some(letter))
            }
        }
    }

    /// Returns the position of the word behind `words`, which exclude the program's name.
    pub fn position(&self, words: &[String], current: &str) -> WordPosition {
        let mut positionals = Vec::new();
        let (mut value_of, mut ended) = (None, false);
        for word in words {
            if value_of.take().is_some() {
                continue;
            }
            if ended || !word.starts_with('-') || word == "-" {
                positionals.push(word.clone());
            } else if word == "--" {
                ended = true;
            } else {
                value_of = self.option(word).filter(|opt| opt.arg == Arg::Required).map(|opt| opt.id);
            }
        }
        match value_of {
            Some(id) => WordPosition::Value(id),
            None if !ended && current.starts_with('-') => WordPosition::Option,
            None if positionals.is_empty() => WordPosition::Command,
            None => WordPosition::Argument(positionals),
        }
    }

    /// The options as a user types them; `=` follows options that need a value.
    pub fn option_words(&self) -> impl Iterator<Item = String> {
        let long = self.options.iter().filter(|opt| !opt.long.is_empty());
        long.map(|opt| format!("--{}{}", opt.long, if opt.arg == Arg::Required { "=" } else { "" }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> (Vec<String>, String) {
        let Line { words, current } = Line::parse(line);
        (words, current)
    }

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn lines_are_split_as_in_a_shell() {
        assert_eq!(parse("ovs-vsctl "), (words("ovs-vsctl"), String::new()));
        assert_eq!(parse("ovs-vsctl add"), (words("ovs-vsctl"), "add".into()));
        assert_eq!(parse("a 'b c' \"d \\\"e\" f\\ g"), (vec!["a".into(), "b c".into(), "d \"e".into()], "f g".into()));
        assert_eq!(parse("x; sudo y 'un"), (words("sudo y"), "un".into()));
        assert_eq!(parse("a \"\" "), (vec!["a".into(), String::new()], String::new()));
    }

    #[test]
    fn patience_is_a_number_of_seconds() {
        assert_eq!(patience_of(None), Ok(PATIENCE));
        assert_eq!(patience_of(Some("30")), Ok(Duration::from_secs(30)));
        for bad in ["", "0", "-1", "1.5", "long", "99999999999"] {
            assert!(patience_of(Some(bad)).unwrap_err().contains(bad), "{bad}");
        }
    }

    #[test]
    fn answers_begin_where_readline_lets_words_begin() {
        let line = |current: &str| Line { words: Vec::new(), current: current.into() };
        let candidates = || ["other_config:a=", "other_config:b=", "tag="].map(str::to_owned);
        assert_eq!(line("other_config:").answer(candidates(), ":="), ["a=", "b="]);
        assert_eq!(line("other_config:").answer(candidates(), ""), ["other_config:a=", "other_config:b="]);
        assert_eq!(line("Other-C").answer(candidates(), ":="), ["other_config:a=", "other_config:b="]);
        assert_eq!(line("T").answer(["tag".to_owned(), "Table".into()], ":="), ["Table"]);
        assert_eq!(line("x").answer(candidates(), ":="), [""; 0]);
        assert_eq!(line("").answer(["b c".to_owned(), "a$".into(), "a$".into()], ":="), ["a\\$", "b\\ c"]);
    }

    #[test]
    fn places_follow_options() {
        let options: &[Opt] = &[Opt::new("target", Arg::Required).short('t'), Opt::new("help", Arg::None)];
        let vocabulary = Vocabulary::new(&[options], ["list"]);
        for (line, current, place) in [
            ("", "", WordPosition::Command),
            ("", "-", WordPosition::Option),
            ("-t", "x", WordPosition::Value("target")),
            ("--target", "-x", WordPosition::Value("target")),
            ("--target=x --help", "l", WordPosition::Command),
            ("-t x list", "", WordPosition::Argument(words("list"))),
            ("list --", "-x", WordPosition::Argument(words("list"))),
        ] {
            assert_eq!(vocabulary.position(&words(line), current), place, "{line}");
        }
        assert_eq!(vocabulary.option_words().collect::<Vec<_>>(), ["--target=", "--help"]);
    }
}
