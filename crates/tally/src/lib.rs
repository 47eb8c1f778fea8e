//! For tests: reports the number of cases of properties and comparisons.
//!
//! A passing test is silent even if it tested nothing. So each property ([`proptest!`]) and each comparison with a
//! naive twin or with another program ([`report!`]) appends a line to the file named by the environment variable
//! `FLOWSTONE_CASE_COUNTS`, such as `datapath::microflow::tests::agrees: 2000 cases`. `./test` prints these lines.
//!
//! Invariant: a thread writes its counts when it ends, which a test's thread does before its program.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write;

/// The environment variable that names the file.
pub const FILE: &str = "FLOWSTONE_CASE_COUNTS";

/// `proptest::proptest!` that counts the cases of each property, including rejected ones.
#[macro_export]
macro_rules! proptest {
    (@ $config:expr; $($(#[$attribute:meta])* fn $name:ident($($parameters:tt)*) $body:block)*) => {
        ::proptest::proptest! {
            #![proptest_config($config)]
            $(
                $(#[$attribute])*
                fn $name($($parameters)*) {
                    $crate::case(env!("CARGO_PKG_NAME"), concat!(module_path!(), "::", stringify!($name)));
                    $body
                }
            )*
        }
    };
    (#![proptest_config($config:expr)] $($properties:tt)*) => {
        $crate::proptest! { @ $config; $($properties)* }
    };
    ($($properties:tt)*) => {
        $crate::proptest! { @ ::proptest::test_runner::Config::default(); $($properties)* }
    };
}

/// Reports the extent of a comparison, formatted like `format!`, in a line with the test's name, and prints it.
#[macro_export]
macro_rules! report {
    ($($what:tt)+) => {{
        fn here() {}
        $crate::note(env!("CARGO_PKG_NAME"), ::std::any::type_name_of_val(&here), &format!($($what)+));
    }};
}

/// The cases of one thread's properties, by package and name.
struct Counts(BTreeMap<(&'static str, &'static str), u64>);

impl Drop for Counts {
    fn drop(&mut self) {
        for ((package, name), cases) in &self.0 {
            write(package, name, &format!("{cases} cases"));
        }
    }
}

thread_local! {
    static COUNTS: RefCell<Counts> = const { RefCell::new(Counts(BTreeMap::new())) };
}

/// Counts a case of the property `name`; for [`proptest!`].
pub fn case(package: &'static str, name: &'static str) {
    COUNTS.with_borrow_mut(|counts| *counts.0.entry((package, name)).or_default() += 1);
}

/// Prints `what`, and appends it with the name of the function that contains `place`; for [`report!`].
pub fn note(package: &str, place: &str, what: &str) {
    println!("{what}");
    write(package, function(place), what);
}

/// The function around a local item and the closures around it.
fn function(mut place: &str) -> &str {
    place = place.strip_suffix("::here").unwrap_or(place);
    while let Some(outer) = place.strip_suffix("::{{closure}}") {
        place = outer;
    }
    place
}

fn write(package: &str, name: &str, what: &str) {
    let Some(path) = std::env::var_os(FILE) else { return };
    let file = OpenOptions::new().create(true).append(true).open(path);
    // A single write for the line, since other programs append, too. A count that cannot be written fails no test.
    let _ = file.and_then(|mut file| file.write_all(format!("{}: {what}\n", full(package, name)).as_bytes()));
}

/// The name prefixed by the package, unless it already begins with it: integration tests are crates of their
/// own.
fn full(package: &str, name: &str) -> String {
    let package = package.replace('-', "_");
    let is_own = name.strip_prefix(&package).is_some_and(|rest| rest.starts_with("::"));
    if is_own { name.to_owned() } else { format!("{package}::{name}") }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names() {
        for (place, name) in [("a::b::here", "a::b"), ("a::b::{{closure}}::{{closure}}::here", "a::b"), ("a", "a")] {
            assert_eq!(super::function(place), name);
        }
        for (package, name, full) in
            [("a-b", "a_b::c", "a_b::c"), ("a", "peers::c", "a::peers::c"), ("a", "ab::c", "a::ab::c")]
        {
            assert_eq!(super::full(package, name), full);
        }
    }
}
