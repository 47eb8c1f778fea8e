//! Tests of the core on random snapshots: changes lead to the wanted state, a second run changes nothing, and the flows
//! forward frames as a naive model does.

mod databases;
mod forwarding;
mod snapshots;

use std::collections::BTreeMap;

use crate::changes::{FlowChange, SwitchChange, VtepChange, of_flows, of_report, of_switch};
use crate::flow::Flows;
use crate::model::{BFD_BRIDGE, Bridge, Learned, Report, Role, Stray, Switch};
use crate::plan::plan;
use snapshots::{PHYSICAL, any_flows, any_report, any_switch, any_vtep, open_ports};

/// Makes the changes, as the shell makes them in the database.
fn apply_to_switch(bridges: &mut BTreeMap<String, Bridge>, changes: Vec<SwitchChange>) {
    for change in changes {
        match change {
            SwitchChange::AddBridge { bridge, role, datapath_type } => {
                let added = Bridge { role, datapath_type, is_secure: true, ports: BTreeMap::new() };
                assert!(bridges.insert(bridge, added).is_none(), "a bridge is added twice");
            }
            SwitchChange::SetBridge { bridge, datapath_type } => {
                let bridge = bridges.get_mut(&bridge).expect("a bridge");
                (bridge.datapath_type, bridge.is_secure) = (datapath_type, true);
            }
            SwitchChange::RemoveBridge { bridge } => drop(bridges.remove(&bridge).expect("a bridge")),
            SwitchChange::AddPort { bridge, name, port } => {
                let is_new = bridges.values().all(|bridge| !bridge.ports.contains_key(&name));
                assert!(is_new, "{name} is added while another bridge has it");
                bridges.get_mut(&bridge).expect("a bridge").ports.insert(name, port);
            }
            SwitchChange::SetPort { bridge, name, port } => {
                let present = bridges.get_mut(&bridge).and_then(|bridge| bridge.ports.get_mut(&name));
                *present.expect("a port") = port;
            }
            SwitchChange::RemovePort { bridge, name } => {
                let removed = bridges.get_mut(&bridge).and_then(|bridge| bridge.ports.remove(&name));
                assert!(removed.is_some(), "{name} is removed twice");
            }
        }
    }
}

fn apply_to_report(report: &mut Report, changes: Vec<VtepChange>) {
    for change in changes {
        let is_new = match change {
            VtepChange::Describe(text) => std::mem::replace(&mut report.description, text) != report.description,
            VtepChange::AddPort(name) => report.ports.insert(name),
            VtepChange::RemovePort(name) => {
                report.port_faults.remove(&name);
                report.ports.remove(&name)
            }
            VtepChange::AddUnicast(logical, mac) => report.unicast.insert((logical, mac)),
            VtepChange::RemoveUnicast(logical, mac) => report.unicast.remove(&(logical, mac)),
            VtepChange::AddUnknown(logical) => report.unknown.insert(logical),
            VtepChange::RemoveUnknown(logical) => report.unknown.remove(&logical),
            VtepChange::SetTunnel(remote, tunnel) => report.tunnels.insert(remote, tunnel.clone()) != Some(tunnel),
            VtepChange::RemoveTunnel(remote) => report.tunnels.remove(&remote).is_some(),
            VtepChange::SetCounters(binding, counters) => report.counters.insert(binding, counters) != Some(counters),
            VtepChange::RemoveCounters(binding) => report.counters.remove(&binding).is_some(),
            VtepChange::SetFaults(faults) => std::mem::replace(&mut report.faults, faults.clone()) != faults,
            VtepChange::SetPortFaults(port, faults) if faults.is_empty() => report.port_faults.remove(&port).is_some(),
            VtepChange::SetPortFaults(port, faults) => report.port_faults.insert(port, faults.clone()) != Some(faults),
            VtepChange::RemoveStray(stray) => report.strays.remove(&stray),
        };
        assert!(is_new, "a change without effect");
    }
}

/// The switch with the bridges of a plan for it, and all ports open.
fn settled(vtep: &crate::model::Vtep, mut switch: Switch) -> Switch {
    let wanted = plan(vtep, &switch, &Learned::new()).bridges;
    let changes = of_switch(&switch.bridges, &wanted);
    apply_to_switch(&mut switch.bridges, changes);
    open_ports(&mut switch);
    switch
}

tally::proptest! {
    #[test]
    fn changes_of_the_switch_lead_to_the_plan(vtep in any_vtep(), before in any_vtep(), switch in any_switch()) {
        for present in [switch.clone(), settled(&before, switch)] {
            let wanted = plan(&vtep, &present, &Learned::new()).bridges;
            let mut bridges = present.bridges.clone();
            apply_to_switch(&mut bridges, of_switch(&present.bridges, &wanted));
            let foreign = |bridges: &BTreeMap<String, Bridge>| -> BTreeMap<String, Bridge> {
                bridges.clone().into_iter().filter(|(_, bridge)| bridge.role == Role::Foreign).collect()
            };
            assert_eq!(foreign(&bridges), foreign(&present.bridges));
            bridges.retain(|_, bridge| bridge.role != Role::Foreign);
            assert_eq!(bridges, wanted);
        }
    }

    #[test]
    fn a_second_run_changes_nothing(vtep in any_vtep(), before in any_vtep(), switch in any_switch()) {
        let after = settled(&vtep, settled(&before, switch));
        let again = plan(&vtep, &after, &Learned::new());
        assert_eq!(of_switch(&after.bridges, &again.bridges), []);
        let mut opened = after.clone();
        open_ports(&mut opened);
        assert_eq!(plan(&vtep, &opened, &Learned::new()), again);
    }

    #[test]
    fn names_of_bridges_and_tunnels_stay(vtep in any_vtep(), later in any_vtep(), switch in any_switch()) {
        let before = settled(&vtep, switch);
        let after = settled(&later, before.clone());
        for (name, bridge) in &after.bridges {
            let logical = matches!(bridge.role, Role::Logical(_));
            let Some((_, was)) = before.bridges.iter().find(|(_, was)| logical && was.role == bridge.role) else { continue };
            let same = before.bridges.get(name).expect("the bridge under its name");
            assert_eq!(same, was);
            for (port, spec) in &bridge.ports {
                let Some(to) = spec.endpoint() else { continue };
                let had = was.ports.iter().filter(|(_, was)| was.endpoint() == Some(to)).map(|(name, _)| name);
                let had: Vec<&String> = had.collect();
                assert!(had.is_empty() || had == [port], "{port} has another name than {had:?}");
                // If there is one tunnel to an address, it keeps its name when its key changes.
                let only = |bridge: &Bridge| {
                    let mut there = bridge.ports.iter().filter(|(_, port)| port.remote() == Some(to.ip));
                    there.next().filter(|_| there.next().is_none()).map(|(name, _)| name.clone())
                };
                if let (Some(was), Some(is)) = (only(was), only(bridge)) {
                    assert_eq!(was, is);
                }
            }
        }
    }

    #[test]
    fn changes_of_the_report_lead_to_the_plan(
        vtep in any_vtep(), switch in any_switch(), present in any_report(), learned in snapshots::any_learned()
    ) {
        let switch = settled(&vtep, switch);
        let wanted = plan(&vtep, &switch, &learned).report;
        let mut report = present.clone();
        apply_to_report(&mut report, of_report(&present, &wanted));
        assert_eq!(report, wanted);
        assert_eq!(of_report(&report, &wanted), []);
    }

    #[test]
    fn changes_of_flows_lead_to_the_plan(vtep in any_vtep(), switch in any_switch(), present in any_flows()) {
        let switch = settled(&vtep, switch);
        for wanted in plan(&vtep, &switch, &Learned::new()).flows.values() {
            let mut flows: Flows = present.clone();
            for change in of_flows(&present, wanted) {
                match change {
                    FlowChange::Add(id, treatment) => assert_ne!(flows.insert(id, treatment.clone()), Some(treatment)),
                    FlowChange::Delete(id) => assert!(flows.remove(&id).is_some()),
                }
            }
            assert_eq!(&flows, wanted);
            assert_eq!(of_flows(&flows, wanted), []);
        }
    }
}

#[test]
fn strays_are_removed() {
    let stray = Stray::Tunnel(ovsdb::Uuid::ZERO);
    let present = Report { strays: [stray].into(), ..Report::default() };
    assert_eq!(of_report(&present, &Report::default()), [VtepChange::RemoveStray(stray)]);
}

#[test]
fn without_the_bridge_of_the_physical_switch_there_is_no_plan() {
    let (vtep, mut switch) = snapshots::example();
    switch.bridges.remove(PHYSICAL);
    assert!(plan(&vtep, &switch, &Learned::new()).bridges.is_empty());
}

#[test]
fn bfd_follows_the_tunnel_table() {
    let (mut vtep, switch) = snapshots::example();
    let remote = snapshots::ip(2);
    let settings = vtep.bfd.entry(remote).or_default();
    settings.params.insert("enable".to_owned(), "true".to_owned());
    settings.params.insert("forwarding_if_rx".to_owned(), "true".to_owned());
    settings.remote.insert("bfd_dst_mac".to_owned(), "02:00:00:00:00:09".to_owned());
    let mut switch = settled(&vtep, switch);
    let name = format!("bfd{remote}");
    let port = &switch.bridges[BFD_BRIDGE].ports[&name];
    let bfd: Vec<String> = port.bfd.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(
        bfd.join(" "),
        "bfd_dst_ip=169.254.1.1 bfd_local_dst_mac=02:00:00:00:00:09 bfd_remote_dst_mac=00:23:20:00:00:01 \
         check_tnl_key=false cpath_down=false decay_min_rx=0 enable=true forwarding_if_rx=true min_rx=1000 min_tx=100"
    );
    let status = [("state", "up"), ("forwarding", "true"), ("flap_count", "1")];
    let status = status.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    switch.observed.get_mut(&name).expect("the interface").bfd_status = status;
    let report = plan(&vtep, &switch, &Learned::new()).report;
    let shown: Vec<String> =
        report.tunnels[&remote].status.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(shown.join(" "), "enabled=true forwarding=true state=up");
}

/// The problems of the example with a change, and the faults that the controller sees of them.
fn problems(change: impl Fn(&mut Switch)) -> Vec<String> {
    let (vtep, switch) = snapshots::example();
    let mut switch = settled(&vtep, switch);
    change(&mut switch);
    let plan = plan(&vtep, &switch, &Learned::new());
    let mut found: Vec<String> = plan.problems.iter().map(ToString::to_string).collect();
    found.extend(plan.report.faults);
    for (port, faults) in plan.report.port_faults {
        found.extend(faults.into_iter().map(|fault| format!("{port}: {fault}")));
    }
    found
}

#[test]
fn a_logical_switch_without_a_tunnel_key_is_reported() {
    let (mut vtep, switch) = snapshots::example();
    vtep.logical.values_mut().for_each(|logical| logical.tunnel_key = None);
    let found = plan(&vtep, &switch, &Learned::new()).problems;
    let text = "logical switch x: without a tunnel key, remote addresses are out of reach";
    assert_eq!(plan(&vtep, &switch, &Learned::new()).report.faults, ["unspecified_fault".to_owned()].into());
    assert_eq!(found.iter().map(ToString::to_string).collect::<Vec<_>>(), [text]);
    vtep.bindings.clear();
    assert!(plan(&vtep, &switch, &Learned::new()).problems.is_empty());
}

#[test]
fn ports_that_do_not_forward_are_reported() {
    assert!(problems(|_| {}).is_empty());
    let bond = problems(|switch| drop(switch.observed.remove("a")));
    assert_eq!(bond, ["physical port a: bonds are not supported", "a: invalid_vlan_map"]);
    let failed = problems(|switch| {
        let observed = switch.observed.get_mut("vx1").expect("a tunnel");
        (observed.ofport, observed.error) = (None, Some("no memory".to_owned()));
    });
    assert_eq!(failed, ["port vx1: no memory", "tunnel_exhaustion"]);
    for (port, fault) in [("0007-b-p", "b: invalid_vlan_map"), ("b", "b: unspecified_fault")] {
        let failed = problems(|switch| {
            let observed = switch.observed.get_mut(port).expect("a port");
            (observed.ofport, observed.error) = (None, Some("no such device".to_owned()));
        });
        assert_eq!(failed, [&format!("port {port}: no such device"), fault]);
    }
    let taken = problems(|switch| {
        let port = switch.bridges.get_mut(BFD_BRIDGE).and_then(|bridge| bridge.ports.remove("bfd192.0.2.2"));
        let ports = [("bfd192.0.2.2".to_owned(), port.expect("a port"))].into();
        let bridge = Bridge { role: Role::Foreign, datapath_type: String::new(), is_secure: false, ports };
        switch.bridges.insert("br0".to_owned(), bridge);
    });
    assert_eq!(taken, ["port bfd192.0.2.2 is left out, as another port has its name", "tunnel_exhaustion"]);
}
