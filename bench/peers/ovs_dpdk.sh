#!/usr/bin/env bash
# The same measurement as bench/datapath, of Debian's Open vSwitch with DPDK: one polling thread on core 1, packets
# from a capture file that DPDK's pcap port holds in memory, out into its null port.
#
# usage: bench/peers/ovs_dpdk.sh PCAP FLOWS [SECONDS] [INVERSE_PROBABILITY]     (root)
#
# Huge pages that it has to reserve are given back at the end.
# Environment: FLOWSTONE_PEERS, a folder that `tests/peers/unpack.sh DIR dpdk` filled (.cache/peers, which is filled if
# it has to be).
set -euo pipefail
case ${1:-} in -h | --help) sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"; exit 0 ;; esac
if [ $# -lt 2 ] || [ $# -gt 4 ]; then
  echo "usage: ovs_dpdk.sh PCAP FLOWS [SECONDS] [INVERSE_PROBABILITY]" >&2
  exit 2
fi
exec "$(dirname "$0")/../datapath" --switch ovs-dpdk "$@"
