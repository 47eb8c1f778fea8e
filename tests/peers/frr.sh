#!/usr/bin/env bash
# Lays out FRR's routing daemons in DIR without installing them, for tests: bfdd is the other end of BFD sessions.
#
# usage: tests/peers/frr.sh [DIR]      (root; DIR is .cache/frr of this clone by default)
#
# The packages are Debian's, of this system's release. A DIR that was finished before is left as it is.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/packages.sh
. "$top/tests/packages.sh"
dir=${1:-$top/.cache/frr}
if [ -e "$dir/complete" ]; then exit 0; fi

need_root
apt_lists
# The libraries that a small system lacks; their names carry versions.
dependencies() { apt-cache depends "$1" | sed -nE "s/^ *Depends: ($2)/\1/p"; }
yang=$(dependencies frr 'libyang.*')
mapfile -t libraries < <(dependencies frr '(libjson-c|libc-ares|libcap|libreadline).*'; dependencies "$yang" 'libpcre2.*'; echo "$yang")
rm -rf "$dir"
mkdir -p "$dir/debs"
(cd "$dir/debs" && apt-get download -qq -o APT::Sandbox::User=root frr "${libraries[@]}")
for package in "$dir"/debs/*.deb; do dpkg -x "$package" "$dir"; done
rm -r "$dir/debs"
touch "$dir/complete"
