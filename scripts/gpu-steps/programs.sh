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
