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

# monitoring NAME [ARGUMENT...]: a monitor of br0 in the background; its log is NAME.log.
monitoring() {
  local name=$1
  shift
  ovs-ofctl monitor br0 "$@" --detach --no-chdir --pidfile="$name.pid" --unixctl="$PWD/$name.ctl" 2>"$name.log"
}

# sending NAME HEX...: messages that the monitor sends, with a barrier behind each.
sending() {
  local name=$1 message
  shift
  for message; do
    ovs-appctl -t "$PWD/$name.ctl" ofctl/send "$message"
    ovs-appctl -t "$PWD/$name.ctl" ofctl/barrier
  done
}

# has FILE N PATTERN: waits until N lines of the file match, for at most ten seconds.
has() {
  local _
  for _ in {1..100}; do
    [ "$(grep -cE "$3" "$1")" -lt "$2" ] || return 0
    sleep 0.1
  done
  echo "$1 has $(grep -cE "$3" "$1") lines of $3"
}

# heard NAME [N PATTERN]: what the monitor has received by now, or once it has such lines; ends it.
heard() {
  [ $# -lt 3 ] || has "$1.log" "$2" "$3"
  ovs-appctl -t "$PWD/$1.ctl" ofctl/barrier
  local pid
  pid=$(cat "$1.pid")
  ovs-appctl -t "$PWD/$1.ctl" exit
  while kill -0 "$pid" 2>/dev/null; do sleep 0.05; done
  cat "$1.log"
}

# receive PORT FLOW...: packets that arrive at a dummy port.
receive() { ovs-appctl netdev-dummy/receive "$@"; }

# cached: the cached flows, in alphabetical order, without the time of their last use.
cached() { ovs-appctl dpctl/dump-flows "$@" | sed 's/used:[0-9.]*s/used:?/; s/used:never/used:?/' | sort; }

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

# tracking FLOW...: a switch with a bridge and these flows, whose time stands still.
tracking() { switch && bridge && printf '%s\n' "$@" | ovs-ofctl add-flows br0 - && ovs-appctl time/stop; }

# packet PORT KIND WORD...: a packet that arrives at a dummy port, see frames.py.
packet() { receive "p$1" "$(/usr/bin/python3 "${BASH_SOURCE[0]%/*}/frames.py" "$@")" && ovs-appctl version >/dev/null; }

# tracked [WORD...]: the connections, in alphabetical order.
tracked() { ovs-appctl dpctl/dump-conntrack "$@" 2>&1 | sort; }

# hits [MATCH]: the flows that packets have hit.
hits() { ovs-appctl revalidator/wait; ovs-ofctl dump-flows br0 "$@" | grep -v n_packets=0, | sed -nE 's/.*(table=.*n_packets=[0-9]+, n_bytes=[0-9]+), (idle_age=[0-9]+, )?(.*)/\1 \3/p'; }

# counted: how often the tracker has counted events. Another thread adds up its counts now and then; two counts of the peer are
# of each packet, and some are of Flowstone only.
counted() {
  local _
  for _ in {1..3}; do ovs-appctl time/warp 1100 >/dev/null && sleep 0.05; done
  ovs-appctl coverage/show | sed -nE 's/^((conntrack|ipf)_\w+) .*total: ([0-9]+)$/\1 \3/p' |
    grep -vE '^conntrack_(l[34]csum_checked|malformed|fragment_refused|expired|evicted|nat_exhausted) ' | sort
}

# tunnels [OPTION...]: a switch without devices and routes of the machine, whose bridge br0 is the underlay (port p1; addresses
# 1.1.2.88 and 2001:cafe::88, whose neighbours .92, .93, ::92, ::93 have known addresses), beside br1 with ports v2, v3, v4; outer
# UDP source ports are always 50000.
tunnels() {
  server && ovs-vsctl --no-wait init &&
    unshare -n ovs-vswitchd --detach --no-chdir --pidfile -vconsole:off --log-file --enable-dummy --disable-system "$@"
  local name n bridge
  for n in 0 1; do
    ovs-vsctl add-br br$n -- set bridge br$n datapath-type=dummy fail-mode=secure other-config:hwaddr=aa:55:aa:55:00:0$n
  done
  # In the peer, a datapath port like ip6gre_sys has the number in its name: 6 is the first free one with d5.
  for name in br0/p1 br1/v2 br1/v3 br1/v4 br0/d5; do
    n=${name#br?/?} bridge=${name%/*} name=${name#br?/}
    ovs-vsctl add-port "$bridge" "$name" -- set interface "$name" type=dummy ofport_request="$n" options:tx_pcap="$PWD/$name.pcap"
  done
  ovs-ofctl add-flow br0 'in_port=1,actions=local'
  ovs-ofctl add-flow br0 'in_port=local,actions=1'
  ovs-appctl netdev-dummy/ip4addr br0 1.1.2.88/24 >/dev/null
  ovs-appctl netdev-dummy/ip6addr br0 2001:cafe::88/64 >/dev/null
  for n in 2 3; do
    ovs-appctl tnl/neigh/set br0 1.1.2.9$n f8:bc:12:44:34:b$n >/dev/null
    ovs-appctl tnl/neigh/set br0 2001:cafe::9$n f8:bc:12:44:34:b$n >/dev/null
  done
  ovs-appctl tnl/egress_port_range 50000 50000 >/dev/null
}

# tunnel NAME NUMBER TYPE [OPTION=VALUE...]: a tunnel port of br1.
tunnel() {
  local name=$1 number=$2 type=$3
  shift 3
  ovs-vsctl add-port br1 "$name" -- set interface "$name" type="$type" ofport_request="$number" "${@/#/options:}"
}

# flows BRIDGE FLOW...: adds flows.
flows() {
  local bridge=$1
  shift
  printf '%s\n' "$@" | ovs-ofctl -O OpenFlow15 add-flows "$bridge" -
}

# outer_frame TYPE WORD...: a packet of a tunnel in hexadecimal digits, see tunnel_frames.py.
outer_frame() { /usr/bin/python3 "${BASH_SOURCE[0]%/*}/tunnel_frames.py" build "$@"; }

# inner_frame KIND WORD...: a packet without a tunnel, see frames.py.
inner_frame() { /usr/bin/python3 "${BASH_SOURCE[0]%/*}/frames.py" 2 "$@"; }

# outer TYPE WORD...: a packet of a tunnel that arrives at p1.
outer() { receive p1 "$(outer_frame "$@")"; }

# inner PORT KIND WORD...: a packet that arrives at v2, v3 or v4.
inner() { receive "v$1" "$(inner_frame "${@:2}")"; }

# sent PORT [COUNT]: the frames that a port has sent since the last call, once there are so many (1), within a second.
sent() { /usr/bin/python3 "${BASH_SOURCE[0]%/*}/tunnel_frames.py" show "${2:-1}" "$1"; }

# matched BRIDGE: the flows that packets have hit.
matched() { ovs-appctl revalidator/wait; ovs-ofctl dump-flows --sort "$1" | grep -v n_packets=0, | sed -nE "s/.*(table=.*n_packets=[0-9]+, n_bytes=[0-9]+), (idle_age=[0-9]+, )?(.*)/\1 \3/p"; }

# port NAME...: the UUIDs of ports, as a set.
port() {
  local name set=
  for name; do set+="${set:+,}$(ovs-vsctl get port "$name" _uuid)"; done
  echo "[$set]"
}

# mirror BRIDGE NAME [COLUMN=VALUE...]: a mirror of the bridge.
mirror() { ovs-vsctl -- --id=@m create mirror name="$2" "${@:3}" -- add bridge "$1" mirrors @m >/dev/null; }

# mirrored COLUMN=VALUE...: changes the mirror m.
mirrored() { ovs-vsctl set mirror m "$@"; }

# traced BRIDGE FLOW...: a trace's steps and datapath actions.
traced() { ovs-appctl ofproto/trace "$1" "${@:2}",dl_src=00:00:00:00:00:01,dl_dst=00:00:00:00:00:02 | grep -vE '^$|^---|^(Flow|Final flow|Megaflow):'; }

# does ACTIONS FLOW...: the traces of packets of br0 to which a flow applies these actions.
does() { ovs-ofctl del-flows --strict br0 priority=5; ovs-ofctl add-flow br0 "priority=5,actions=$1"; shift; local flow; for flow; do traced br0 "$flow"; done; }

# mirror_counts: the statistics of mirrors, once counted.
mirror_counts() { ovs-appctl revalidator/wait; ovs-appctl time/warp 6000 500 >/dev/null; sleep 0.3; ovs-vsctl --bare --columns=name,statistics list mirror | paste -sd' ' | sed 's/  /\n/g' | sort; }

# popped WORD...: a packet of a tunnel that arrives, the frames that leave by v2, v3 and v4 for it, and the cached flows of its inner
# packet. Without those that drop packets which no tunnel port receives: the peer caches none.
popped() {
  echo "> $*"
  outer "$@"
  sleep 0.12
  /usr/bin/python3 "${BASH_SOURCE[0]%/*}/tunnel_frames.py" show 0 v2 v3 v4
  cached | grep 'tunnel(' | grep -vE 'packet_type\(ns=[01],id=[0-9a-fx]+\), packets:.*actions:drop'
  ovs-appctl revalidator/purge
}

# trees: bridges br0 and br1, whose ports 1 and 2 are patch ports (b01 and b02, b11 and b12) to the other one, and port 3 a dummy port
# (d0, d1); the clock stands still.
trees() {
  switch
  local n p
  for n in 0 1; do
    ovs-vsctl add-br br$n -- set bridge br$n datapath_type=dummy fail_mode=secure other_config:hwaddr=aa:55:aa:55:00:0$n
    for p in 1 2; do
      ovs-vsctl add-port br$n b$n$p -- set interface b$n$p type=patch options:peer=b$((1 - n))$p ofport_request=$p -- \
        set port b$n$p other_config:stp-port-num=$p other_config:rstp-port-num=$p
    done
    ovs-vsctl add-port br$n d$n -- set interface d$n type=dummy ofport_request=3 options:tx_pcap="$PWD/d$n.pcap" -- \
      set port d$n other_config:stp-port-num=3 other_config:rstp-port-num=3
  done
  ovs-appctl time/stop
}

# seconds N: lets so many seconds pass, in steps.
seconds() {
  local n
  for ((n = 0; n < $1; n++)); do ovs-appctl time/warp 1000 250 >/dev/null; done
}

# status BRIDGE PORT...: the columns of STP, without the time in the state.
status() {
  ovs-appctl version >/dev/null; sleep 0.2
  ovs-vsctl get bridge "$1" status
  local port
  for port in "${@:2}"; do ovs-vsctl get port "$port" status | sed 's/stp_sec_in_state="[0-9]*"/stp_sec_in_state=?/'; done
}

# rapid BRIDGE PORT...: the columns of RSTP.
rapid() {
  ovs-appctl version >/dev/null; sleep 0.2
  ovs-vsctl get bridge "$1" rstp_status
  local port
  for port in "${@:2}"; do ovs-vsctl get port "$port" rstp_status; done
}

# frames PORT: the BPDUs that a port has sent, without their source.
frames() {
  /usr/bin/python3 -c 'import struct, sys
data, at = open(sys.argv[1], "rb").read(), 24
while at < len(data):
    length = struct.unpack_from("<I", data, at + 8)[0]
    frame = data[at + 16 : at + 16 + length].hex()
    at += 16 + length
    if frame.startswith("0180c2000000"):
        print(frame[:12] + frame[24:])' "$1.pcap"
}

# bpdu VERSION TYPE BRIDGE FLAGS: a BPDU of a bridge that is the root.
bpdu() {
  local length=26 rest=
  [ "$1" = 00 ] || { length=27 rest=00; }
  printf '0180c2000000aa55aa5500ee00%s4242030000%s%s%02x%s00000000%s80010000140002000f00%s\n' $length "$1" "$2" "0x$4" "$3" "$3" "$rest"
}

# settled: lets the switch carry out what it has received.
settled() { local _; for _ in 1 2 3; do ovs-appctl version >/dev/null; done; }

# pdu STATE [SYSTEM [KEY [PORT]]]: a LACPDU of a partner; its flags are hexadecimal.
pdu() {
  printf '0180c2000002020000000009880901010114%04x%s%04x%04x%04x%s0000000214fffeaa55aa5500000001ffff0001%s0000000310%0132d\n' \
    1000 "${2:-020000000009}" "${3:-7}" 32768 "${4:-1}" "$1" 3d 0
}

# partner PORT STATE NUMBER [SYSTEM [KEY]]: receives such a LACPDU, of the partner's port NUMBER.
partner() { receive "$1" "$(pdu "$2" "${4:-020000000009}" "${5:-7}" "$3")" && settled; }

# state [PORT]: the states of LACP in short, with the numbers of LACPDUs.
state() {
  ovs-appctl lacp/show "${1:-p1}" | grep -E 'status|member|may_enable| state'
  ovs-appctl lacp/show-stats "${1:-p1}" | grep -E 'PDUs|Link' | tr -d '\n'
  echo
}

# bonded SETTING...: a bridge with a bond of dummy ports b1 and b2, whose time stands still.
bonded() {
  switch && ovs-appctl time/stop && ovs-vsctl add-br br0 -- set bridge br0 datapath-type=dummy fail-mode=secure \
    other-config:hwaddr=aa:55:aa:55:00:00 -- add-bond br0 bond0 b1 b2 bond_mode=balance-tcp "$@" \
    -- set interface b1 type=dummy ofport_request=1 options:pstream=punix:"$PWD/b1.sock" other_config:lacp-aggregation-key=5 \
    -- set interface b2 type=dummy ofport_request=2 options:pstream=punix:"$PWD/b2.sock" other_config:lacp-aggregation-key=5
  settled
}
