//! Named cases, and random fragments beside a naive twin.

mod frames;
mod named;
mod random;
