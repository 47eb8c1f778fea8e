//! A live replica of a remote OVSDB database, and transactions against it.
