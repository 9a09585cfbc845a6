#!/usr/bin/env bash
# gpu_script_test.sh SOURCE_DIR: scripts/gpu says so when a step crashes, ends early or hangs, goes on
# with the next one, and prints its JSON all the same. Programs of a few lines stand in for Baton's.
set -euo pipefail
script=$1/scripts/gpu
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT INT TERM
mkdir -p "$dir/build/bin"

program() { # program NAME: its text comes by standard input
  { echo '#!/usr/bin/env bash'; cat; } >"$dir/build/bin/$1"
  chmod +x "$dir/build/bin/$1"
}
program baton-demo <<<'echo "{\"max_error\": 0.5}"'
program baton-burn <<<'echo "{\"gpu_seconds\": 1.0, \"elapsed\": 1.0, \"share\": 100, \"launches\": 100, \"verified\": true}"'
program baton-simgpu <<<'true'
program batond <<<'exec sleep 60'
# run --name NAME FLAG... -- PROGRAM...; the rest is `status`.
program baton <<'BATON'
if [ "$1" = run ]; then
  while [ "$1" != -- ]; do shift; done
  shift
  exec "$@"
fi
BATON
program baton-memory <<<'echo "{\"total\": 1073741824, \"got\": $GOT, \"refused\": \"CUDA_ERROR_OUT_OF_MEMORY (2)\"}"'
# Steps are what it is told by its pod's name, results too; it waits for the others.
program baton-runtime <<'RUNTIME'
[ "$1" = check ] && [ "${NO_RUNTIME:-}" = 1 ] && { echo "no runtime" >&2; exit 77; }
[ "$1" = check ] || [ "$1" = api ] || [ "$1" = capture ] && exit 0
touch "$3"
name=${3##*.}
label=${3%.*}
while [ ! -e "$5" ]; do sleep 0.01; done
case $name in
  bare | alone) n=1000 ;; half | other) n=500 ;;
  most) n=600; [ "$1" != graph ] || n=200 ;; some) n=300 ;; little) n=100 ;;
esac
r=same
[ "${label##*.}-$name" != runtime_ptds-little ] || r=other
echo "{\"steps\": $n, \"result\": \"$r\"}"
RUNTIME
cp "$dir/build/bin/baton-runtime" "$dir/build/bin/baton-runtime-ptds"
program driver_conformance <<'SUITE'
if [ "${1:-}" = --gtest_list_tests ]; then printf 'Suite.\n  One\n  Two\n  Three\n'; exit; fi
echo '[       OK ] Suite.One (1 ms)'
if [ "$SUITE_MODE" = crash ]; then kill -SEGV $$; fi
if [ "$SUITE_MODE" = stop ]; then exit 0; fi
if [ "$SUITE_MODE" = hang ]; then sleep 60; fi
if [ "$SUITE_MODE" = fail ]; then echo '[  FAILED  ] Suite.Two (1 ms)'; else echo '[       OK ] Suite.Two (1 ms)'; fi
echo '[  SKIPPED ] Suite.Three (1 ms)'
[ "$SUITE_MODE" != fail ]
SUITE

wrong=0
export GOT=1073741824 BATON_SIM_EXPORT_TABLES=none
only=()
expect() { # expect MODE STATUS PATTERN...: each is to be found in the JSON
  local mode=$1 status=0 json pattern
  json=$(SUITE_MODE=$mode "$script" --build "$dir/build" --simulated --seconds 1 --limit "${LIMIT:-30}" \
    --raw "$dir/raw" "${only[@]}" 2>"$dir/log" | tail -n 1) || status=$?
  [ "$status" = "$2" ] || { echo "$mode: exit status $status, not $2"; cat "$dir/log"; wrong=1; }
  shift 2
  for pattern in "$@"; do
    grep -qF -- "$pattern" <<<"$json" || { echo "$mode: no '$pattern' in: $json"; wrong=1; }
  done
}
only=(--only shares --only strict --only alone --only conformance --only memory --only runtime --only pytorch)
NO_RUNTIME=1 expect clean 0 '"ok": true' '"failures": []' '"passed": 2, "failed": 0, "skipped": 1' \
  '"alone_of_bare": 1.0' '"skipped": {"runtime": "runtime-check: no runtime", "pytorch": "the simulated GPU computes nothing"}'
only=(--only conformance)
expect stop 1 '"ok": false' 'conformance under the hook: tests passed or skipped: 1 is not == 3'
expect fail 1 '"ok": false' 'conformance bare: tests failed: 1 is not == 0'
LIMIT=2 expect hang 1 '"ok": false' 'conformance bare: ended at its limit of 2 s'
only=(--only conformance --only memory)
GOT=2147483648 expect crash 1 '"ok": false' 'conformance bare: exit status 139' '"tests": 3, "passed": 1' \
  '"memory_cap": {"total"' 'memory: bytes that it got: 2147483648 is not <= 1073741824'
only=(--only runtime)
expect clean 1 '"runtime_stream": {"of_bare": 1.00000, "two": [50.00, 50.00], "three": [60.00, 30.00, 10.00]' \
  'runtime_graph: a share of 33.33 percent is 26.67 points from 60' \
  'runtime_ptds: beside others it computes other, and alone same'
program baton-demo <<<'echo "{\"max_error\": 0.5"; exit 1'
only=(--only shares --only results)
expect clean 1 '"ok": false' '60/30/10: exit status 1' '60/30/10: printed no figures' '"fair": null' '"results_verified": 100'
program batond <<<'exit 1'
program baton <<<'exit 1'
only=(--only alone)
expect clean 1 'alone: batond did not start' '"alone_of_bare": null'
[ "$(grep -c 'baton-demo --json' "$dir/raw")" -ge 2 ] || { echo "the raw file lacks a command"; wrong=1; }
[ "$("$script" --list | wc -l)" -ge 15 ] || { echo "--list lists too little"; wrong=1; }
"$script" --only nonsense 2>"$dir/log" && { echo "--only nonsense was taken"; wrong=1; }
# Python programs say what they lack.
if command -v python3 >/dev/null; then
  for words in "torch_steps.py eager" "jax_steps.py steps"; do
    status=0
    # shellcheck disable=SC2086
    CUDA_VISIBLE_DEVICES= timeout 60 python3 "$1/scripts/gpu-steps/"$words 2>"$dir/log" >/dev/null || status=$?
    [ "$status" = 77 ] && grep -q '^unavailable: ' "$dir/log" || { echo "$words: $status"; cat "$dir/log"; wrong=1; }
  done
fi
exit "$wrong"
