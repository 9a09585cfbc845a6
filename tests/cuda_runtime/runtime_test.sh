#!/usr/bin/env bash
# runtime_test.sh BUILD_DIR MODE: baton-runtime and baton-runtime-ptds in this mode on a simulated GPU,
# bare and as a pod under the hook.
set -euo pipefail
build=$1
mode=$2
if ! [ -x "$build/bin/baton-runtime" ]; then
  echo "skipped: there was no nvcc when this was built"
  exit 77
fi
if [ -z "${BATON_SIM_EXPORT_TABLES:-}" ]; then
  echo "skipped: on the simulated GPU NVIDIA's runtime needs BATON_SIM_EXPORT_TABLES (sim/README.md)"
  exit 77
fi
dir=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)/baton-runtime.XXXXXX")
daemon=
finish() {
  [ -z "$daemon" ] || { kill "$daemon"; wait "$daemon"; } 2>/dev/null || true
  rm -rf "$dir"
}
trap finish EXIT
trap 'exit 130' INT TERM
"$build/bin/baton-simgpu" create "$dir/0.gpu"
export BATON_SIM_DEVICES=$dir/0.gpu BATON_SIM_KERNEL_NS=20000
export LD_LIBRARY_PATH=$build/lib/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
mkdir "$dir/run"
cat >"$dir/batond.toml" <<TOML
[server]
socket_dir = "$dir/run"
state_dir = "$dir/state"
lock_dir = "$dir/locks"
[http]
listen = ""
TOML
"$build/bin/batond" --config "$dir/batond.toml" 2>"$dir/batond.log" &
daemon=$!
export BATON_SOCKET_DIR=$dir/run
for _ in $(seq 100); do
  "$build/bin/baton" status >/dev/null 2>&1 && break
  sleep 0.1
done
wrong=0
for program in baton-runtime baton-runtime-ptds; do
  for how in "" "$build/bin/baton run --request 50 --"; do
    # shellcheck disable=SC2086
    if ! timeout 50 $how "$build/bin/$program" "$mode" --seconds 1; then
      echo "${how:-bare} $program $mode failed"
      wrong=1
    fi
  done
done
exit "$wrong"
