# Steps with programs of others: the CUDA runtime, PyTorch, JAX, llama.cpp.

python=${PYTHON:-python3}
# has_module NAME: whether Python has it.
has_module() { timeout 120 "$python" -c "import $1" >/dev/null 2>&1; }

step_runtime() {
  command -v baton-runtime >/dev/null || skip "needs an nvcc when Baton is built"
  ! $simulated || [ -n "${BATON_SIM_EXPORT_TABLES:-}" ] ||
    skip "on the simulated GPU NVIDIA's runtime needs BATON_SIM_EXPORT_TABLES"
  bounded runtime-check "${bare[@]}" baton-runtime check
  [ "$status" = 0 ] || exit 0
  daemon
  pod api --request 50
  bounded runtime-api "${pod[@]}" baton-runtime api
  local how
  for how in stream graph; do compared "runtime_$how" baton-runtime "$how"; done
  compared runtime_ptds baton-runtime-ptds stream
  # Threads that capture while others launch, under a pod that shares.
  pod capturing --request 50
  start runtime-beside "${pod[@]/capturing/beside}" baton-burn --seconds "$seconds"
  bounded runtime-capture "${pod[@]}" baton-runtime capture
}

# needs_gpu_python MODULE: skips where it cannot be tried.
needs_gpu_python() {
  ! $simulated || skip "the simulated GPU computes nothing"
  command -v "$python" >/dev/null || skip "needs Python; set PYTHON"
  has_module "$1" || skip "needs a Python with $1; set PYTHON"
}

step_pytorch() {
  needs_gpu_python torch
  daemon
  local how object
  for how in eager graphs; do
    compared "pytorch_$how" "$python" "$here/gpu-steps/torch_steps.py" "$how"
  done
  pod capped --request 50 --memory 2GiB
  figures pytorch-oom "${pod[@]}" "$python" "$here/gpu-steps/torch_steps.py" oom
  figure pytorch_oom "$object"
  check "pytorch: bytes that mem_get_info shows under a cap of 2 GiB" "$(number "$object" total)" "==" $((2 << 30))
  [ "$(word "$object" error)" = OutOfMemoryError ] || failed "pytorch: refused with '$(word "$object" error)'"
  [[ $object == *'"after": true'* ]] || failed "pytorch: wrong result after the refusal"
}

step_compile() {
  needs_gpu_python torch
  daemon
  compared pytorch_compile "$python" "$here/gpu-steps/torch_steps.py" compile
}

step_jax() {
  needs_gpu_python jax
  daemon
  export XLA_PYTHON_CLIENT_PREALLOCATE=false
  compared jax "$python" "$here/gpu-steps/jax_steps.py" steps
  pod capped --request 50 --memory 2GiB
  figures jax-oom "${pod[@]}" "$python" "$here/gpu-steps/jax_steps.py" oom
  figure jax_oom "$object"
  [ -n "$(word "$object" error)" ] || failed "jax: an allocation above the cap was not refused"
  [[ $object == *'"after": true'* ]] || failed "jax: wrong result after the refusal"
}

# watts_of POD: joules by second that it held the token, by the books.
watts_of() {
  timeout 10 baton report --by pod --last 1h --json 2>>"$raw" | "$python" -c '
import json, sys
for row in json.load(sys.stdin)["rows"]:
    if row["key"] == sys.argv[1] and row["held_hours"] > 0:
        print(round(row.get("energy_kwh", 0) * 1e3 / row["held_hours"], 1))' "$1"
}

# What takes a few tokens of each cannot be told apart by a counter that moves every 100 ms. It is
# fitted; here is how far it is from what the same programs take alone.
step_energy() {
  ! $simulated || skip "the simulated GPU's energy is in the tests"
  needs_gpu_python torch
  daemon '[ledger]\nevery = "1s"\n'
  local name hot cool hot_alone cool_alone settle=25
  local products=("$python" "$here/gpu-steps/torch_steps.py" products --seconds)
  sleep 9  # what the GPU takes without anybody
  pod hot-alone --request 100
  bounded energy-hot-alone "${pod[@]}" "${products[@]}" 10
  pod cool-alone --request 100
  bounded energy-cool-alone "${pod[@]}" baton-burn --kernel 1ms --seconds 10
  pod hot --request 50
  start energy-hot "${pod[@]}" "${products[@]}" $((settle + seconds))
  pod cool --request 50
  start energy-cool "${pod[@]}" baton-burn --kernel 1ms --seconds $((settle + seconds))
  for name in hot cool; do join "energy-$name"; done
  sleep 3
  hot=$(watts_of hot) cool=$(watts_of cool)
  hot_alone=$(watts_of hot-alone) cool_alone=$(watts_of cool-alone)
  timeout 10 baton report --by pod --last 1h >>"$raw" 2>&1 || true
  figure energy "{\"hot_watts\": ${hot:-null}, \"hot_alone\": ${hot_alone:-null}, \"cool_watts\": ${cool:-null}, \"cool_alone\": ${cool_alone:-null}}"
  local of_alone
  of_alone=$(ratio "$hot" "$hot_alone")
  check "energy: watts of the hot pod beside another, of alone" "$of_alone" ">=" 0.85
  check "energy: watts of the hot pod beside another, of alone" "$of_alone" "<=" 1.15
}

# Pods by MPS run at the same time, each on its part of the multiprocessors.
step_mps() {
  ! $simulated || skip "the simulated GPU computes nothing"
  command -v nvidia-cuda-mps-control >/dev/null || skip "needs nvidia-cuda-mps-control"
  needs_gpu_python torch
  daemon '[ledger]\nevery = "1s"\n'
  local products=("$python" "$here/gpu-steps/torch_steps.py" products) alone
  race mps "${products[@]}" -- bare || return 0
  alone=${steps[bare]}
  race mps "${products[@]}" -- train:--mode:mps:--request:70 || return 0
  local of_alone
  of_alone=$(ratio "${steps[train]}" "$alone")
  race mps "${products[@]}" -- train:--mode:mps:--request:70 web:--mode:mps:--request:20 || return 0
  timeout 10 baton report --by pod --last 1h >>"$raw" 2>&1 || true
  figure mps "{\"alone_70_of_bare\": $of_alone, \"train_of_bare\": $(ratio "${steps[train]}" "$alone"), \"web_of_bare\": $(ratio "${steps[web]}" "$alone")}"
  check "mps: steps of a pod with 70 percent, of bare" "$of_alone" "<=" 0.95
  check "mps: steps of a pod with 20 percent, of one with 70" "$(ratio "${steps[web]}" "${steps[train]}")" "<=" 0.6
}

# Two small language models, as two services on one GPU. With a limit of 50 percent each must halve.
step_models() {
  if command -v llama-bench >/dev/null && [ -n "${BATON_GPU_GGUF:-}" ] && ! $simulated; then llama; fi
  needs_gpu_python torch
  daemon_if_none
  local model=("$python" "$here/gpu-steps/torch_steps.py" model) unlimited limited two
  race models "${model[@]}" -- free:--request:100 || return 0
  unlimited=${steps[free]}
  race models "${model[@]}" -- strict:--limit:50 || return 0
  limited=$(ratio "${steps[strict]}" "$unlimited")
  race models "${model[@]}" -- one:--limit:50 two:--limit:50 || return 0
  two="$(ratio "${steps[one]}" "$unlimited"), $(ratio "${steps[two]}" "$unlimited")"
  figure models "{\"tokens_per_s\": $(awk -v n="$unlimited" -v s="$seconds" 'BEGIN {printf "%.1f", n / s}'), \"limited_of_unlimited\": $limited, \"two_of_unlimited\": [$two]}"
  check "models: tokens at a limit of 50 percent, of those without" "$limited" "<=" 0.53
  check "models: tokens at a limit of 50 percent, of those without" "$limited" ">=" 0.45
}
daemon_if_none() { [ -n "$daemon_pid" ] || daemon; }

# llama: llama.cpp's own benchmark, which uses CUDA graphs where they pay.
llama() {
  local free limited
  daemon_if_none
  local bench=(llama-bench -m "$BATON_GPU_GGUF" -ngl 99 -p 0 -n 256 -r 3 -o json)
  pod free --request 100
  bounded llama-free "${pod[@]}" "${bench[@]}"
  free=$(number "$(tr -d '\n' <"$log")" avg_ts)
  pod strict --limit 50
  bounded llama-strict "${pod[@]}" "${bench[@]}"
  limited=$(ratio "$(number "$(tr -d '\n' <"$log")" avg_ts)" "$free")
  figure llama "{\"tokens_per_s\": ${free:-null}, \"limited_of_unlimited\": $limited}"
  check "llama.cpp: tokens at a limit of 50 percent, of those without" "$limited" "<=" 0.53
}
