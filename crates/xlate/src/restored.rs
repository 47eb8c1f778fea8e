//! The text of traces about the actions that a recirculated packet resumes with.
//!
//! Open vSwitch stores these actions as one list. Before an action that a packet-in may come from, the list restores the table
//! and the cookie that the packet-in shows, unless they are restored already: `unroll_xlate(table=TABLE, cookie=COOKIE)`.

use crate::freeze::{Frozen, FrozenList, ListContext};
use crate::trace::NodeKind;
use crate::translate::Xlate;
use openflow::Action;

/// The table and the cookie that were restored last.
pub(crate) type Restored = Option<(u8, u64)>;

/// Returns true if a list restores table and cookie before this action.
fn needs_context(action: &Action) -> bool {
    match action {
        Action::Output { .. }
        | Action::OutputReg { .. }
        | Action::OutputTrunc { .. }
        | Action::Controller(_)
        | Action::Group(_)
        | Action::DecTtl(_)
        | Action::DecMplsTtl
        | Action::DecNshTtl
        | Action::ResubmitPort { .. } => true,
        Action::Resubmit { table, .. } | Action::ResubmitCt { table, .. } => table.is_none(),
        _ => false,
    }
}

/// Returns the text of the step that restores table and cookie, if there is one before `action`, and remembers them.
fn unroll(action: &Action, context: ListContext, restored: &mut Restored) -> Option<String> {
    let wanted = Some((context.table, context.cookie));
    if !needs_context(action) || *restored == wanted {
        return None;
    }
    *restored = wanted;
    Some(format!("unroll_xlate(table={}, cookie={})", context.table, context.cookie))
}

impl Xlate<'_> {
    /// Adds the table in which the packet resumes to the trace, and the actions that remain.
    #[cold]
    pub(crate) fn trace_resumed(&mut self, frozen: &Frozen) {
        match (frozen.table, frozen.lists.first()) {
            (Some(table), _) => self.tracer.note(NodeKind::Action, || format!("    Resuming from table {table}")),
            (None, Some(outermost)) => {
                let table = outermost.context.table;
                self.tracer.note(NodeKind::Action, || format!("        Resuming from table {table}"));
                self.trace_restored_lists(&frozen.lists);
            }
            (None, None) => {}
        }
    }

    /// Adds the actions to the trace with which a packet resumes; the last list is the first one to resume.
    #[cold]
    fn trace_restored_lists(&mut self, lists: &[FrozenList]) {
        let (mut texts, mut restored) = (Vec::new(), None);
        for list in lists.iter().rev() {
            let remaining = list.actions.get(list.next..).unwrap_or_default();
            for action in remaining.iter().filter(|action| !matches!(action, Action::Note(_))) {
                texts.extend(unroll(action, list.context, &mut restored));
                texts.push(self.restored_action(action));
            }
        }
        self.tracer.note(NodeKind::Action, || format!("    Restoring actions: {}", texts.join(",")));
    }

    /// Adds an action of a restored list to the trace, and the steps before it that restore table and cookie.
    #[cold]
    pub(crate) fn trace_restored(&mut self, action: &Action) {
        if matches!(action, Action::Note(_)) {
            return;
        }
        let context = self.list_context();
        if let Some(text) = unroll(action, context, &mut self.control.restored) {
            self.tracer.note(NodeKind::Action, || text);
            // Open vSwitch shows the bytes of the cookie in the order of the wire.
            let cookie = match context.cookie.swap_bytes() {
                0 => "0".to_owned(),
                cookie => format!("{cookie:#x}"),
            };
            self.tracer.note(NodeKind::Action, || format!("restored state: table={}, cookie={cookie}", context.table));
        }
        let text = self.restored_action(action);
        self.tracer.note(NodeKind::Action, || text);
    }

    /// The text of an action in a restored list, which has actions in the place of instructions.
    fn restored_action(&self, action: &Action) -> String {
        match action {
            Action::GotoTable(table) => format!("resubmit(,{table})"),
            Action::WriteMetadata { value, mask: u64::MAX } => format!("set_field:{value:#x}->metadata"),
            Action::WriteMetadata { value, mask } => format!("set_field:{value:#x}/{mask:#x}->metadata"),
            action => self.traced_action(action),
        }
    }
}
