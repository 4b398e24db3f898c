#!/bin/sh
# Builds build/weft.node from the *.cc files of this folder, when one of them (or this script) is newer.
# One compiler call against the headers of the pinned Node; no node-gyp.
set -eu
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
out=build/weft.node
# The stamp names the headers too: another Node means another build.
stamp=$(cat ./*.cc ./*.h build.sh "$include/node_version.h" | sha256sum)
if [ -f "$out" ] && [ "$(cat build/stamp 2>/dev/null)" = "$stamp" ]; then exit 0; fi
mkdir -p build
# nodelete: the splice pump's thread runs this code for as long as the process lives, whichever thread loaded it.
# Written beside and renamed: a running process keeps the file it has mapped.
tmp=build/weft.$$.node
trap 'rm -f "$tmp"' EXIT
g++ -std=c++17 -Wall -Wextra -Werror -O2 -fPIC -shared -fvisibility=hidden -pthread -Wl,-z,nodelete \
  -DNAPI_VERSION=9 -isystem "$include" -o "$tmp" ./*.cc
mv "$tmp" "$out"
printf '%s' "$stamp" >build/stamp
