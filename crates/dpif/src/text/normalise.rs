//! `normalize-actions` and `parse-actions`: lists of datapath actions as text, for comparisons. They need no datapath.

use super::{format_actions, key_to_string, parse_actions, parse_key_of_flow};
use crate::action::DpAction;
use base::DpPort;
use flow::FlowKey;
use flow::extract::ethertype;
use std::collections::HashMap;
use std::fmt::Write;

/// The text that could not be parsed, in the words of Open vSwitch.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NormaliseError {
    /// A port with its name.
    #[error("{0}: expected NAME=NUMBER")]
    Port(String),
    /// The flow.
    #[error("odp_flow_key_from_string ({0}) (Invalid argument)")]
    Flow(super::KeyError),
    /// The actions.
    #[error("odp_actions_from_string (Invalid argument)")]
    Actions,
}

/// The headers that the actions behind them are executed with: tags and labels, the outer ones first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Stacks {
    tags: Vec<(u16, u16)>,
    labels: Vec<u32>,
}

/// Parses actions, and returns their text in the form of dumps.
pub fn parsed_actions(text: &str) -> Result<String, NormaliseError> {
    let actions = parse_actions(text, &|_| None).map_err(|_| NormaliseError::Actions)?;
    // The text names the header of fields that IPv4 and IPv6 share.
    let eth_type = if text.contains("ipv6(") { ethertype::IPV6 } else { ethertype::IPV4 };
    Ok(format_actions(&actions, eth_type, &|_| None))
}

/// Formats a flow and its actions so that lists with the same effect have mostly the same text: actions are grouped by the
/// tags and labels of the packet then, and consecutive outputs are sorted. As in Open vSwitch, no group has a line of its own,
/// and the flow is written even if the actions are wrong.
/// `ports` are the names of ports, `NAME=NUMBER` each.
pub fn normalise(flow: &str, actions: &str, ports: &[String], out: &mut String) -> Result<(), NormaliseError> {
    let mut numbers = HashMap::new();
    for text in ports {
        let named = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let port = named.and_then(|(name, number)| Some((name, DpPort(number.parse().ok()?))));
        numbers.extend([port.ok_or_else(|| NormaliseError::Port(text.clone()))?]);
    }
    let port = &|name: &str| numbers.get(name).copied();
    let key = parse_key_of_flow(flow, port).map_err(NormaliseError::Flow)?;
    // Writing to a string does not fail.
    let given = given_headers(flow, &key_to_string(&key, &|_| None));
    let _ = writeln!(out, "input flow: {}", if given.is_empty() { "<empty>" } else { given.as_str() });
    let actions = parse_actions(actions, port).map_err(|_| NormaliseError::Actions)?;
    for (stacks, group) in groups(&key, actions) {
        write_stacks(&stacks, out);
        out.push_str(&format_actions(&sorted_outputs(group), key.eth_type(), &|_| None));
    }
    Ok(())
}

/// Groups actions by the tags and labels of the packet, without the actions that push and pop them.
fn groups(key: &FlowKey, actions: Vec<DpAction>) -> Vec<(Stacks, Vec<DpAction>)> {
    let mut stacks = Stacks {
        tags: (0..2).map(|n| key.vlan(n)).take_while(|(_, tci)| tci & 0x1000 != 0).collect(),
        labels: (0..3).map(|n| key.mpls_lse(n)).take_while(|lse| *lse != 0).collect(),
    };
    let mut groups = Vec::<(Stacks, Vec<DpAction>)>::new();
    for action in actions {
        match action {
            DpAction::PushVlan { tpid, tci } => stacks.tags.insert(0, (tpid, tci | 0x1000)),
            DpAction::PopVlan if !stacks.tags.is_empty() => drop(stacks.tags.remove(0)),
            DpAction::PushMpls { lse, .. } => stacks.labels.insert(0, lse),
            DpAction::PopMpls { .. } if !stacks.labels.is_empty() => drop(stacks.labels.remove(0)),
            action => match groups.iter_mut().find(|(of, _)| *of == stacks) {
                Some((_, group)) => group.push(action),
                None => groups.push((stacks.clone(), vec![action])),
            },
        }
    }
    // Untagged packets first, then as tags and labels read.
    groups.sort_by(|(a, _), (b, _)| (a.tags.len(), a).cmp(&(b.tags.len(), b)));
    groups
}

fn sorted_outputs(mut actions: Vec<DpAction>) -> Vec<DpAction> {
    let is_output = |action: &DpAction| matches!(action, DpAction::Output(_));
    let port = |action: &DpAction| if let DpAction::Output(port) = action { port.0 } else { 0 };
    for run in actions.chunk_by_mut(|a, b| is_output(a) && is_output(b)) {
        run.sort_by_key(port);
    }
    actions
}

fn write_stacks(stacks: &Stacks, out: &mut String) {
    if stacks.tags.is_empty() {
        out.push_str("no vlan: ");
    }
    for (tpid, tci) in &stacks.tags {
        let tpid = if *tpid == ethertype::VLAN { String::new() } else { format!("tpid=0x{tpid:04x},") };
        let _ = write!(out, "vlan({tpid}vid={},pcp={}): ", tci & 0xfff, tci >> 13);
    }
    match stacks.labels.first() {
        Some(lse) => {
            let _ = write!(out, "mpls(label={},tc={},ttl={}): ", lse >> 12, lse >> 9 & 7, lse & 0xff);
        }
        None => out.push_str("no mpls: "),
    }
}

/// The headers in `whole`, the text of a whole key, that the text of the flow has, too.
pub(super) fn given_headers(flow: &str, whole: &str) -> String {
    let mut kept = Vec::new();
    let mut rest = whole;
    while let Some((name, tail)) = rest.split_once('(') {
        let Some(end) = super::parse::closing(tail) else { break };
        let body = &tail[..end];
        if name == "encap" {
            kept.push(format!("encap({})", given_headers(flow, body)));
        } else if flow.contains(&format!("{name}(")) {
            kept.push(format!("{name}({body})"));
        }
        rest = tail[end + 1..].trim_start_matches(',');
    }
    kept.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: &str = "in_port(1),eth(),eth_type(0x0800),ipv4()";

    fn normalised(flow: &str, actions: &str) -> Result<String, NormaliseError> {
        let mut out = String::new();
        normalise(flow, actions, &[], &mut out).map(|()| out)
    }

    /// The groups, without the flow.
    fn groups(flow: &str, actions: &str) -> String {
        normalised(flow, actions).unwrap().split_once('\n').unwrap().1.to_owned()
    }

    /// The texts are those of Open vSwitch 4.0.
    #[test]
    fn actions_are_grouped_by_tags_and_labels() {
        assert_eq!(groups(FLOW, "3,1,2"), "no vlan: no mpls: 1,2,3");
        assert_eq!(
            groups(FLOW, "3,push_vlan(vid=7,pcp=1),5,4,pop_vlan,2,1"),
            "no vlan: no mpls: 1,2,3vlan(vid=7,pcp=1): no mpls: 4,5"
        );
        let tagged = "in_port(1),eth(),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x0800),ipv4())";
        assert_eq!(
            groups(tagged, "3,pop_vlan,9,push_vlan(vid=7,pcp=0),5,4,pop_vlan,2,1"),
            "no vlan: no mpls: 1,2,9vlan(vid=7,pcp=0): no mpls: 4,5vlan(vid=5,pcp=3): no mpls: 3"
        );
        assert_eq!(
            groups(FLOW, "push_vlan(vid=7,pcp=1),push_vlan(vid=8,pcp=1),5"),
            "vlan(vid=8,pcp=1): vlan(vid=7,pcp=1): no mpls: 5"
        );
        assert_eq!(
            groups(FLOW, "set(ipv4(ttl=3)),3,1,set(ipv4(ttl=5)),1"),
            "no vlan: no mpls: set(ipv4(ttl=3)),1,3,set(ipv4(ttl=5)),1"
        );
        assert_eq!(groups(FLOW, "clone(2,1),1"), "no vlan: no mpls: clone(2,1),1");
        let labelled = "in_port(1),eth(),eth_type(0x8847),mpls(label=3,tc=1,ttl=5,bos=1)";
        assert_eq!(
            groups(labelled, "set(mpls(label=4,tc=1,ttl=5,bos=1)),2"),
            "no vlan: mpls(label=3,tc=1,ttl=5): set(mpls(label=4,tc=1,ttl=5,bos=1)),2"
        );
        assert_eq!(groups(FLOW, ""), "");
        let error = |flow, actions| normalised(flow, actions).unwrap_err().to_string();
        assert_eq!(
            error("in_port(1),bogus", "2"),
            "odp_flow_key_from_string (syntax error at bogus) (Invalid argument)"
        );
        assert_eq!(error(FLOW, "bogus"), "odp_actions_from_string (Invalid argument)");
    }

    #[test]
    fn ports_have_names() {
        let ports = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let mut out = String::new();
        normalise("in_port(a),eth()", "b,a", &ports(&["a=2", "b=3"]), &mut out).unwrap();
        assert!(out.starts_with("input flow: in_port(2),") && out.ends_with(": 2,3"), "{out}");
        for wrong in ["b=x", "b=", "=3", "b"] {
            let error = normalise("in_port(a)", "a", &ports(&["a=2", wrong]), &mut out).unwrap_err();
            assert_eq!(error.to_string(), format!("{wrong}: expected NAME=NUMBER"));
        }
    }

    #[test]
    fn only_given_headers_are_printed() {
        let flow = |text: &str| normalised(text, "2").unwrap().split_once('\n').unwrap().0.to_owned();
        assert_eq!(
            flow(FLOW),
            "input flow: in_port(1),eth(src=00:00:00:00:00:00,dst=00:00:00:00:00:00),eth_type(0x0800),\
             ipv4(src=0.0.0.0,dst=0.0.0.0,proto=0,tos=0,ttl=0,frag=no)"
        );
        assert_eq!(flow("in_port(1)"), "input flow: in_port(1)");
        assert_eq!(
            flow("in_port(1),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x1234))"),
            "input flow: in_port(1),eth_type(0x8100),vlan(vid=5,pcp=3),encap(eth_type(0x1234))"
        );
    }

    #[test]
    fn parsed() {
        assert_eq!(parsed_actions("2 3").unwrap(), "2,3");
        assert_eq!(parsed_actions("").unwrap(), "drop");
        assert_eq!(parsed_actions("set(ipv6(hlimit=3)),4").unwrap(), "set(ipv6(hlimit=3)),4");
        assert_eq!(parsed_actions("bogus"), Err(NormaliseError::Actions));
    }
}
