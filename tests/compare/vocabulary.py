"""What generated.py makes scenarios of: fields and actions with values, commands with arguments, tables of the database."""

# (section of ovs-fields(7), prerequisites, [(field, values, values that are wrong)])
MAC = (["00:11:22:33:44:55", "00:11:00:00:00:00/ff:ff:00:00:00:00", "01:00:00:00:00:00/01:00:00:00:00:00"], ["5", "00:11:22:33:44", "00:11:22:33:44:55:66", "gg:11:22:33:44:55"])
IP4 = (["10.0.0.1", "10.0.0.0/8", "10.0.0.0/255.0.255.0"], ["10.0.0", "10.0.0.256", "10.0.0.1/33", "2001:db8::1"])
IP6 = (["2001:db8::1", "2001:db8::/32", "::1/::ff"], ["10.0.0.1", "2001:db8:::1", "2001:db8::1/129"])
U8 = (["0", "5", "255"], ["256", "-1", "x", "5/3"])
U8_MASK = (["0", "5", "255", "0x10/0xf0"], ["256", "-1", "x"])
U16 = (["0", "80", "0xffff", "0x10/0xf0"], ["65536", "-1", "x"])
U32 = (["0", "80", "0xffffffff", "0x10/0xf0"], ["4294967296", "-1", "x"])
U64 = (["0", "80", "0xffffffffffffffff", "0x10/0xf0"], ["0x10000000000000000", "-1", "x"])
U128 = (["0", "80", "0x112233445566778899aabbccddeeff00", "0x10/0xf0"], ["0x1112233445566778899aabbccddeeff001", "-1", "x"])
PORT = (["1", "LOCAL", "IN_PORT", "65535"], ["nonsense", "-1", "65536/1"])


def of(kind, *names):
    return [(name, *kind) for name in names]


FIELDS = [
    ("CONJUNCTIVE MATCH FIELDS", "", of((["0", "7", "0xffffffff"], ["1/3", "x"]), "conj_id")),
    (
        "TUNNEL FIELDS",
        "",
        of(U64, "tun_id", "tunnel_id")
        + of(IP4, "tun_src", "tun_dst")
        + of(IP6, "tun_ipv6_src", "tun_ipv6_dst")
        + of((["csum", "+df-csum", "oam", "0", "-key"], ["nonsense", "+x"]), "tun_flags"),
    ),
    ("VXLAN Group-Based Policy Fields", "", of(U16, "tun_gbp_id") + of(U8_MASK, "tun_gbp_flags")),
    (
        "ERSPAN Metadata Fields",
        "",
        of((["1", "2", "15"], ["16", "x"]), "tun_erspan_ver")
        + of((["0", "5", "0xfffff", "1/3"], ["0x100000", "x"]), "tun_erspan_idx")
        + of((["0", "1"], ["2", "x"]), "tun_erspan_dir")
        + of((["0", "63"], ["64", "x"]), "tun_erspan_hwid"),
    ),
    ("GTP-U Metadata Fields", "", of(U8_MASK, "tun_gtpu_flags", "tun_gtpu_msgtype")),
    ("Geneve Fields", "", of((["0x1234", "0x12/0xff", "0"], ["x", "1/"]), "tun_metadata0", "tun_metadata5", "tun_metadata63")),
    (
        "METADATA FIELDS",
        "",
        of(PORT, "in_port")
        + of((["1", "0xffff0001"], ["x"]), "in_port_oxm")
        + of((["0", "5"], ["x"]), "skb_priority")
        + of(U32, "pkt_mark")
        + of(U64, "metadata")
        + of((["1", "5"], ["x"]), "actset_output")
        + of((["(0,0)", "(1,0x800)", "(1,0x8847)"], ["5", "(0,0", "(2,0)"]), "packet_type")
        + of((["0x5", "0x1/0x3"], ["x"]), "dp_hash")
        + of((["0", "0x5"], ["x", "1/3"]), "recirc_id"),
    ),
    (
        "CONNECTION TRACKING FIELDS",
        "ct_state=+trk,ip",
        of((["+trk", "+trk+est-new", "0x21/0x21", "-trk"], ["+x", "trk", "+trk-trk", "0x1000"]), "ct_state")
        + of(U16, "ct_zone")
        + of(U32, "ct_mark")
        + of(U128, "ct_label")
        + of(IP4, "ct_nw_src", "ct_nw_dst")
        + of(U8, "ct_nw_proto"),
    ),
    ("CONNECTION TRACKING FIELDS", "ct_state=+trk,ipv6", of(IP6, "ct_ipv6_src", "ct_ipv6_dst")),
    ("CONNECTION TRACKING FIELDS", "ct_state=+trk,ct_nw_proto=6,ip", of(U16, "ct_tp_src", "ct_tp_dst")),
    ("REGISTER FIELDS", "", of(U32, *(f"reg{n}" for n in range(32)))),
    ("REGISTER FIELDS", "", of(U64, *(f"xreg{n}" for n in range(16)))),
    ("REGISTER FIELDS", "", of(U128, *(f"xxreg{n}" for n in range(8)))),
    (
        "LAYER 2 (ETHERNET) FIELDS",
        "",
        of(MAC, "eth_src", "eth_dst", "dl_src", "dl_dst")
        + of((["0x800", "0x1234", "5", "0x5ff"], ["65536", "x", "1/1"]), "eth_type", "dl_type"),
    ),
    ("VLAN FIELDS", "", of((["0", "5", "4095"], ["4096", "x", "5/1"]), "dl_vlan") + of((["0", "7"], ["8", "x"]), "dl_vlan_pcp")),
    ("OpenFlow 1.2 VLAN Fields", "", of((["0x1005", "0", "0x1000/0x1000"], ["x", "65536"]), "vlan_vid")),
    ("OpenFlow 1.2 VLAN Fields", "vlan_vid=0x1000/0x1000", of((["0", "7"], ["8", "x"]), "vlan_pcp")),
    ("Open vSwitch Extension VLAN Field", "", of((["0", "0x1005", "0x1000/0x1000", "0xf005/0xffff"], ["x", "65536"]), "vlan_tci")),
    (
        "LAYER 2.5: MPLS FIELDS",
        "mpls",
        of((["0", "1048575"], ["1048576", "x"]), "mpls_label")
        + of((["0", "7"], ["8", "x"]), "mpls_tc")
        + of((["0", "1"], ["2", "x"]), "mpls_bos")
        + of(U8, "mpls_ttl"),
    ),
    ("IPv4 Specific Fields", "ip", of(IP4, "ip_src", "ip_dst", "nw_src", "nw_dst")),
    ("IPv6 Specific Fields", "ipv6", of(IP6, "ipv6_src", "ipv6_dst") + of((["0", "0xfffff", "1/1"], ["0x100000", "x"]), "ipv6_label")),
    (
        "IPv4/IPv6 Fields",
        "ip",
        of(U8, "nw_proto", "ip_proto", "nw_ttl") + of((["no", "yes", "first", "later", "not_later"], ["maybe", "5"]), "ip_frag", "nw_frag"),
    ),
    ("IPv4/IPv6 Fields", "ipv6", of(U8, "nw_proto", "ip_proto", "nw_ttl") + of((["no", "later"], ["maybe"]), "ip_frag")),
    (
        "IPv4/IPv6 TOS Fields",
        "ip",
        of((["0", "32", "252"], ["1", "256", "x"]), "nw_tos") + of((["0", "63"], ["64", "x"]), "ip_dscp") + of((["0", "3"], ["4", "x"]), "nw_ecn", "ip_ecn"),
    ),
    ("LAYER 3: ARP FIELDS", "arp", of((["1", "2", "255"], ["65536", "x"]), "arp_op") + of(IP4, "arp_spa", "arp_tpa") + of(MAC, "arp_sha", "arp_tha")),
    (
        "LAYER 3: NSH FIELDS",
        "dl_type=0x894f",
        of(U8_MASK, "nsh_flags")
        + of((["0", "63"], ["64", "x"]), "nsh_ttl")
        + of(U8, "nsh_mdtype", "nsh_np")
        + of((["0x123456", "0"], ["0x1000000", "x"]), "nsh_spi")
        + of(U8, "nsh_si")
        + of(U32, "nsh_c1", "nsh_c2", "nsh_c3", "nsh_c4"),
    ),
    ("TCP", "tcp", of(U16, "tcp_src", "tcp_dst", "tp_src", "tp_dst") + of((["+syn", "+syn-ack", "0x2/0x12", "0"], ["+x", "syn+", "0x1000"]), "tcp_flags")),
    ("TCP", "tcp6", of(U16, "tcp_src", "tcp_dst")),
    ("UDP", "udp", of(U16, "udp_src", "udp_dst", "tp_src", "tp_dst")),
    ("UDP", "udp6", of(U16, "udp_src", "udp_dst")),
    ("SCTP", "sctp", of(U16, "sctp_src", "sctp_dst", "tp_src")),
    ("ICMPv4", "icmp", of(U8, "icmp_type", "icmp_code")),
    ("ICMPv6", "icmp6", of(U8, "icmpv6_type", "icmpv6_code", "icmp_type")),
    ("ICMPv6 Neighbor Discovery", "icmp6,icmpv6_type=135,icmpv6_code=0", of(IP6, "nd_target") + of(MAC, "nd_sll")),
    (
        "ICMPv6 Neighbor Discovery",
        "icmp6,icmpv6_type=136,icmpv6_code=0",
        of(MAC, "nd_tll") + of(U8, "nd_options_type") + of(U32, "nd_reserved"),
    ),
]

# (section of ovs-actions(7), [text or (prerequisites, text)])
ACTIONS = [
    ("The output action", ["5", "output:5", "output:LOCAL", "output:reg0[0..15]", "output:reg0", "output(port=5,max_len=100)", "output(port=5)", "output:", "output:nonsense", "output:65536", "output(port=5,max_len=5)", "all", "flood", "local", "in_port", "drop", "drop,5", "5,drop"]),
    ("Output to the Input Port", ["in_port", "output:in_port", "output:65528", "load:0->in_port[],output:1"]),
    ("The OVS Normal Pipeline", ["normal", "output:normal", "NORMAL", "normal:5"]),
    ("The controller action", ["controller", "controller:100", "controller()", "controller(max_len=100,reason=no_match,id=5)", "controller(userdata=01.02.ff)", "controller(userdata=)", "controller(pause)", "controller(meter_id=5)", "controller(reason=x)", "controller(nonsense=1)", "controller(max_len=x)", "controller:x", "controller(userdata=0g)", "controller(reason=invalid_ttl,pause,userdata=00)"]),
    ("The enqueue action", ["enqueue:1:2", "enqueue(1,2)", "enqueue:1", "enqueue:x:1", "enqueue:1:x", "enqueue", "enqueue:1:2:3"]),
    ("The bundle and bundle_load actions", ["bundle(eth_src,0,hrw,ofport,members:1,2)", "bundle(eth_src,0,hrw,ofport,members:[1,2])", "bundle(symmetric_l4,60,active_backup,ofport,members:)", "bundle_load(nw_src,0,hrw,ofport,reg0[],members:4,5)", "bundle(x,0,hrw,ofport,members:1)", "bundle(eth_src,0,x,ofport,members:1)", "bundle(eth_src,0,hrw,x,members:1)", "bundle(eth_src,0,hrw,ofport,robot:1)", "bundle(eth_src,0)", "bundle_load(eth_src,0,hrw,ofport,x[],members:1)", "bundle(symmetric_l3l4,0,hrw,ofport,slaves:1,2)", "bundle(nw_dst,65535,active_backup,ofport,members:xyzzy)"]),
    ("The group action", ["group:5", "group:x", "group", "group:4294967295", "group:0xffffff00"]),
    ("The strip_vlan and pop actions", ["strip_vlan", "pop_vlan", "strip_vlan:5", ("vlan_tci=0x1000/0x1000", "pop_vlan,output:1")]),
    ("The push_vlan action", ["push_vlan:0x8100", "push_vlan:0x88a8", "push_vlan:0x1234", "push_vlan", "push_vlan:x", "push_vlan:0x8100,set_field:5->vlan_vid", "mod_vlan_vid:5", "mod_vlan_vid:4096", "mod_vlan_pcp:5", "mod_vlan_pcp:8", "set_vlan_vid:5", "set_vlan_pcp:3", "push_vlan:0x8100,push_vlan:0x88a8,output:1"]),
    ("The push_mpls action", ["push_mpls:0x8847", "push_mpls:0x8848", "push_mpls:0x1234", "push_mpls", ("ip", "push_mpls:0x8847,set_mpls_label:5,output:1")]),
    ("The pop_mpls action", [("mpls", "pop_mpls:0x0800"), ("mpls", "pop_mpls:0x8847"), "pop_mpls:0x0800", ("mpls", "pop_mpls"), ("mpls", "pop_mpls:x")]),
    ("The encap action", ["encap(ethernet)", "encap(nsh(md_type=1))", "encap(nsh(md_type=2,tlv(0x1000,10,0x12345678)))", "encap(nsh(md_type=3))", "encap(mpls)", "encap(mpls(ether_type=0x8847))", "encap(x)", "encap()", "encap(nsh)"]),
    ("The decap action", ["decap", "decap()", "decap(packet_type(ns=0,type=0))", "decap(packet_type(ns=1,type=0x894f))", "decap(x)"]),
    ("The set_field and load actions", ["set_field:5->reg0", "set_field:0x10/0xf0->reg0", "set_field:5->reg0[0..3]", "set_field:00:11:22:33:44:55->eth_src", ("ip", "set_field:10.0.0.1->ip_src"), "set_field:10.0.0.1->ip_src", "set_field:5", "set_field:5->", "set_field:->reg0", "set_field:5->x", "load:5->reg0[]", "load:0xf->reg0[0..2]", "load:5->reg0[5..40]", "load:5->reg0[5", "load:x->reg0[]", "load:5->", "set_field:5->in_port", "set_field:5->eth_type", ("tcp", "set_field:80->tcp_dst"), ("udp", "set_field:80->tcp_dst"), "load:0x1->NXM_NX_REG0[0]", "set_field:0xffff->tun_id"]),
    ("The move action", ["move:reg0[]->reg1[]", "move:reg0[0..15]->reg1[16..31]", "move:reg0[0..15]->reg1[]", "move:NXM_OF_ETH_SRC[]->NXM_OF_ETH_DST[]", "move:reg0", "move:x[]->reg0[]", "move:reg0[]->in_port[]", "move:eth_type[]->reg0[0..15]", "move:reg0[]->eth_type[]", "move:reg0[0..100]->reg1[]"]),
    ("The mod_dl_src and mod_dl_dst actions", ["mod_dl_src:00:11:22:33:44:55", "mod_dl_dst:00:11:22:33:44:55", "mod_dl_src", "mod_dl_src:5", "mod_dl_dst:00:11:22:33:44"]),
    ("The mod_nw_src and mod_nw_dst actions", ["mod_nw_src:10.0.0.1", ("ip", "mod_nw_src:10.0.0.1"), ("ip", "mod_nw_dst:10.0.0.1"), ("ip", "mod_nw_src:x"), ("ip", "mod_nw_dst:10.0.0.0/8"), ("ipv6", "mod_nw_src:10.0.0.1")]),
    ("The mod_nw_tos and mod_nw_ecn actions", [("ip", "mod_nw_tos:4"), ("ip", "mod_nw_tos:5"), ("ip", "mod_nw_ecn:2"), ("ip", "mod_nw_ecn:4"), ("ip", "mod_nw_ttl:5"), ("ip", "mod_nw_ttl:256"), "mod_nw_tos:4"]),
    ("The mod_tp_src and mod_tp_dst actions", [("tcp", "mod_tp_src:5"), ("udp", "mod_tp_dst:5"), ("tcp", "mod_tp_src:65536"), ("ip", "mod_tp_src:5"), "mod_tp_dst:5"]),
    ("The dec_ttl action", [("ip", "dec_ttl"), ("ip", "dec_ttl(1,2)"), ("ip", "dec_ttl()"), ("ip", "dec_ttl(,)"), ("ip", "dec_ttl(x)"), "dec_ttl", ("ip", "dec_ttl(65536)")]),
    ("The set_mpls_label, set_mpls_tc, and set_mpls_ttl actions", [("mpls", "set_mpls_label:5"), ("mpls", "set_mpls_tc:5"), ("mpls", "set_mpls_ttl:5"), ("mpls", "set_mpls_label:1048576"), ("mpls", "set_mpls_tc:8"), "set_mpls_ttl:5"]),
    ("The dec_mpls_ttl and dec_nsh_ttl actions", [("mpls", "dec_mpls_ttl"), ("dl_type=0x894f", "dec_nsh_ttl"), "dec_mpls_ttl", "dec_nsh_ttl"]),
    ("The check_pkt_larger action", ["check_pkt_larger(100)->reg0[0]", "check_pkt_larger(100)->reg0[]", "check_pkt_larger(x)->reg0[0]", "check_pkt_larger->reg0[0]", "check_pkt_larger(65536)->reg0[0]", "check_pkt_larger(100)"]),
    ("The delete_field action", ["delete_field:tun_metadata0", "delete_field:reg0", "delete_field:x", "delete_field"]),
    ("The set_tunnel action", ["set_tunnel:5", "set_tunnel64:5", "set_tunnel:0x100000000", "set_tunnel:x", "set_tunnel"]),
    ("The set_queue and pop_queue actions", ["set_queue:5", "pop_queue", "set_queue:x", "pop_queue:5", "set_queue"]),
    ("The ct action", ["ct", "ct()", "ct(commit)", "ct(commit,zone=5,table=1)", "ct(zone=reg0[0..15])", "ct(zone=65536)", "ct(commit,force)", "ct(force)", "ct(commit,exec(set_field:1->ct_mark))", "ct(commit,exec(set_field:1->reg0))", "ct(exec(set_field:1->ct_mark))", "ct(commit,nat(src=10.0.0.1))", "ct(commit,nat(src=10.0.0.1-10.0.0.9:1-100,random))", "ct(commit,nat(dst=[2001:db8::1]:80,persistent,hash))", "ct(nat)", "ct(nat(src=10.0.0.1))", "ct(commit,nat(x))", "ct(commit,alg=ftp)", "ct(commit,alg=x)", "ct(table=x)", "ct(nonsense)", "ct(commit,nat(src=10.0.0.9-10.0.0.1))", "ct(commit,timeout=5)"]),
    ("The ct_clear action", ["ct_clear", "ct_clear:5", "ct_clear,output:1"]),
    ("The learn action", ["learn()", "learn(table=1,dl_vlan=5)", "learn(table=1,idle_timeout=5,hard_timeout=6,priority=7,cookie=8,send_flow_rem,delete_learned,limit=9,result_dst=reg0[0],eth_dst=eth_src,output:in_port)", "learn(table=1,NXM_OF_VLAN_TCI[0..11],NXM_OF_ETH_DST[]=NXM_OF_ETH_SRC[],load:NXM_OF_VLAN_TCI[]->NXM_OF_VLAN_TCI[],output:NXM_OF_IN_PORT[])", "learn(load:->)", "learn(load:1x->foo)", "learn(table=255)", "learn(table=x)", "learn(nonsense=5)", "learn(output:x)", "learn(fin_idle_timeout=5,fin_hard_timeout=6,reg0=5)", "learn(reg0=reg1[0..15])", "learn(priority=65536)", "learn(limit=x)", "learn(result_dst=reg0[])"]),
    ("The fin_timeout action", [("tcp", "fin_timeout(idle_timeout=5,hard_timeout=6)"), "fin_timeout(idle_timeout=5)", ("tcp", "fin_timeout()"), ("tcp", "fin_timeout(x=5)"), ("tcp", "fin_timeout(idle_timeout=65536)")]),
    ("The resubmit action", ["resubmit:5", "resubmit(5)", "resubmit(,1)", "resubmit(5,1)", "resubmit(,1,ct)", "resubmit()", "resubmit(,255)", "resubmit(,256)", "resubmit(x,1)", "resubmit(,x)", "resubmit", "resubmit(1,2,3)"]),
    ("The clone action", ["clone(output:1)", "clone()", "clone(clone(clone(1)))", "clone(x)", "clone(1", "clone(set_field:5->reg0,resubmit(,1)),2"]),
    ("The push and pop actions", ["push:reg0[]", "pop:reg0[]", "push:reg0[0..15],pop:reg1[16..31]", "push:x[]", "pop:eth_type[]", "push"]),
    ("The exit action", ["exit", "exit,output:1", "output:1,exit", "exit:5"]),
    ("The multipath action", ["multipath(eth_src,50,modulo_n,1,0,reg0[])", "multipath(symmetric_l4,0,hash_threshold,5,0,reg0[0..7])", "multipath(x,0,modulo_n,1,0,reg0[])", "multipath(eth_src,0,x,1,0,reg0[])", "multipath(eth_src,0,modulo_n,0,0,reg0[])", "multipath(eth_src,0,modulo_n,1,0)", "multipath(eth_src,0,modulo_n,65537,0,reg0[])", "multipath(nw_src,0,iter_hash,10,0,reg0[0..1])", "multipath(symmetric_l3l4+udp,0,hrw,10,0,reg0[0..7])"]),
    ("The conjunction action", ["conjunction(1,1/2)", "conjunction(1,1/2),conjunction(2,2/3)", "conjunction(1,3/2)", "conjunction(1,1/1)", "conjunction(1,1/65)", "conjunction(x,1/2)", "conjunction(1)", "conjunction(1,1/2),output:1", "conjunction(1,1/2),note:1"]),
    ("The note action", ["note:11.22.33", "note:", "note", "note:x", "note:11.22.33.44.55.66.77", "note:1"]),
    ("The sample action", ["sample(probability=12345,collector_set_id=1)", "sample(probability=12345,collector_set_id=1,obs_domain_id=2,obs_point_id=3,sampling_port=4,ingress)", "sample(probability=1,collector_set_id=1,obs_domain_id=reg3[],obs_point_id=NXM_NX_CT_MARK[])", "sample(probability=0,collector_set_id=1)", "sample(probability=65536)", "sample()", "sample(probability=1,collector_set_id=1,egress)", "sample(probability=1,obs_domain_id=xreg0[0..35])", "sample(x=1)"]),
    ("The meter action and instruction", ["meter:5", "meter:5,output:1", "output:1,meter:5", "meter:x", "meter:0", "meter"]),
    ("The clear_actions instruction", ["clear_actions", "clear_actions,output:1", "output:1,clear_actions", "clear_actions:5"]),
    ("The write_actions instruction", ["write_actions(output:1)", "write_actions(drop)", "write_actions()", "write_actions(set_field:5->reg0,output:1),goto_table:1", "write_actions(write_actions(1))", "write_actions(resubmit:1)", "write_actions(group:1,output:2)", "goto_table:1,write_actions(1)"]),
    ("The write_metadata instruction", ["write_metadata:5", "write_metadata:5/0xf", "write_metadata:x", "write_metadata", "write_metadata:0x10000000000000000", "write_metadata:1,goto_table:1"]),
    ("The goto_table instruction", ["goto_table:1", "goto_table:255", "goto_table:256", "goto_table:x", "goto_table", "goto_table:1,output:1", "output:1,goto_table:1"]),
    ("Field Specifications", ["move:reg0[3]->reg1[4]", "move:reg0[3..3]->reg1[4]", "move:reg0[4..3]->reg1[]", "load:1->reg0[31]", "load:1->reg0[32]", "move:NXM_NX_REG0[]->NXM_NX_REG1[]", "move:OXM_OF_METADATA[0..31]->reg1[]", "move:reg0[ 1 ]->reg1[1]"]),
    ("Port Specifications", ["output:1", "output:65279", "output:65280", "output:65528", "output:0xfff8", "output:0xfffffff8", "output:CONTROLLER", "output:TABLE", "output:ANY", "output:NONE", "output:UNSET"]),
    ("Action Sets", ["write_actions(pop_vlan,push_mpls:0x8847,push_vlan:0x8100,dec_ttl,set_field:5->reg0,group:1,output:1)", "write_actions(output:1,output:2)", "write_actions(strip_vlan)"]),
    ("Error Handling", ["output:1,nonsense", "nonsense(1)", "output:1,,output:2", ",output:1", "output:1,", "output:1 output:2", "(output:1)", "output:1)"]),
]

# Commands with right arguments. (section, program, command lines before, commands)
SWITCH = ("switch && bridge",)
OFCTL = "ovs-ofctl -O OpenFlow13"
COMMANDS = [
    (
        "ovs-vsctl(8): Open vSwitch Commands", "ovs-vsctl", ("switch && bridge",),
        ["init", "show", "emer-reset"],
    ),
    (
        "ovs-vsctl(8): Bridge Commands", "ovs-vsctl", ("switch && bridge",),
        ["add-br br1", "add-br br1 br0 5", "--may-exist add-br br0", "del-br br0", "--if-exists del-br br9", "list-br", "br-exists br0", "br-to-vlan br0", "br-to-parent br0", "br-set-external-id br0 k v", "br-get-external-id br0 k", "br-get-external-id br0"],
    ),
    (
        "ovs-vsctl(8): Port Commands", "ovs-vsctl", ("switch && bridge",),
        ["list-ports br0", "add-port br0 p9", "--may-exist add-port br0 p1", "del-port br0 p1", "del-port p1", "--if-exists del-port br0 p9", "--with-iface del-port p1", "port-to-br p1"],
    ),
    ("ovs-vsctl(8): Bond Commands", "ovs-vsctl", ("switch && bridge",), ["add-bond br0 b0 p8 p9", "--fake-iface add-bond br0 b0 p8 p9", "add-bond-iface b0 p7", "del-bond-iface b0 p7"]),
    ("ovs-vsctl(8): Interface Commands", "ovs-vsctl", ("switch && bridge",), ["list-ifaces br0", "iface-to-br p1"]),
    (
        "ovs-vsctl(8): Conntrack Zone Commands", "ovs-vsctl", ("server && ovs-vsctl --no-wait init -- --id=@d create Datapath datapath_version=0 -- set Open_vSwitch . datapaths:netdev=@d",),
        ["--no-wait add-zone-tp netdev zone=5 icmp_first=1 icmp_reply=2", "--no-wait del-zone-tp netdev zone=5", "--no-wait list-zone-tp netdev", "--no-wait set-zone-limit netdev 5 6", "--no-wait set-zone-limit netdev default 6", "--no-wait del-zone-limit netdev 5", "--no-wait list-zone-limits netdev"],
    ),
    ("ovs-vsctl(8): Datapath Capabilities Command", "ovs-vsctl", ("switch && bridge",), ["list-dp-cap dummy", "list-dp-cap netdev"]),
    ("ovs-vsctl(8): OpenFlow Controller Connectivity", "ovs-vsctl", ("switch && bridge",), ["get-controller br0", "set-controller br0 tcp:127.0.0.1:1", "del-controller br0"]),
    ("ovs-vsctl(8): Controller Failure Settings", "ovs-vsctl", ("switch && bridge",), ["get-fail-mode br0", "set-fail-mode br0 standalone", "del-fail-mode br0"]),
    ("ovs-vsctl(8): Manager Connectivity", "ovs-vsctl", ("switch && bridge",), ["get-manager", "set-manager ptcp:1:127.0.0.1", "del-manager"]),
    ("ovs-vsctl(8): SSL/TLS Configuration", "ovs-vsctl", ("switch && bridge",), ["get-ssl", "set-ssl a b c", "--bootstrap set-ssl a b c", "del-ssl"]),
    ("ovs-vsctl(8): Auto-Attach Commands", "ovs-vsctl", ("switch && bridge",), ["add-aa-mapping br0 5 6", "del-aa-mapping br0 5 6", "get-aa-mapping br0"]),
    (
        "ovs-vsctl(8): Database Commands", "ovs-vsctl --no-wait", ("server && ovs-vsctl --no-wait init -- add-br br0",),
        ["list Bridge br0", "list Bridge", "find Bridge name=br0", "get Bridge br0 name", "get Bridge br0 other_config:k", "--if-exists get Bridge br0 other_config:k", "set Bridge br0 fail_mode=secure", "add Bridge br0 external_ids k=v", "remove Bridge br0 external_ids k", "clear Bridge br0 fail_mode", "create QoS type=x", "destroy Bridge br0", "--if-exists destroy Bridge br9", "--all destroy QoS", "wait-until Bridge br0 name=br0", "comment hello"],
    ),
    (
        "ovs-ofctl(8): OpenFlow Switch Management Commands", OFCTL, SWITCH,
        ["show br0", "dump-tables br0", "dump-table-features br0", "dump-table-desc br0", "mod-table br0 0 drop", "dump-ports br0 1", "dump-ports-desc br0 1", "mod-port br0 p1 down", "get-frags br0", "set-frags br0 drop", "dump-ipfix-bridge br0", "dump-ipfix-flow br0", "queue-stats br0 1 1", "queue-get-config br0 1", "probe br0", "ping br0 10"],
    ),
    (
        "ovs-ofctl(8): OpenFlow Switch Flow Table Commands", OFCTL, (*SWITCH, "ovs-ofctl add-flow br0 in_port=1,actions=2"),
        ["dump-flows br0 in_port=1", "dump-aggregate br0 in_port=1", "add-flow br0 in_port=3,actions=1", "mod-flows br0 in_port=1,actions=3", "--strict mod-flows br0 in_port=1,actions=3", "del-flows br0 in_port=1", "--strict del-flows br0 in_port=1", "diff-flows br0 br0", "packet-out br0 in_port=1,packet=001122334455667788990011,actions=2", "--no-stats dump-flows br0", "--sort dump-flows br0"],
    ),
    (
        "ovs-ofctl(8): Group Table Commands", OFCTL, (*SWITCH, "ovs-ofctl -O OpenFlow13 add-group br0 group_id=1,type=all,bucket=output:1"),
        ["dump-groups br0 1", "dump-group-features br0", "dump-group-stats br0 1", "add-group br0 group_id=2,type=all,bucket=output:2", "mod-group br0 group_id=1,type=select,bucket=output:2", "--may-create mod-group br0 group_id=3,type=select,bucket=output:2", "del-groups br0 group_id=1", "insert-buckets br0 group_id=1,command_bucket_id=first,bucket=bucket_id:9,output:3", "remove-buckets br0 group_id=1,command_bucket_id=all"],
    ),
    (
        "ovs-ofctl(8): OpenFlow 1.3+ Switch Meter Table Commands", OFCTL, (*SWITCH, "ovs-ofctl -O OpenFlow13 add-meter br0 meter=1,pktps,band=type=drop,rate=5"),
        ["add-meter br0 meter=2,kbps,band=type=drop,rate=5", "mod-meter br0 meter=1,kbps,band=type=drop,rate=6", "del-meters br0 meter=1", "del-meter br0 meter=1", "dump-meters br0 meter=1", "meter-stats br0 meter=1", "meter-features br0"],
    ),
    (
        "ovs-ofctl(8): OpenFlow Switch Tunnel TLV Table Commands", OFCTL, SWITCH,
        ["add-tlv-map br0 {class=0xffff,type=0,len=4}->tun_metadata0", "del-tlv-map br0 {class=0xffff,type=0,len=4}->tun_metadata0", "del-tlv-map br0", "dump-tlv-map br0"],
    ),
    ("ovs-ofctl(8): Other Commands", OFCTL, SWITCH, ["ofp-print 0400000800000001", "parse-ofp11-match 0000", "parse-actions OpenFlow10", "ct-flush-zone br0 5", "ct-flush br0 zone=5", "ct-flush br0 zone=5 ct_nw_src=10.0.0.1,ct_nw_proto=6"]),
    ("ovs-vswitchd(8): GENERAL COMMANDS", "ovs-appctl", SWITCH, ["qos/show-types p1", "qos/show p1", "cfm/show p1", "bfd/show p1", "stp/show br0", "rstp/show br0", "mdb/show br0", "mdb/flush br0"]),
    ("ovs-vswitchd(8): BRIDGE COMMANDS", "ovs-appctl", SWITCH, ["fdb/add br0 p1 0 00:11:22:33:44:55", "fdb/del br0 0 00:11:22:33:44:55", "fdb/flush br0", "fdb/show br0", "fdb/stats-show br0", "fdb/stats-clear br0", "bridge/reconnect br0", "bridge/dump-flows br0"]),
    ("ovs-vswitchd(8): BOND COMMANDS", "ovs-appctl", SWITCH, ["bond/list", "bond/show b0", "lacp/show b0", "lacp/show-stats b0", "bond/hash 00:11:22:33:44:55 5 6"]),
    (
        "ovs-vswitchd(8): DPCTL DATAPATH DEBUGGING COMMANDS", "ovs-appctl", SWITCH,
        ["dpctl/dump-dps", "dpctl/show", "dpctl/show dummy@ovs-dummy", "dpctl/get-flow ufid:00000000-0000-0000-0000-000000000000", "dpctl/del-flows", "dpctl/dump-flows", "dpctl/dump-flows type=all"],
    ),
    (
        "ovs-vswitchd(8): DATAPATH FLOW TABLE DEBUGGING COMMANDS", "ovs-appctl", SWITCH,
        ["dpctl/add-flow in_port(1),eth(),eth_type(0x1234) 2", "dpctl/mod-flow in_port(1),eth(),eth_type(0x1234) 3", "dpctl/del-flow in_port(1),eth(),eth_type(0x1234)", "dpctl/get-flow x", "dpctl/normalize-actions in_port(1) 1"],
    ),
    ("ovs-vswitchd(8): DATAPATH FLOW CACHE COMMANDS", "ovs-appctl", SWITCH, ["dpctl/cache-get-size", "dpctl/cache-set-size dummy@ovs-dummy cache 5"]),
    (
        "ovs-vswitchd(8): CONNECTION TRACKING TABLE COMMANDS", "ovs-appctl", SWITCH,
        ["dpctl/dump-conntrack", "dpctl/flush-conntrack", "dpctl/ct-stats-show", "dpctl/ct-bkts", "dpctl/ct-set-maxconns 5", "dpctl/ct-get-maxconns", "dpctl/ct-get-nconns", "dpctl/ct-set-limits default=5", "dpctl/ct-del-limits zone=5", "dpctl/ct-get-limits"],
    ),
    ("ovs-vswitchd(8): DPIF-NETDEV COMMANDS", "ovs-appctl", SWITCH, ["dpif-netdev/pmd-rxq-show", "dpif-netdev/pmd-rxq-rebalance", "dpif-netdev/bond-show", "dpif-netdev/miniflow-parser-get"]),
    ("ovs-vswitchd(8): DATAPATH DEBUGGING COMMANDS", "ovs-appctl", SWITCH, ["dpif/dump-dps", "dpif/show", "dpif/dump-flows br0", "dpif/show-dp-features br0", "upcall/show", "revalidator/wait", "revalidator/purge", "upcall/set-flow-limit 500", "upcall/disable-megaflows", "upcall/enable-megaflows", "upcall/disable-ufid", "upcall/enable-ufid"]),
    ("ovs-vswitchd(8): OFPROTO COMMANDS", "ovs-appctl", SWITCH, ["ofproto/list", "ofproto/trace br0 in_port=1", "ofproto/trace br0 in_port=1 -generate", "ofproto/trace-packet-out br0 in_port=1 2", "ofproto/detrace ufid:00000000-0000-0000-0000-000000000000", "ofproto/list-tunnels", "ofproto/tnl-push-pop on"]),
    ("ovs-vswitchd(8): VLOG COMMANDS", "ovs-appctl", SWITCH, ["vlog/list-pattern", "vlog/set bridge:file:dbg", "vlog/set dbg", "vlog/set PATTERN:file:%m", "vlog/set FACILITY:local0", "vlog/enable-rate-limit bridge", "vlog/disable-rate-limit bridge", "vlog/close", "vlog/reopen"]),
    ("ovs-vswitchd(8): MEMORY COMMANDS", "ovs-appctl", SWITCH, ["memory/show"]),
    ("ovs-vswitchd(8): COVERAGE COMMANDS", "ovs-appctl", SWITCH, ["coverage/read-counter bridge_reconfigure", "coverage/read-counter x"]),
    ("ovs-vswitchd(8): OPENVSWITCH TUNNELING COMMANDS", "ovs-appctl", SWITCH, ["tnl/ports/show", "tnl/neigh/show", "tnl/neigh/flush", "ovs/route/show", "ovs/route/add 1.2.3.0/24 br0", "ovs/route/lookup 1.2.3.4"]),
    ("ovs-appctl(8): General Commands", "ovs-appctl", SWITCH, ["version"]),
    ("ovs-appctl(8): Logging Commands", "ovs-appctl", SWITCH, ["vlog/set x", "vlog/set bridge:x:dbg", "vlog/set bridge:console:x"]),
    (
        "ovsdb-client(1): Server-Level Commands", "ovsdb-client", ("server",),
        ["list-dbs unix:db.sock", "get-schema unix:db.sock Open_vSwitch", "list-tables unix:db.sock Open_vSwitch", "list-columns unix:db.sock Open_vSwitch Bridge", "get-schema-version unix:db.sock Open_vSwitch", "get-schema-cksum unix:db.sock Open_vSwitch", "get-dbid unix:db.sock Open_vSwitch"],
    ),
    (
        "ovsdb-tool(1): Other Commands", "ovsdb-tool", ("ovsdb-tool create db $SCHEMAS/vswitch.ovsschema",),
        ["create db2 $SCHEMAS/vswitch.ovsschema", "compact db", "convert db $SCHEMAS/vswitch.ovsschema", "needs-conversion db $SCHEMAS/vswitch.ovsschema", "db-version db", "schema-version $SCHEMAS/vswitch.ovsschema", "db-cksum db", "schema-cksum $SCHEMAS/vswitch.ovsschema", "db-name db", "schema-name $SCHEMAS/vswitch.ovsschema", "show-log db", "query db []", "transact db []", "db-is-standalone db", "db-is-clustered db"],
    ),
]

# How a record of each table comes to be, for scenarios of its columns; and its name where it has one.
RECORDS = {
    "Open_vSwitch": "comment x",
    "Bridge": "add-br r",
    "Port": "add-br b -- add-port b r",
    "Interface": "add-br b -- add-port b r",
    "AutoAttach": "add-br b -- --id=@r create AutoAttach -- set Bridge b auto_attach=@r",
    "CT_Timeout_Policy": "--id=@r create CT_Timeout_Policy -- --id=@z create CT_Zone timeout_policy=@r -- --id=@d create Datapath ct_zones:1=@z -- set Open_vSwitch . datapaths:netdev=@d",
    "CT_Zone": "--id=@r create CT_Zone -- --id=@d create Datapath ct_zones:1=@r -- set Open_vSwitch . datapaths:netdev=@d",
    "Controller": "add-br b -- set-controller b tcp:127.0.0.1:1",
    "Datapath": "--id=@r create Datapath -- set Open_vSwitch . datapaths:netdev=@r",
    "Flow_Sample_Collector_Set": "add-br b -- --id=@b get Bridge b -- --id=@r create Flow_Sample_Collector_Set id=1 bridge=@b",
    "Flow_Table": "add-br b -- --id=@r create Flow_Table -- set Bridge b flow_tables:1=@r",
    "IPFIX": "add-br b -- --id=@r create IPFIX -- set Bridge b ipfix=@r",
    "Manager": "set-manager ptcp:1:127.0.0.1",
    "Mirror": 'add-br b -- --id=@r create Mirror name=r -- set Bridge b mirrors=@r',
    "NetFlow": 'add-br b -- --id=@r create NetFlow targets=\\"127.0.0.1:1\\" -- set Bridge b netflow=@r',
    "QoS": "add-br b -- --id=@r create QoS type=x -- set Port b qos=@r",
    "Queue": "create Queue",
    "SSL": "set-ssl a b c",
    "sFlow": 'add-br b -- --id=@r create sFlow targets=\\"127.0.0.1:1\\" -- set Bridge b sflow=@r',
}
RECORD_OF = {"Open_vSwitch": "."}

# For flows and packets by chance.
MATCHES = ["", "in_port=1,", "in_port=2,", "ip,", "tcp,", "udp,", "arp,", "icmp,", "tcp,tp_dst=80,", "udp,tp_src=5,", "ip,nw_src=10.0.0.0/24,", "ip,nw_dst=10.0.1.2,", "eth_dst=50:54:00:00:00:02,", "dl_vlan=5,", "vlan_tci=0,", "reg0=1,", "ipv6,", "ip,nw_tos=32,", "metadata=5,"]
SIMPLE_ACTIONS = ["output:1", "output:2", "output:3", "in_port", "flood", "all", "set_field:50:54:00:00:00:09->eth_src", "mod_vlan_vid:7", "strip_vlan", "set_field:1->reg0", "resubmit(,1)", "mod_dl_dst:50:54:00:00:00:0a", "drop", "local", "normal", "write_metadata:5"]
ETH = "eth(src=50:54:00:00:00:01,dst=50:54:00:00:00:02)"
IPV4 = "eth_type(0x0800),ipv4(src=10.0.0.1,dst=10.0.1.2,proto={},tos=0,ttl=64,frag=no)"
PACKETS = [
    f"in_port(1),{ETH},{IPV4.format(6)},tcp(src=5,dst=80),tcp_flags(0x010)",
    f"in_port(1),{ETH},{IPV4.format(17)},udp(src=5,dst=53)",
    f"in_port(1),{ETH},{IPV4.format(1)},icmp(type=8,code=0)",
    f"in_port(1),{ETH},eth_type(0x0806),arp(sip=10.0.0.1,tip=10.0.1.2,op=1,sha=50:54:00:00:00:01,tha=00:00:00:00:00:00)",
    f"in_port(1),{ETH},eth_type(0x8100),vlan(vid=5,pcp=1),encap({IPV4.format(17)},udp(src=5,dst=53))",
    f"in_port(1),{ETH},eth_type(0x86dd),ipv6(src=2001:db8::1,dst=2001:db8::2,label=0,proto=17,tclass=0,hlimit=64,frag=no),udp(src=5,dst=53)",
    f"in_port(1),{ETH},eth_type(0x1234)",
]

VERSIONS = [(f"OpenFlow1{n}", f"OpenFlow 1.{n}") for n in range(6)]
SHORTHANDS = "eth ip ipv6 icmp icmp6 tcp tcp6 udp udp6 sctp sctp6 arp rarp mpls mplsm".split()
WITH_SHORTHANDS = ["dl_vlan=5", "vlan_vid=0x1005/0x1fff", "nw_src=10.0.0.1", "ipv6_src=::1", "tp_dst=80", "arp_op=1", "nw_frag=later", "dl_type=0x800", "nw_proto=6"]
LAYERS = {
    "OpenFlow 1.0 VLAN Fields": ["dl_vlan=0xffff", "dl_vlan=0", "dl_vlan=5,dl_vlan_pcp=3", "dl_vlan_pcp=3"],
    "OpenFlow 1.1 VLAN Fields": ["dl_vlan=0xfffe", "dl_vlan=0xffff", "vlan_tci=0x1000/0x1000", "vlan_tci=0/0xf000", "vlan_vid=0x1000/0x1000,vlan_pcp=3"],
    "LAYER 3: IPV4 AND IPV6 FIELDS": ["dl_type=0x800", "dl_type=0x86dd", "ip,nw_proto=6", "ipv6,nw_proto=58", "nw_proto=6", "ip,nw_src=0.0.0.0/0", "ip,nw_ttl=5", "ip,nw_tos=252,nw_ecn=3", "ipv6,ipv6_src=::/0"],
    "LAYER 4: TCP, UDP, AND SCTP FIELDS": ["ip,nw_proto=6,tp_src=5", "ip,nw_proto=17,tp_src=5", "ip,nw_proto=132,tp_src=5", "tcp,tp_src=5/0xff", "tcp,tcp_flags=+ack", "udp,tcp_flags=+ack", "tcp,nw_frag=later,tp_src=5"],
    "LAYER 4: ICMPV4 AND ICMPV6 FIELDS": ["icmp,icmp_type=8", "icmp,tp_src=8", "icmp6,icmp_type=135,nd_target=::1", "icmp6,nd_target=::1", "icmp6,icmp_type=136,nd_sll=00:11:22:33:44:55", "ip,icmp_type=8"],
}
