//! Settings that several kinds of collectors share.

use crate::reader::Reader;
use ovsdb_client::schemas::vswitch::{OpenVSwitch, open_vswitch};
use ovsdb_client::typed::Row;
use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};

/// Whether a drop follows the actions of sampled packets (other_config:explicit-sampled-drops).
pub fn explicit_drops(root: Row<'_, OpenVSwitch>) -> bool {
    let text = root.get(open_vswitch::OTHER_CONFIG).get("explicit-sampled-drops");
    text.is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

/// The collectors that a row of sFlow or NetFlow names; others give a warning. `port` is the port of those without one.
pub fn targets<'a>(
    reader: &Reader<'_>,
    what: &str,
    texts: impl IntoIterator<Item = &'a str>,
    port: Option<u16>,
) -> BTreeSet<SocketAddr> {
    let texts = texts.into_iter().filter_map(|text| {
        let target = target(text, port);
        if target.is_none() {
            let expected = if port.is_some() { "an address" } else { "an address with a port" };
            reader.warn(format!("{what}: target \"{text}\" is not {expected}"));
        }
        target
    });
    texts.collect()
}

/// A collector's address, without a port if there is a default.
fn target(text: &str, port: Option<u16>) -> Option<SocketAddr> {
    let alone = || text.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().ok();
    text.parse().ok().or_else(|| Some(SocketAddr::new(alone()?, port?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_an_address_and_a_port() {
        assert_eq!(target("10.0.0.1:99", None), Some(([10, 0, 0, 1], 99).into()));
        assert_eq!(target("[::1]:99", None).map(|t| (t.is_ipv6(), t.port())), Some((true, 99)));
        assert_eq!((target("10.0.0.1", None), target("[::1]", None)), (None, None));
        assert_eq!(target("10.0.0.1", Some(6343)), Some(([10, 0, 0, 1], 6343).into()));
        assert_eq!(target("[::1]", Some(6343)).map(|t| (t.is_ipv6(), t.port())), Some((true, 6343)));
        for wrong in ["", "collector:99", "10.0.0.1:", "10.0.0.1:65536", "10.0.0:1", "udp:10.0.0.1:99"] {
            assert_eq!(target(wrong, Some(1)), None, "{wrong}");
        }
    }
}
