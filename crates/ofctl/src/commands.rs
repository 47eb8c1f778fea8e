//! The table of commands.

use crate::error::{Result, fatal};
use crate::options::{Context, Format};
use crate::{
    bundles, codec, connections, flow_change, flow_dump, flow_set, groups, meters, monitor, nx_match, offline,
    packet_out, packets, ports, query, tables, tlv,
};

/// Whether a command modifies the switch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    Reads,
    Writes,
}
use Access::{Reads, Writes};

struct Command {
    name: &'static str,
    args_min: usize,
    args_max: usize,
    access: Access,
    run: fn(&Context, &[String]) -> Result,
}

const fn command(
    name: &'static str,
    args_min: usize,
    args_max: usize,
    access: Access,
    run: fn(&Context, &[String]) -> Result,
) -> Command {
    Command { name, args_min, args_max, access, run }
}

const MANY: usize = usize::MAX;

const COMMANDS: &[Command] = &[
    command("show", 1, 1, Reads, query::show),
    command("monitor", 1, 3, Reads, monitor::monitor),
    command("snoop", 1, 1, Reads, monitor::snoop),
    command("dump-desc", 1, 1, Reads, query::dump_desc),
    command("dump-tables", 1, 1, Reads, query::dump_tables),
    command("dump-table-features", 1, 1, Reads, query::dump_table_features),
    command("dump-table-desc", 1, 1, Reads, query::dump_table_desc),
    command("dump-flows", 1, 2, Reads, flow_dump::dump_flows),
    command("dump-aggregate", 1, 2, Reads, flow_dump::dump_aggregate),
    command("queue-stats", 1, 3, Reads, query::queue_stats),
    command("queue-get-config", 1, 3, Reads, query::queue_get_config),
    command("add-flow", 2, 2, Writes, flow_change::add_flow),
    command("add-flows", 2, 2, Writes, flow_change::add_flows),
    command("mod-flows", 2, 2, Writes, flow_change::mod_flows),
    command("del-flows", 1, 2, Writes, flow_change::del_flows),
    command("replace-flows", 2, 2, Writes, flow_set::replace_flows),
    command("diff-flows", 2, 2, Reads, flow_set::diff_flows),
    command("dump-ports", 1, 2, Reads, query::dump_ports),
    command("dump-ports-desc", 1, 2, Reads, query::dump_ports_desc),
    command("mod-port", 3, 3, Writes, ports::mod_port),
    command("mod-table", 3, 3, Writes, tables::mod_table),
    command("get-frags", 1, 1, Reads, query::get_frags),
    command("set-frags", 2, 2, Writes, query::set_frags),
    command("add-group", 1, 2, Writes, groups::add_group),
    command("add-groups", 2, 2, Writes, groups::add_groups),
    command("mod-group", 1, 2, Writes, groups::mod_group),
    command("del-groups", 1, 2, Writes, groups::del_groups),
    command("insert-buckets", 1, 2, Writes, groups::insert_buckets),
    command("remove-buckets", 1, 2, Writes, groups::remove_buckets),
    command("dump-groups", 1, 2, Reads, groups::dump_groups),
    command("dump-group-stats", 1, 2, Reads, groups::dump_group_stats),
    command("dump-group-features", 1, 1, Reads, groups::dump_group_features),
    command("add-meter", 2, 2, Writes, meters::add_meter),
    command("mod-meter", 2, 2, Writes, meters::mod_meter),
    command("del-meter", 1, 2, Writes, meters::del_meters),
    command("del-meters", 1, 2, Writes, meters::del_meters),
    command("dump-meter", 1, 2, Reads, meters::dump_meters),
    command("dump-meters", 1, 2, Reads, meters::dump_meters),
    command("meter-stats", 1, 2, Reads, meters::meter_stats),
    command("meter-features", 1, 1, Reads, meters::meter_features),
    command("bundle", 2, 2, Writes, bundles::bundle),
    command("packet-out", 2, MANY, Writes, packet_out::packet_out),
    command("add-tlv-map", 2, 2, Writes, tlv::add_tlv_map),
    command("del-tlv-map", 1, 2, Writes, tlv::del_tlv_map),
    command("dump-tlv-map", 1, 1, Reads, tlv::dump_tlv_map),
    command("probe", 1, 1, Reads, query::probe),
    command("ping", 1, 2, Reads, query::ping),
    command("benchmark", 3, 3, Reads, query::benchmark),
    command("ofp-print", 1, 2, Reads, offline::ofp_print),
    command("dump-ipfix-bridge", 1, 1, Reads, query::dump_ipfix_bridge),
    command("dump-ipfix-flow", 1, 1, Reads, query::dump_ipfix_flow),
    // Allowed in read-only mode, as they change no configuration.
    command("ct-flush-zone", 2, 2, Reads, connections::ct_flush_zone),
    command("ct-flush", 1, 6, Reads, connections::ct_flush),
    command("ofp-parse", 1, 1, Reads, offline::ofp_parse),
    command("parse-flow", 1, 1, Reads, offline::parse_flow_command),
    command("parse-flows", 1, 1, Reads, offline::parse_flows_command),
    command("ofp-parse-pcap", 1, MANY, Reads, packets::ofp_parse_pcap),
    command("parse-pcap", 1, MANY, Reads, packets::parse_pcap),
    command("parse-packet", 0, 0, Reads, packets::parse_packet),
    command("compose-packet", 1, 2, Reads, packets::compose_packet),
    command("parse-group", 1, 1, Reads, codec::parse_group),
    command("parse-groups", 1, 1, Reads, codec::parse_groups),
    command("parse-nx-match", 0, 0, Reads, nx_match::parse_nxm),
    command("parse-nxm", 0, 0, Reads, nx_match::parse_nxm),
    command("parse-oxm", 1, 1, Reads, nx_match::parse_oxm),
    command("parse-actions", 1, 1, Reads, codec::parse_actions),
    command("parse-instructions", 1, 1, Reads, codec::parse_instructions),
    command("parse-ofp10-match", 0, 0, Reads, codec::parse_ofp10_match),
    command("parse-ofp11-match", 0, 0, Reads, codec::parse_ofp11_match),
    command("check-vlan", 2, 2, Reads, nx_match::check_vlan),
    command("print-error", 1, 1, Reads, codec::print_error),
    command("encode-error-reply", 2, 2, Reads, codec::encode_error_reply),
    command("encode-hello", 1, 1, Reads, codec::encode_hello),
    command("parse-key-value", 1, MANY, Reads, codec::parse_key_value),
    command("help", 0, MANY, Reads, help),
    command("list-commands", 0, MANY, Reads, list_commands),
];

fn list_commands(_: &Context, _: &[String]) -> Result {
    cli::outln!("The available commands are:");
    let usage = |name: &str| ARGUMENTS.iter().find(|(n, _)| *n == name).map_or("", |(_, arguments)| *arguments);
    for c in COMMANDS {
        cli::outln!("  {:<23} {}", c.name, usage(c.name));
    }
    Ok(())
}

fn help(c: &Context, _: &[String]) -> Result {
    cli::out!("{}", crate::options::usage(&c.program));
    Ok(())
}

/// The arguments of commands as `list-commands` prints them.
#[rustfmt::skip]
const ARGUMENTS: &[(&str, &str)] = &[
    ("show", "switch"),
    ("monitor", "switch [misslen] [invalid_ttl] [watch:[...]]"),
    ("snoop", "switch"),
    ("dump-desc", "switch"),
    ("dump-tables", "switch"),
    ("dump-table-features", "switch"),
    ("dump-table-desc", "switch"),
    ("dump-flows", "switch"),
    ("dump-aggregate", "switch"),
    ("queue-stats", "switch [port [queue]]"),
    ("queue-get-config", "switch [port [queue]]"),
    ("add-flow", "switch flow"),
    ("add-flows", "switch file"),
    ("mod-flows", "switch flow"),
    ("del-flows", "switch [flow]"),
    ("replace-flows", "switch file"),
    ("diff-flows", "source1 source2"),
    ("add-meter", "switch meter"),
    ("mod-meter", "switch meter"),
    ("del-meter", "switch meter"),
    ("del-meters", "switch"),
    ("dump-meter", "switch meter"),
    ("dump-meters", "switch"),
    ("meter-stats", "switch [meter]"),
    ("meter-features", "switch"),
    ("packet-out", "switch \"in_port=<port> packet=<hex data> actions=...\""),
    ("dump-ports", "switch [port]"),
    ("dump-ports-desc", "switch [port]"),
    ("mod-port", "switch iface act"),
    ("mod-table", "switch mod"),
    ("get-frags", "switch"),
    ("set-frags", "switch frag_mode"),
    ("probe", "target"),
    ("ping", "target [n]"),
    ("benchmark", "target n count"),
    ("dump-ipfix-bridge", "switch"),
    ("dump-ipfix-flow", "switch"),
    ("ct-flush-zone", "switch zone"),
    ("ct-flush", "switch [zone=N] [mark=X[/M]] [labels=Y[/N]] [ct-orig-tuple [ct-reply-tuple]]"),
    ("ofp-parse", "file"),
    ("ofp-parse-pcap", "pcap"),
    ("add-group", "switch group"),
    ("add-groups", "switch file"),
    ("mod-group", "switch group"),
    ("del-groups", "switch [group]"),
    ("insert-buckets", "switch [group]"),
    ("remove-buckets", "switch [group]"),
    ("dump-groups", "switch [group]"),
    ("dump-group-stats", "switch [group]"),
    ("dump-group-features", "switch"),
    ("bundle", "switch file"),
    ("add-tlv-map", "switch map"),
    ("del-tlv-map", "switch [map]"),
    ("dump-tlv-map", "switch"),
];

/// Commands with JSON output.
const AS_JSON: &[&str] = &[
    "show",
    "dump-desc",
    "dump-tables",
    "dump-flows",
    "dump-aggregate",
    "dump-ports",
    "dump-ports-desc",
    "queue-stats",
    "dump-groups",
    "dump-group-stats",
    "dump-group-features",
    "dump-meter",
    "dump-meters",
    "meter-stats",
    "meter-features",
    "dump-table-desc",
    "dump-table-features",
    "queue-get-config",
    "dump-tlv-map",
    "get-frags",
    "dump-ipfix-bridge",
    "dump-ipfix-flow",
];

/// The options and commands, for shell completion.
pub(crate) fn vocabulary() -> cli::completion::Vocabulary {
    let fragments = [crate::options::OPTIONS, vlog::OPTIONS, daemon::OPTIONS];
    cli::completion::Vocabulary::new(&fragments, COMMANDS.iter().map(|command| command.name))
}

/// Runs the command given on the command line.
pub(crate) fn run(mut context: Context) -> Result {
    let mut args = std::mem::take(&mut context.args).into_iter();
    let Some(name) = args.next() else { return Err(fatal("missing command name; use --help for help")) };
    let args: Vec<String> = args.collect();
    let Some(command) = COMMANDS.iter().find(|c| c.name == name) else {
        return Err(fatal(format!("unknown command '{name}'; use --help for help")));
    };
    if args.len() < command.args_min {
        return Err(fatal(format!("'{name}' command requires at least {} arguments", command.args_min)));
    }
    if args.len() > command.args_max {
        return Err(fatal(format!("'{name}' command takes at most {} arguments", command.args_max)));
    }
    if context.format != Format::Text && !AS_JSON.contains(&command.name) {
        return Err(crate::json::no_form());
    }
    if command.access == Writes && context.read_only {
        return Err(fatal(format!("'{name}' command does not work in read only mode")));
    }
    (command.run)(&context, &args)
}
