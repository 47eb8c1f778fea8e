//! OpenFlow messages, actions and their text.
