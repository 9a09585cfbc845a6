#!/usr/bin/env bash
# gpu_script_test.sh SOURCE_DIR: scripts/gpu says so when a step crashes, ends early or hangs, and
# prints its JSON all the same. Programs of a few lines stand in for Baton's.
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
program baton-burn <<<'echo "{\"gpu_seconds\": 1.0, \"launches\": 100}"'
program baton-simgpu <<<'true'
program batond <<<'exec sleep 60'
# run --request 100 --name NAME -- PROGRAM...
program baton <<<'[ "$1" = run ] && shift 6 && exec "$@"; true'
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
expect() { # expect MODE STATUS PATTERN...: each is to be found in the JSON
  local mode=$1 status=0 json pattern
  json=$(SUITE_MODE=$mode "$script" --build "$dir/build" --simulated --seconds 1 --limit 2 \
    2>"$dir/log" | tail -n 1) || status=$?
  [ "$status" = "$2" ] || { echo "$mode: exit status $status, not $2"; wrong=1; }
  shift 2
  for pattern in "$@"; do
    grep -qF -- "$pattern" <<<"$json" || { echo "$mode: no '$pattern' in: $json"; wrong=1; }
  done
}
expect clean 0 '"ok": true' '"failures": []' '"passed": 2, "failed": 0, "skipped": 1'
expect crash 1 '"ok": false' 'conformance bare: exit status 139' '"tests": 3, "passed": 1'
expect stop 1 '"ok": false' 'conformance under the hook: tests passed or skipped: 1 is not == 3'
expect fail 1 '"ok": false' 'conformance bare: tests failed: 1 is not == 0'
expect hang 1 '"ok": false' 'conformance bare: ended at its limit of 2 s' '"alone_of_bare": 1.0'
program baton-demo <<<'echo "{\"max_error\": 0.5"; exit 1'
expect clean 1 '"ok": false' '60/30/10: exit status 1' '60/30/10: printed no figures' '"fair": null'
program batond <<<'exit 1'
program baton <<<'exit 1'
expect clean 1 'batond did not start' 'the run ended before its end' '"hooked": null'
exit "$wrong"
