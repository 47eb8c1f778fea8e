//! The OVSDB server: transactions, constraints, monitors, durable storage.
