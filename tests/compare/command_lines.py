"""Command lines and options that bad_input.py spoils, beside those of vocabulary.py."""

SWITCH = ("switch && bridge",)
SERVER = ("server && ovs-vsctl --no-wait init -- add-br br0 -- add-port br0 p1",)
VTEP = ("server $SCHEMAS/vtep.ovsschema && vtep-ctl add-ps ps0 -- add-port ps0 pp0 -- add-ls ls0 -- add-lr lr0",)
FILES = ("ovsdb-tool create db $SCHEMAS/vswitch.ovsschema && ovsdb-tool create other $SCHEMAS/vtep.ovsschema",)
OFCTL = "ovs-ofctl -O OpenFlow13"

# The state of a switch, of a server and of a server of the other schema, by the first word of the command line that starts it.
ROWS = [f"{{}} --columns={columns} list {table}" for table, columns in [
    ("Bridge", "name,datapath_type,fail_mode,protocols,other_config,external_ids"),
    ("Port", "name,tag,trunks,vlan_mode,bond_mode,lacp,fake_bridge,other_config,external_ids"),
    ("Interface", "name,type,options,ofport_request,external_ids"),
    ("Controller", "target,inactivity_probe"),
    ("Manager", "target,inactivity_probe"),
    ("SSL", "private_key,certificate,ca_cert,bootstrap_ca_cert"),
    ("QoS", "type"),
]]
# The peer lists groups in the order of a hash table whose seed is random.
FLOWS = [f"{OFCTL} {command}" for command in ("--no-stats --sort dump-flows br0", "dump-groups br0 | sort", "dump-meters br0", "get-frags br0", "dump-tlv-map br0")]
STATES = {
    "switch": [row.format("ovs-vsctl --no-wait") for row in ROWS] + FLOWS + ["ovs-appctl vlog/list | grep -E '^(bridge|dpif) '"],
    "server $SCHEMAS/vtep.ovsschema": [f"vtep-ctl --columns={columns} list {table}" for table, columns in [("Physical_Switch", "name,management_ips"), ("Physical_Port", "name,vlan_bindings"), ("Logical_Switch", "name,description"), ("Logical_Router", "name"), ("Manager", "target")]] + ["vtep-ctl list-local-macs ls0", "vtep-ctl list-remote-macs ls0"],
    "server": [row.format("ovs-vsctl --no-wait") for row in ROWS] + ["ovsdb-client list-dbs | sort", "ovs-appctl -t ovsdb-server ovsdb-server/list-remotes"],
    "ovsdb-tool": ["ovsdb-tool db-name db; ovsdb-tool db-name other", "ovsdb-tool db-version db"],
}

# (manual page, program, command lines that start daemons, commands)
COMMANDS = [
    (
        "ovs-vsctl(8)", "ovs-vsctl --no-wait", SERVER,
        ["--filter=Bridge(name) show", "--real list-br", "--fake list-br", "--fake-iface --may-exist add-bond br0 b0 p8 p9 lacp=active", "--if-exists del-bond-iface p7", "--may-exist add-bond-iface b0 p7", "add-port br0 p9 tag=5 -- set Interface p9 type=internal", "br-set-external-id br0 k", "--inactivity-probe=5 set-controller br0 tcp:127.0.0.1:1", "--inactivity-probe=5 set-manager ptcp:1:127.0.0.1", "--columns=name list Bridge br0", "--columns=name find Bridge name=br0", "--if-exists list Bridge br0", "--id=@x get Bridge br0", "--if-exists set Bridge br9 fail_mode=secure", "--if-exists add Bridge br9 external_ids k=v", "--if-exists remove Bridge br9 external_ids k", "--if-exists clear Bridge br9 fail_mode", "--id=@q create QoS type=x -- set Port p1 qos=@q", "--id=@q create Queue other_config:k=v", "set Bridge br0 other_config:k=v", "set Interface p1 options:k=v type=x", "add Bridge br0 other_config k v", "remove Bridge br0 other_config k=v", "wait-until Bridge br0 name=br0 fail_mode!=x", "destroy Bridge br0 br9", "--if-exists --all destroy QoS"],
    ),
    (
        "ovs-ofctl(8)", OFCTL, SWITCH,
        ["dump-desc br0", "add-flows br0 /dev/null", "replace-flows br0 /dev/null", "add-groups br0 /dev/null", "--bundle add-flows br0 /dev/null", "bundle br0 /dev/null", "-t1 benchmark br0 10 10", "--strict dump-flows br0 in_port=1", "ping br0", "mod-port br0 1 no-flood", "parse-flow in_port=1,actions=2", "parse-flows /dev/null", "parse-group add group_id=1,type=all,bucket=2", "parse-oxm OpenFlow12", "parse-instructions OpenFlow13", "ofp-parse /dev/null", "ofp-parse-pcap /dev/null", "check-vlan 1 2", "print-error 0400000800000001", "parse-key-value a=b", "diff-flows br0 /dev/null", "packet-out br0 1 2 001122334455667788990011aabb", "packet-out br0 in_port=1,actions=2,packet=001122334455667788990011aabb", "mod-table br0 0 evict", "mod-table br0 0 vacancy:20,80", "del-flows br0", "del-groups br0", "del-meters br0", "dump-meter br0 meter=1", "dump-groups br0", "insert-buckets br0", "remove-buckets br0", "ct-flush br0 mark=5 labels=6", "help", "list-commands"],
    ),
    ("ovs-ofctl(8)", "timeout 0.5 ovs-ofctl -O OpenFlow13", SWITCH, ["monitor br0 5 watch:!initial", "monitor br0 invalid_ttl resume", "snoop br0"]),
    (
        "ovs-vswitchd(8)", "ovs-appctl", SWITCH,
        ["autoattach/show-isid br0", "autoattach/statistics br0", "autoattach/status br0", "bridge/dump-flows --offload-stats br0", "coverage/show", "dpctl/add-dp dummy@d p5", "dpctl/add-if dummy@ovs-dummy p5", "dpctl/set-if dummy@ovs-dummy p1", "dpctl/del-if dummy@ovs-dummy p5", "dpctl/del-dp dummy@d", "dpctl/add-flows /dev/null", "dpctl/mod-flows /dev/null", "dpctl/del-flows /dev/null", "dpctl/add-flow dummy@ovs-dummy in_port(1),eth(),eth_type(0x1234) 2", "dpctl/mod-flow dummy@ovs-dummy in_port(1),eth(),eth_type(0x1234) 2", "dpctl/del-flow dummy@ovs-dummy in_port(1),eth(),eth_type(0x1234)", "dpctl/get-flow dummy@ovs-dummy ufid:00000000-0000-0000-0000-000000000000", "dpctl/dump-flows -m dummy@ovs-dummy filter=ip type=all pmd=0", "dpctl/dump-flows --names", "dpctl/show -s dummy@ovs-dummy", "dpctl/parse-actions 1", "dpctl/list-commands", "dpctl/offload-stats-show dummy@ovs-dummy", "dpctl/cache-get-size dummy@ovs-dummy"],
    ),
    (
        "ovs-vswitchd(8)", "ovs-appctl", SWITCH,
        ["dpif-dummy/change-port-number ovs-dummy p1 9", "dpif-netdev/pmd-perf-log-set on -b 1 -a 1 -e -us 5 -q 5", "dpif-netdev/pmd-perf-show -nh -it 5 -ms 5 -pmd 0 ovs-dummy", "dpif-netdev/pmd-rxq-show -pmd 0 -secs 5 ovs-dummy", "dpif-netdev/pmd-rxq-rebalance ovs-dummy", "dpif-netdev/pmd-sleep-show ovs-dummy", "dpif-netdev/pmd-stats-show -pmd 0 ovs-dummy", "dpif-netdev/pmd-stats-clear -pmd 0 ovs-dummy", "dpif-netdev/subtable-lookup-prio-get", "dpif-netdev/subtable-lookup-info-get", "dpif/dump-flows -m --names br0", "dpif/dump-flows --no-names br0", "dpif/offload/show", "dpif/set-dp-features --force br0 ufid true", "netdev-dummy/conn-state p1", "netdev-dummy/ip4addr p1 1.2.3.4/24", "netdev-dummy/ip6addr p1 ::1/64", "netdev-dummy/receive p1 --qid 0 001122334455667788990011aabb --len 60", "netdev-dummy/set-admin-state p1 up", "ofproto/detrace ufid:00000000-0000-0000-0000-000000000000 pmd=0", "ofproto/trace dummy@ovs-dummy in_port(1)", "ofproto/trace br0 in_port=1 --ct-next trk", "ofproto/trace br0 in_port=1 001122334455667788990011aabb", "ofproto/trace-packet-out -consistent br0 in_port=1 2", "set-options --format text", "vlog/list", "vlog/set PATTERN:syslog:%m", "vlog/set SYSLOG:x", "vlog/set bridge:syslog:off", "vlog/set bridge:console:warn dpif:file:info", "vlog/enable-rate-limit bridge dpif", "fdb/show br0", "fdb/add br0 p1 4095 00:11:22:33:44:55", "mdb/show br0", "no/such", "memory/show", "coverage/read-counter packet_in", "time/stop", "time/warp 5 5"],
    ),
    (
        "ovs-vswitchd(8)", "ovs-appctl", SWITCH,
        ["bfd/set-forwarding p1 normal", "bfd/show p1", "bond/disable-member b0 p1", "bond/enable-member b0 p1", "bond/migrate b0 5 p1", "bond/set-active-member b0 p1", "cfm/set-fault p1 normal", "rstp/tcn br0", "stp/tcn br0", "dpctl/ct-disable-tcp-seq-chk x", "dpctl/ct-enable-tcp-seq-chk x", "dpctl/ct-get-tcp-seq-chk x", "dpctl/ct-get-sweep-interval x", "dpctl/ct-set-sweep-interval x 5", "dpctl/dump-conntrack -m -s dummy@ovs-dummy zone=5", "dpctl/dump-conntrack-exp dummy@ovs-dummy zone=5", "dpctl/flush-conntrack dummy@ovs-dummy zone=5 mark=5 labels=5", "dpctl/ipf-get-status x", "dpctl/ipf-set-disabled v4", "dpctl/ipf-set-enabled v4", "dpctl/ipf-set-max-nfrags 5", "dpctl/ipf-set-min-frag v4 500", "ovs/route/add 1.2.3.0/24 br0 1.2.3.1 pkt_mark=5 src=1.2.3.4 table=5", "ovs/route/del 1.2.3.0/24 pkt_mark=5 table=5", "ovs/route/lookup 1.2.3.4 pkt_mark=5 src=1.2.3.4", "ovs/route/show table=all", "ovs/route/rule/add from=all prio=5 table=local", "ovs/route/rule/del from=all prio=5 table=local", "ovs/route/rule/show -6", "tnl/arp/aging 5", "tnl/arp/flush", "tnl/arp/set br0 1.2.3.4 00:11:22:33:44:55", "tnl/arp/show", "tnl/egress_port_range 1 2", "tnl/neigh/aging 5", "tnl/neigh/retrans_time 5", "tnl/neigh/set br0 1.2.3.4 00:11:22:33:44:55", "tnl/ports/show -v"],
    ),
    (
        "ovsdb-server(1)", "ovs-appctl -t ovsdb-server", SERVER,
        ["coverage/read-counter x", "coverage/show", "list-commands", "memory/show", "ovsdb-server/add-db other", "ovsdb-server/remove-db other", "ovsdb-server/add-remote punix:x", "ovsdb-server/add-remote db:Open_vSwitch,Open_vSwitch,manager_options", "ovsdb-server/remove-remote punix:x", "ovsdb-server/compact Open_vSwitch", "ovsdb-server/connect-active-ovsdb-server", "ovsdb-server/disconnect-active-ovsdb-server", "ovsdb-server/get-active-ovsdb-server", "ovsdb-server/get-db-storage-status Open_vSwitch", "ovsdb-server/get-sync-exclude-tables", "ovsdb-server/set-sync-exclude-tables Open_vSwitch:Bridge", "ovsdb-server/list-dbs", "ovsdb-server/list-remotes", "ovsdb-server/memory-trim-on-compaction on", "ovsdb-server/perf-counters-clear", "ovsdb-server/perf-counters-show", "ovsdb-server/reconnect", "ovsdb-server/reload", "ovsdb-server/set-active-ovsdb-server-probe-interval 5000", "ovsdb-server/set-relay-source-probe-interval 5000", "ovsdb-server/sync-status", "ovsdb-server/tlog-list", "ovsdb-server/tlog-set Open_vSwitch:Bridge on", "ovsdb-server/no-such", "set-options --format json", "version", "vlog/close", "vlog/reopen", "vlog/disable-rate-limit jsonrpc", "vlog/enable-rate-limit jsonrpc", "vlog/list", "vlog/list-pattern", "vlog/set jsonrpc:file:dbg", "vlog/set PATTERN:file:%m"],
    ),
    (
        "vtep-ctl(8)", "vtep-ctl", VTEP,
        ["show", "get-manager", "del-manager", "set-manager ptcp:1:127.0.0.1", "--inactivity-probe=5 set-manager ptcp:1:127.0.0.1", "add-ps ps1", "--may-exist add-ps ps0", "del-ps ps9", "--if-exists del-ps ps9", "list-ps", "ps-exists ps0", "list-ports ps0", "add-port ps0 pp1", "--may-exist add-port ps0 pp0", "del-port ps0 pp9", "--if-exists del-port ps0 pp9", "add-ls ls1", "--may-exist add-ls ls0", "del-ls ls9", "--if-exists del-ls ls9", "list-ls", "ls-exists ls0", "bind-ls ps0 pp0 5 ls0", "unbind-ls ps0 pp0 5", "list-bindings ps0 pp0", "set-replication-mode ls0 source_node", "get-replication-mode ls0", "add-lr lr1", "--may-exist add-lr lr0", "del-lr lr9", "--if-exists del-lr lr9", "list-lr", "lr-exists lr0"],
    ),
    (
        "vtep-ctl(8)", "vtep-ctl", VTEP,
        ["add-ucast-local ls0 00:11:22:33:44:55 vxlan_over_ipv4 1.2.3.4", "del-ucast-local ls0 00:11:22:33:44:55", "add-mcast-local ls0 unknown-dst vxlan_over_ipv4 1.2.3.4", "del-mcast-local ls0 unknown-dst vxlan_over_ipv4 1.2.3.4", "clear-local-macs ls0", "list-local-macs ls0", "add-ucast-remote ls0 00:11:22:33:44:55 1.2.3.4", "del-ucast-remote ls0 00:11:22:33:44:55", "add-mcast-remote ls0 unknown-dst 1.2.3.4", "del-mcast-remote ls0 unknown-dst 1.2.3.4", "clear-remote-macs ls0", "list-remote-macs ls0", "list Physical_Switch ps0", "--columns=name list Logical_Switch", "find Logical_Switch name=ls0", "get Logical_Switch ls0 name", "set Logical_Switch ls0 description=x", "add Physical_Switch ps0 management_ips 1.2.3.4", "remove Physical_Switch ps0 management_ips 1.2.3.4", "clear Logical_Switch ls0 description", "--id=@x create Logical_Switch name=ls5", "--if-exists destroy Logical_Switch ls9", "wait-until Logical_Switch ls0 name=ls0", "comment x"],
    ),
    (
        "ovsdb-client(1)", "ovsdb-client -t5", SERVER,
        ["list-dbs unix:db.sock", "get-schema unix:db.sock Open_vSwitch", "get-schema-version unix:db.sock Open_vSwitch", "get-schema-cksum unix:db.sock Open_vSwitch", "list-tables unix:db.sock Open_vSwitch", "list-columns unix:db.sock Open_vSwitch Bridge", "transact unix:db.sock [\"Open_vSwitch\"]", "query unix:db.sock [\"Open_vSwitch\"]", "convert unix:db.sock $SCHEMAS/vswitch.ovsschema", "needs-conversion unix:db.sock $SCHEMAS/vswitch.ovsschema", "dump unix:db.sock Open_vSwitch Bridge name", "backup unix:db.sock Open_vSwitch", "restore unix:db.sock Open_vSwitch", "get-dbid unix:db.sock Open_vSwitch", "help", "list-dbs", "dump Bridge", "no-such unix:db.sock"],
    ),
    (
        "ovsdb-client(1)", "timeout 0.5 ovsdb-client", SERVER,
        ["monitor unix:db.sock Open_vSwitch Bridge name", "monitor-cond unix:db.sock Open_vSwitch [] Bridge name", "monitor-cond-since unix:db.sock Open_vSwitch 00000000-0000-0000-0000-000000000000 [] Bridge name", "wait unix:db.sock Open_vSwitch added", "lock unix:db.sock l", "unlock unix:db.sock l", "steal unix:db.sock l"],
    ),
    (
        "ovsdb-tool(1)", "ovsdb-tool", FILES,
        ["compact db db4", "convert db $SCHEMAS/vswitch.ovsschema db5", "compare-versions 1.0.0 < 1.0.1", "show-log db", "-m show-log db", "--rbac-role=x query db [\"Open_vSwitch\"]", "query db [\"Open_vSwitch\"]", "transact db [\"Open_vSwitch\"]", "db-cid db", "db-sid db", "db-local-address db", "check-cluster db", "create-cluster db6 db tcp:127.0.0.1:1", "join-cluster db7 Open_vSwitch tcp:127.0.0.1:1 tcp:127.0.0.1:2", "cluster-to-standalone db8 db", "help", "list-commands", "no-such db"],
    ),
]

# (manual page, program, command lines that start daemons, command lines with {} for an option, options)
LOGGING = ["--verbose=console:off", "-v console:off", "--log-file[=log]", "--syslog-method=null", "--syslog-target=127.0.0.1:514"]
TLS = ["--private-key=key", "-p key", "--certificate=cert", "-c cert", "--ca-cert=ca", "-C ca", "--ssl-protocols=TLSv1.2", "--ssl-ciphers=HIGH", "--ssl-ciphersuites=TLS_AES_256_GCM_SHA384", "--ssl-server-name=x"]
DAEMON = ["--detach", "--monitor", "--no-chdir", "--no-self-confinement", "--overwrite-pidfile", "--pidfile[=p.pid]", "--user=root", "--unixctl=none"]
TABLE = ["--format=table", "-f table", "--data=string", "-d string", "--no-headings", "--pretty", "--bare", "--max-column-width=5"]
OPTIONS = [
    (
        "ovs-vsctl(8)", "ovs-vsctl", SERVER, ["ovs-vsctl --no-wait {} list-br"],
        ["--db=unix:db.sock", "--no-syslog", "--dry-run", "--oneline", "--timeout=5", "-t 5", "--retry", "--leader-only", "--no-leader-only", "--shuffle-remotes", "--no-shuffle-remotes", *TABLE, *LOGGING, *TLS, "--bootstrap-ca-cert=ca", "--peer-ca-cert=ca"],
    ),
    ("ovs-vsctl(8)", "ovs-vsctl list-br", SERVER, ["ovs-vsctl --no-wait list-br {}"], ["--db=unix:db.sock", "--dry-run", "--timeout=5", "-t 5", "--may-exist", "--if-exists", "--real"]),
    ("ovs-vsctl(8)", "ovs-vsctl --no-wait add-br br5", SERVER, ["ovs-vsctl --no-wait {} add-br br5 -- del-br br5"], ["--may-exist", "--if-exists", "--id=@x", "--columns=name", "--bootstrap", "--all"]),
    ("ovs-vsctl(8)", "ovs-vsctl --no-wait list", SERVER, ["ovs-vsctl --no-wait {} list Bridge br0"], ["--columns=name,ports", "--if-exists", "--id=@x"]),
    ("ovs-vsctl(8)", "ovs-vsctl --no-wait create", SERVER, ["ovs-vsctl --no-wait {} create QoS type=x -- --all destroy QoS"], ["--id=@x", "--columns=name"]),
    (
        "ovs-ofctl(8)", "ovs-ofctl", SWITCH, ["ovs-ofctl {} dump-flows br0"],
        ["--timeout=5", "-t 5", "--strict", "--readd", "--flow-format=any", "-F any", "--packet-in-format=nxt", "-P nxt", "--more", "-m", "--timestamp", "--sort[=in_port]", "--rsort[=in_port]", "--names", "--no-names", "--stats", "--no-stats", "--unixctl=none", "--bundle", "--color[=never]", "--may-create", "--bare", "--read-only", *DAEMON, "--protocols=OpenFlow13", "-O OpenFlow13", *LOGGING, *TLS, "--bootstrap-ca-cert=ca", "--peer-ca-cert=ca"],
    ),
    ("ovs-ofctl(8)", "ovs-ofctl dump-flows br0", SWITCH, ["ovs-ofctl dump-flows {} br0"], ["--timeout=5", "--sort[=in_port]", "--strict", "-O OpenFlow13"]),
    ("ovs-ofctl(8)", "ovs-ofctl", SWITCH, ["ovs-ofctl {} add-flow br0 in_port=9,actions=drop"], ["--read-only", "--strict", "--bundle", "--may-create", "--flow-format=OpenFlow10", "--protocols=OpenFlow15"]),
    ("ovs-appctl(8)", "ovs-appctl", SWITCH, ["ovs-appctl {} ofproto/list"], ["--target=ovs-vswitchd", "-t ovs-vswitchd", "--execute", "-e", "--format=text", "-f text", "--pretty", "--timeout=5", "-T 5", *LOGGING]),
    ("ovs-appctl(8)", "ovs-appctl ofproto/list", SWITCH, ["ovs-appctl ofproto/list {}"], ["--target=ovs-vswitchd", "--pretty"]),
    ("ovs-dpctl(8)", "ovs-dpctl", (), ["ovs-dpctl {} help"], ["--statistics", "-s", "--clear", "--may-create", "--read-only", "--more", "-m", "--names", "--no-names", "--timeout=5", "-t 5", *LOGGING]),
    ("ovsdb-client(1)", "ovsdb-client", SERVER, ["ovsdb-client {} list-dbs"], [*TABLE, "--timeout=5", "-t 5", "--force", "--no-leader-only", "--leader-only", "--timestamp", *DAEMON[2:], *LOGGING, *TLS, "--bootstrap-ca-cert=ca"]),
    ("ovsdb-tool(1)", "ovsdb-tool", FILES, ["ovsdb-tool {} db-name db"], ["--more", "-m", "--rbac-role=x", "--cid=00000000-0000-4000-8000-000000000000", "--election-timer=1000", *LOGGING]),
    ("ovsdb-tool(1)", "ovsdb-tool db-name", FILES, ["ovsdb-tool db-name {} db"], ["--more", "--rbac-role=x"]),
    ("vtep-ctl(8)", "vtep-ctl", VTEP, ["vtep-ctl {} list-ls"], ["--db=unix:db.sock", "--no-syslog", "--dry-run", "--oneline", "--timeout=5", "-t 5", "--leader-only", "--no-leader-only", "--shuffle-remotes", "--no-shuffle-remotes", *TABLE, *LOGGING, *TLS, "--bootstrap-ca-cert=ca", "--peer-ca-cert=ca"]),
    # Daemons do not start with too many arguments, without a database or a connection method.
    ("ovs-vswitchd(8)", "timeout 5 ovs-vswitchd", (), ["timeout 5 ovs-vswitchd {} unix:a unix:b"], ["--enable-dummy[=override]", "--disable-system", "--disable-system-route", "--mlockall", "--hw-rawio-access", *DAEMON, *LOGGING, *TLS, "--bootstrap-ca-cert=ca", "--peer-ca-cert=ca"]),
    ("ovsdb-server(1)", "timeout 5 ovsdb-server", (), ["timeout 5 ovsdb-server {} ./missing"], ["--remote=punix:x", "--run=true", "--no-dbs", "--config-file=c", "--sync-from=tcp:127.0.0.1:1", "--sync-exclude-tables=a:b", "--active", "--disable-file-column-diff", "--disable-file-no-data-conversion", *DAEMON[2:], *LOGGING, *TLS, "--bootstrap-ca-cert=ca", "--peer-ca-cert=ca"]),
    ("ovs-testcontroller(8)", "timeout 5 ovs-testcontroller", (), ["timeout 5 ovs-testcontroller {}"], ["--hub", "-H", "--noflow", "-n", "--max-idle=5", "--normal", "-N", "--wildcards[=1]", "-w", "--mute", "--queue=5", "-q 5", "--port-queue=p1:5", "-Q p1:5", "--with-flows=/dev/null", "--protocols=OpenFlow13", "-O OpenFlow13", *DAEMON, *LOGGING, *TLS, "--bootstrap-ca-cert=ca", "--peer-ca-cert=ca"]),
]

# The peer's ovs-dpctl uses the kernel's datapath, which the test has not: only the number of arguments can be compared.
DPCTL = {"add-dp": 1, "del-dp": 1, "add-if": 2, "del-if": 2, "set-if": 2, "dump-dps": 0, "add-flow": 2, "mod-flow": 2, "get-flow": 1, "del-flow": 1, "add-flows": 1, "mod-flows": 1, "cache-set-size": 3, "parse-actions": 1, "normalize-actions": 2}
DPCTL_LINES = [f"ovs-dpctl {command}{' x' * n}" for command, least in DPCTL.items() for n in range(least)]
DPCTL_LINES += [f"ovs-dpctl {command}{' x' * 9}" for command in ("del-dp", "dump-dps", "add-flow", "mod-flow", "get-flow", "del-flow", "add-flows", "mod-flows", "del-flows", "offload-stats-show", "cache-get-size", "cache-set-size", "dump-flows", "dump-conntrack", "flush-conntrack", "ct-stats-show", "ct-bkts")]

# (manual page, command lines that start daemons, command lines)
LINES = [
    ("ovs-vsctl(8)", SERVER, ["ovs-vsctl", "ovs-vsctl --no-wait", "ovs-vsctl --no-wait --", "ovs-vsctl --no-wait -- --", "ovs-vsctl --no-wait list-br --", "ovs-vsctl --no-wait -- list-br -- -- list-br", "ovs-vsctl --no-wait no-such", "ovs-vsctl --no-wait no-such -- list-br", "ovs-vsctl --no-wait list-br list-br", "ovs-vsctl --no-wait add-br br7 -- no-such", "ovs-vsctl --no-wait add-br br7 -- add-br br7", "ovs-vsctl --no-wait add-br br7 -- del-br br8", "ovs-vsctl --no-wait -- --may-exist", "ovs-vsctl --db=nonsense: list-br", "ovs-vsctl --db= list-br", "ovs-vsctl --timeout=1 --db=unix:missing list-br", "OVS_CTL_TIMEOUT=x ovs-vsctl --no-wait list-br", "OVS_CTL_TIMEOUT=-1 ovs-vsctl --no-wait list-br"]),
    ("ovs-ofctl(8)", SWITCH, ["ovs-ofctl", "ovs-ofctl --", "ovs-ofctl no-such", "ovs-ofctl no-such br0", "ovs-ofctl show", "ovs-ofctl show br0 br0", "ovs-ofctl show nonsense:x", "ovs-ofctl show tcp:", "ovs-ofctl show tcp:127.0.0.1:x", "ovs-ofctl show tcp:127.0.0.1:99999", "ovs-ofctl show unix:", "ovs-ofctl show unix:$L300", "ovs-ofctl ping br0 65528", "ovs-ofctl ping br0 65527", "ovs-ofctl ping br0 5 5", "ovs-ofctl -O nonsense show br0", "ovs-ofctl -O OpenFlow13,nonsense show br0", "ovs-ofctl -O OpenFlow13, show br0", "ovs-ofctl -O , show br0", "ovs-ofctl -F OpenFlow10,x show br0"]),
    ("ovs-appctl(8)", SWITCH, ["ovs-appctl", "ovs-appctl --", "ovs-appctl -t", "ovs-appctl -t ovs-vswitchd", "ovs-appctl -t missing version", "ovs-appctl -t /missing version", "ovs-appctl -t ./missing.ctl version", "ovs-appctl -t '' version", "ovs-appctl -t $L300 version", "ovs-appctl -t /$L300 version", "ovs-appctl -T 0 version", "ovs-appctl -T x version", "ovs-appctl ''", "ovs-appctl $L300", "ovs-appctl $L5000", "ovs-appctl -f json --pretty list-commands extra", "echo nonsense >bad.pid; ovs-appctl -t bad version", "ovs-appctl exit --cleanup --cleanup"]),
    ("ovsdb-client(1)", SERVER, ["ovsdb-client", "ovsdb-client --", "ovsdb-client no-such", "ovsdb-client list-dbs nonsense:x", "ovsdb-client list-dbs unix:missing", "ovsdb-client list-dbs tcp:127.0.0.1:1", "ovsdb-client list-dbs tcp:127.0.0.1:x", "ovsdb-client dump nonsense", "ovsdb-client dump Bridge nonsense", "ovsdb-client dump Open_vSwitch nonsense", "ovsdb-client transact nonsense", "ovsdb-client transact '{'", "ovsdb-client transact []", "ovsdb-client transact '[\"Open_vSwitch\",5]'", "ovsdb-client transact '[\"Open_vSwitch\",{\"op\":\"x\"}]'", "ovsdb-client query '[\"nonsense\"]'"]),
    ("ovsdb-tool(1)", FILES, ["ovsdb-tool", "ovsdb-tool --", "ovsdb-tool no-such", "ovsdb-tool create db $SCHEMAS/vswitch.ovsschema", "ovsdb-tool create /missing/db $SCHEMAS/vswitch.ovsschema", "ovsdb-tool create db9 missing", "ovsdb-tool create db9 db", "ovsdb-tool db-name missing", "ovsdb-tool db-name .", "ovsdb-tool db-name $SCHEMAS/vswitch.ovsschema", "ovsdb-tool schema-name db", "ovsdb-tool schema-name missing", "ovsdb-tool compare-versions 1 '<' 2", "ovsdb-tool compare-versions 1.0.0 nonsense 1.0.0", "ovsdb-tool compare-versions x '<' y", "ovsdb-tool query db nonsense", "ovsdb-tool query db '{'", "ovsdb-tool query db []", "ovsdb-tool transact db '[\"nonsense\"]'", "ovsdb-tool transact db '[\"Open_vSwitch\",5]'"]),
    ("vtep-ctl(8)", VTEP, ["vtep-ctl", "vtep-ctl --", "vtep-ctl -- --", "vtep-ctl no-such", "vtep-ctl list-ls -- no-such", "vtep-ctl add-ls ls7 -- del-ls ls8", "vtep-ctl --db=nonsense: list-ls", "vtep-ctl --timeout=1 --db=unix:missing list-ls"]),
    ("ovs-dpctl(8)", (), ["ovs-dpctl", "ovs-dpctl --", "ovs-dpctl no-such", "ovs-dpctl ''", "ovs-dpctl $L300", "ovs-dpctl --read-only add-dp x", "ovs-dpctl add-flow x", *DPCTL_LINES]),
    ("ovs-vswitchd(8)", (), ["timeout 5 ovs-vswitchd a b", "timeout 5 ovs-vswitchd --user=missing", "timeout 5 ovs-vswitchd --user=root:missing", "timeout 5 ovs-vswitchd --user=:", "timeout 5 ovs-vswitchd --pidfile=/missing/p.pid", "timeout 5 ovs-vswitchd --unixctl=/missing/c.ctl", "timeout 5 ovs-vswitchd --detach --pidfile=/missing/p.pid", "timeout 5 ovs-vswitchd --detach --unixctl=/missing/c.ctl", "timeout 5 ovs-vswitchd --pidfile=$L300"]),
    ("ovsdb-server(1)", (), ["timeout 5 ovsdb-server", "timeout 5 ovsdb-server missing", "timeout 5 ovsdb-server $L300", "timeout 5 ovsdb-server --user=missing --no-dbs", "timeout 5 ovsdb-server --no-dbs --pidfile=/missing/p.pid", "timeout 5 ovsdb-server --no-dbs --unixctl=/missing/c.ctl", "timeout 5 ovsdb-server --no-dbs --detach --unixctl=/missing/c.ctl", "timeout 5 ovsdb-server --no-dbs --remote=nonsense:x --run=true", "timeout 5 ovsdb-server --no-dbs --remote=db:x --run=true", "timeout 5 ovsdb-server --no-dbs --remote=db:x,y,z --run=true", "timeout 5 ovsdb-server --no-dbs --remote= --run=true", "timeout 5 ovsdb-server --no-dbs --remote=ptcp:x --run=true", "timeout 5 ovsdb-server --no-dbs --remote=ptcp:99999 --run=true", "timeout 5 ovsdb-server --no-dbs --run=false", "timeout 5 ovsdb-server --no-dbs --sync-from=x --sync-exclude-tables=nonsense --run=true", "timeout 5 ovsdb-server --no-dbs --active --run=true", "timeout 5 ovsdb-server --config-file=missing --run=true", "timeout 5 ovsdb-server --config-file=missing db"]),
    ("ovs-testcontroller(8)", (), ["timeout 5 ovs-testcontroller", "timeout 5 ovs-testcontroller nonsense", "timeout 5 ovs-testcontroller nonsense:x", "timeout 5 ovs-testcontroller ''", "timeout 5 ovs-testcontroller ptcp:x", "timeout 5 ovs-testcontroller ptcp:99999", "timeout 5 ovs-testcontroller punix:/missing/x", "timeout 5 ovs-testcontroller punix:$L300", "timeout 5 ovs-testcontroller --user=missing punix:x", "timeout 5 ovs-testcontroller --pidfile=/missing/p.pid punix:x", "timeout 5 ovs-testcontroller --unixctl=/missing/c.ctl punix:x", "timeout 5 ovs-testcontroller --with-flows=missing punix:x", "timeout 5 ovs-testcontroller --queue=x punix:x", "timeout 5 ovs-testcontroller -Q p1:5 -Q p1:6 punix:x"]),
]

# Command lines that would not end, or whose result is by chance.
LEFT_OUT = {
    # The peer's server crashes.
    "ovs-appctl -t ovsdb-server ovsdb-server/set-sync-exclude-tables",
    # The peer aborts.
    "timeout 0.5 ovsdb-client monitor-cond-since unix:db.sock Open_vSwitch 00000000-0000-0000-0000-000000000000 '[]'",
    # The peer waits for a lock that the server refuses, and for a server that it cannot connect to.
    *(f"timeout 0.5 ovsdb-client {command} unix:db.sock" for command in ("lock", "steal")),
    *(f"timeout 0.5 ovsdb-client wait {server} Open_vSwitch added" for server in ("nonsense", "$L300")),
    # They start, and run until they are ended.
    *(f"timeout 5 ovs-vswitchd {option}" for option in ("--verbose", "-v", "--user=:")),
    "timeout 5 ovs-testcontroller --queue=x punix:x",
    # It would take hours.
    *(f"ovs-ofctl -O OpenFlow13 -t1 benchmark br0 10 {count}" for count in ("99999999999", "$D30")),
}
