# Steps with programs of the driver API, which need nothing but Baton's build.

demo=(baton-demo --json --transport unix --no-contrast --seconds "$seconds" --tolerance 2)
$simulated || demo+=(--real)
burn=(baton-burn --seconds "$seconds" --warmup 1)

step_shares() {
  figures "60/30/10" "${demo[@]}"
  figure fair "$object"
  check "largest share error, points" "$(number "$object" max_error)" "<=" 2
}

step_central() {
  figures "60/30/10, central" "${demo[@]/unix/central}"
  figure central "$object"
  check "central: largest share error, points" "$(number "$object" max_error)" "<=" 2
}

step_strict() {
  figures "strict 30" "${demo[@]}" --pods strict:30:30
  figure strict "$object"
  check "strict pod's distance from 30, points" "$(number "$object" max_error)" "<=" 2
}

# of_bare NAME KEY ARGUMENT...: what the burn program gets as a pod, of what it gets bare, which
# becomes $of_bare.
of_bare() {
  local name=$1 key=$2 without
  shift 2
  figures "$name, bare" "${bare[@]}" "${burn[@]}" "$@"
  without=$(number "$object" "$key")
  pod "$name" --request 100
  figures "$name, as a pod" "${pod[@]}" "${burn[@]}" "$@"
  of_bare=$(ratio "$(number "$object" "$key")" "$without")
}

step_alone() {
  daemon
  of_bare alone gpu_seconds --kernel 1ms
  figure alone_of_bare "$of_bare"
  check "alone, of bare" "$of_bare" ">=" 0.97
}

step_launches() {
  daemon
  of_bare short-kernels launches --kernel 2us --burst 1000 --sync burst
  figure short_kernels_of_bare "$of_bare"
}

# conformance NAME COMMAND...: runs the suite; $verdict is what it said, as JSON. A program that ends
# in the middle has no failed test either, so what is not accounted for is a failure.
conformance() {
  local name="conformance $1" ok bad skip
  shift
  bounded "$name" "$@"
  read -r ok bad skip < <(awk '/^\[ *OK \]/ {ok++} /^\[ *FAILED *\].*ms\)/ {bad++}
    /^\[ *SKIPPED *\].*ms\)/ {skip++} END {print ok + 0, bad + 0, skip + 0}' "$log")
  say "$name: $ok passed, $bad failed, $skip skipped of $listed, exit status $status"
  [ "$status" = 0 ] || grep -vE '^\[ *(OK|RUN|-*) *\]' "$log" | tail -n 100 >&2 || true
  check "$name: tests failed" "$bad" "==" 0
  check "$name: tests passed or skipped" "$((ok + skip))" "==" "$listed"
  passed=$ok
  verdict="{\"tests\": $listed, \"passed\": $ok, \"failed\": $bad, \"skipped\": $skip, \"exit\": $status}"
}
step_conformance() {
  local suite=$build/bin/driver_conformance  # by its path: its death tests start it again
  local bare_passed
  listed=$(timeout 60 "$suite" --gtest_list_tests | grep -c '^  ' || true)
  check "conformance tests listed" "$listed" ">" 0
  daemon
  conformance bare "${bare[@]}" "$suite"
  figure conformance_bare "$verdict"
  bare_passed=$passed
  pod conformance --request 100
  conformance "under the hook" "${pod[@]}" "$suite"
  figure conformance_hooked "$verdict"
  check "conformance tests passed under the hook" "$passed" "==" "$bare_passed"
}

step_memory() {
  local cap=$((1 << 30))
  daemon
  pod capped --request 50 --memory 1GiB
  figures memory "${pod[@]}" baton-memory fill
  figure memory_cap "$object"
  check "memory: total that a pod with a cap of 1 GiB sees" "$(number "$object" total)" "==" "$cap"
  check "memory: bytes that it got" "$(number "$object" got)" "<=" "$cap"
  check "memory: bytes that it got" "$(number "$object" got)" ">=" $((cap * 9 / 10))
  [[ $(word "$object" refused) == CUDA_ERROR_OUT_OF_MEMORY* ]] ||
    failed "memory: refused with $(word "$object" refused)"
}

step_slice() {
  command -v nvidia-smi >/dev/null || skip "needs nvidia-smi"
  daemon
  pod slice --request 50 --memory 1GiB
  bounded slice "${pod[@]}" nvidia-smi --query-gpu=memory.total --format=csv,noheader,nounits
  figure nvidia_smi_mib "$(grep -oE '^[0-9]+' "$log" | head -1 | grep . || echo null)"
  check "slice: MiB that nvidia-smi shows in a pod with a cap of 1 GiB" "$(grep -oE '^[0-9]+' "$log" | head -1)" "==" 1024
  # As people look at it; with a process of the pod on the GPU, and one that is not the pod's.
  start slice-other "${bare[@]}" baton-burn --seconds $((seconds + 5))
  bounded slice-table "${pod[@]}" sh -c 'baton-burn --seconds 3 >/dev/null & sleep 2; nvidia-smi; wait'
}

step_results() {
  daemon
  local name
  for name in one two three; do
    pod "$name" --request 30
    start "results-$name" "${pod[@]}" "${burn[@]}" --verify --kernel 200us --threads 2
  done
  for name in one two three; do
    join "results-$name"
    object_of "results-$name"
    grep -q '"verified": *true' <<<"$object" || failed "results: pod $name has not verified its results"
  done
  figure results_verified "$(number "$object" launches)"
}

step_kill() {
  daemon
  pod victim --request 90
  start victim "${pod[@]}" baton-burn --seconds 600 --kernel 1ms
  local victim=${pids[victim]} killed=false _
  pod survivor --request 10
  # Its window begins when the other one is dead.
  start survivor "${pod[@]}" baton-burn --warmup 8 --seconds "$seconds" --kernel 1ms
  sleep 5
  # baton run below timeout, and the program below that: children are named by the kernel.
  local run program
  run=$(cat "/proc/$victim/task/$victim/children" 2>/dev/null | awk '{print $1}') || true
  program=$(cat "/proc/$run/task/$run/children" 2>/dev/null | awk '{print $1}') || true
  if [ -n "$program" ] && kill -KILL "$program"; then killed=true; fi
  $killed || failed "kill: the victim could not be found"
  join_killed victim
  join survivor
  object_of survivor
  figure survivor_share "$(number "$object" share)"
  check "kill: the share of the pod that is left, percent" "$(number "$object" share)" ">=" 95
  timeout 10 baton status >>"$raw" 2>&1 || failed "kill: batond does not answer"
}
# A program that was killed ends with 137, as it must.
join_killed() {
  status=0
  wait "${pids[$1]}" || status=$?
  unset "pids[$1]"
  [ "$status" = 137 ] || failed "$1: exit status $status, not 137 of a program that was killed"
}

step_handoff() {
  daemon
  local name before after lost floor
  figures handoff-floor "${bare[@]}" bench_gpu
  figure limits "$object"
  floor=$(number "$object" handoff)
  figures handoff-alone "${bare[@]}" "${burn[@]}" --kernel 500us
  local bare_alone alone
  bare_alone=$(ratio "$(number "$object" gpu_seconds)" "$(number "$object" elapsed)")
  # What a pod loses without any hand-off, to the hook's events, is not what a hand-off costs.
  pod only --request 100
  figures handoff-pod "${pod[@]}" "${burn[@]}" --kernel 500us
  alone=$(ratio "$(number "$object" gpu_seconds)" "$(number "$object" elapsed)")
  for name in one other; do
    pod "$name" --request 50
    start "handoff-$name" "${pod[@]}" baton-burn --kernel 500us --warmup 4 --seconds "$seconds"
  done
  sleep 4
  before=$(grants)
  sleep $((seconds > 2 ? seconds - 2 : 1))
  after=$(grants)
  local cost
  cost=$(number "$(timeout 10 baton status --json | tr -d '\n')" handoff_ns)
  local busy=0
  for name in one other; do
    join "handoff-$name"
    object_of "handoff-$name"
    busy=$(awk -v a="$busy" -v b="$(ratio "$(number "$object" gpu_seconds)" "$(number "$object" elapsed)")" 'BEGIN {print a + b}')
  done
  local per_second
  per_second=$(awk -v a="$before" -v b="$after" -v s=$((seconds > 2 ? seconds - 2 : 1)) 'BEGIN {printf "%.1f", (b - a) / s}')
  # What one costs the GPU: the drain of the one, and the way to the other.
  lost=$(awk -v a="$alone" -v b="$busy" -v n="$per_second" 'BEGIN {printf "%.1f", (n > 0 ? (a - b) / n * 1e6 : 0)}')
  figure handoff "{\"per_second\": $per_second, \"gpu_us_lost_by_each\": $lost, \"floor_us\": ${floor:-null}, \"of_floor\": $(ratio "$lost" "$floor"), \"cost_us\": $(awk -v n="${cost:-0}" 'BEGIN {printf "%.1f", n / 1000}'), \"busy\": $busy, \"busy_alone\": $alone, \"busy_bare\": $bare_alone}"
  check "handoff: hand-offs per second" "$per_second" ">" 0
  check "handoff: GPU busy with two pods, of alone" "$(ratio "$busy" "$alone")" ">=" 0.95
}

# pod_of NAME FIELD: what status says of it.
pod_of() {
  timeout 10 baton status --json | "$python" -c '
import json, sys
for pod in json.load(sys.stdin)["pods"]:
    if pod["name"] == sys.argv[1]:
        print(pod.get(sys.argv[2], 0))' "$@"
}

step_latency() {
  command -v "$python" >/dev/null || skip "needs Python; set PYTHON"
  daemon
  local name waits late
  for name in one other; do
    pod "$name" --request 45
    start "latency-$name" "${pod[@]}" "${burn[@]}" --kernel 1ms
  done
  pod service --request 10 --latency 10ms
  start latency-service "${pod[@]}" "${burn[@]}" --kernel 1ms --burst 3 --sync burst --period 50ms
  sleep "$seconds"  # until then the pods are there: their warm-up is a second
  waits=$(pod_of service latency_waits)
  late=$(pod_of service latency_late)
  for name in one other service; do join "latency-$name"; done
  object_of latency-service
  local in_time
  in_time=$(awk -v w="${waits:-0}" -v l="${late:-0}" 'BEGIN {printf "%.4f", (w > 0 ? 1 - l / w : 0)}')
  figure latency "{\"waits\": ${waits:-null}, \"late\": ${late:-null}, \"in_time\": $in_time, \"share\": $(number "$object" share)}"
  check "latency of 10 ms: waits in time" "$in_time" ">=" 0.99
}

# What the services do not use is the training pod's: 60 percent here, less the hand-offs to them.
step_services() {
  command -v "$python" >/dev/null || skip "needs Python; set PYTHON"
  daemon
  local count=20 name before after lead=12 at
  at=$("$python" -c 'import sys, time; print(time.monotonic_ns() + int(sys.argv[1]) * 10**9)' "$lead")
  for name in $(seq "$count"); do
    pod "service-$name" --request 3.5
    # Their bursts do not begin together: here within 50 ms, as if by chance.
    start "services-$name" "${pod[@]}" baton-burn --kernel 1ms --burst 1 --sync burst --period 50ms --start-at $((at + name * 7919 % 50 * 1000000)) --seconds "$seconds"
  done
  pod train --request 30
  start services-train "${pod[@]}" baton-burn --kernel 1ms --start-at "$at" --seconds "$seconds"
  sleep "$lead"
  before=$(grants)
  sleep $((seconds > 3 ? seconds - 3 : 1))
  after=$(grants)
  for name in train $(seq "$count"); do
    join "services-$name"
    object_of "services-$name"
    echo "$object"
  done >"$work/services.out"
  figure services "$("$python" -c '
import json, sys
train, *services = [json.loads(line) for line in open(sys.argv[1])]
middle = lambda values: sorted(values)[len(values) // 2]
share = lambda one: one["gpu_seconds"] / one["elapsed"] * 100
print(json.dumps({"train": round(share(train), 2), "services": round(sum(map(share, services)), 2),
    "gpu_busy": round(share(train) + sum(map(share, services)), 2),
    "wait_p50_ms": middle([one["wait_ms"]["p50"] for one in services]),
    "wait_p99_ms": middle([one["wait_ms"]["p99"] for one in services]),
    "worst_p99_ms": max(one["wait_ms"]["p99"] for one in services),
    "handoffs_per_s": float(sys.argv[2]) / float(sys.argv[3])}))' \
    "$work/services.out" $((after - before)) $((seconds > 3 ? seconds - 3 : 1)))"
  check "services: GPU time of the training pod, percent" "$(number "$(said services)" train)" ">=" 30
}

step_many() {
  figures "ten pods of 10" "${demo[@]}" --pods "$(seq -s , -f 'pod%.0f:10:100' 10)"
  figure many "$object"
  check "many: largest share error, points" "$(number "$object" max_error)" "<=" 1
}

loops=()
step_busy() {
  ! $simulated || skip "the simulated GPU computes on the processors"
  local _ alone
  trap 'kill "${loops[@]}"; end_step' EXIT
  for _ in $(seq $(($(nproc) * 2))); do
    sh -c 'while :; do :; done' </dev/null >/dev/null 2>&1 &
    loops+=($!)
  done
  figures "busy: one pod" "${demo[@]}" --pods alone:100:100
  alone=$(number "$object" gpu_busy)
  local transport
  for transport in unix central; do
    figures "busy: 60/30/10, $transport" "${demo[@]/unix/$transport}"
    check "busy: largest share error, points, $transport" "$(number "$object" max_error)" "<=" 2
    figure "$([ "$transport" = unix ] && echo busy || echo busy_central)" "{\"loops\": ${#loops[@]}, \"max_error\": $(number "$object" max_error), \"gpu_busy\": $(number "$object" gpu_busy), \"gpu_busy_alone\": $alone}"
    check "busy: GPU, of one pod's, $transport" "$(ratio "$(number "$object" gpu_busy)" "$alone")" ">=" 0.95
  done
}

grants() { number "$(timeout 10 baton status --json | tr -d '\n ')" grants; }

step_swap() {
  command -v baton-memory >/dev/null || skip "needs baton-memory"
  local share=${BATON_GPU_SWAP_MIB:-$($simulated && echo 1024 || echo 8192)} free left name each all _
  free=$(number "$("${bare[@]}" baton-memory info)" free)
  left=$((share << 20 < free ? share << 20 : free))
  if [ "$left" -lt "$free" ]; then
    # Memory that is somebody else's: what is left is what the pods share.
    limit=$((2 * limit)) start swap-others "${bare[@]}" baton-memory leave "$left"
  fi
  daemon
  if [ "$left" -lt "$free" ]; then
    # No pod comes before batond knows whose that is, which takes two looks.
    for _ in $(seq 40); do
      [[ $(timeout 10 baton status 2>&1) != *"without the token"* ]] || break
      sleep 0.5
    done
  fi
  each=$((left / 10 * 6 >> 20))
  local program=(baton-memory passes 1 $(((each - 4) << 20))) alone
  # Their memory moves as the time that they do not hold the GPU goes by: a tenth of it at most.
  export BATON_LOG=1
  race swap-one "${program[@]}" -- one:--request:30:--swap:--memory-request:64MiB:--memory:"${each}MiB" || return 0
  alone=${steps[one]}
  local spec=()
  for name in first second third; do
    spec+=("$name:--request:30:--swap:--memory-request:64MiB:--memory:${each}MiB")
  done
  race swap "${program[@]}" -- "${spec[@]}" || return 0
  local moved
  moved=$(cat "$(file_of swap-first).err" "$(file_of swap-second).err" "$(file_of swap-third).err" | awk '
    / MiB (out|in) in / { for (i = 1; i < NF; i++) if ($i == "moved") { mib[$(i + 3)] += $(i + 1); us[$(i + 3)] += $(i + 5) } }
    END { printf "\"out_gib\": %.1f, \"out_gb_per_s\": %.1f, \"in_gib\": %.1f, \"in_gb_per_s\": %.1f",
      mib["out"] / 1024, us["out"] ? mib["out"] * 1.048576e3 / us["out"] : 0,
      mib["in"] / 1024, us["in"] ? mib["in"] * 1.048576e3 / us["in"] : 0 }')
  all=$(awk -v a="${steps[first]}" -v b="${steps[second]}" -v c="${steps[third]}" 'BEGIN {print a + b + c}')
  figure swap "{\"shared_mib\": $((left >> 20)), \"each_mib\": $each, \"alone\": $alone, \"passes\": [${steps[first]}, ${steps[second]}, ${steps[third]}], \"of_alone\": $(ratio "$all" "$alone"), $moved}"
  for name in first second third; do check "swap: passes of pod $name" "${steps[$name]}" ">" 0; done
}
