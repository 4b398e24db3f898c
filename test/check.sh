#!/bin/sh
# Format, lint (type-aware, import cycles) and types. Layer rules stand in test/tidy.test.ts.
set -u
cd "$(dirname "$0")/.."
PATH="$PWD/node_modules/.bin:$PATH"
status=0
step() {
  name=$1
  shift
  if output=$("$@" 2>&1); then
    echo "check: $name ok"
  else
    printf '%s\n' "$output"
    echo "check: $name FAILED"
    status=1
  fi
}
step format oxfmt --check .
step lint oxlint --type-aware --deny-warnings
step types tsc --noEmit
exit $status
