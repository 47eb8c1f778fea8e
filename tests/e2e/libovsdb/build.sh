#!/usr/bin/env bash
# Builds the program beside this script with the modules that go.mod names.
#
# usage: tests/e2e/libovsdb/build.sh FILE
#
# Go 1.21 and later fetch a newer toolchain by themselves where go.mod wants one. An older Go, such as Debian's, fetches
# it here as what it is: a module. Environment: GOMODCACHE and GOCACHE as Go has them.
set -euo pipefail
cd "$(dirname "$0")"
file=$1
wanted=$(awk '$1 == "go" { print $2 }' go.mod)
go=go
minor=$(go env GOVERSION | sed -n 's/^go1\.\([0-9]*\).*/\1/p')
if [ "${minor:-0}" -lt 21 ]; then
  toolchain=golang.org/toolchain@v0.0.1-go$wanted.$(go env GOOS)-$(go env GOARCH)
  # Outside of the module, whose go.mod an older Go would complain about.
  directory=$(cd / && go mod download -json "$toolchain" | sed -n 's/^\t"Dir": "\(.*\)",*$/\1/p')
  # Modules have no permissions to execute files.
  chmod -R u+wx "$directory/bin" "$directory/pkg/tool"
  export GOROOT=$directory GOTOOLCHAIN=local
  go=$directory/bin/go
fi
# Compiling is what takes long, not running.
CGO_ENABLED=0 exec "$go" build -gcflags="all=-N -l" -buildvcs=false -trimpath -o "$file" .
