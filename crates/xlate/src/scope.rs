//! Scopes: parts of a translation after which the packet and the position in the pipeline are restored.

use crate::commit::Pending;
use crate::freeze::Unseen;
use crate::state::Position;
use crate::translate::{Xlate, trim};
use crate::verdict::{TranslationError, Written};
use dpif::DpAction;
use flow::FlowKey;
use flow::reads::Overwritten;

/// The reason for a scope, which decides the initial state of the code inside. Each scope restores the packet and the
/// position at its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Scope {
    /// The peer's bridge behind a patch port: with an empty action set and stack. An `exit` or error inside has no effect on
    /// the bridge that the packet came from.
    Patch,
    /// A `clone`: with copies of the action set and the stack. An `exit` inside ends the translation.
    Copy,
    /// The rest of the pipeline for one result of `check_pkt_larger`: with copies of the action set and the stack. An `exit`
    /// inside ends this branch.
    Branch,
    /// A bucket of a group: with a copy of the stack. Its changes to the action set remain. An `exit` inside ends the
    /// bucket.
    Bucket,
}

impl Scope {
    /// Returns true if an error inside ends the scope only. As in Open vSwitch, an error behind a patch port does not affect
    /// the bridge in front of it, and a bucket's error does not affect other buckets, unless the translation reached a limit.
    fn contains(self, error: TranslationError) -> bool {
        match self {
            Self::Patch => true,
            Self::Bucket => matches!(error, TranslationError::Labels | TranslationError::PacketType),
            Self::Copy | Self::Branch => false,
        }
    }
}

/// The packet that a scope restores. All of its changes are emitted.
pub(crate) struct Saved {
    key: FlowKey,
    overwritten: Overwritten,
    written: Option<Written>,
    unseen: Unseen,
    tracked: Option<bool>,
    translated: bool,
}

impl<'a> Xlate<'a> {
    /// Runs `work` on a copy of the packet, and appends the datapath actions to the previous ones: as a `Clone` if they change
    /// the packet for the actions that follow.
    pub(crate) fn on_a_copy(&mut self, scope: Scope, work: impl FnOnce(&mut Self)) {
        let actions = self.scoped(scope, work);
        if actions.iter().any(DpAction::affects_later) {
            self.emit(DpAction::Clone(actions.into()));
        } else {
            self.out.actions.extend(actions);
        }
    }

    /// Runs `work` and returns the datapath actions that it emits. Afterwards packet, position and control have their previous
    /// values, apart from those that the scope lets through.
    pub(crate) fn scoped(&mut self, scope: Scope, work: impl FnOnce(&mut Self)) -> Vec<DpAction> {
        self.commit();
        self.save();
        let outer = self.enter(scope);
        let actions = std::mem::take(&mut self.out.actions);
        work(self);
        let mut inner = std::mem::replace(&mut self.out.actions, actions);
        trim(&mut inner);
        self.leave_scope(scope, outer);
        self.restore();
        inner
    }

    fn save(&mut self) {
        let (packet, reads) = (&self.packet, &self.out.reads);
        let n = self.usage.scopes as usize;
        self.usage.scopes += 1;
        match self.saved.get_mut(n) {
            // Reuses the memory of a closed scope.
            Some(saved) => {
                saved.key.clone_from(&packet.key);
                reads.save_overwritten(&mut saved.overwritten);
                (saved.written, saved.unseen) = (packet.written, packet.unseen);
                (saved.tracked, saved.translated) = (packet.tracked, packet.translated);
            }
            None => self.saved.push(Saved {
                key: packet.key.clone(),
                overwritten: reads.overwritten(),
                written: packet.written,
                unseen: packet.unseen,
                tracked: packet.tracked,
                translated: packet.translated,
            }),
        }
    }

    fn restore(&mut self) {
        self.usage.scopes -= 1;
        let Some(saved) = self.saved.get(self.usage.scopes as usize) else { return };
        let packet = &mut self.packet;
        packet.key.clone_from(&saved.key);
        packet.base.clone_from(&saved.key);
        packet.pending = Pending::default();
        (packet.written, packet.unseen) = (saved.written, saved.unseen);
        (packet.tracked, packet.translated) = (saved.tracked, saved.translated);
        self.out.reads.restore_overwritten(&saved.overwritten);
    }

    /// Sets the position at which the code inside of the scope begins, and returns the previous one.
    fn enter(&mut self, scope: Scope) -> Position<'a> {
        let pos = &mut self.pos;
        let (action_set, stack) = match scope {
            Scope::Patch => (Vec::new(), Vec::new()),
            Scope::Copy | Scope::Branch => (pos.action_set.clone(), pos.stack.clone()),
            Scope::Bucket => (std::mem::take(&mut pos.action_set), pos.stack.clone()),
        };
        let nested = u32::from(matches!(scope, Scope::Patch | Scope::Bucket));
        let inner = Position {
            rule: pos.rule.filter(|_| scope != Scope::Patch),
            action_set,
            stack,
            depth: pos.depth + nested,
            level: pos.level + nested,
            // The action set of a branch is executed at the end of the pipeline, that of a copy at the copy's end.
            runs: if matches!(scope, Scope::Patch | Scope::Copy) { 0 } else { pos.runs },
            in_action_set: pos.in_action_set && scope != Scope::Patch,
            bucket_level: match scope {
                Scope::Patch => None,
                Scope::Bucket => Some(pos.level + nested),
                Scope::Copy | Scope::Branch => pos.bucket_level,
            },
            ..*pos
        };
        std::mem::replace(pos, inner)
    }

    fn leave_scope(&mut self, scope: Scope, outer: Position<'a>) {
        let inner = std::mem::replace(&mut self.pos, outer);
        if scope == Scope::Bucket {
            self.pos.action_set = inner.action_set;
        }
        if let Some(error) = self.control.error.filter(|error| scope.contains(*error)) {
            self.control.error = None;
            self.note_drop(error.drop_reason());
        }
        if scope != Scope::Copy {
            self.control.exit = self.control.error.is_some();
        }
    }
}
