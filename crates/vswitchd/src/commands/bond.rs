//! `bond/`: bonds, their members and hashes, and changes until links change; `dpif-netdev/bond-show`.

use super::{act, show};
use crate::devices::{Devices, Dp};
use base::DpPort;
use bond::{Bonds, CommandError, commands as texts, show as lists};
use dpif::{BondId, BondTable};
use serde_json::{Map, Value, json};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::{Commands, OutputFormat};

/// A change of a bond, with the rest of the command's arguments.
type Change = fn(&mut Bonds, &str, &[&str]) -> Result<&'static str, CommandError>;

/// Registers the commands.
pub(crate) fn register(commands: &Commands, devices: &Arc<Devices>) {
    show(commands, devices, ("bond/list", "", 0..=0), |devices, _, format| {
        Ok(match format {
            OutputFormat::Text => {
                let rows = devices.datapaths().into_iter().map(|(_, dp)| dp.switch.with_bonds(|bonds| bonds.list()));
                (lists::LIST_HEADER.to_owned() + &rows.collect::<String>()).into()
            }
            OutputFormat::Json => json_of(devices, None).into(),
        })
    });
    show(commands, devices, ("bond/show", "[port]", 0..=1), |devices, args, format| {
        let name = args.first().map(String::as_str);
        if let Some(name) = name {
            find(devices, name)?;
        }
        Ok(match format {
            OutputFormat::Text => text_of(devices, name).into(),
            OutputFormat::Json => json_of(devices, name).into(),
        })
    });
    let member: [(&str, &str, Change); 3] = [
        ("bond/set-active-member", "bond/set-active-slave", |bonds, bond, rest| bonds.set_active_member(bond, rest[0])),
        ("bond/enable-member", "bond/enable-slave", |bonds, bond, rest| bonds.enable_member(bond, rest[0])),
        ("bond/disable-member", "bond/disable-slave", |bonds, bond, rest| bonds.disable_member(bond, rest[0])),
    ];
    for (name, old_name, change) in member {
        for name in [name, old_name] {
            register_change(commands, devices, (name, "port member", 2), change);
        }
        commands.hide(old_name);
    }
    register_change(commands, devices, ("bond/migrate", "port hash member", 3), |bonds, bond, rest| {
        bonds.migrate(bond, rest[0], rest[1])
    });
    act(commands, devices, ("bond/hash", "mac [vlan] [basis]", 1..=3), |_, args| {
        let arg = |n: usize| args.get(n).map(String::as_str);
        let hash = texts::hash(arg(0).unwrap_or_default(), arg(1), arg(2));
        hash.map(|hash| hash.to_string()).map_err(|error| error.to_string())
    });
    show(commands, devices, ("dpif-netdev/bond-show", "[dp]", 0..=1), |devices, args, format| {
        let bonds = super::pmd::named(devices, args.first())?.dpif.bonds();
        Ok(match format {
            OutputFormat::Text => tables_text(&bonds).into(),
            OutputFormat::Json => tables_json(&bonds).into(),
        })
    });
}

/// The bonds that a datapath balances, in Open vSwitch's layout: the port of each bucket.
fn tables_text(bonds: &[(BondId, BondTable)]) -> String {
    let mut out = String::new();
    for (n, (id, table)) in bonds.iter().enumerate() {
        out.push_str(if n == 0 { "Bonds:\n" } else { "" });
        // Writing to a string does not fail.
        let _ = writeln!(out, "  bond-id {}:", id.0);
        for (bucket, port) in table.buckets.iter().enumerate() {
            let _ = writeln!(out, "    bucket {bucket} - member {}", port.unwrap_or(DpPort::NONE).0);
        }
    }
    out
}

/// The same as JSON, by id.
fn tables_json(bonds: &[(BondId, BondTable)]) -> Value {
    let json = |(id, table): &(BondId, BondTable)| {
        let ports: Vec<Option<u32>> = table.buckets.iter().map(|port| port.map(|port| port.0)).collect();
        (id.0.to_string(), json!({"hash_basis": table.hash_basis, "buckets": ports}))
    };
    Value::Object(bonds.iter().map(json).collect())
}

fn register_change(commands: &Commands, devices: &Arc<Devices>, (name, usage, n): (&str, &str, usize), change: Change) {
    act(commands, devices, (name, usage, n..=n), move |devices, args| {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let Some((bond, rest)) = args.split_first() else { return Err(CommandError::NoBond.to_string()) };
        let dp = find(devices, bond)?;
        dp.switch.command_bonds(|bonds| change(bonds, bond, rest)).map(str::to_owned).map_err(|error| error.to_string())
    });
}

/// The datapath of a bond.
fn find(devices: &Devices, bond: &str) -> Result<Dp, String> {
    let has = |dp: &Dp| dp.switch.bond_status().iter().any(|status| *status.name == *bond);
    let found = devices.datapaths().into_iter().map(|(_, dp)| dp).find(has);
    found.ok_or_else(|| CommandError::NoBond.to_string())
}

/// The reply to `bond/show`: one bond or all of them.
fn text_of(devices: &Devices, name: Option<&str>) -> String {
    let of_dp = |dp: &Dp| dp.switch.with_bonds(|bonds| bonds.show(name, dp.switch.clock().now()).unwrap_or_default());
    devices.datapaths().iter().map(|(_, dp)| of_dp(dp)).collect()
}

/// The same as JSON, by name.
fn json_of(devices: &Devices, name: Option<&str>) -> Value {
    let all = devices.datapaths().into_iter().flat_map(|(_, dp)| dp.switch.bond_status());
    let json = |bond: bond::Status| {
        let member = |member: &bond::machine::MemberStatus| {
            let of = json!({
                "enabled": member.enabled,
                "may_enable": member.may_enable,
                "mac": member.mac.to_string(),
                "load_bytes_by_hash": member.loads.iter().map(|(hash, load)| (hash.to_string(), json!(load))).collect::<Map<_, _>>(),
            });
            (member.name.to_string(), of)
        };
        let of = json!({
            "mode": bond.mode.name(),
            "lacp_status": bond.lacp.name(),
            "lb_output": bond.lb_output,
            "active_member": bond.active_name.as_deref(),
            "members": bond.members.iter().map(member).collect::<Map<_, _>>(),
        });
        (bond.name.to_string(), of)
    };
    all.filter(|bond| name.is_none_or(|name| *bond.name == *name)).map(json).collect::<Map<_, _>>().into()
}
