# Starts Redis after a look at its append-only file: `sh serve.sh DIRECTORY CONFIGURATION`, where the configuration's `dir` is
# DIRECTORY. A power loss may leave zeros at the end of that file, with which Redis would never start again. Nobody else may
# use the directory meanwhile. docs/redis.md tells what is lost.
set -eu
directory=$1/appendonlydir
manifest=$directory/appendonly.aof.manifest

say() { echo "weft-redis: $*"; }

# A file that is no manifest counts as commands: to redis-check-aof its repair is to empty it.
is_manifest() { grep -aq '^file ' "$manifest"; }

if [ -e "$manifest" ] && ! { is_manifest && redis-check-aof "$manifest" >/dev/null 2>&1; }; then
  if is_manifest && report=$(echo y | redis-check-aof --fix "$manifest" 2>&1); then
    say "repaired a damaged append-only file: $(printf '%s\n' "$report" | sed -n 's/^This will shrink the //p')"
  else
    rm -rf "$directory.damaged"
    mv "$directory" "$directory.damaged"
    say "the append-only file is beyond repair: starts empty, moved it to $directory.damaged"
  fi
fi
exec redis-server "$2"
