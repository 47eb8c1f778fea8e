//! A switch and its database, used as ovs-vsctl does: tests change rows, and read the results from rows and from the
//! running switch.

mod bridges;
mod commands;
mod controllers;
mod interfaces;
mod kernel;
mod lab;
mod lifecycle;
mod tunnels;
