# For sourcing by ./run, ./test and tests/peers/unpack.sh: Debian packages, installed only where they are missing.

# apt_lists: makes sure that apt knows of packages at all, which a fresh image does not.
apt_lists() {
  if [ -z "$(find /var/lib/apt/lists -name '*_Packages*' -print -quit 2>/dev/null)" ]; then
    apt-get update -qq
  fi
}

# install_packages PACKAGE...: without what they only recommend.
install_packages() {
  echo "installing $*"
  apt_lists
  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

# need_packages COMMAND:PACKAGE...: installs the packages whose command is not there.
need_packages() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%:*}" >/dev/null 2>&1 || missing+=("${pair#*:}")
  done
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
}

# need_root: network namespaces and packet sockets are for root alone.
need_root() {
  [ "$(id -u)" = 0 ] && return 0
  echo "$(basename "$0"): run this as root (network namespaces and packet sockets need it)" >&2
  exit 1
}

# need_rust: the compiler is the one thing that is not installed from here.
need_rust() {
  command -v cargo >/dev/null 2>&1 && return 0
  if [ -x "$HOME/.cargo/bin/cargo" ]; then
    PATH="$HOME/.cargo/bin:$PATH"
    return 0
  fi
  echo "$(basename "$0"): cargo is not there; install Rust 1.95 or newer first (https://rustup.rs)" >&2
  exit 1
}
