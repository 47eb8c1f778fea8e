//! The commands as `--help` explains them.

use dbctl::help::Group;

#[rustfmt::skip]
pub(crate) const GROUPS: &[Group] = &[
    ("VTEP commands", &[
        ("[--filter=[TBL(]WORD[|WORD]...[)],...] show", "outline the configuration, or the rows with these words"),
    ]),
    ("Manager commands", &[
        ("get-manager", "print the managers"),
        ("del-manager", "delete them"),
        ("[--inactivity-probe=MSECS] set-manager TARGET...", "replace them"),
    ]),
    ("Physical switch commands", &[
        ("[--may-exist] add-ps PS", "add a physical switch"),
        ("[--if-exists] del-ps PS", "delete a physical switch with its ports"),
        ("list-ps", "list physical switches"),
        ("ps-exists PS", "exit with status 2 if there is no such physical switch"),
    ]),
    ("Port commands", &[
        ("list-ports PS", "list the ports of a physical switch"),
        ("[--may-exist] add-port PS PORT", "add a port"),
        ("[--if-exists] del-port PS PORT", "delete a port"),
    ]),
    ("Logical switch commands", &[
        ("[--may-exist] add-ls LS", "add a logical switch"),
        ("[--if-exists] del-ls LS", "delete a logical switch"),
        ("list-ls", "list logical switches"),
        ("ls-exists LS", "exit with status 2 if there is no such logical switch"),
        ("bind-ls PS PORT VLAN LS", "bind a VLAN of a port to a logical switch"),
        ("unbind-ls PS PORT VLAN", "unbind it"),
        ("list-bindings PS PORT", "list the VLANs of a port that are bound, with their logical switches"),
        ("set-replication-mode LS service_node|source_node", "choose who makes copies of packets to several receivers"),
        ("get-replication-mode LS", "print who does, or an empty line for the default"),
    ]),
    ("Logical router commands", &[
        ("[--may-exist] add-lr LR", "add a logical router"),
        ("[--if-exists] del-lr LR", "delete a logical router"),
        ("list-lr", "list logical routers"),
        ("lr-exists LR", "exit with status 2 if there is no such logical router"),
    ]),
    ("MAC binding commands (local ones are the switch's, remote ones the controller's)", &[
        ("add-ucast-local LS MAC [ENCAP] IP", "say where a unicast address is"),
        ("del-ucast-local LS MAC", "forget it"),
        ("add-mcast-local LS MAC [ENCAP] IP", "add a place to a multicast address"),
        ("del-mcast-local LS MAC [ENCAP] IP", "remove it"),
        ("clear-local-macs LS", "forget all local addresses of a logical switch"),
        ("list-local-macs LS", "list them"),
        ("add-ucast-remote LS MAC [ENCAP] IP", "say where a unicast address is"),
        ("del-ucast-remote LS MAC", "forget it"),
        ("add-mcast-remote LS MAC [ENCAP] IP", "add a place to a multicast address"),
        ("del-mcast-remote LS MAC [ENCAP] IP", "remove it"),
        ("clear-remote-macs LS", "forget all remote addresses of a logical switch"),
        ("list-remote-macs LS", "list them"),
    ]),
];

/// The names of records, for the help.
pub(crate) const RECORDS: &str = "\
A record is named by its UUID (or at least 4 digits of it); physical and logical switches, physical ports and logical
routers also by their name, managers by their target; the only record of Global is \".\".";
