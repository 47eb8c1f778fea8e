//! The commands of ovs-vsctl beside the database commands. The modules named in the table implement them.

use dbctl::command::MANY;

use crate::{Spec, autoattach, bridge, control, port, switch, zone};

/// The commands, in the order of the manual page.
#[rustfmt::skip]
pub(crate) const COMMANDS: &[Spec] = &[
    Spec::write("init", (0, 0), "", &[], switch::init_needs, switch::init),
    Spec::SHOW,
    Spec::write("emer-reset", (0, 0), "", &[], switch::emer_reset_needs, switch::emer_reset),

    Spec::write("add-br", (1, 3), "!NEW-BRIDGE ?PARENT ?NEW-VLAN", &["--may-exist"], bridge::needs, bridge::add_br),
    Spec::write("del-br", (1, 1), "!BRIDGE", &["--if-exists"], bridge::needs, bridge::del_br),
    Spec::read("list-br", (0, 0), "", &["--real", "--fake"], bridge::needs, bridge::list_br),
    Spec::read("br-exists", (1, 1), "!BRIDGE", &[], bridge::needs, bridge::br_exists),
    Spec::read("br-to-vlan", (1, 1), "!BRIDGE", &[], bridge::needs, bridge::br_to_vlan),
    Spec::read("br-to-parent", (1, 1), "!BRIDGE", &[], bridge::needs, bridge::br_to_parent),
    Spec::write("br-set-external-id", (2, 3), "!BRIDGE !KEY ?VALUE", &[], bridge::external_id_needs, bridge::set_external_id),
    Spec::read("br-get-external-id", (1, 2), "!BRIDGE ?KEY", &[], bridge::external_id_needs, bridge::get_external_id),

    Spec::read("list-ports", (1, 1), "!BRIDGE", &[], bridge::needs, port::list_ports),
    Spec::write("add-port", (2, MANY), "!BRIDGE !NEW-PORT *COLUMN?:KEY=VALUE", &["--may-exist"], port::add_port_needs, port::add_port),
    Spec::write("add-bond", (4, MANY), "!BRIDGE !BOND +IFACE *COLUMN?:KEY=VALUE", &["--may-exist", "--fake-iface"], port::add_bond_needs, port::add_bond),
    Spec::write("add-bond-iface", (2, 2), "!BOND !IFACE", &["--may-exist"], bridge::needs, port::add_bond_iface),
    Spec::write("del-bond-iface", (1, 2), "?BOND !IFACE", &["--if-exists"], bridge::needs, port::del_bond_iface),
    Spec::write("del-port", (1, 2), "?BRIDGE !PORT|IFACE", &["--if-exists", "--with-iface"], bridge::needs, port::del_port),
    Spec::read("port-to-br", (1, 1), "!PORT", &[], bridge::needs, port::port_to_br),

    Spec::read("list-ifaces", (1, 1), "!BRIDGE", &[], bridge::needs, port::list_ifaces),
    Spec::read("iface-to-br", (1, 1), "!IFACE", &[], bridge::needs, port::iface_to_br),

    Spec::read("get-controller", (1, 1), "!BRIDGE", &[], control::controller_needs, control::get_controller),
    Spec::write("del-controller", (1, 1), "!BRIDGE", &[], control::controller_needs, control::del_controller),
    Spec::write("set-controller", (1, MANY), "!BRIDGE +TARGET", &["--inactivity-probe="], control::controller_needs, control::set_controller),
    Spec::read("get-fail-mode", (1, 1), "!BRIDGE", &[], bridge::needs, control::get_fail_mode),
    Spec::write("del-fail-mode", (1, 1), "!BRIDGE", &[], bridge::needs, control::del_fail_mode),
    Spec::write("set-fail-mode", (2, 2), "!BRIDGE !MODE", &[], bridge::needs, control::set_fail_mode),

    Spec::GET_MANAGER,
    Spec::DEL_MANAGER,
    Spec::SET_MANAGER,

    Spec::read("get-ssl", (0, 0), "", &[], control::ssl_needs, control::get_ssl),
    Spec::write("del-ssl", (0, 0), "", &[], control::ssl_needs, control::del_ssl),
    Spec::write("set-ssl", (3, 3), "!PRIVATE-KEY !CERTIFICATE !CA-CERT", &["--bootstrap"], control::ssl_needs, control::set_ssl),

    Spec::write("add-aa-mapping", (3, 3), "!BRIDGE !ARG !ARG", &[], autoattach::needs, autoattach::add),
    Spec::write("del-aa-mapping", (3, 3), "!BRIDGE !ARG !ARG", &[], autoattach::needs, autoattach::del),
    Spec::read("get-aa-mapping", (1, 1), "!BRIDGE", &[], autoattach::needs, autoattach::get),

    Spec::write("add-zone-tp", (3, 18), "", &["--may-exist"], zone::needs, zone::add_timeout_policy),
    Spec::write("del-zone-tp", (2, 2), "", &["--if-exists"], zone::needs, zone::del_timeout_policy),
    Spec::read("list-zone-tp", (1, 1), "", &[], zone::needs, zone::list_timeout_policies),
    Spec::write("set-zone-limit", (3, 3), "!ARG !ARG !ARG", &[], zone::needs, zone::set_limit),
    Spec::write("del-zone-limit", (2, 2), "!ARG !ARG", &["--if-exists"], zone::needs, zone::del_limit),
    Spec::read("list-zone-limits", (1, 1), "!ARG", &[], zone::needs, zone::list_limits),
    Spec::read("list-dp-cap", (1, 1), "", &[], zone::capability_needs, zone::list_capabilities),
];
