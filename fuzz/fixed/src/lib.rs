//! The fuzz targets as functions. A library has them, not the tests, and only outside of tests: modules that targets share
//! with crates would bring their own tests along.
#![cfg(not(test))]

include!(concat!(env!("OUT_DIR"), "/targets.rs"));
