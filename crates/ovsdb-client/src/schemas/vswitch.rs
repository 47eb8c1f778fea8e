//! Tables and columns of the database Open_vSwitch, version 8.8.0.
//!
//! Made of its schema by `cargo run -p ovsdb-client --example tables`.

ovsdb_client::tables! {
    database "Open_vSwitch", version "8.8.0";

    table open_vswitch::OpenVSwitch = "Open_vSwitch" [] {
        BRIDGES: Set<Ref<super::Bridge>> = "bridges";
        CUR_CFG: i64 = "cur_cfg";
        DATAPATH_TYPES: Set<String> = "datapath_types";
        DATAPATHS: Map<String, Ref<super::Datapath>> = "datapaths";
        DB_VERSION: Option<String> = "db_version";
        DPDK_INITIALIZED: bool = "dpdk_initialized";
        DPDK_VERSION: Option<String> = "dpdk_version";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        IFACE_TYPES: Set<String> = "iface_types";
        MANAGER_OPTIONS: Set<Ref<super::Manager>> = "manager_options";
        NEXT_CFG: i64 = "next_cfg";
        OTHER_CONFIG: Map<String, String> = "other_config";
        OVS_VERSION: Option<String> = "ovs_version";
        SSL: Option<Ref<super::Ssl>> = "ssl";
        STATISTICS: Map<String, String> = "statistics" ephemeral;
        SYSTEM_TYPE: Option<String> = "system_type";
        SYSTEM_VERSION: Option<String> = "system_version";
    }

    table autoattach::AutoAttach = "AutoAttach" [] {
        MAPPINGS: Map<i64, i64> = "mappings";
        SYSTEM_DESCRIPTION: String = "system_description";
        SYSTEM_NAME: String = "system_name";
    }

    table bridge::Bridge = "Bridge" [
        FailMode { Secure = "secure", Standalone = "standalone" }
        Protocols {
            OpenFlow10 = "OpenFlow10", OpenFlow11 = "OpenFlow11", OpenFlow12 = "OpenFlow12",
            OpenFlow13 = "OpenFlow13", OpenFlow14 = "OpenFlow14", OpenFlow15 = "OpenFlow15",
        }
    ] {
        AUTO_ATTACH: Option<Ref<super::AutoAttach>> = "auto_attach";
        CONTROLLER: Set<Ref<super::Controller>> = "controller";
        DATAPATH_ID: Option<String> = "datapath_id" ephemeral;
        DATAPATH_TYPE: String = "datapath_type";
        DATAPATH_VERSION: String = "datapath_version";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        FAIL_MODE: Option<FailMode> = "fail_mode";
        FLOOD_VLANS: Set<i64> = "flood_vlans";
        FLOW_TABLES: Map<i64, Ref<super::FlowTable>> = "flow_tables";
        IPFIX: Option<Ref<super::Ipfix>> = "ipfix";
        MCAST_SNOOPING_ENABLE: bool = "mcast_snooping_enable";
        MIRRORS: Set<Ref<super::Mirror>> = "mirrors";
        NAME: String = "name" immutable;
        NETFLOW: Option<Ref<super::NetFlow>> = "netflow";
        OTHER_CONFIG: Map<String, String> = "other_config";
        PORTS: Set<Ref<super::Port>> = "ports";
        PROTOCOLS: Set<Protocols> = "protocols";
        RSTP_ENABLE: bool = "rstp_enable";
        RSTP_STATUS: Map<String, String> = "rstp_status" ephemeral;
        SFLOW: Option<Ref<super::SFlow>> = "sflow";
        STATUS: Map<String, String> = "status" ephemeral;
        STP_ENABLE: bool = "stp_enable";
    }

    table controller::Controller = "Controller" [
        ConnectionMode { InBand = "in-band", OutOfBand = "out-of-band" }
        Role { Master = "master", Other = "other", Slave = "slave" }
        Type { Primary = "primary", Service = "service" }
    ] {
        CONNECTION_MODE: Option<ConnectionMode> = "connection_mode";
        CONTROLLER_BURST_LIMIT: Option<i64> = "controller_burst_limit";
        CONTROLLER_QUEUE_SIZE: Option<i64> = "controller_queue_size";
        CONTROLLER_RATE_LIMIT: Option<i64> = "controller_rate_limit";
        ENABLE_ASYNC_MESSAGES: Option<bool> = "enable_async_messages";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        INACTIVITY_PROBE: Option<i64> = "inactivity_probe";
        IS_CONNECTED: bool = "is_connected" ephemeral;
        LOCAL_GATEWAY: Option<String> = "local_gateway";
        LOCAL_IP: Option<String> = "local_ip";
        LOCAL_NETMASK: Option<String> = "local_netmask";
        MAX_BACKOFF: Option<i64> = "max_backoff";
        OTHER_CONFIG: Map<String, String> = "other_config";
        ROLE: Option<Role> = "role" ephemeral;
        STATUS: Map<String, String> = "status" ephemeral;
        TARGET: String = "target";
        TYPE: Option<Type> = "type";
    }

    table ct_timeout_policy::CtTimeoutPolicy = "CT_Timeout_Policy" [
        TimeoutsKey {
            IcmpFirst = "icmp_first", IcmpReply = "icmp_reply", TcpClose = "tcp_close",
            TcpCloseWait = "tcp_close_wait", TcpEstablished = "tcp_established", TcpFinWait = "tcp_fin_wait",
            TcpLastAck = "tcp_last_ack", TcpRetransmit = "tcp_retransmit", TcpSynRecv = "tcp_syn_recv",
            TcpSynSent = "tcp_syn_sent", TcpSynSent2 = "tcp_syn_sent2", TcpTimeWait = "tcp_time_wait",
            TcpUnack = "tcp_unack", UdpFirst = "udp_first", UdpMultiple = "udp_multiple", UdpSingle = "udp_single",
        }
    ] {
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        TIMEOUTS: Map<TimeoutsKey, i64> = "timeouts";
    }

    table ct_zone::CtZone = "CT_Zone" [] {
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        LIMIT: Option<i64> = "limit";
        TIMEOUT_POLICY: Option<Ref<super::CtTimeoutPolicy>> = "timeout_policy";
    }

    table datapath::Datapath = "Datapath" [] {
        CAPABILITIES: Map<String, String> = "capabilities";
        CT_ZONE_DEFAULT_LIMIT: Option<i64> = "ct_zone_default_limit";
        CT_ZONES: Map<i64, Ref<super::CtZone>> = "ct_zones";
        DATAPATH_VERSION: String = "datapath_version";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
    }

    table flow_sample_collector_set::FlowSampleCollectorSet = "Flow_Sample_Collector_Set" [] {
        BRIDGE: Ref<super::Bridge> = "bridge";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        ID: i64 = "id";
        IPFIX: Option<Ref<super::Ipfix>> = "ipfix";
        LOCAL_GROUP_ID: Option<i64> = "local_group_id";
    }

    table flow_table::FlowTable = "Flow_Table" [
        OverflowPolicy { Evict = "evict", Refuse = "refuse" }
    ] {
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        FLOW_LIMIT: Option<i64> = "flow_limit";
        GROUPS: Set<String> = "groups";
        NAME: Option<String> = "name";
        OVERFLOW_POLICY: Option<OverflowPolicy> = "overflow_policy";
        PREFIXES: Set<String> = "prefixes";
    }

    table interface::Interface = "Interface" [
        AdminState { Down = "down", Up = "up" }
        CfmRemoteOpstate { Down = "down", Up = "up" }
        Duplex { Full = "full", Half = "half" }
        LinkState { Down = "down", Up = "up" }
    ] {
        ADMIN_STATE: Option<AdminState> = "admin_state" ephemeral;
        BFD: Map<String, String> = "bfd";
        BFD_STATUS: Map<String, String> = "bfd_status" ephemeral;
        CFM_FAULT: Option<bool> = "cfm_fault" ephemeral;
        CFM_FAULT_STATUS: Set<String> = "cfm_fault_status" ephemeral;
        CFM_FLAP_COUNT: Option<i64> = "cfm_flap_count";
        CFM_HEALTH: Option<i64> = "cfm_health" ephemeral;
        CFM_MPID: Option<i64> = "cfm_mpid";
        CFM_REMOTE_MPIDS: Set<i64> = "cfm_remote_mpids" ephemeral;
        CFM_REMOTE_OPSTATE: Option<CfmRemoteOpstate> = "cfm_remote_opstate" ephemeral;
        DUPLEX: Option<Duplex> = "duplex" ephemeral;
        ERROR: Option<String> = "error";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        IFINDEX: Option<i64> = "ifindex" ephemeral;
        INGRESS_POLICING_BURST: i64 = "ingress_policing_burst";
        INGRESS_POLICING_KPKTS_BURST: i64 = "ingress_policing_kpkts_burst";
        INGRESS_POLICING_KPKTS_RATE: i64 = "ingress_policing_kpkts_rate";
        INGRESS_POLICING_RATE: i64 = "ingress_policing_rate";
        LACP_CURRENT: Option<bool> = "lacp_current" ephemeral;
        LINK_RESETS: Option<i64> = "link_resets" ephemeral;
        LINK_SPEED: Option<i64> = "link_speed" ephemeral;
        LINK_STATE: Option<LinkState> = "link_state" ephemeral;
        LLDP: Map<String, String> = "lldp";
        MAC: Option<String> = "mac";
        MAC_IN_USE: Option<String> = "mac_in_use" ephemeral;
        MTU: Option<i64> = "mtu" ephemeral;
        MTU_REQUEST: Option<i64> = "mtu_request";
        NAME: String = "name" immutable;
        OFPORT: Option<i64> = "ofport";
        OFPORT_REQUEST: Option<i64> = "ofport_request";
        OPTIONS: Map<String, String> = "options";
        OTHER_CONFIG: Map<String, String> = "other_config";
        STATISTICS: Map<String, i64> = "statistics" ephemeral;
        STATUS: Map<String, String> = "status" ephemeral;
        TYPE: String = "type";
    }

    table ipfix::Ipfix = "IPFIX" [] {
        CACHE_ACTIVE_TIMEOUT: Option<i64> = "cache_active_timeout";
        CACHE_MAX_FLOWS: Option<i64> = "cache_max_flows";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        OBS_DOMAIN_ID: Option<i64> = "obs_domain_id";
        OBS_POINT_ID: Option<i64> = "obs_point_id";
        OTHER_CONFIG: Map<String, String> = "other_config";
        SAMPLING: Option<i64> = "sampling";
        STATS_INTERVAL: Option<i64> = "stats_interval";
        TARGETS: Set<String> = "targets";
        TEMPLATE_INTERVAL: Option<i64> = "template_interval";
    }

    table manager::Manager = "Manager" [
        ConnectionMode { InBand = "in-band", OutOfBand = "out-of-band" }
    ] {
        CONNECTION_MODE: Option<ConnectionMode> = "connection_mode";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        INACTIVITY_PROBE: Option<i64> = "inactivity_probe";
        IS_CONNECTED: bool = "is_connected" ephemeral;
        MAX_BACKOFF: Option<i64> = "max_backoff";
        OTHER_CONFIG: Map<String, String> = "other_config";
        STATUS: Map<String, String> = "status" ephemeral;
        TARGET: String = "target";
    }

    table mirror::Mirror = "Mirror" [] {
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        FILTER: Option<String> = "filter";
        NAME: String = "name";
        OUTPUT_PORT: Option<Ref<super::Port>> = "output_port";
        OUTPUT_VLAN: Option<i64> = "output_vlan";
        SELECT_ALL: bool = "select_all";
        SELECT_DST_PORT: Set<Ref<super::Port>> = "select_dst_port";
        SELECT_SRC_PORT: Set<Ref<super::Port>> = "select_src_port";
        SELECT_VLAN: Set<i64> = "select_vlan";
        SNAPLEN: Option<i64> = "snaplen";
        STATISTICS: Map<String, i64> = "statistics" ephemeral;
    }

    table netflow::NetFlow = "NetFlow" [] {
        ACTIVE_TIMEOUT: i64 = "active_timeout";
        ADD_ID_TO_INTERFACE: bool = "add_id_to_interface";
        ENGINE_ID: Option<i64> = "engine_id";
        ENGINE_TYPE: Option<i64> = "engine_type";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        TARGETS: Set<String> = "targets";
    }

    table port::Port = "Port" [
        BondMode { ActiveBackup = "active-backup", BalanceSlb = "balance-slb", BalanceTcp = "balance-tcp" }
        Lacp { Active = "active", Off = "off", Passive = "passive" }
        VlanMode {
            Access = "access", Dot1qTunnel = "dot1q-tunnel", NativeTagged = "native-tagged",
            NativeUntagged = "native-untagged", Trunk = "trunk",
        }
    ] {
        BOND_ACTIVE_SLAVE: Option<String> = "bond_active_slave";
        BOND_DOWNDELAY: i64 = "bond_downdelay";
        BOND_FAKE_IFACE: bool = "bond_fake_iface";
        BOND_MODE: Option<BondMode> = "bond_mode";
        BOND_UPDELAY: i64 = "bond_updelay";
        CVLANS: Set<i64> = "cvlans";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        FAKE_BRIDGE: bool = "fake_bridge";
        INTERFACES: Set<Ref<super::Interface>> = "interfaces";
        LACP: Option<Lacp> = "lacp";
        MAC: Option<String> = "mac";
        NAME: String = "name" immutable;
        OTHER_CONFIG: Map<String, String> = "other_config";
        PROTECTED: bool = "protected";
        QOS: Option<Ref<super::QoS>> = "qos";
        RSTP_STATISTICS: Map<String, i64> = "rstp_statistics" ephemeral;
        RSTP_STATUS: Map<String, String> = "rstp_status" ephemeral;
        STATISTICS: Map<String, i64> = "statistics" ephemeral;
        STATUS: Map<String, String> = "status" ephemeral;
        TAG: Option<i64> = "tag";
        TRUNKS: Set<i64> = "trunks";
        VLAN_MODE: Option<VlanMode> = "vlan_mode";
    }

    table qos::QoS = "QoS" [] {
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        OTHER_CONFIG: Map<String, String> = "other_config";
        QUEUES: Map<i64, Ref<super::Queue>> = "queues";
        TYPE: String = "type";
    }

    table queue::Queue = "Queue" [] {
        DSCP: Option<i64> = "dscp";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        OTHER_CONFIG: Map<String, String> = "other_config";
    }

    table sflow::SFlow = "sFlow" [] {
        AGENT: Option<String> = "agent";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        HEADER: Option<i64> = "header";
        POLLING: Option<i64> = "polling";
        SAMPLING: Option<i64> = "sampling";
        TARGETS: Set<String> = "targets";
    }

    table ssl::Ssl = "SSL" [] {
        BOOTSTRAP_CA_CERT: bool = "bootstrap_ca_cert";
        CA_CERT: String = "ca_cert";
        CERTIFICATE: String = "certificate";
        EXTERNAL_IDS: Map<String, String> = "external_ids";
        PRIVATE_KEY: String = "private_key";
    }
}
