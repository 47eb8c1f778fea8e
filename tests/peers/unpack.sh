#!/usr/bin/env bash
# Lays out Debian's Open vSwitch in DIR without installing it: its programs serve the tests as clients and oracles,
# and none of its services starts. Of the system, only shared libraries are added.
#
# usage: tests/peers/unpack.sh [DIR [dpdk] [ovn]]      (root; DIR is .cache/peers of this clone by default)
#   dpdk   also the switch daemon that is built with DPDK, for measurements: DIR/bin/ovs-vswitchd-dpdk
#   ovn    also OVN's central programs, which are clients of databases: DIR/bin/ovn-northd, ovn-nbctl, ovn-sbctl
#
# DIR/bin links the programs, DIR/usr/share/openvswitch and DIR/usr/share/ovn have the schemas, DIR/usr/share/man the
# manual pages.
# A DIR that was finished before, with what is asked for, is left as it is.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/packages.sh
. "$top/tests/packages.sh"

dir=${1:-$top/.cache/peers}
packages=(openvswitch-common openvswitch-switch openvswitch-testcontroller openvswitch-vtep)
programs=(ovs-vswitchd ovsdb-server ovsdb-client ovsdb-tool ovs-vsctl ovs-ofctl ovs-appctl ovs-dpctl ovs-testcontroller vtep-ctl)
for word in "${@:2}"; do
  case $word in
    dpdk)
      packages+=(openvswitch-switch-dpdk)
      programs+=(ovs-vswitchd-dpdk)
      ;;
    ovn)
      packages+=(ovn-common ovn-central)
      programs+=(ovn-northd ovn-nbctl ovn-sbctl)
      ;;
    *) echo "unpack.sh: unknown word '$word' (dpdk, ovn)" >&2; exit 2 ;;
  esac
done

# first_that_fails: the first of the programs that does not start, or nothing.
first_that_fails() {
  local program
  for program in "${programs[@]}"; do
    "$dir/bin/$program" --version >/dev/null 2>&1 || { echo "$program"; break; }
  done
}

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
if [ -e "$dir/complete" ] && [ -z "$(first_that_fails)" ]; then
  head -1 "$dir/complete"
  exit 0
fi
need_root
apt_lists

# The libraries that the packages name, and nothing else of what they depend on.
mapfile -t libraries < <(
  apt-cache depends --important "${packages[@]}" | awk '$1 == "Depends:" && $2 ~ /^lib/ { print $2 }' | sort -u
)
# DPDK's drivers are plugins, which nothing depends on; their names end in the same number as the libraries'.
for library in "${libraries[@]}"; do
  case $library in
    librte-eal*) abi=${library#librte-eal}; libraries+=("librte-mempool-ring$abi" "librte-net-null$abi" "librte-net-pcap$abi") ;;
  esac
done
install_packages "${libraries[@]}"

rm -rf "$dir/deb" "$dir/bin" "$dir/complete"
mkdir -p "$dir/deb" "$dir/bin"
# apt fetches as a user of its own, which may not write here; it then warns and fetches as root.
(cd "$dir/deb" && apt-get download -qq "${packages[@]}" 2>/dev/null)
for archive in "$dir"/deb/*.deb; do
  dpkg-deb -x "$archive" "$dir"
done
for program in "$dir"/usr/bin/* "$dir"/usr/sbin/* "$dir"/usr/lib/openvswitch-switch*/ovs-vswitchd*; do
  if [ -f "$program" ] && [ -x "$program" ]; then
    ln -sf "$program" "$dir/bin/"
  fi
done

failing=$(first_that_fails)
if [ -n "$failing" ]; then
  echo "unpack.sh: $failing was unpacked but does not start" >&2
  exit 1
fi
"$dir/bin/ovs-vswitchd" --version | head -1 | tee "$dir/complete"
