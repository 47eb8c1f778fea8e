//! Random runs of Open vSwitch 4.0.0, replayed: the same settings, frames and times give the same states and counters.
//!
//! A line is a step: `set MODE TIME FALLBACK PRIORITY NUMBER:ID:PRIORITY...` configures the bond, `rx NUMBER HEX` is a frame
//! for a member (`*` stands for the zeros at the end of a LACPDU), `warp MS STEP` lets time pass in steps. `= ...` is the state
//! that Open vSwitch showed then.

use super::*;
use std::fmt::Write;

fn configure(words: &[&str]) -> BondSettings {
    let member = |word: &&str| {
        let [number, id, priority] = word.split(':').map(|n| n.parse().unwrap()).collect::<Vec<u32>>()[..] else {
            panic!("{word}");
        };
        let (port, settings) = member(number);
        (port, MemberSettings { port_id: id as u16, port_priority: priority as u16, key: 5, ..settings })
    };
    BondSettings {
        mode: if words[0] == "active" { Mode::Active } else { Mode::Passive },
        timeout: if words[1] == "fast" { Timeout::Fast } else { Timeout::Slow },
        system: SYSTEM,
        system_priority: words[3].parse().unwrap(),
        fallback: if words[2] == "true" { Fallback::ActiveBackup } else { Fallback::Off },
        members: words[4..].iter().map(member).collect(),
    }
}

fn info(info: &Info) -> String {
    let Info { system_priority, system, key, port_priority, port, state } = info;
    format!("{system_priority},{system},{key},{port_priority},{port},{:02x}", state.0)
}

fn state(lacp: &Lacp) -> String {
    let status = lacp.status().remove(0);
    let mut line = String::from(match status.settings.mode {
        Mode::Active => "active",
        Mode::Passive => "passive",
    });
    if status.negotiation == Negotiation::Negotiated {
        line.push_str(" negotiated");
    }
    for m in &status.members {
        let attached = if m.attached { "attached" } else { "detached" };
        let s = &m.statistics;
        let counts = [s.tx, s.rx, s.rx_bad, s.rx_marker, s.expired, s.defaulted, s.carrier_changed];
        let counts = counts.map(|count| count.to_string()).join(",");
        let (name, currency, actor, partner) = (&m.name, m.currency.name(), info(&m.actor), info(&m.partner));
        write!(line, " | {name} {currency},{attached},{} {actor} {partner} {counts}", m.may_enable).unwrap();
    }
    line
}

/// Replays a recording; returns the number of states compared.
fn replay(name: &str, recording: &str) -> usize {
    let (mut lacp, mut now, mut compared) = (Lacp::new(Millis(0)), Millis(0), 0);
    for (number, line) in recording.lines().enumerate() {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[0] {
            "set" => lacp.configure(settings(configure(&words[1..])), now),
            "rx" => lacp.input(port(words[1].parse().unwrap()), &bytes(&words[2].replace('*', &"00".repeat(66))), now),
            "warp" => {
                let [ms, step] = [words[1], words[2]].map(|word| word.parse::<u64>().unwrap());
                for _ in 0..ms / step {
                    now = now.after(step);
                    lacp.poll(now);
                }
            }
            _ => {
                compared += 1;
                assert_eq!(state(&lacp), line[2..], "{name}:{}", number + 1);
            }
        }
        lacp.poll(now);
    }
    compared
}

#[test]
fn random_runs_equal_those_of_open_vswitch() {
    let mut compared = 0;
    for (name, recording) in [
        ("1", include_str!("recorded/1.txt")),
        ("2", include_str!("recorded/2.txt")),
        ("3", include_str!("recorded/3.txt")),
    ] {
        compared += replay(name, recording);
    }
    // More of them, from a folder.
    if let Some(folder) = std::env::var_os("LACP_RECORDINGS") {
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            compared += replay(&path.display().to_string(), &std::fs::read_to_string(&path).unwrap());
        }
    }
    tally::report!("{compared} states");
}
