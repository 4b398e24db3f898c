#!/bin/sh
# Builds build/weft-cni, a static program: hosts may lack every library. Skips the work when no source is newer.
set -eu
cd "$(dirname "$0")"
stamp=$(cat ./*.cc ./*.h build.sh | sha256sum)
if [ -f build/weft-cni ] && [ "$(cat build/stamp 2>/dev/null)" = "$stamp" ]; then exit 0; fi
mkdir -p build
tmp=build/weft-cni.$$
trap 'rm -f "$tmp"' EXIT
g++ -std=c++20 -Wall -Wextra -Werror -Os -static -s -ffunction-sections -fdata-sections -Wl,--gc-sections \
  -o "$tmp" ./*.cc
mv "$tmp" build/weft-cni
printf '%s' "$stamp" >build/stamp
