//! The options of an Interface row of type `afxdp` (ovs-vswitchd.conf.db(5)).

use std::fmt;

use netdev::NetdevError;
use netdev::device::Options;

/// Receive queues at most, each with a socket and some 8 MiB of its own.
pub const QUEUES_MAX: u32 = 64;
/// Queues of a device are numbered below this.
const QUEUE_ID_MAX: u32 = 4096;

/// How the device passes frames to and from the sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The driver runs the XDP program and moves frames from and to our memory itself.
    NativeWithZerocopy,
    /// The driver runs the program, and the kernel copies.
    Native,
    /// The kernel runs the program, on packets that any driver received, and copies.
    Generic,
}

impl Mode {
    /// The name in options and status.
    pub fn name(self) -> &'static str {
        match self {
            Self::NativeWithZerocopy => "native-with-zerocopy",
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The configuration of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// `options:xdp-mode`; `None` is `best-effort`, the first that works.
    pub mode: Option<Mode>,
    /// `options:n_rxq`: receive queues to serve.
    pub n_rxq: u32,
    /// `options:start-qid`: the first of them, by the device's numbers.
    pub start_queue: u32,
    /// `options:use-need-wakeup`: the kernel reports when it needs a wakeup.
    pub need_wakeup: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self { mode: None, n_rxq: 1, start_queue: 0, need_wakeup: true }
    }
}

impl Config {
    /// Reads the options of the row of device `name`. Options of other names are ignored, as Open vSwitch does.
    pub fn read(name: &str, options: &Options) -> Result<Self, NetdevError> {
        let wrong = |option, problem| NetdevError::Option { name: name.to_owned(), option, problem };
        let number = |option: &'static str, default: u32, least: u32, most: u32| match options.get(option) {
            None => Ok(default),
            Some(text) => match text.parse() {
                Ok(n) if (least..=most).contains(&n) => Ok(n),
                _ => Err(wrong(option, format!("{text:?} is not a number from {least} to {most}"))),
            },
        };
        let mode = match options.get("xdp-mode").map(String::as_str) {
            None | Some("best-effort") => None,
            Some("native-with-zerocopy") => Some(Mode::NativeWithZerocopy),
            Some("native") => Some(Mode::Native),
            Some("generic") => Some(Mode::Generic),
            Some(other) => {
                let expected = "best-effort, native-with-zerocopy, native or generic";
                return Err(wrong("xdp-mode", format!("{other:?} is none of {expected}")));
            }
        };
        let need_wakeup = match options.get("use-need-wakeup").map(String::as_str) {
            None | Some("true") => true,
            Some("false") => false,
            Some(other) => return Err(wrong("use-need-wakeup", format!("{other:?} is neither true nor false"))),
        };
        let n_rxq = number("n_rxq", 1, 1, QUEUES_MAX)?;
        let start_queue = number("start-qid", 0, 0, QUEUE_ID_MAX - n_rxq)?;
        Ok(Self { mode, n_rxq, start_queue, need_wakeup })
    }

    /// The text of `options:xdp-mode`.
    pub fn mode_name(&self) -> &'static str {
        self.mode.map_or("best-effort", Mode::name)
    }

    /// The modes to try, the best first.
    pub(crate) fn modes(&self) -> &'static [Mode] {
        match self.mode {
            None => &[Mode::NativeWithZerocopy, Mode::Native, Mode::Generic],
            Some(Mode::NativeWithZerocopy) => &[Mode::NativeWithZerocopy],
            Some(Mode::Native) => &[Mode::Native],
            Some(Mode::Generic) => &[Mode::Generic],
        }
    }

    /// The device's numbers of the queues.
    pub(crate) fn queues(&self) -> std::ops::Range<u32> {
        self.start_queue..self.start_queue + self.n_rxq
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(options: &[(&str, &str)]) -> Result<Config, String> {
        let options = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        Config::read("p1", &options).map_err(|e| e.to_string())
    }

    #[test]
    fn defaults_are_those_of_open_vswitch() {
        let config = read(&[("of-another", "kind")]).expect("nothing wrong");
        assert_eq!(config, Config { mode: None, n_rxq: 1, start_queue: 0, need_wakeup: true });
        assert_eq!((config.mode_name(), config.modes().len()), ("best-effort", 3));
    }

    #[test]
    fn options_are_read() {
        let config = read(&[("xdp-mode", "generic"), ("n_rxq", "4"), ("start-qid", "2"), ("use-need-wakeup", "false")]);
        let config = config.expect("nothing wrong");
        assert_eq!((config.mode, config.need_wakeup), (Some(Mode::Generic), false));
        assert_eq!(config.queues(), 2..6);
        for mode in ["best-effort", "native-with-zerocopy", "native", "generic"] {
            assert_eq!(read(&[("xdp-mode", mode)]).expect("known").mode_name(), mode);
        }
    }

    #[test]
    fn wrong_values_are_named_with_the_expected_ones() {
        let cases = [
            (
                ("xdp-mode", "fast"),
                r#"p1: option xdp-mode: "fast" is none of best-effort, native-with-zerocopy, native or generic"#,
            ),
            (("n_rxq", "0"), r#"p1: option n_rxq: "0" is not a number from 1 to 64"#),
            (("n_rxq", "many"), r#"p1: option n_rxq: "many" is not a number from 1 to 64"#),
            (("start-qid", "-1"), r#"p1: option start-qid: "-1" is not a number from 0 to 4095"#),
            (("use-need-wakeup", "yes"), r#"p1: option use-need-wakeup: "yes" is neither true nor false"#),
        ];
        for (option, expected) in cases {
            assert_eq!(read(&[option]), Err(expected.to_owned()));
        }
    }
}
