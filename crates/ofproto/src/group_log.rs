//! What select groups choose by, logged at level DBG as Open vSwitch does: scripts wait for these lines.

use openflow::GroupKind;
use openflow::group::GroupProperties;
use xlate::Group;

/// Logs the selection of a group that is added, or that replaces an `old` one.
pub(crate) fn log_selection(group: &Group, old: Option<&Group>) {
    if group.kind != GroupKind::Select || !tracing::enabled!(target: "ofproto_dpif", tracing::Level::DEBUG) {
        return;
    }
    let mut titles = vec!["Constructing"];
    if old.is_some() {
        // A group is made before it replaces the other one.
        titles.push("Modifying");
    }
    for title in titles {
        tracing::debug!(target: "ofproto_dpif", "{title} select group {}", group.id);
        for line in selection(group) {
            tracing::debug!(target: "ofproto_dpif", "{line}");
        }
    }
}

/// The lines about a group's selection.
fn selection(group: &Group) -> Vec<String> {
    let GroupProperties { selection_method, selection_method_param, .. } = &group.properties;
    let mut lines = vec![match selection_method.as_str() {
        "" => "No selection method specified. Trying dp_hash.".to_owned(),
        method => format!("Selection method specified: {method}."),
    }];
    if selection_method == "hash" {
        let fields = group.properties.fields_to_string(&flow::text::NoNames);
        if fields.is_empty() {
            lines.push("No hash fields. Falling back to default hash method.".to_owned());
        } else {
            lines.push(format!("Hash fields: {fields}"));
        }
        return lines;
    }
    if by_hash_of_datapath(group, &mut lines) {
        let algorithm = if selection_method.is_empty() { 1 } else { selection_method_param >> 32 };
        let n = group.spread().map_or(0, <[u16]>::len);
        lines.push(format!("Use dp_hash with {n} hash values using algorithm {algorithm}."));
    } else {
        lines.push("Falling back to default hash method.".to_owned());
    }
    lines
}

/// Adds the lines about the shares of buckets. Returns false if they cannot share hashes.
fn by_hash_of_datapath(group: &Group, lines: &mut Vec<String>) -> bool {
    let weights: Vec<u64> = group.buckets.iter().map(|b| b.bucket.weight.into()).collect();
    if weights.is_empty() {
        lines.push("  Don't apply dp_hash method without buckets.".to_owned());
        return false;
    }
    let total: u64 = weights.iter().sum();
    let Some(least) = weights.iter().copied().filter(|weight| *weight > 0).min() else {
        lines.push("  Total weight is zero. No active buckets.".to_owned());
        return false;
    };
    lines.push(format!("  Minimum weight: {least}, total weight: {total}"));
    let Some(hashes) = group.spread() else {
        let n = total.div_ceil(least).next_power_of_two();
        lines.push(format!("  Too many hash values required: {n}"));
        return false;
    };
    lines.push(format!("  Using {} hash values:", hashes.len()));
    for (i, weight) in weights.iter().enumerate() {
        let target = *weight as f64 * hashes.len() as f64 / total as f64;
        let hits = hashes.iter().filter(|bucket| usize::from(**bucket) == i).count();
        lines.push(format!("  Bucket {i}: weight={weight}, target={target:.2} hits={hits}"));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Millis;
    use flow::text::NoNames;
    use openflow::{GroupCommand, parse_group};
    use std::sync::Arc;
    use xlate::GroupBucket;

    fn lines(text: &str) -> Vec<String> {
        let text = format!("group_id=1,type=select{text}");
        let gm = parse_group(&text, GroupCommand::Add, &NoNames).expect("a group").group_mod;
        let buckets = gm.buckets.iter().map(|bucket| GroupBucket::new(bucket.clone())).collect();
        selection(&Group {
            id: 1,
            kind: gm.kind,
            buckets,
            properties: gm.properties,
            created: Millis(0),
            counters: Arc::default(),
            spread: xlate::groups::Spread::default(),
        })
    }

    /// The lines are those of Open vSwitch 4.0.
    #[test]
    fn selections_are_described() {
        assert_eq!(
            lines(",bucket=weight:100,output:2,bucket=weight:200,output:3,bucket=weight:300,output:1"),
            [
                "No selection method specified. Trying dp_hash.",
                "  Minimum weight: 100, total weight: 600",
                "  Using 16 hash values:",
                "  Bucket 0: weight=100, target=2.67 hits=3",
                "  Bucket 1: weight=200, target=5.33 hits=5",
                "  Bucket 2: weight=300, target=8.00 hits=8",
                "Use dp_hash with 16 hash values using algorithm 1.",
            ]
        );
        let dp_hash = lines(",selection_method=dp_hash,bucket=weight:3,output:2,bucket=weight:1,output:3");
        assert_eq!(dp_hash.first().unwrap(), "Selection method specified: dp_hash.");
        assert_eq!(dp_hash.last().unwrap(), "Use dp_hash with 16 hash values using algorithm 0.");
        assert_eq!(
            lines(",bucket=weight:1,output:2,bucket=weight:1000,output:3")[2..],
            ["  Too many hash values required: 1024", "Falling back to default hash method."]
        );
        assert_eq!(
            lines("")[1..],
            ["  Don't apply dp_hash method without buckets.", "Falling back to default hash method."]
        );
        assert_eq!(
            lines(",selection_method=hash,fields(ip_src=255.255.255.0,ip_dst),bucket=output:2"),
            ["Selection method specified: hash.", "Hash fields: ip_src=255.255.255.0,ip_dst"]
        );
        assert_eq!(
            lines(",selection_method=hash,bucket=output:2")[1],
            "No hash fields. Falling back to default hash method."
        );
    }
}
