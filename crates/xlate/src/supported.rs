//! Actions that are parsed, printed and carried in messages, and that no translation carries out yet: a switch refuses
//! flows with them.

use crate::translate::Xlate;
use crate::verdict::TranslationError;
use openflow::Action;

impl Xlate<'_> {
    /// Gives the translation up at an action that is not carried out.
    pub(crate) fn not_executed(&mut self, action: &Action) {
        self.fail(TranslationError::Unsupported(action.name()));
    }
}

/// The name of the first of `actions`, or of those within them, that a translation does not carry out.
pub fn first_unsupported(actions: &[Action]) -> Option<&'static str> {
    actions.iter().find_map(|action| match action {
        Action::Clone(inner) | Action::WriteActions(inner) => first_unsupported(inner),
        Action::DeleteField(_) => Some(action.name()),
        _ => {
            let mut named = false;
            action.tunnel_options(&mut |_| named = true);
            named.then(|| action.name())
        }
    })
}
