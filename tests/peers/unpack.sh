#!/usr/bin/env bash
# Lays out Debian's Open vSwitch in DIR without installing it: its programs serve the tests as clients and oracles,
# and none of its services starts. Of the system, only shared libraries are added.
#
# usage: tests/peers/unpack.sh [DIR]      (root; DIR is .cache/peers of this clone by default)
#
# DIR/bin links the programs, DIR/usr/share/openvswitch has the schemas, DIR/usr/share/man the manual pages.
# A DIR that was finished before is left as it is.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/packages.sh
. "$top/tests/packages.sh"

dir=${1:-$top/.cache/peers}
packages=(openvswitch-common openvswitch-switch)

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
if [ -e "$dir/complete" ] && "$dir/bin/ovs-vswitchd" --version >/dev/null 2>&1; then
  head -1 "$dir/complete"
  exit 0
fi
need_root
apt_lists

# The libraries that the packages name, and nothing else of what they depend on.
mapfile -t libraries < <(
  apt-cache depends --important "${packages[@]}" | awk '$1 == "Depends:" && $2 ~ /^lib/ { print $2 }' | sort -u
)
install_packages "${libraries[@]}"

rm -rf "$dir/deb" "$dir/bin" "$dir/complete"
mkdir -p "$dir/deb" "$dir/bin"
# apt fetches as a user of its own, which may not write here; it then warns and fetches as root.
(cd "$dir/deb" && apt-get download -qq "${packages[@]}" 2>/dev/null)
for archive in "$dir"/deb/*.deb; do
  dpkg-deb -x "$archive" "$dir"
done
for program in "$dir"/usr/bin/* "$dir"/usr/sbin/* "$dir/usr/lib/openvswitch-switch/ovs-vswitchd"; do
  if [ -f "$program" ] && [ -x "$program" ]; then
    ln -sf "$program" "$dir/bin/"
  fi
done

for program in ovs-vswitchd ovsdb-server ovsdb-client ovsdb-tool ovs-vsctl ovs-ofctl ovs-appctl ovs-dpctl; do
  if ! "$dir/bin/$program" --version >/dev/null; then
    echo "unpack.sh: $program was unpacked but does not start" >&2
    exit 1
  fi
done
"$dir/bin/ovs-vswitchd" --version | head -1 | tee "$dir/complete"
