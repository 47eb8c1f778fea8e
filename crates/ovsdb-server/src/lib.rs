//! The OVSDB server.
mod commit;
mod database;
mod execute;
pub mod file;
pub mod journal;
pub mod log;
mod monitor;
mod row;
pub mod storage;
mod transaction;
pub use commit::*;
pub use database::*;
pub use execute::*;
pub use monitor::*;
pub use row::*;
pub use transaction::*;
