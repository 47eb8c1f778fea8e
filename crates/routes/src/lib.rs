//! Routes, policy rules and neighbours for the outer headers of tunnels. No I/O, time is an argument.
