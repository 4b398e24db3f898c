#!/bin/sh
# Writes proto/gen from proto/*.proto, when they changed since the last time.
set -eu
cd "$(dirname "$0")"
stamp=$(cat ./*.proto generate.sh ../package-lock.json | sha256sum)
if [ -f gen/stamp ] && [ "$(cat gen/stamp)" = "$stamp" ]; then exit 0; fi
PATH="$PWD/../node_modules/.bin:$PATH"
out=$(mktemp -d gen.XXXXXX)
trap 'rm -rf "$out"' EXIT
# Writes weft.js by the given further options.
generate() {
  pbjs -t static-module -w es6 --es6 --no-service --no-verify --no-delimited --no-convert --force-number --keep-case=false "$@" -p . -o "$out/weft.js" ./*.proto
}
generate
pbts -o "$out/weft.d.ts" "$out/weft.js" >/dev/null
# The types come from comments, which every thread that loads the code would keep as text.
generate --no-comments
# The generated import has no file extension, which Node's ESM loader requires.
sed -i 's#from "protobufjs/minimal"#from "protobufjs/minimal.js"#; s#from "protobufjs/minimal.js.js"#from "protobufjs/minimal.js"#' "$out/weft.js"
printf '%s' "$stamp" >"$out/stamp"
rm -rf gen
chmod 755 "$out"
mv "$out" gen
trap - EXIT
