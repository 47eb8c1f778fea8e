//! A record of a translation for `ofproto/trace`, as a tree of nodes, and its layout as text.

use crate::verdict::Fork;
use std::fmt::Write;

/// The kind of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeKind {
    /// A bridge that the packet entered.
    Bridge,
    /// A table look-up and its result.
    Table,
    /// A bucket of a group.
    Bucket,
    /// An executed action.
    Action,
    /// The flow of a `learn` action; [`settle`] replaces it.
    Learned,
    /// What a message of IGMP or MLD teaches; [`note_multicast`] replaces it.
    Multicast,
    /// The result of an action.
    Detail,
    /// The reason why an action had no effect.
    Warning,
    /// The reason why the translation ended.
    Error,
}

/// A step of a translation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Its kind.
    pub kind: NodeKind,
    /// Its text.
    pub text: String,
    /// The nested steps: tables in a bridge, actions in a table. The tables and bridges that an action led to
    /// follow it in the same list.
    pub subs: Vec<Node>,
}

/// Replaces the nodes of learned flows: by details if they were learned, by a warning if side effects were suppressed.
pub fn settle(nodes: Vec<Node>, learned: bool) -> Vec<Node> {
    let mut settled = Vec::with_capacity(nodes.len());
    for mut node in nodes {
        let subs = settle(std::mem::take(&mut node.subs), learned);
        match node.kind {
            NodeKind::Learned if learned => {
                settled.push(Node { kind: NodeKind::Detail, ..node });
                settled.extend(subs);
            }
            NodeKind::Learned => settled.push(Node {
                kind: NodeKind::Warning,
                text: "suppressing side effects, so learn action ignored".into(),
                subs: Vec::new(),
            }),
            _ => settled.push(Node { subs, ..node }),
        }
    }
    settled
}

/// Replaces the nodes about what multicast messages teach by these texts, in order; an empty or missing one removes its node.
pub fn note_multicast(nodes: Vec<Node>, texts: &mut impl Iterator<Item = String>) -> Vec<Node> {
    let mut noted = Vec::with_capacity(nodes.len());
    for mut node in nodes {
        if node.kind == NodeKind::Multicast {
            node.kind = NodeKind::Detail;
            node.text = texts.next().unwrap_or_default();
            if node.text.is_empty() {
                continue;
            }
        }
        node.subs = note_multicast(node.subs, texts);
        noted.push(node);
    }
    noted
}

/// Lays out `nodes` like Open vSwitch's `ofproto/trace`: the last table or bridge of a list keeps the list's indentation, all
/// others are indented.
pub fn format(nodes: &[Node], out: &mut String) {
    format_level(nodes, 0, out);
}

fn format_level(nodes: &[Node], level: usize, out: &mut String) {
    for (i, node) in nodes.iter().enumerate() {
        let more = usize::from(i + 1 < nodes.len());
        let text = &node.text;
        let (branch, inner) = ((level + more) * 4, level * 4 + 4);
        let _ = match node.kind {
            NodeKind::Bridge => {
                let line = "-".repeat(text.chars().count());
                write!(out, "\n{:branch$}{text}\n{:branch$}{line}\n", "", "")
            }
            NodeKind::Table => writeln!(out, "{:branch$}{text}", ""),
            NodeKind::Bucket | NodeKind::Action => writeln!(out, "{:inner$}{text}", ""),
            NodeKind::Learned | NodeKind::Multicast | NodeKind::Detail => writeln!(out, "{:inner$} -> {text}", ""),
            NodeKind::Warning => writeln!(out, "{:inner$} >> {text}", ""),
            NodeKind::Error => writeln!(out, "{:inner$} >>>> {text} <<<<", ""),
        };
        let deeper = if node.kind == NodeKind::Bucket { 1 } else { more };
        format_level(&node.subs, level + 2 * deeper, out);
    }
}

/// Whether a translation is recorded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracing {
    /// It is not: its packet is real.
    Off,
    /// It is, and has no side effects: later steps do not see what its packet would teach.
    Dry(PortText),
    /// It is, and its side effects will be applied.
    WithEffects(PortText),
}

/// How a trace shows ports in matches and actions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortText {
    /// By their numbers.
    Numbers,
    /// By their names.
    Names,
}

impl From<bool> for Tracing {
    /// A trace has no side effects unless the caller says so.
    fn from(trace: bool) -> Self {
        if trace { Self::Dry(PortText::Numbers) } else { Self::Off }
    }
}

/// The nodes recorded so far. If tracing is off, it records and formats nothing.
#[derive(Debug)]
pub(crate) struct Tracer {
    tracing: Tracing,
    /// Open lists, outermost first.
    open: Vec<Vec<Node>>,
    forks: Vec<Fork>,
}

impl Tracer {
    /// Returns true if tracing is on.
    pub(crate) fn is_on(&self) -> bool {
        self.tracing != Tracing::Off
    }

    /// Returns true if later steps see what the packet teaches.
    pub(crate) fn has_effects(&self) -> bool {
        !matches!(self.tracing, Tracing::Dry(_))
    }

    /// How it shows ports.
    pub(crate) fn port_text(&self) -> PortText {
        match self.tracing {
            Tracing::Off => PortText::Numbers,
            Tracing::Dry(text) | Tracing::WithEffects(text) => text,
        }
    }

    pub(crate) fn new(tracing: Tracing) -> Self {
        let open = if tracing == Tracing::Off { Vec::new() } else { vec![Vec::new()] };
        Self { tracing, open, forks: Vec::new() }
    }

    /// Adds a leaf.
    pub(crate) fn note(&mut self, kind: NodeKind, text: impl FnOnce() -> String) {
        if self.is_on()
            && let Some(list) = self.open.last_mut()
        {
            list.push(Node { kind, text: text(), subs: Vec::new() });
        }
    }

    /// Adds a node; its nested nodes follow until [`Tracer::leave`].
    pub(crate) fn enter(&mut self, kind: NodeKind, text: impl FnOnce() -> String) {
        if self.is_on() {
            self.note(kind, text);
            self.open.push(Vec::new());
        }
    }

    /// Reopens the last node of the current list, to add nested nodes until [`Tracer::leave`].
    pub(crate) fn reenter(&mut self) {
        if self.is_on() {
            let subs = self.open.last_mut().and_then(|list| list.last_mut()).map(|node| std::mem::take(&mut node.subs));
            self.open.push(subs.unwrap_or_default());
        }
    }

    /// The number of open nodes.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// Reopens the nodes that were left since this depth.
    pub(crate) fn reopen(&mut self, depth: usize) {
        while self.open.len() < depth && !self.open.is_empty() {
            self.reenter();
        }
    }

    /// Closes the node opened last.
    pub(crate) fn leave(&mut self) {
        if self.is_on()
            && self.open.len() > 1
            && let Some(subs) = self.open.pop()
            && let Some(node) = self.open.last_mut().and_then(|list| list.iter_mut().rev().find(|n| is_branch(n.kind)))
        {
            node.subs = subs;
        }
    }

    /// Adds a copy of the packet that the connection tracker returns.
    pub(crate) fn fork(&mut self, fork: impl FnOnce() -> Fork) {
        if self.is_on() {
            self.forks.push(fork());
        }
    }

    /// Returns all nodes, if tracing is on, and the forks.
    pub(crate) fn finish(mut self) -> (Option<Vec<Node>>, Vec<Fork>) {
        while self.open.len() > 1 {
            self.leave();
        }
        (self.open.pop(), self.forks)
    }
}

fn is_branch(kind: NodeKind) -> bool {
    matches!(kind, NodeKind::Bridge | NodeKind::Table | NodeKind::Bucket | NodeKind::Learned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layout() {
        let mut t = Tracer::new(Tracing::Dry(PortText::Numbers));
        t.enter(NodeKind::Bridge, || "bridge(\"br0\")".into());
        t.enter(NodeKind::Table, || " 0. priority 5".into());
        t.note(NodeKind::Action, || "resubmit(,1)".into());
        t.enter(NodeKind::Table, || " 1. priority 0".into());
        t.note(NodeKind::Action, || "drop".into());
        t.leave();
        t.note(NodeKind::Action, || "goto_table:3".into());
        t.enter(NodeKind::Table, || " 3. priority 1".into());
        t.note(NodeKind::Action, || "output:1".into());
        t.note(NodeKind::Warning, || "skipping output to input port".into());
        let mut out = String::new();
        format(&t.finish().0.expect("is on"), &mut out);
        let want = "\nbridge(\"br0\")\n-------------\n 0. priority 5\n    resubmit(,1)\n     1. priority 0\n            drop\n    goto_table:3\n 3. priority 1\n    output:1\n     >> skipping output to input port\n";
        assert_eq!(out, want);
    }
}
