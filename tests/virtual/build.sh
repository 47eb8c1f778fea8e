#!/usr/bin/env bash
# Builds the files of a virtual machine that runs Debian's kernel, for tests that need what the kernel of the test machine
# may lack, such as its tunnel devices: DIR/kernel and DIR/initrd, which holds kernel modules, busybox, ip, tc,
# bridge and the programs of this folder. tests/e2e/virtual.py boots it in QEMU, which is installed here too; KVM is not needed.
#
# usage: tests/virtual/build.sh [DIR]      (root; DIR is .cache/virtual of this clone by default)
#
# A DIR that was finished before, from the same sources, is left as it is.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/packages.sh
. "$here/../packages.sh"
dir=${1:-$here/../../.cache/virtual}

# Modules of the machine, loaded in this order; their dependencies come along.
modules=(virtio_pci virtio_net dummy veth tun bonding 8021q bridge psample
  geneve vxlan ip_gre ip6_gre ipip sit ip6_tunnel fou fou6 gtp mpls_router mpls_iptunnel
  sch_ingress cls_flower cls_matchall cls_u32 act_gact act_mirred act_skbedit act_tunnel_key act_sample)

need_root
need_packages qemu-system-x86_64:qemu-system-x86 cpio:cpio cc:gcc ip:iproute2
# A compiler can be there without it.
if [ ! -e /usr/include/linux/gtp.h ]; then install_packages libc6-dev; fi
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
sources=$(cat "$here"/* | sha256sum)
if [ "$(cat "$dir/complete" 2>/dev/null)" = "$sources" ]; then exit 0; fi
rm -f "$dir/complete"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
mkdir -p "$root"/{bin,sbin,dev,proc,sys,tmp,run} "$work/unpacked"

# The packages are unpacked, not installed. The meta package depends on the newest kernel of the suite.
if [ ! -e "$dir/debs/complete" ]; then
  apt_lists
  image=$(apt-cache depends linux-image-amd64 | awk '/Depends: linux-image/ { print $2; exit }')
  rm -rf "$dir/debs"
  mkdir "$dir/debs"
  (cd "$dir/debs" && apt-get -o APT::Sandbox::User=root download -qq "$image" busybox-static)
  touch "$dir/debs/complete"
fi
for archive in "$dir"/debs/*.deb; do dpkg-deb -x "$archive" "$work/unpacked"; done
busybox=$(find "$work/unpacked" -path '*/bin/busybox' -type f -print -quit)
cp "$busybox" "$root/bin/busybox"
cp "$work"/unpacked/boot/vmlinuz-* "$dir/kernel"

# Newer releases have the modules under /usr, and may have them compressed.
tree=$(find "$work/unpacked" -path '*lib/modules/*' -name modules.builtin -printf '%h\n' -quit)
version=${tree##*/}
mkdir -p "$root/lib/modules/$version" "$work/depmod/lib/modules"
ln -s "$tree" "$work/depmod/lib/modules/$version"
"$busybox" depmod -b "$work/depmod" "$version"
for module in "${modules[@]}"; do
  name="(^|/)${module//_/[-_]}\.ko"
  if line=$(grep -E "^[^:]*$name[^/:]*:" "$tree/modules.dep"); then
    for file in ${line/:/ }; do
      (cd "$tree" && cp --parents "$file" "$root/lib/modules/$version/")
    done
    echo "$module" >>"$root/modules"
  elif ! grep -qE "$name" "$tree/modules.builtin"; then
    echo "build.sh: Linux $version has no module $module" >&2
    exit 1
  fi
done
cp "$tree/modules.dep" "$tree/modules.alias" "$root/lib/modules/$version/"

# Programs of this system, with their libraries.
for program in ip tc bridge; do
  path=$(command -v "$program")
  cp -L "$path" "$root/sbin/"
  ldd "$path" | grep -oE '/[^ ]+' | while read -r library; do
    mkdir -p "$root$(dirname "$library")"
    cp -L "$library" "$root$library"
  done
done
for source in "$here"/*.c; do
  program=$(basename "$source" .c)
  cc -static -O1 -Wall -Werror -o "$root/sbin/${program//_/-}" "$source"
done
install -m 755 "$here/init" "$root/init"
install -m 755 "$here/agent" "$root/agent"

(cd "$root" && find . -print0 | cpio --quiet --null -o -H newc) | gzip -6 >"$dir/initrd"
echo "$sources" >"$dir/complete"
echo "virtual machine with Linux $version"
