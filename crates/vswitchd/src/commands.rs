//! The control commands of the switch (ovs-vswitchd(8)).

use crate::devices::Devices;
use flow::text::{NoNames, PortNames};
use ofproto::{Ofproto, show};
use std::fmt::Write;
use std::sync::Arc;
use unixctl::Commands;

/// Registers the commands.
pub fn register(commands: &Commands, devices: &Arc<Devices>) {
    bridges(commands, devices);
    datapaths(commands, devices);
    time(commands, devices);
    dummies(commands, devices);
}

/// The bridge of this name, on whatever datapath.
fn bridge(devices: &Devices, name: &str) -> Option<Arc<Ofproto>> {
    devices.datapaths().into_iter().find_map(|(_, dp)| dp.switch.bridge_named(name))
}

fn named(devices: &Devices, name: &str) -> Result<Arc<Ofproto>, String> {
    bridge(devices, name).ok_or_else(|| "no such bridge".to_owned())
}

fn all_bridges(devices: &Devices) -> Vec<Arc<Ofproto>> {
    let mut all: Vec<_> = devices.datapaths().into_iter().flat_map(|(_, dp)| dp.switch.bridges()).collect();
    all.sort_by(|a, b| a.name().cmp(b.name()));
    all
}

fn bridges(commands: &Commands, devices: &Arc<Devices>) {
    let d = Arc::clone(devices);
    commands.register("fdb/show", "bridge", 1..=1, move |args| Ok(show::fdb_show(&*named(&d, &args[0])?)));
    let d = Arc::clone(devices);
    commands.register("fdb/flush", "[bridge]", 0..=1, move |args| {
        match args.first() {
            Some(name) => named(&d, name)?.flush_macs(),
            None => all_bridges(&d).iter().for_each(|b| b.flush_macs()),
        }
        Ok("table successfully flushed".to_owned())
    });
    let d = Arc::clone(devices);
    commands.register("fdb/stats-show", "bridge", 1..=1, move |args| Ok(show::fdb_stats_show(&*named(&d, &args[0])?)));
    let d = Arc::clone(devices);
    commands.register("fdb/stats-clear", "[bridge]", 0..=1, move |args| {
        let clear = |b: &Ofproto| b.macs().write().clear_counters();
        match args.first() {
            Some(name) => clear(&*named(&d, name)?),
            None => all_bridges(&d).iter().for_each(|b| clear(b)),
        }
        Ok("statistics successfully cleared".to_owned())
    });
    let d = Arc::clone(devices);
    commands.register("ofproto/list", "", 0..=0, move |_| {
        Ok(all_bridges(&d).iter().map(|b| format!("{}\n", b.name())).collect())
    });
    let d = Arc::clone(devices);
    commands.register("bridge/dump-flows", "[--offload-stats] bridge", 1..=2, move |args| {
        let (name, names) = match args {
            [option, name] if option == "--names" => (name, true),
            [option, _] => return Err(format!("unknown option {option}")),
            [name] => (name, false),
            _ => return Err("bridge name is missing".to_owned()),
        };
        let bridge = bridge(&d, name).ok_or("Unknown bridge")?;
        if let Some(switch) = bridge.switch() {
            switch.revalidate();
        }
        let ports: &dyn PortNames = if names { &*bridge } else { &NoNames };
        Ok(show::dump_flows(&bridge, ports))
    });
    let d = Arc::clone(devices);
    let usage = "{[dp_name] odp_flow | bridge br_flow} [OPTIONS] [-generate|packet]";
    commands.register("ofproto/trace", usage, 1..=usize::MAX, move |args| trace(&d, args));
}

/// `ofproto/trace BRIDGE FLOW`, `ofproto/trace BRIDGE FLOW PACKET`, and the same with `--names` or `-generate`.
fn trace(devices: &Devices, args: &[String]) -> Result<String, String> {
    let mut names = false;
    let mut generate = false;
    let mut words = Vec::new();
    for arg in args {
        match arg.as_str() {
            "--names" => names = true,
            "--no-names" => names = false,
            "-generate" | "--generate" => generate = true,
            option if option.starts_with('-') => return Err(format!("unknown option {option}")),
            word => words.push(word),
        }
    }
    let [name, flow, packet @ ..] = words.as_slice() else {
        return Err("Must specify bridge name and flow".to_owned());
    };
    let bridge = bridge(devices, name).ok_or_else(|| "Unknown bridge name".to_owned())?;
    let mut key = bridge.parse_trace_flow(flow)?;
    match packet {
        [] => {}
        [hex] => {
            let bytes = from_hex(hex).ok_or("Failed to parse packet")?;
            let (mut extracted, _) = flow::extract::extract(&bytes, key.in_port());
            // What the flow says of metadata holds; what it says of headers, the packet says better.
            extracted.0[..flow::layout::ETH_DST].copy_from_slice(&key.0[..flow::layout::ETH_DST]);
            key = extracted;
        }
        _ => return Err("Too many arguments".to_owned()),
    }
    let text = bridge.trace(&key, names)?;
    if generate {
        let packet = compose(&key, 0);
        bridge.inject(&key, packet);
    }
    Ok(text)
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> = text.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// A packet with this key, of `len` bytes; with 64 bytes of payload if `len` is 0.
fn compose(key: &flow::FlowKey, len: usize) -> packet::Packet {
    let headers = flow::compose::compose(key, &[]).len();
    let payload = if len == 0 { 64 } else { len.saturating_sub(headers) };
    packet::Packet::from_slice(&flow::compose::compose(key, &vec![0; payload.min(1 << 16)]))
}

fn datapaths(commands: &Commands, devices: &Arc<Devices>) {
    let d = Arc::clone(devices);
    commands.register("dpif/show", "", 0..=0, move |_| {
        let mut out = String::new();
        for (kind, dp) in d.datapaths() {
            let types = |name: &str| kind_of(&dp.switch, name);
            out.push_str(&show::dpif_show(&dp.switch, &format!("{kind}@ovs-{kind}"), &types));
        }
        Ok(out)
    });
    let d = Arc::clone(devices);
    commands.register("dpif/dump-dps", "", 0..=0, move |_| {
        Ok(d.datapaths()
            .into_iter()
            .flat_map(|(kind, dp)| dp.switch.bridges().into_iter().map(move |b| format!("{kind}@{}\n", b.name())))
            .collect())
    });
    let d = Arc::clone(devices);
    commands.register("dpctl/dump-dps", "", 0..=0, move |_| {
        Ok(d.datapaths().into_iter().map(|(kind, _)| format!("{kind}@ovs-{kind}\n")).collect())
    });
    let d = Arc::clone(devices);
    commands.register("dpctl/show", "[-s] [dp...]", 0..=usize::MAX, move |args| {
        let statistics = args.iter().any(|a| a == "-s" || a == "--statistics");
        let wanted: Vec<&String> = args.iter().filter(|a| !a.starts_with('-')).collect();
        let mut out = String::new();
        for (kind, dp) in d.datapaths() {
            let name = format!("{kind}@ovs-{kind}");
            if wanted.is_empty() || wanted.iter().any(|w| **w == name || **w == format!("ovs-{kind}")) {
                dpctl_show(&name, &dp, statistics, &mut out);
            }
        }
        Ok(out)
    });
    let d = Arc::clone(devices);
    commands.register("dpctl/dump-flows", "[-m] [--names | --no-names] [dp]", 0..=3, move |args| {
        if let Some(bad) =
            args.iter().find(|a| a.starts_with('-') && !["-m", "--more", "--names", "--no-names"].contains(&a.as_str()))
        {
            return Err(format!("unknown option {bad}"));
        }
        let names = args.iter().any(|a| a == "--names");
        Ok(d.datapaths().iter().map(|(_, dp)| dump_dp_flows(dp, names)).collect())
    });
    let d = Arc::clone(devices);
    commands.register("dpctl/del-flows", "[dp]", 0..=1, move |_| {
        d.datapaths().iter().for_each(|(_, dp)| dp.switch.purge());
        Ok(String::new())
    });
    let d = Arc::clone(devices);
    commands.register("revalidator/purge", "", 0..=0, move |_| {
        d.datapaths().iter().for_each(|(_, dp)| dp.switch.purge());
        Ok(String::new())
    });
    let d = Arc::clone(devices);
    commands.register("revalidator/wait", "", 0..=0, move |_| {
        d.datapaths().iter().for_each(|(_, dp)| {
            dp.switch.revalidate();
        });
        Ok(String::new())
    });
    let d = Arc::clone(devices);
    commands.register("dpif/show-drops", "", 0..=0, move |_| {
        let mut out = String::new();
        for (kind, dp) in d.datapaths() {
            for (reason, n) in dp.datapath.drops() {
                let _ = writeln!(out, "{kind}@ovs-{kind} {}: {n}", reason.name());
            }
        }
        Ok(out)
    });
}

/// A port's type, as `dpif/show` puts it in parentheses.
fn kind_of(switch: &ofproto::Switch, name: &str) -> String {
    let port = switch.bridges().into_iter().find_map(|b| b.port_named(name));
    match port {
        Some(port) => match (&port.spec.device, port.spec.out) {
            (Some(device), _) => device.kind().to_owned(),
            (None, xlate::PortOut::Patch(bridge, no)) => {
                let peer = switch.bridge(bridge).and_then(|b| b.port(no));
                peer.map_or_else(|| "patch".to_owned(), |p| format!("patch: peer={}", p.spec.name))
            }
            (None, _) => "patch".to_owned(),
        },
        None => "unknown".to_owned(),
    }
}

fn dpctl_show(name: &str, dp: &crate::devices::Dp, statistics: bool, out: &mut String) {
    let stats = dpif::Dpif::stats(&*dp.datapath);
    let _ = writeln!(out, "{name}:");
    let _ = writeln!(out, "  lookups: hit:{} missed:{} lost:{}", stats.hit, stats.missed, stats.lost);
    let _ = writeln!(out, "  flows: {}", stats.flows);
    let hits_per_packet = stats.mask_hits as f64 / (stats.hit + stats.missed).max(1) as f64;
    let _ = writeln!(out, "  masks: hit:{} total:{} hit/pkt:{hits_per_packet:.2}", stats.mask_hits, stats.masks);
    for port in dp.datapath.ports() {
        let _ = writeln!(out, "  port {}: {} ({})", port.number, port.device.name(), port.device.kind());
        if statistics {
            let s = &port.stats;
            let dropped: u64 = s.rx_drops.iter().map(|(_, n)| n).sum();
            let not_sent: u64 = s.tx_drops.iter().map(|(_, n)| n).sum();
            let _ = writeln!(out, "    RX packets:{} bytes:{} dropped:{dropped}", s.rx_packets, s.rx_bytes);
            let _ = writeln!(out, "    TX packets:{} bytes:{} dropped:{not_sent}", s.tx_packets, s.tx_bytes);
        }
    }
}

fn dump_dp_flows(dp: &crate::devices::Dp, names: bool) -> String {
    let now = dp.switch.clock().now();
    let dp_name = |port: base::DpPort| {
        let (bridge, no) = dp.switch.port_of(port)?;
        dp.switch.bridge(bridge)?.port(no).map(|p| p.spec.name)
    };
    let mut out = String::new();
    for entry in dpif::Dpif::flow_dump(&*dp.datapath) {
        let port = base::DpPort(entry.flow.key.in_port().0);
        let in_port = if names { dp_name(port) } else { None }.unwrap_or_else(|| port.to_string());
        let mut key = entry.flow.key.clone();
        let mut mask = entry.flow.mask.clone();
        // The port is printed by itself, in the datapath's numbering.
        key.set_in_port(base::PortNo(0));
        mask.set_in_port(base::PortNo(0));
        let rest = flow::text::megaflow_to_string(&flow::Match::new(&key, mask), &NoNames);
        let s = entry.stats;
        let used = s.used.map_or_else(
            || "never".to_owned(),
            |u| {
                let ms = now.since(u);
                format!("{}.{:03}s", ms / 1000, ms % 1000)
            },
        );
        let name = |p: base::DpPort| if names { dp_name(p) } else { None };
        let actions = dpif::text::format_actions(&entry.flow.actions, entry.flow.key.eth_type(), &name);
        let _ = writeln!(
            out,
            "in_port({in_port}),{rest}, packets:{}, bytes:{}, used:{used}, actions:{actions}",
            s.packets, s.bytes
        );
    }
    out
}

fn time(commands: &Commands, devices: &Arc<Devices>) {
    let d = Arc::clone(devices);
    commands.register("time/stop", "", 0..=0, move |_| {
        d.clock.stop();
        Ok(String::new())
    });
    let d = Arc::clone(devices);
    commands.register("time/warp", "[large_msecs] msecs", 1..=2, move |args| {
        let numbers: Option<Vec<u64>> = args.iter().map(|a| a.parse().ok().filter(|n| *n > 0)).collect();
        let numbers = numbers.ok_or("invalid MSECS")?;
        // With two numbers, the first is gone over in steps of the second, and everything due happens in between.
        let (total, step) = match numbers[..] {
            [total, step] => (total, step),
            [total] => (total, total),
            _ => return Err("invalid MSECS".to_owned()),
        };
        let mut left = total;
        while left > 0 {
            let by = left.min(step);
            d.clock.warp(by);
            for (_, dp) in d.datapaths() {
                dp.switch.housekeeping();
            }
            left -= by;
        }
        Ok("warped".to_owned())
    });
}

fn dummies(commands: &Commands, devices: &Arc<Devices>) {
    if !devices.types.dummy {
        return;
    }
    use netdev::dummy::Registry;
    for (name, usage, least, most) in Registry::COMMANDS {
        let d = Arc::clone(devices);
        commands.register(name, usage, least..=most, move |args| match name {
            "netdev-dummy/receive" => d.dummies.command_receive(args, &|text, len| {
                let key = flow_of(text)?;
                Ok(compose(&key, len))
            }),
            "netdev-dummy/set-admin-state" => d.dummies.command_set_admin_state(args),
            _ => d.dummies.command_conn_state(args),
        });
    }
}

/// A flow as `netdev-dummy/receive` takes it, in the syntax of OpenFlow matches.
fn flow_of(text: &str) -> Result<flow::FlowKey, String> {
    if text.contains('(') {
        return Err(format!("{text}: the syntax of datapath flows is not supported, use that of OpenFlow matches"));
    }
    flow::text::parse_exact(text, &NoNames).map_err(|e| e.to_string())
}
