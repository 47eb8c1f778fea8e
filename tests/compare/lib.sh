# Words for scenarios, the same for both makers.

# server [SCHEMA]: a database server with a new database of the schema, which listens on db.sock.
server() {
  ovsdb-tool create conf.db "${1:-$SCHEMAS/vswitch.ovsschema}" &&
    ovsdb-server --detach --no-chdir --pidfile -vconsole:off --log-file --remote=punix:"$OVS_RUNDIR/db.sock" conf.db
}

# switch [OPTION...]: a server and a switch with dummy devices.
switch() {
  server && ovs-vsctl --no-wait init &&
    ovs-vswitchd --detach --no-chdir --pidfile -vconsole:off --log-file --enable-dummy=override --disable-system "$@"
}

# bridge [NAME]: a bridge of dummy ports p1, p2, p3 with these numbers, without flows.
bridge() {
  local name=${1:-br0} port
  ovs-vsctl add-br "$name" -- set bridge "$name" datapath-type=dummy fail-mode=secure \
    other-config:datapath-id=fedcba9876543210 other-config:hwaddr=aa:55:aa:55:00:00
  for port in 1 2 3; do
    ovs-vsctl add-port "$name" "p$port" -- set interface "p$port" type=dummy ofport_request=$port
  done
}

# sorted COMMAND...: its output, sorted, where the order is by chance.
sorted() { "$@" | sort; }

# ordinals: a server with a small database; its schema is in o.schema.
ordinals() {
  echo '{"name":"ordinals","version":"5.1.3","tables":{"ordinals":{"columns":{"number":{"type":"integer"},"name":{"type":"string"}},"indexes":[["number"]]}}}' > o.schema
  server o.schema
}

# transact OPERATIONS: a transaction of that database.
transact() { ovsdb-client transact unix:"$OVS_RUNDIR"/db.sock "[\"ordinals\",$1]"; }

# insert NUMBER NAME: inserts a row there.
insert() { transact '{"op":"insert","table":"ordinals","row":{"number":'"$1"',"name":"'"$2"'"}}'; }

# control COMMAND...: a control command of the server.
control() { ovs-appctl -t ovsdb-server "$@"; }

# logged WORDS [FILE]: the lines of a log with these words, without times and numbers.
logged() { grep -E "$1" "${2:-ovsdb-server.log}" | sed -E 's/^[^|]*\|[0-9]+\|//'; }
