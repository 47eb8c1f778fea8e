//! `translate`: one pure function from tables and a flow key to actions, reads and effects.
