#!/bin/bash
# Bridges and ports in /etc/network/interfaces: ifup and ifdown run this with the options of a stanza in the environment
# (interfaces(5)), among them those that openvswitch-switch documents in its README.Debian: ovs_type, ovs_ports,
# ovs_bridge, ovs_bonds, ovs_patch_peer, ovs_tunnel_type, ovs_tunnel_options, ovs_options and ovs_extra.
set -uo pipefail

case ${IF_OVS_TYPE:-} in
    OVSBridge | OVSPort | OVSIntPort | OVSBond | OVSPatchPort | OVSTunnel) ;;
    *) exit 0 ;;
esac

vsctl() { ovs-vsctl --timeout=5 "$@"; }

# ifup may run before the services start.
start_switch() {
    if [ -d /run/systemd/system ]; then
        systemctl --quiet is-active openvswitch-switch.service || systemctl start openvswitch-switch.service
    else
        /usr/share/openvswitch/scripts/ovs-ctl status >/dev/null ||
            /usr/share/openvswitch/scripts/ovs-ctl --system-id=random --no-record-hostname start
    fi
}

# add WORDS...: runs the command with the stanza's own options and commands. Both hold several words; ovs_extra may hold
# variables and commands of the shell.
add() {
    eval "extra=\"${IF_OVS_EXTRA:-}\""
    # shellcheck disable=SC2086
    vsctl --may-exist "$@" ${extra:+-- $extra}
}

bring_up() {
    # Options of a port follow it, before the next command.
    # shellcheck disable=SC2086
    case $IF_OVS_TYPE in
        OVSBridge)
            add add-br "$IFACE" ${IF_OVS_OPTIONS:-} || return 1
            [ -z "${IF_OVS_PORTS:-}" ] || ifup --allow="$IFACE" $IF_OVS_PORTS
            ;;
        OVSPort) add add-port "$IF_OVS_BRIDGE" "$IFACE" ${IF_OVS_OPTIONS:-} && ip link set dev "$IFACE" up ;;
        OVSIntPort)
            add add-port "$IF_OVS_BRIDGE" "$IFACE" ${IF_OVS_OPTIONS:-} -- set interface "$IFACE" type=internal &&
                ip link set dev "$IFACE" up
            ;;
        OVSBond)
            add --fake-iface add-bond "$IF_OVS_BRIDGE" "$IFACE" $IF_OVS_BONDS ${IF_OVS_OPTIONS:-} || return 1
            for device in "$IFACE" $IF_OVS_BONDS; do ip link set dev "$device" up; done
            ;;
        OVSPatchPort)
            add add-port "$IF_OVS_BRIDGE" "$IFACE" ${IF_OVS_OPTIONS:-} -- set interface "$IFACE" type=patch \
                "options:peer=$IF_OVS_PATCH_PEER"
            ;;
        OVSTunnel)
            add add-port "$IF_OVS_BRIDGE" "$IFACE" ${IF_OVS_OPTIONS:-} -- set interface "$IFACE" \
                "type=$IF_OVS_TUNNEL_TYPE" ${IF_OVS_TUNNEL_OPTIONS:-}
            ;;
    esac
}

take_down() {
    case $IF_OVS_TYPE in
        OVSBridge)
            # shellcheck disable=SC2086
            [ -z "${IF_OVS_PORTS:-}" ] || ifdown --allow="$IFACE" $IF_OVS_PORTS
            vsctl --if-exists del-br "$IFACE"
            ;;
        *) vsctl --if-exists del-port "$IF_OVS_BRIDGE" "$IFACE" ;;
    esac
}

case ${MODE:-} in
    start) start_switch && bring_up ;;
    stop) start_switch && take_down ;;
esac
