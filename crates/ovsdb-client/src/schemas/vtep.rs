//! Tables and columns of the database hardware_vtep, version 1.7.0.
//!
//! Made of its schema by `cargo run -p ovsdb-client --example tables`.

ovsdb_client::tables! {
    database "hardware_vtep", version "1.7.0";

    table global::Global = "Global" [] {
        MANAGERS: Set<Ref<super::Manager>> = "managers";
        OTHER_CONFIG: Map<String, String> = "other_config";
        SWITCHES: Set<Ref<super::PhysicalSwitch>> = "switches";
    }

    table manager::Manager = "Manager" [] {
        INACTIVITY_PROBE: Option<i64> = "inactivity_probe";
        IS_CONNECTED: bool = "is_connected" ephemeral;
        MAX_BACKOFF: Option<i64> = "max_backoff";
        OTHER_CONFIG: Map<String, String> = "other_config";
        STATUS: Map<String, String> = "status" ephemeral;
        TARGET: String = "target";
    }

    table physical_switch::PhysicalSwitch = "Physical_Switch" [] {
        DESCRIPTION: String = "description";
        MANAGEMENT_IPS: Set<String> = "management_ips";
        NAME: String = "name";
        OTHER_CONFIG: Map<String, String> = "other_config";
        PORTS: Set<Ref<super::PhysicalPort>> = "ports";
        SWITCH_FAULT_STATUS: Set<String> = "switch_fault_status" ephemeral;
        TUNNEL_IPS: Set<String> = "tunnel_ips";
        TUNNELS: Set<Ref<super::Tunnel>> = "tunnels";
    }

    table tunnel::Tunnel = "Tunnel" [] {
        BFD_CONFIG_LOCAL: Map<String, String> = "bfd_config_local";
        BFD_CONFIG_REMOTE: Map<String, String> = "bfd_config_remote";
        BFD_PARAMS: Map<String, String> = "bfd_params";
        BFD_STATUS: Map<String, String> = "bfd_status" ephemeral;
        LOCAL: Ref<super::PhysicalLocator> = "local";
        REMOTE: Ref<super::PhysicalLocator> = "remote";
    }

    table physical_port::PhysicalPort = "Physical_Port" [] {
        ACL_BINDINGS: Map<i64, Ref<super::Acl>> = "acl_bindings";
        DESCRIPTION: String = "description";
        NAME: String = "name";
        OTHER_CONFIG: Map<String, String> = "other_config";
        PORT_FAULT_STATUS: Set<String> = "port_fault_status" ephemeral;
        VLAN_BINDINGS: Map<i64, Ref<super::LogicalSwitch>> = "vlan_bindings";
        VLAN_STATS: Map<i64, Ref<super::LogicalBindingStats>> = "vlan_stats";
    }

    table logical_binding_stats::LogicalBindingStats = "Logical_Binding_Stats" [] {
        BYTES_FROM_LOCAL: i64 = "bytes_from_local" ephemeral;
        BYTES_TO_LOCAL: i64 = "bytes_to_local" ephemeral;
        PACKETS_FROM_LOCAL: i64 = "packets_from_local" ephemeral;
        PACKETS_TO_LOCAL: i64 = "packets_to_local" ephemeral;
    }

    table logical_switch::LogicalSwitch = "Logical_Switch" [
        ReplicationMode { ServiceNode = "service_node", SourceNode = "source_node" }
    ] {
        DESCRIPTION: String = "description";
        NAME: String = "name";
        OTHER_CONFIG: Map<String, String> = "other_config";
        REPLICATION_MODE: Option<ReplicationMode> = "replication_mode";
        TUNNEL_KEY: Option<i64> = "tunnel_key";
    }

    table ucast_macs_local::UcastMacsLocal = "Ucast_Macs_Local" [] {
        MAC: String = "MAC";
        IPADDR: String = "ipaddr";
        LOCATOR: Ref<super::PhysicalLocator> = "locator";
        LOGICAL_SWITCH: Ref<super::LogicalSwitch> = "logical_switch";
    }

    table ucast_macs_remote::UcastMacsRemote = "Ucast_Macs_Remote" [] {
        MAC: String = "MAC";
        IPADDR: String = "ipaddr";
        LOCATOR: Ref<super::PhysicalLocator> = "locator";
        LOGICAL_SWITCH: Ref<super::LogicalSwitch> = "logical_switch";
    }

    table mcast_macs_local::McastMacsLocal = "Mcast_Macs_Local" [] {
        MAC: String = "MAC";
        IPADDR: String = "ipaddr";
        LOCATOR_SET: Ref<super::PhysicalLocatorSet> = "locator_set";
        LOGICAL_SWITCH: Ref<super::LogicalSwitch> = "logical_switch";
    }

    table mcast_macs_remote::McastMacsRemote = "Mcast_Macs_Remote" [] {
        MAC: String = "MAC";
        IPADDR: String = "ipaddr";
        LOCATOR_SET: Ref<super::PhysicalLocatorSet> = "locator_set";
        LOGICAL_SWITCH: Ref<super::LogicalSwitch> = "logical_switch";
    }

    table logical_router::LogicalRouter = "Logical_Router" [] {
        LR_FAULT_STATUS: Set<String> = "LR_fault_status" ephemeral;
        ACL_BINDING: Map<String, Ref<super::Acl>> = "acl_binding";
        DESCRIPTION: String = "description";
        NAME: String = "name";
        OTHER_CONFIG: Map<String, String> = "other_config";
        STATIC_ROUTES: Map<String, String> = "static_routes";
        SWITCH_BINDING: Map<String, Ref<super::LogicalSwitch>> = "switch_binding";
    }

    table arp_sources_local::ArpSourcesLocal = "Arp_Sources_Local" [] {
        SRC_MAC: String = "src_mac";
        LOCATOR: Ref<super::PhysicalLocator> = "locator";
    }

    table arp_sources_remote::ArpSourcesRemote = "Arp_Sources_Remote" [] {
        SRC_MAC: String = "src_mac";
        LOCATOR: Ref<super::PhysicalLocator> = "locator";
    }

    table physical_locator_set::PhysicalLocatorSet = "Physical_Locator_Set" [] {
        LOCATORS: Set<Ref<super::PhysicalLocator>> = "locators" immutable;
    }

    table physical_locator::PhysicalLocator = "Physical_Locator" [
        EncapsulationType { VxlanOverIpv4 = "vxlan_over_ipv4" }
    ] {
        DST_IP: String = "dst_ip" immutable;
        ENCAPSULATION_TYPE: EncapsulationType = "encapsulation_type" immutable;
        TUNNEL_KEY: Option<i64> = "tunnel_key";
    }

    table acl_entry::AclEntry = "ACL_entry" [
        Action { Deny = "deny", Permit = "permit" }
        Direction { Egress = "egress", Ingress = "ingress" }
    ] {
        ACLE_FAULT_STATUS: Set<String> = "acle_fault_status" ephemeral;
        ACTION: Action = "action";
        DEST_IP: Option<String> = "dest_ip";
        DEST_MAC: Option<String> = "dest_mac";
        DEST_MASK: Option<String> = "dest_mask";
        DEST_PORT_MAX: Option<i64> = "dest_port_max";
        DEST_PORT_MIN: Option<i64> = "dest_port_min";
        DIRECTION: Direction = "direction";
        ETHERTYPE: Option<String> = "ethertype";
        ICMP_CODE: Option<i64> = "icmp_code";
        ICMP_TYPE: Option<i64> = "icmp_type";
        PROTOCOL: Option<i64> = "protocol";
        SEQUENCE: i64 = "sequence";
        SOURCE_IP: Option<String> = "source_ip";
        SOURCE_MAC: Option<String> = "source_mac";
        SOURCE_MASK: Option<String> = "source_mask";
        SOURCE_PORT_MAX: Option<i64> = "source_port_max";
        SOURCE_PORT_MIN: Option<i64> = "source_port_min";
        TCP_FLAGS: Option<i64> = "tcp_flags";
        TCP_FLAGS_MASK: Option<i64> = "tcp_flags_mask";
    }

    table acl::Acl = "ACL" [] {
        ACL_ENTRIES: Set<Ref<super::AclEntry>> = "acl_entries";
        ACL_FAULT_STATUS: Set<String> = "acl_fault_status" ephemeral;
        ACL_NAME: String = "acl_name";
    }
}
