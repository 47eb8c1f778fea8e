//! Flows as arguments and lines of files, and which flow formats can carry them.

use crate::error::{Result, fatal};
use crate::names::Names;
use crate::protocol::Protocols;
use openflow::flow_mod::GROUP_ANY;
use openflow::flow_msg::FlowStatsRequest;
use openflow::of_match;
use openflow::{Action, FlowMod, FlowModCommand};

/// The formats in which a flow modification can be written.
pub fn usable(fm: &FlowMod) -> Protocols {
    let mut set = matching_usable(&fm.matching, fm.cookie_mask);
    if fm.table_id.is_some() {
        set = set & (Protocols::OF10_STD_TID | Protocols::NXM_TID | Protocols::OF11_UP);
    }
    if fm.out_group != GROUP_ANY {
        set = set & Protocols::OF11_UP;
    }
    for action in &fm.actions {
        set = set & action_usable(action);
    }
    if fm.flags.no_packet_counts || fm.flags.no_byte_counts {
        set = set & Protocols::OF13_UP;
    }
    set
}

fn matching_usable(m: &flow::Match, cookie_mask: u64) -> Protocols {
    if cookie_mask != 0 || !of_match::of10_can_express(m) {
        Protocols::NXM_ANY | Protocols::OXM
    } else {
        Protocols::ANY
    }
}

fn action_usable(action: &Action) -> Protocols {
    match action {
        Action::WriteActions(_) | Action::ClearActions | Action::WriteMetadata { .. } => {
            Protocols::NXM_ANY | Protocols::OF11_UP
        }
        _ => Protocols::ANY,
    }
}

/// The formats in which a request for these flows can be written.
pub fn request_usable(q: &FlowStatsRequest) -> Protocols {
    let mut set = matching_usable(&q.matching, q.cookie_mask);
    if q.out_group != GROUP_ANY {
        set = set & Protocols::OF11_UP;
    }
    set
}

/// Reads a flow modification; `command` is `None` where the text may begin with one.
pub fn parse(text: &str, command: Option<FlowModCommand>, names: &Names) -> std::result::Result<FlowMod, String> {
    openflow::flow_text::parse_flow_mod(text, command, names, &|t| names.table(t)).map_err(|e| e.to_string())
}

/// Reads which flows a request asks for.
pub fn parse_request(text: &str, names: &Names) -> Result<FlowStatsRequest> {
    openflow::flow_text::parse_flow_request(text, names, &|t| names.table(t)).map_err(fatal)
}

/// The lines of a file of flows without comments and blank lines, with their numbers.
pub fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().filter_map(|(i, line)| {
        let line = line.split('#').next().unwrap_or_default().trim();
        (!line.is_empty()).then_some((i + 1, line))
    })
}

/// A file, or standard input for `-`.
pub fn read_file(name: &str) -> Result<String> {
    let bytes = if name == "-" {
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut std::io::stdin().lock(), &mut bytes).map(|_| bytes)
    } else {
        std::fs::read(name)
    };
    match bytes {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) => Err(fatal(format!("{name}: open failed ({})", crate::error::strerror(&e)))),
    }
}
