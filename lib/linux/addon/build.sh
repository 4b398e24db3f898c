#!/bin/sh
# Builds build/weft.node from the *.cc files of this folder and of carry/, when one of them (or this script) is newer.
# One compiler call a file, on all processors, against the headers of the pinned Node; no node-gyp.
#   sh build.sh                   builds build/weft.node
#   sh build.sh FOLDER FLAGS...   builds FOLDER/weft.node with further flags of the compiler, for tests
set -eu
out=${1:-build}
if [ $# -gt 0 ]; then shift; fi
flags=$*
case $out in
  /* | build) ;;
  *) out=$PWD/$out ;;
esac
cd "$(dirname "$0")"
case $(uname -m) in
  x86_64) arch=x64 ;;
  aarch64 | arm64) arch=arm64 ;;
  *)
    echo "addon: no pinned Node for $(uname -m)" >&2
    exit 1
    ;;
esac
include=../../../node_modules/node-linux-$arch/include/node
if ! [ -f "$include/node_api.h" ]; then
  echo "addon: $include/node_api.h is missing: run npm ci" >&2
  exit 1
fi
made=$out/weft.node
# The stamp names the headers too: another Node means another build.
stamp=$({ cat ./*.cc ./*.h carry/*.cc carry/*.h build.sh "$include/node_version.h" && echo "$flags"; } | sha256sum)
if [ -f "$made" ] && [ "$(cat "$out/stamp" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
mkdir -p "$out"
# nodelete: the threads of the splice pump and of the carry run this code for as long as the process lives, whichever thread loaded it.
# Written beside and renamed: a running process keeps the file it has mapped.
tmp=$out/new.$$
mkdir "$tmp"
trap 'rm -rf "$tmp"' EXIT
# The name of an object has no folder: no two files share their name.
printf '%s\n' ./*.cc carry/*.cc | xargs -P "$(nproc)" -I FILE sh -c '
  g++ -std=c++20 -Wall -Wextra -Werror -O2 -fPIC -fvisibility=hidden -pthread -DNAPI_VERSION=9 $4 \
    -isystem "$1" -c "$3" -o "$2/$(basename "$3").o"' sh "$include" "$tmp" FILE "$flags"
# shellcheck disable=SC2086 # one word per flag
g++ -shared -pthread -Wl,-z,nodelete $flags -o "$tmp/weft.node" "$tmp"/*.o
mv "$tmp/weft.node" "$made"
printf '%s' "$stamp" >"$out/stamp"
