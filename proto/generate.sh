#!/bin/sh
# Writes proto/gen from proto/*.proto, when they changed since the last time: a module for each edge, as a process keeps in memory
# what it loads.
set -eu
cd "$(dirname "$0")"
stamp=$(cat ./*.proto generate.sh ../package-lock.json | sha256sum)
if [ -f gen/stamp ] && [ "$(cat gen/stamp)" = "$stamp" ]; then exit 0; fi
PATH="$PWD/../node_modules/.bin:$PATH"
out=$(mktemp -d gen.XXXXXX)
trap 'rm -rf "$out"' EXIT
# generate NAME OPTION... FILE... : writes NAME.js.
generate() {
  name=$1
  shift
  pbjs -t static-module -r "$name" -w es6 --es6 --no-service --no-verify --no-delimited --no-convert --force-number --keep-case=false -p . -o "$out/$name.js" "$@"
}
# module NAME FILE... : writes NAME.js and its types.
module() {
  generate "$@"
  pbts -o "$out/$1.d.ts" "$out/$1.js" >/dev/null
  # The types come from comments, which every thread that loads the code would keep as text.
  generate "$@" --no-comments
  # The generated import has no file extension, which Node's ESM loader requires.
  sed -i 's#from "protobufjs/minimal"#from "protobufjs/minimal.js"#; s#from "protobufjs/minimal.js.js"#from "protobufjs/minimal.js"#' "$out/$1.js"
}
module resources workload.proto authorization.proto
module discovery discovery.proto
module ca ca.proto
module cri cri.proto
module zds zds.proto
printf '%s' "$stamp" >"$out/stamp"
rm -rf gen
chmod 755 "$out"
mv "$out" gen
trap - EXIT
