#!/bin/sh
# Brings a checkout to the state in which `weft` and the tests run: Debian packages, npm packages, generated
# code, the native addon, the `weft` link and the built programs. Safe to repeat, quick when nothing is to do.
# Runs as npm's prestart and pretest under whatever Node the machine has. Progress goes to standard error.
#   sh infra/setup.sh           installs the needs of a mesh
#   sh infra/setup.sh --bench    and those of the benchmark
#   sh infra/setup.sh --test     and those of the tests, the short benchmark included
#   sh infra/setup.sh --interop  and those of the tests with other implementations; Go ones fetch their own modules
#   sh infra/setup.sh --native   and those of the tests of native code: a second compiler and OpenSSL's headers
#   sh infra/setup.sh --docker   and those of the tests with containers
#   sh infra/setup.sh --cluster  and those of the tests on a cluster
set -eu

mode=${1:-}
case $mode in
  '' | --bench | --test | --interop | --native | --docker | --cluster) ;;
  *)
    printf 'usage: sh infra/setup.sh [--bench | --test | --interop | --native | --docker | --cluster]\n' >&2
    exit 2
    ;;
esac

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
cd "$root"
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
export PATH

say() { printf 'setup: %s\n' "$*" >&2; }
fail() {
  printf 'setup: %s\n' "$*" >&2
  exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# The CNI plugin is linked with it.
have_musl() { [ -e "/usr/lib/$(uname -m)-linux-musl/libc.a" ]; }

# Prints the missing Debian packages that a mesh needs, one a line.
missing_packages() {
  have redis-server || echo redis-server
  have iptables-restore || echo iptables
  have nft || echo nftables
  have ipset || echo ipset
  { have ip && have ss; } || echo iproute2
  have g++ || echo g++
  have make || echo make
  have_musl || echo musl-dev
  have curl || echo curl
  { have ps && have sysctl; } || echo procps
  have nsenter || echo util-linux
  for library in /usr/lib/*/libatomic.so.1 /usr/lib/libatomic.so.1 /lib/*/libatomic.so.1; do
    if [ -e "$library" ]; then return; fi
  done
  echo libatomic1
}

# Prints the missing Debian packages that only tests or the benchmark need.
missing_extras() {
  case $mode in
    --test)
      have tcpdump || echo tcpdump
      have dig || echo bind9-dnsutils
      have redis-cli || echo redis-tools
      have promtool || echo prometheus
      have bash || echo bash
      have faketime || echo faketime
      [ -e /usr/include/openssl/ssl.h ] || echo libssl-dev
      /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null || echo python3-prometheus-client
      ;;
    --bench) ;;
    --docker | --cluster)
      # With it come containerd and runc.
      have dockerd || echo docker.io
      have debootstrap || echo debootstrap
      have docker-compose || echo docker-compose
      have tcpdump || echo tcpdump
      return
      ;;
    --native)
      have clang++ || echo clang libclang-rt-14-dev
      [ -e /usr/include/openssl/ssl.h ] || echo libssl-dev
      return
      ;;
    --interop)
      have nghttp || echo nghttp2-client
      return
      ;;
    *) return ;;
  esac
  have openssl || echo openssl
  have haproxy || echo haproxy
  have iperf3 || echo iperf3
  have wrk || echo wrk
  have gcc || echo gcc
}

# Debian starts the services of installed packages. Prevent that, because the mesh runs its own Redis.
decline_service_starts() {
  policy=/usr/sbin/policy-rc.d
  if [ -e "$policy" ]; then return; fi
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 755 "$policy"
  trap 'rm -f /usr/sbin/policy-rc.d' EXIT INT TERM
}

apt_install() {
  decline_service_starts
  export DEBIAN_FRONTEND=noninteractive
  # shellcheck disable=SC2086 # one word per package
  apt-get install -y -q --no-install-recommends $1 >&2 ||
    { apt-get update -q >&2 && apt-get install -y -q --no-install-recommends $1 >&2; }
}

install_packages() {
  packages=$(missing_packages | tr '\n' ' ')
  if [ -z "$packages" ]; then return; fi
  if [ "$(id -u)" != 0 ] || ! have apt-get; then
    say "missing Debian packages: $packages"
    say "install them as root: apt-get install --no-install-recommends $packages"
    case " $packages" in
      *" g++ "* | *" make "*) say 'without g++ and make the native addon is not built: no mesh, no netns tests' ;;
    esac
    case " $packages" in
      *" redis-server "*) say 'without redis-server only unit tests and commands that need no mesh work' ;;
      *) say 'unit and integration tests that need no network namespaces still work' ;;
    esac
    return
  fi
  say "installing Debian packages: $packages"
  apt_install "$packages" || fail "apt-get could not install: $packages"
}

# A missing one is no failure, because tests that lack one are skipped.
install_extras() {
  extras=$(missing_extras | tr '\n' ' ')
  if [ -z "$extras" ]; then return; fi
  if [ "$(id -u)" != 0 ] || ! have apt-get; then
    say "for all tests and the benchmark, install as root: apt-get install --no-install-recommends $extras"
    return
  fi
  say "installing Debian packages: $extras"
  apt_install "$extras" || say "apt-get could not install: $extras; what needs them does not run"
}

# node_modules is current when it was installed from exactly this lock file. Without a stamp (somebody ran npm
# by hand) npm's own record decides, which is newer than the lock file it was made from.
packages_current() {
  stamp=node_modules/.weft-lock
  wanted=$(sha256sum <package-lock.json)
  if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ] && [ -x node_modules/.bin/node ]; then return 0; fi
  if [ -f "$stamp" ] || ! [ -x node_modules/.bin/node ]; then return 1; fi
  [ -n "$(find node_modules/.package-lock.json -newer package-lock.json 2>/dev/null)" ] || return 1
  printf '%s' "$wanted" >"$stamp"
}

# npm runs under the machine's Node here: the pinned one lives in the folder that npm ci replaces.
outside_path() {
  printf '%s' "$PATH" | tr ':' '\n' | grep -v '/node_modules/\.bin$' | grep -v '^$' | paste -sd: -
}

install_node_packages() {
  if packages_current; then return; fi
  say 'installing npm packages'
  outside=$(outside_path)
  PATH="$outside" command -v npm >/dev/null 2>&1 || fail 'npm is missing: install Node.js 20 or newer with npm'
  # The machine's npm warns that packages want a newer Node; they run on the pinned one.
  PATH="$outside" NODE_ENV='' npm_config_production='' npm ci --loglevel=error --no-fund --no-audit --ignore-scripts --include=dev --include=optional >&2 ||
    fail 'npm ci failed'
  [ -x node_modules/.bin/node ] ||
    fail "no pinned Node for this machine ($(uname -s) $(uname -m)); Weft runs on Linux x64 and arm64"
  sha256sum <package-lock.json | tr -d '\n' >node_modules/.weft-lock
}

# npm's part of `weft sbom`; the command leaves out what is marked as only for development.
list_parts() {
  parts=.cache/npm.cdx.json
  if [ -n "$(find "$parts" -newer node_modules/.weft-lock 2>/dev/null)" ]; then return; fi
  mkdir -p .cache
  if PATH="$(outside_path)" npm sbom --sbom-format=cyclonedx --loglevel=error >"$parts.new"; then
    mv "$parts.new" "$parts"
  else
    rm -f "$parts.new"
    say 'npm could not list the installed packages; this only costs weft sbom'
  fi
}

link_command() {
  target=../../services/cli/weft
  if [ "$(readlink node_modules/.bin/weft 2>/dev/null)" = "$target" ]; then return; fi
  ln -sf "$target" node_modules/.bin/weft
}

build_addon() {
  if ! [ -f lib/linux/addon/build.sh ]; then return; fi
  if ! have g++; then
    say 'the native addon is not built: g++ is missing'
    return
  fi
  sh lib/linux/addon/build.sh >&2 || fail 'the native addon does not build'
  if ! have_musl; then
    say 'the CNI plugin is not built: musl-dev is missing'
    return
  fi
  sh services/node-agent/cni/plugin/build.sh >&2 || fail 'the CNI plugin does not build'
}

# Actors run bundles: without types and comments they take half the time to start and a fifth less memory.
build_programs() {
  node infra/build.ts || fail 'the programs could not be built'
}

install_packages
install_extras
install_node_packages
list_parts
PATH="$root/node_modules/.bin:$PATH"
sh proto/generate.sh || fail 'proto/gen could not be generated'
build_addon
link_command
build_programs
