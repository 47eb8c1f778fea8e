//! Actions that are parsed, printed and carried in messages, and that no translation carries out yet: a switch refuses
//! flows with them.

use openflow::Action;

/// The name of the first of `actions`, or of those within them, that a translation does not carry out.
pub fn first_unsupported(actions: &[Action]) -> Option<&'static str> {
    actions.iter().find_map(|action| match action {
        Action::Clone(inner) | Action::WriteActions(inner) => first_unsupported(inner),
        _ => None,
    })
}
