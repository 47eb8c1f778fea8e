//! A switch and its database, driven as ovs-vsctl would: rows are changed, and what comes of it is read from rows and
//! from the running switch.

mod bridges;
mod commands;
mod controllers;
mod interfaces;
mod kernel;
mod lab;
mod lifecycle;
