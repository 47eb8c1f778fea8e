"""What OpenStack and Kubernetes do to OVN's databases: Neutron's steps for a network, by its library ovsdbapp, with revision numbers
that several workers count; and ovn-kubernetes' transactions, in the forms that its library libovsdb gives them."""

import threading

from logical import frames, packet
from ovsdbapp.backend.ovs_idl import command, connection
from ovsdbapp.schema.ovn_northbound import impl_idl as northbound
from ovsdbapp.schema.ovn_southbound import impl_idl as southbound
from scapy.layers.inet import IP, UDP
from waiting import DEADLINE_S, until

COUNTERS, COUNTS = 3, 20
GROUP = "pg_default"


def connect(each, database, implementation):
    """A connection of its own: the library keeps one for each class."""
    own = type("Api", (implementation,), {})
    idl = connection.OvsdbIdl.from_server(each.central.server.remote, database)
    return own(connection.Connection(idl=idl, timeout=DEADLINE_S))


class Count(command.BaseCommand):
    """Adds one to a network's revision number, if no other worker has meanwhile, as Neutron does before it changes a resource."""

    def __init__(self, api, name):
        super().__init__(api)
        self.name = name

    def run_idl(self, txn):
        (row,) = (row for row in self.api.tables["Logical_Switch"].rows.values() if row.name == self.name)
        row.verify("external_ids")
        number = int(row.external_ids["neutron:revision_number"]) + 1
        row.setkey("external_ids", "neutron:revision_number", str(number))


def test_neutron(compared):
    """Networks, security groups, subnets, ports, routers, floating addresses, balancers and names, by Neutron's steps."""

    def scenario(each):
        api = connect(each, "OVN_Northbound", northbound.OvnNbApiIdlImpl)
        do = lambda *commands: transact(api, each, commands)
        revision = {"neutron:revision_number": "1"}
        for number in (1, 2):
            do(api.ls_add(f"neutron-{number}", may_exist=True, external_ids={"neutron:network_name": f"net{number}", "neutron:mtu": "1442", **revision}))
        do(api.pg_add(GROUP, may_exist=True, acls=[], external_ids={"neutron:security_group_id": "default"}))
        for direction, match, priority, action in (
            ("to-lport", f"outport == @{GROUP} && ip", 1001, "drop"),
            ("from-lport", f"inport == @{GROUP} && ip", 1001, "drop"),
            ("from-lport", f"inport == @{GROUP} && ip4", 1002, "allow-related"),
            ("to-lport", f"outport == @{GROUP} && ip4 && udp && udp.dst == 2000", 1002, "allow-related"),
        ):
            do(api.pg_acl_add(GROUP, direction, priority, match, action, may_exist=True, name="rule", severity="info", log=False))
        options = []
        for number in (1, 2):
            subnet = api.dhcp_options_add(f"10.0.{number}.0/24", subnet_id=f"subnet{number}").execute(check_error=True)
            values = {"server_id": f"10.0.{number}.254", "server_mac": "fa:16:3e:00:00:01", "lease_time": "43200", "mtu": "1442", "router": f"10.0.{number}.254"}
            do(api.dhcp_options_set_options(subnet.uuid, **values))
            options.append(subnet.uuid)
        do(api.lr_add("neutron-router", may_exist=True, external_ids={"neutron:router_name": "r", **revision}, enabled=True))
        for number in (1, 2):
            do(api.lrp_add("neutron-router", f"lrp-{number}", f"00:00:00:00:ff:0{number}", [f"10.0.{number}.254/24"], may_exist=True))
            own = {"router-port": f"lrp-{number}"}
            do(api.lsp_add(f"neutron-{number}", f"gw{number}", type="router", addresses=["router"], options=own, may_exist=True))
        for number in (1, 2):
            for host in (1, 2):
                port, addresses = f"p{number}{host}", [f"00:00:00:00:0{number}:0{host} 10.0.{number}.{host}"]
                columns = {"addresses": addresses, "port_security": addresses, "enabled": True, "dhcpv4_options": options[number - 1]}
                ids = {"neutron:device_owner": "compute:nova", "neutron:cidrs": f"10.0.{number}.{host}/24", **revision}
                do(
                    api.lsp_add(f"neutron-{number}", port, external_ids=ids, options={"requested-chassis": f"hv{host}"}, **columns),
                    api.pg_add_ports(GROUP, []),
                )
                row = api.lsp_get(port).execute(check_error=True)
                do(api.pg_add_ports(GROUP, [row.uuid]))
            metadata = f"meta{number}"
            do(api.lsp_add(f"neutron-{number}", metadata, type="localport", addresses=[f"fa:16:3e:00:01:0{number} 10.0.{number}.253"]))
        do(api.lr_route_add("neutron-router", "0.0.0.0/0", "10.0.2.2", may_exist=True))
        do(api.lr_nat_add("neutron-router", "dnat_and_snat", "10.0.9.9", "10.0.1.1", may_exist=True))
        balancer = api.lb_add("lb", "10.0.8.8:53", ["10.0.2.1:2000"], protocol="udp", may_exist=True).execute(check_error=True)
        do(api.ls_lb_add("neutron-1", balancer.uuid, may_exist=True))
        names = api.dns_add(external_ids={"ls_name": "neutron-1"}).execute(check_error=True)
        do(api.dns_set_records(names.uuid, **{"one.example": "10.0.1.1"}), api.ls_set_dns_records("neutron-1", [names.uuid]))
        do(api.ha_chassis_group_add("group", may_exist=True), api.ha_chassis_group_add_chassis("group", "hv1", priority=20))
        count_revisions(each)
        for host in (1, 2):
            for number in (1, 2):
                each.chassis[f"hv{host}"].add_vif(f"p{number}{host}")
        each.settle()
        # An agent reports by the southbound database, where it also learns that ports are up.
        south = connect(each, "OVN_Southbound", southbound.OvnSbApiIdlImpl)
        south.db_set("Chassis_Private", "hv1", ("external_ids", {"neutron:ovn-metadata-sb-cfg": "1"})).execute(check_error=True)
        ups = south.db_find("Port_Binding", ("up", "=", True), columns=["logical_port"]).execute(check_error=True)
        assert {row["logical_port"] for row in ups} >= {"p11", "p12", "p21", "p22"}
        each.receive("p11", packet("p11", "p12", UDP(sport=1, dport=2001)), packet("p11", "p12", UDP(sport=1, dport=2000)))
        each.receive("p11", packet("p11", "p22", UDP(sport=1, dport=2000)))
        until(lambda: frames(each, "p12") and frames(each, "p22"), "packets that the group allows")
        assert [frame[UDP].dport for frame in frames(each, "p12") if UDP in frame] == [2000]
        assert frames(each, "p22")[-1][IP].ttl == 63
        do(api.lsp_del("p21", if_exists=True), api.lr_nat_del("neutron-router", "dnat_and_snat", "10.0.9.9", if_exists=True))
        each.places.pop("p21")
        each.central.sync()
        for one in (api, south):
            one.ovsdb_connection.stop(DEADLINE_S)

    compared(scenario)


def transact(api, each, commands):
    """One transaction, after which northd has seen it: it numbers what comes together in the order of UUIDs."""
    with api.transaction(check_error=True) as transaction:
        for one in commands:
            transaction.add(one)
    each.nbctl("--wait=sb", "sync")


def count_revisions(each):
    """Several workers count a revision number at the same time; none of their counts is lost."""
    wrong = []

    def work():
        try:
            api = connect(each, "OVN_Northbound", northbound.OvnNbApiIdlImpl)
            for _ in range(COUNTS):
                Count(api, "neutron-1").execute(check_error=True)
            api.ovsdb_connection.stop(DEADLINE_S)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=work) for _ in range(COUNTERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong, wrong
    # A program that begins now sees all that was committed.
    words = ["get", "Logical_Switch", "neutron-1", "external_ids:neutron\\:revision_number"]
    number = each.central.run("ovn-nbctl", *words).out.rstrip("\n")
    assert number.strip('"') == str(1 + COUNTERS * COUNTS)


# ovn-kubernetes.


def wait_for_none(table, column, value):
    """The operation in front of an insertion: no row has the value."""
    where = [[column, "==", value]]
    return {"op": "wait", "timeout": 0, "table": table, "where": where, "columns": [column], "until": "!=", "rows": [{column: value}]}


def named(name):
    return ["named-uuid", name]


def test_kubernetes(compared):
    """A node's switch, pods, policies by address sets and port groups, and a service, by transactions of ovn-kubernetes' kind."""

    def scenario(each):
        server, results = each.central.server, []

        def transact(*operations):
            found = server.transact("OVN_Northbound", *operations)
            results.append([sorted(result or []) for result in found])
            each.nbctl("--wait=sb", "sync")
            return found

        for number in (1, 2):
            ids = ["map", [["k8s.ovn.org/node", f"node{number}"]]]
            config = ["map", [["subnet", f"10.0.{number}.0/24"], ["exclude_ips", f"10.0.{number}.254"]]]
            row = {"name": f"s{number}", "external_ids": ids, "other_config": config}
            transact(wait_for_none("Logical_Switch", "name", f"s{number}"), {"op": "insert", "table": "Logical_Switch", "uuid-name": "u1", "row": row})
            # The same once more is refused.
            again = transact(wait_for_none("Logical_Switch", "name", f"s{number}"), {"op": "insert", "table": "Logical_Switch", "uuid-name": "u1", "row": row})
            assert again[0]["error"] == "timed out"
        transact({"op": "insert", "table": "Logical_Router", "uuid-name": "u1", "row": {"name": "cluster"}})
        for number in (1, 2):
            port = {"name": f"rtos-s{number}", "mac": f"00:00:00:00:ff:0{number}", "networks": ["set", [f"10.0.{number}.254/24"]]}
            transact(
                {"op": "insert", "table": "Logical_Router_Port", "uuid-name": "u2", "row": port},
                {"op": "mutate", "table": "Logical_Router", "where": [["name", "==", "cluster"]], "mutations": [["ports", "insert", ["set", [named("u2")]]]]},
            )
            own = {"name": f"stor-s{number}", "type": "router", "addresses": ["set", ["router"]], "options": ["map", [["router-port", f"rtos-s{number}"]]]}
            transact(*add_port(f"s{number}", own))
        for number in (1, 2):
            for host in (1, 2):
                address = f"00:00:00:00:0{number}:0{host} 10.0.{number}.{host}"
                ids = ["map", [["pod", "true"], ["namespace", "default"]]]
                row = {"name": f"p{number}{host}", "addresses": ["set", [address]], "port_security": ["set", [address]], "external_ids": ids}
                transact(wait_for_none("Logical_Switch_Port", "name", f"p{number}{host}"), *add_port(f"s{number}", row))
        # A policy: pods of the group accept what comes from the addresses of the set.
        addresses = ["set", ["10.0.1.1", "10.0.2.1"]]
        transact({"op": "insert", "table": "Address_Set", "row": {"name": "allowed", "addresses": addresses}})
        rules = []
        for name, match, priority, action in (
            ("u3", "outport == @pods && ip4.src == {$allowed}", 1001, "allow-related"),
            ("u4", "outport == @pods && ip4", 1000, "drop"),
        ):
            row = {"direction": "to-lport", "match": match, "priority": priority, "action": action}
            rules.append({"op": "insert", "table": "ACL", "uuid-name": name, "row": row})
        (members,) = transact({"op": "select", "table": "Logical_Switch_Port", "where": [["name", "==", "p22"]], "columns": ["_uuid"]})
        group = {"name": "pods", "ports": ["set", [row["_uuid"] for row in members["rows"]]], "acls": ["set", [named("u3"), named("u4")]]}
        transact(*rules, {"op": "insert", "table": "Port_Group", "row": group})
        transact({"op": "mutate", "table": "Address_Set", "where": [["name", "==", "allowed"]], "mutations": [["addresses", "delete", ["set", ["10.0.2.1"]]]]})
        # A service.
        row = {"name": "service", "protocol": "udp", "vips": ["map", [["10.96.0.1:53", "10.0.2.2:2000"]]], "options": ["map", [["reject", "true"]]]}
        transact(
            {"op": "insert", "table": "Load_Balancer", "uuid-name": "u5", "row": row},
            {"op": "insert", "table": "Load_Balancer_Group", "uuid-name": "u6", "row": {"name": "all", "load_balancer": ["set", [named("u5")]]}},
            {"op": "update", "table": "Logical_Switch", "where": [["name", "==", "s1"]], "row": {"load_balancer_group": ["set", [named("u6")]]}},
        )
        for host in (1, 2):
            for number in (1, 2):
                each.chassis[f"hv{host}"].add_vif(f"p{number}{host}")
        each.settle()
        asked = packet("p11", "p22", UDP(sport=1, dport=53))
        asked[IP].dst = "10.96.0.1"
        each.receive("p12", packet("p12", "p22"))
        each.receive("p11", asked)
        until(lambda: any(UDP in frame for frame in frames(each, "p22")), "a packet of the service")
        assert [frame[IP].src for frame in frames(each, "p22") if UDP in frame] == ["10.0.1.1"]
        each.remarks["results of transactions"] = results

    compared(scenario)


def add_port(switch, row):
    """The operations that add a port to a switch."""
    insert = {"op": "insert", "table": "Logical_Switch_Port", "uuid-name": "u9", "row": row}
    mutation = ["ports", "insert", ["set", [named("u9")]]]
    return insert, {"op": "mutate", "table": "Logical_Switch", "where": [["name", "==", switch]], "mutations": [mutation]}
