//! The commands as `--help` explains them.

use dbctl::help::Group;

#[rustfmt::skip]
pub(crate) const GROUPS: &[Group] = &[
    ("Open vSwitch commands", &[
        ("init", "make the database's top row if it is missing"),
        ("[--filter=[TBL(]WORD[|WORD]...[)],...] show", "outline the configuration, or the rows with these words"),
        ("emer-reset", "drop controllers, managers, mirrors and the like"),
    ]),
    ("Bridge commands", &[
        ("[--may-exist] add-br BRIDGE", "add a bridge"),
        ("[--may-exist] add-br BRIDGE PARENT VLAN", "add a fake bridge for a VLAN of PARENT"),
        ("[--if-exists] del-br BRIDGE", "delete a bridge with its ports"),
        ("[--real|--fake] list-br", "list bridges"),
        ("br-exists BRIDGE", "exit with status 2 if there is no such bridge"),
        ("br-to-vlan BRIDGE", "print the VLAN of a fake bridge, or 0"),
        ("br-to-parent BRIDGE", "print the parent of a fake bridge, or BRIDGE"),
        ("br-set-external-id BRIDGE KEY [VALUE]", "set or unset an external id"),
        ("br-get-external-id BRIDGE [KEY]", "print one external id, or all"),
    ]),
    ("Port commands (a bond is one port)", &[
        ("list-ports BRIDGE", "list the ports of a bridge"),
        ("[--may-exist] add-port BRIDGE PORT [COLUMN[:KEY]=VALUE]...", "add a port"),
        ("[--may-exist] [--fake-iface] add-bond BRIDGE PORT IFACE... [COLUMN[:KEY]=VALUE]...", "add a bond"),
        ("[--may-exist] add-bond-iface BOND IFACE", "add an interface to a bond"),
        ("[--if-exists] del-bond-iface [BOND] IFACE", "remove an interface from its bond"),
        ("[--if-exists] [--with-iface] del-port [BRIDGE] PORT", "delete a port"),
        ("port-to-br PORT", "print the bridge of a port"),
    ]),
    ("Interface commands (a bond has several)", &[
        ("list-ifaces BRIDGE", "list the interfaces of a bridge"),
        ("iface-to-br IFACE", "print the bridge of an interface"),
    ]),
    ("Conntrack zone and datapath commands", &[
        ("[--may-exist] add-zone-tp DATAPATH zone=ID POLICY=SECONDS...", "set a zone's timeout policy"),
        ("[--if-exists] del-zone-tp DATAPATH zone=ID", "delete a zone's timeout policy"),
        ("list-zone-tp DATAPATH", "list timeout policies"),
        ("set-zone-limit DATAPATH zone=ID|default LIMIT", "limit the connections of a zone"),
        ("[--if-exists] del-zone-limit DATAPATH zone=ID|default", "delete a limit"),
        ("list-zone-limits DATAPATH", "list limits"),
        ("list-dp-cap DATAPATH", "print what a datapath can do"),
    ]),
    ("Controller commands", &[
        ("get-controller BRIDGE", "print the controllers of a bridge"),
        ("del-controller BRIDGE", "delete them"),
        ("[--inactivity-probe=MSECS] set-controller BRIDGE TARGET...", "replace them"),
        ("get-fail-mode BRIDGE", "print what happens without a controller"),
        ("del-fail-mode BRIDGE", "use the default"),
        ("set-fail-mode BRIDGE standalone|secure", "choose it"),
    ]),
    ("Manager commands", &[
        ("get-manager", "print the managers"),
        ("del-manager", "delete them"),
        ("[--inactivity-probe=MSECS] set-manager TARGET...", "replace them"),
    ]),
    ("SSL commands", &[
        ("get-ssl", "print the files for TLS"),
        ("del-ssl", "delete them"),
        ("[--bootstrap] set-ssl PRIV-KEY CERT CA-CERT", "replace them"),
    ]),
    ("Auto-Attach commands", &[
        ("add-aa-mapping BRIDGE I-SID VLAN", "map an I-SID to a VLAN"),
        ("del-aa-mapping BRIDGE I-SID VLAN", "delete a mapping"),
        ("get-aa-mapping BRIDGE", "list mappings"),
    ]),
];

/// The names of records, for the help.
pub(crate) const RECORDS: &str = "\
A record is named by its UUID (or at least 4 digits of it), by its name, or by the name of the bridge or port that it
belongs to; the only record of Open_vSwitch and of SSL is \".\".";
