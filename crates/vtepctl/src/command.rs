//! The commands of vtep-ctl beside the database commands. The modules named in the table implement them.

use crate::macs::{local, remote};
use crate::{Spec, logical, physical};

/// The commands, in the order of the manual page.
#[rustfmt::skip]
pub(crate) const COMMANDS: &[Spec] = &[
    Spec::SHOW,

    Spec::write("add-ps", (1, 1), "!NEW-PSWITCH", &["--may-exist"], physical::needs, physical::add_switch),
    Spec::write("del-ps", (1, 1), "!PSWITCH", &["--if-exists"], physical::needs, physical::del_switch),
    Spec::read("list-ps", (0, 0), "", &[], physical::needs, physical::list_switches),
    Spec::read("ps-exists", (1, 1), "!PSWITCH", &[], physical::needs, physical::switch_exists),

    Spec::read("list-ports", (1, 1), "!PSWITCH", &[], physical::needs, physical::list_ports),
    Spec::write("add-port", (2, 2), "!PSWITCH !NEW-PORT", &["--may-exist"], physical::needs, physical::add_port),
    Spec::write("del-port", (2, 2), "!PSWITCH !PORT", &["--if-exists"], physical::needs, physical::del_port),

    Spec::write("add-ls", (1, 1), "!NEW-LSWITCH", &["--may-exist"], logical::needs, logical::add_switch),
    Spec::write("del-ls", (1, 1), "!LSWITCH", &["--if-exists"], logical::needs, logical::del_switch),
    Spec::read("list-ls", (0, 0), "", &[], logical::needs, logical::list_switches),
    Spec::read("ls-exists", (1, 1), "!LSWITCH", &[], logical::needs, logical::switch_exists),
    Spec::write("bind-ls", (4, 4), "!PSWITCH !PORT !VLAN !LSWITCH", &[], physical::needs, physical::bind),
    Spec::write("unbind-ls", (3, 3), "!PSWITCH !PORT !VLAN", &[], physical::needs, physical::unbind),
    Spec::read("list-bindings", (2, 2), "!PSWITCH !PORT", &[], physical::needs, physical::list_bindings),
    Spec::write("set-replication-mode", (2, 2), "!LSWITCH !MODE", &[], logical::mode_needs, logical::set_mode),
    Spec::read("get-replication-mode", (1, 1), "!LSWITCH", &[], logical::mode_needs, logical::get_mode),

    Spec::write("add-lr", (1, 1), "!NEW-LROUTER", &["--may-exist"], logical::needs, logical::add_router),
    Spec::write("del-lr", (1, 1), "!LROUTER", &["--if-exists"], logical::needs, logical::del_router),
    Spec::read("list-lr", (0, 0), "", &[], logical::needs, logical::list_routers),
    Spec::read("lr-exists", (1, 1), "!LROUTER", &[], logical::needs, logical::router_exists),

    Spec::write("add-ucast-local", (3, 4), "!LSWITCH !MAC ?ENCAP !IP", &[], local::needs, local::add_unicast),
    Spec::write("del-ucast-local", (2, 2), "!LSWITCH !MAC", &[], local::needs, local::del_unicast),
    Spec::write("add-mcast-local", (3, 4), "!LSWITCH !MAC ?ENCAP !IP", &[], local::needs, local::add_multicast),
    Spec::write("del-mcast-local", (3, 4), "!LSWITCH !MAC ?ENCAP !IP", &[], local::needs, local::del_multicast),
    Spec::write("clear-local-macs", (1, 1), "!LSWITCH", &[], local::needs, local::clear),
    Spec::read("list-local-macs", (1, 1), "!LSWITCH", &[], local::needs, local::list),

    Spec::write("add-ucast-remote", (3, 4), "!LSWITCH !MAC ?ENCAP !IP", &[], remote::needs, remote::add_unicast),
    Spec::write("del-ucast-remote", (2, 2), "!LSWITCH !MAC", &[], remote::needs, remote::del_unicast),
    Spec::write("add-mcast-remote", (3, 4), "!LSWITCH !MAC ?ENCAP !IP", &[], remote::needs, remote::add_multicast),
    Spec::write("del-mcast-remote", (3, 4), "!LSWITCH !MAC ?ENCAP !IP", &[], remote::needs, remote::del_multicast),
    Spec::write("clear-remote-macs", (1, 1), "!LSWITCH", &[], remote::needs, remote::clear),
    Spec::read("list-remote-macs", (1, 1), "!LSWITCH", &[], remote::needs, remote::list),

    Spec::GET_MANAGER,
    Spec::DEL_MANAGER,
    Spec::SET_MANAGER,
];
