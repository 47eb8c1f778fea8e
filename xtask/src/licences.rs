//! The licences and sources of the packages that the tree is built from, checked against deny.toml: the part of `cargo deny` that
//! needs neither that program nor a network.
//!
//! Licence expressions are those of SPDX (version 2.3, annex D): `AND`, `OR` and parentheses; `/` is read as `OR`, as Cargo
//! does, and `WITH` adds an exception, which is accepted with the licence.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// The registry that packages come from.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Returns one line for each package that is not allowed; an error is a line that says what could not be read.
pub(crate) fn check(root: &Path) -> Result<Vec<String>, String> {
    let deny = std::fs::read_to_string(root.join("deny.toml")).map_err(|error| format!("deny.toml: {error}"))?;
    let allowed = allowed(&deny)?;
    let output = Command::new("cargo")
        .current_dir(root)
        .args(["metadata", "--locked", "--format-version", "1"])
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
    let packages = metadata["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    Ok(packages.iter().filter_map(|package| problem(package, &allowed)).collect())
}

/// The list `allow` of deny.toml's licences.
fn allowed(deny: &str) -> Result<Vec<String>, String> {
    let list =
        deny.lines().find_map(|line| line.strip_prefix("allow = [")).ok_or("deny.toml has no line 'allow = ['")?;
    Ok(list.split('"').skip(1).step_by(2).map(str::to_owned).collect())
}

fn problem(package: &Value, allowed: &[String]) -> Option<String> {
    let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
    // The tree's own packages have no source.
    let source = package["source"].as_str()?;
    if source != REGISTRY {
        return Some(format!("{name}: comes from {source}"));
    }
    let Some(licence) = package["license"].as_str() else { return Some(format!("{name}: states no licence")) };
    match is_allowed(licence, allowed) {
        Some(true) => None,
        Some(false) => Some(format!("{name}: licence {licence} is not in deny.toml")),
        None => Some(format!("{name}: '{licence}' is no licence expression")),
    }
}

/// Returns true if an expression holds when exactly the licences `allowed` may be chosen; `None` if it is invalid.
fn is_allowed(expression: &str, allowed: &[String]) -> Option<bool> {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let result = any(&mut words, allowed)?;
    words.next().is_none().then_some(result)
}

type Rest<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Rest<'_>, allowed: &[String]) -> Option<bool> {
    let mut result = all(words, allowed)?;
    while words.next_if_eq(&"OR").is_some() {
        result |= all(words, allowed)?;
    }
    Some(result)
}

fn all(words: &mut Rest<'_>, allowed: &[String]) -> Option<bool> {
    let mut result = one(words, allowed)?;
    while words.next_if_eq(&"AND").is_some() {
        result &= one(words, allowed)?;
    }
    Some(result)
}

fn one(words: &mut Rest<'_>, allowed: &[String]) -> Option<bool> {
    match words.next()? {
        "(" => {
            let result = any(words, allowed)?;
            (words.next()? == ")").then_some(result)
        }
        "AND" | "OR" | "WITH" | ")" => None,
        licence => {
            if words.next_if_eq(&"WITH").is_some() {
                words.next()?;
            }
            Some(allowed.iter().any(|known| known == licence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expressions() {
        let allowed = ["MIT", "Apache-2.0"].map(str::to_owned);
        let is = |text: &str| is_allowed(text, &allowed);
        for yes in [
            "MIT",
            "MIT OR GPL-3.0",
            "GPL-3.0/MIT",
            "(GPL-3.0 OR MIT) AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ] {
            assert_eq!(is(yes), Some(true), "{yes}");
        }
        for no in ["GPL-3.0", "MIT AND GPL-3.0", "MIT AND (GPL-3.0 OR ISC)"] {
            assert_eq!(is(no), Some(false), "{no}");
        }
        for bad in ["", "MIT OR", "(MIT", "MIT)", "MIT MIT", "AND"] {
            assert_eq!(is(bad), None, "{bad}");
        }
    }

    #[test]
    fn packages() {
        let allowed = allowed("[licenses]\nallow = [\"MIT\", \"ISC\"]\n").expect("there is a list");
        let package = |source: Value, license: Value| {
            problem(&json!({"name": "a", "version": "1.0.0", "source": source, "license": license}), &allowed)
        };
        assert_eq!(package(Value::Null, Value::Null), None);
        assert_eq!(package(json!(REGISTRY), json!("MIT")), None);
        assert_eq!(package(json!(REGISTRY), Value::Null).as_deref(), Some("a 1.0.0: states no licence"));
        assert!(package(json!("git+https://example.org"), json!("MIT")).is_some());
        assert!(package(json!(REGISTRY), json!("GPL-2.0")).is_some());
    }
}
