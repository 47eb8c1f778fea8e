#!/usr/bin/env bash
# Lays out Debian's newest Open vSwitch in DIR without installing it: its programs serve the tests as clients and oracles,
# and none of its services starts. All shared libraries that it needs are laid out beside it, the C library too, and its
# programs are bound to them: the system gains only patchelf, which binds them.
#
# usage: tests/peers/unpack.sh [DIR [dpdk] [ovn] [doc] [suite=NAME]]      (root; DIR is .cache/peers of this clone by default)
#   dpdk   also the switch daemon that is built with DPDK, for measurements: DIR/bin/ovs-vswitchd-dpdk
#   ovn    also OVN's programs: DIR/bin/ovn-northd, ovn-controller, ovn-nbctl, ...
#   doc    also the documents that are packaged apart
#   suite  Debian's suite, `system` for that of this system; by default the first of sid, forky and that one that has
#          everything
#
# DIR/bin links the programs, DIR/usr/share/openvswitch and DIR/usr/share/ovn have the schemas, DIR/usr/share/man the
# manual pages, DIR/usr/lib/python3/dist-packages the Python package `ovs`, DIR/deb the packages that Flowstone's replaces,
# as archives. The line that is printed has the version found.
# A DIR that was finished before, with what is asked for, is left as it is.
set -euo pipefail
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/packages.sh
. "$top/tests/packages.sh"

dir=${1:-$top/.cache/peers}
system=$(. /etc/os-release && echo "${VERSION_CODENAME:-stable}")
suites=(sid forky "$system")
packages=(openvswitch-common openvswitch-switch openvswitch-testcontroller openvswitch-vtep python3-openvswitch)
# Scripts, whose dependencies are not wanted.
scripts=(openvswitch-ipsec)
programs=(ovs-vswitchd ovsdb-server ovsdb-client ovsdb-tool ovs-vsctl ovs-ofctl ovs-appctl ovs-dpctl ovs-testcontroller vtep-ctl)
drivers=
for word in "${@:2}"; do
  case $word in
    dpdk)
      packages+=(openvswitch-switch-dpdk)
      programs+=(ovs-vswitchd-dpdk)
      # DPDK's drivers are plugins, which nothing depends on.
      drivers='^librte-(bus-[a-z]+|mempool-ring|net-(null|pcap|ring))[0-9]*$'
      ;;
    ovn)
      packages+=(ovn-common ovn-central ovn-host ovn-controller-vtep ovn-ic ovn-ic-db)
      programs+=(ovn-northd ovn-nbctl ovn-sbctl ovn-controller ovn-controller-vtep ovn-ic)
      ;;
    doc) packages+=(openvswitch-doc ovn-doc) ;;
    suite=system) suites=("$system") ;;
    suite=*) suites=("${word#suite=}") ;;
    *) echo "unpack.sh: unknown word '$word' (dpdk, ovn, doc, suite=NAME)" >&2; exit 2 ;;
  esac
done

# first_that_fails: the first of the programs that does not start, or nothing.
first_that_fails() {
  local program
  for program in "${programs[@]}"; do
    "$dir/bin/$program" --version >/dev/null 2>&1 || { echo "$program"; break; }
  done
}

# is_complete: whether DIR has all that is asked for.
is_complete() {
  local package
  [ -e "$dir/complete" ] && [ -z "$(first_that_fails)" ] || return 1
  for package in "${packages[@]}" "${scripts[@]}"; do grep -qx "$package" "$dir/complete" || return 1; done
}

mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
if is_complete; then
  head -1 "$dir/complete"
  exit 0
fi
need_root
apt_lists
need_packages patchelf:patchelf

# The mirror that this system uses.
mirror=$({ cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources 2>/dev/null || true; } |
  sed 's/#.*//' | grep -oE 'https?://[^ ]*/debian/?( |$)' | head -1 | tr -d ' ')
if [ -z "$mirror" ]; then
  echo "unpack.sh: the system's sources of packages name no mirror of Debian" >&2
  exit 1
fi

# apt, with lists of its own, in which nothing is installed.
state=$dir/apt
apt=(-o "Dir::Etc::sourcelist=$state/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$state/lists"
  -o "Dir::Cache=$state/cache" -o "Dir::State::status=$state/status" -o APT::Sandbox::User=root)
suite_apt() { apt-"$1" "${apt[@]}" "${@:2}"; }

# has_all SUITE: whether the suite has the packages. Fetches its lists.
has_all() {
  local package
  rm -rf "$state"
  mkdir -p "$state/lists/partial" "$state/cache/archives/partial"
  : >"$state/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $1 main" >"$state/sources.list"
  suite_apt get update -qq 2>/dev/null || return 1
  for package in "${packages[@]}" "${scripts[@]}"; do
    suite_apt cache show "$package" >/dev/null 2>&1 || return 1
  done
}

# closure PACKAGE...: the libraries that the packages depend on, directly or not; of other packages nothing is wanted.
closure() {
  suite_apt cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces --no-enhances \
    --no-pre-depends "$@" | awk '/^lib/ { print $1 }' | sort -u | grep -vE -e '-(dev|perl)$' -e '^lib(pam|readline)'
}

# lay_out SUITE: unpacks everything of the suite, and binds the programs to its libraries.
lay_out() {
  has_all "$1" || { echo "unpack.sh: Debian's suite $1 is not there, or lacks packages" >&2; return 1; }
  local wanted=("${packages[@]}") archive program libraries interpreter failing
  if [ -n "$drivers" ]; then
    mapfile -t -O ${#wanted[@]} wanted < <(suite_apt cache pkgnames librte- | grep -E "$drivers")
  fi
  mapfile -t -O ${#wanted[@]} wanted < <(closure "${wanted[@]}")
  wanted+=("${scripts[@]}")
  rm -rf "$dir/deb" "$dir/bin" "$dir/usr" "$dir/complete"
  mkdir -p "$dir/deb" "$dir/bin"
  (cd "$dir/deb" && suite_apt get download -qq "${wanted[@]}") || return 1
  for archive in "$dir"/deb/*.deb; do
    dpkg-deb -x "$archive" "$dir" || return 1
  done
  # Older suites have the C library in DIR/lib.
  libraries=$(find "$dir/usr/lib" "$dir/lib" -name 'lib*.so*' -path '*-linux-gnu/*' -printf '%h\n' 2>/dev/null |
    grep -E -- '-linux-gnu$' | sort -u | paste -sd:)
  interpreter=$(find "$dir/usr/lib" "$dir/lib" -name 'ld-linux*.so*' -print -quit 2>/dev/null)
  for program in "$dir"/usr/bin/* "$dir"/usr/sbin/* "$dir"/usr/lib/openvswitch-switch*/ovs-vswitchd*; do
    [ -f "$program" ] && [ -x "$program" ] || continue
    if [ "$(head -c 4 "$program" | tail -c 3)" = ELF ]; then
      patchelf --force-rpath --set-interpreter "$interpreter" --set-rpath "$libraries" "$program" 2>/dev/null || continue
    fi
    ln -sf "$program" "$dir/bin/"
  done
  find "$dir/deb" -name '*.deb' ! -name 'openvswitch-common_*' ! -name 'openvswitch-switch_*' -delete
  rm -rf "$state"
  failing=$(first_that_fails)
  [ -z "$failing" ] || { echo "unpack.sh: $failing of suite $1 was unpacked but does not start" >&2; return 1; }
}

for suite in "${suites[@]}"; do
  if lay_out "$suite"; then
    { "$dir/bin/ovs-vswitchd" --version | head -1; printf '%s\n' "${packages[@]}" "${scripts[@]}"; } >"$dir/complete"
    head -1 "$dir/complete"
    exit 0
  fi
done
exit 1
