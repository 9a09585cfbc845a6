# What the steps of scripts/gpu have in common. Sourced there; each step runs in a subshell.

# figure KEY VALUE: a JSON value of this step's.
figure() {
  printf '%s' "$2" >"$work/figure.$1"
  echo "$1" >>"$work/keys.$step_name"
  say "$1: $2"
  printf '==== %s: %s\n' "$1" "$2" >>"$raw"
}
# failed TEXT: something was not as it must be.
failed() { echo "$*" >>"$work/failures"; }
# without TEXT: a part of the step is left out; TEXT says what it needs. skip TEXT: all that is left of it.
without() { printf '%s' "$([ ! -s "$work/skipped.$step_name" ] || echo '; ')$*" >>"$work/skipped.$step_name"; }
skip() {
  without "$*"
  exit 0
}
# number JSON KEY: the first number with that key. word: the first text.
number() {
  local pattern="\"$2\": ?(-?[0-9][0-9.eE+-]*)"
  if [[ $1 =~ $pattern ]]; then echo "${BASH_REMATCH[1]}"; fi
}
word() {
  local pattern="\"$2\": ?\"([^\"]*)\""
  if [[ $1 =~ $pattern ]]; then echo "${BASH_REMATCH[1]}"; fi
}
ratio() { awk -v a="${1:-0}" -v b="${2:-0}" 'BEGIN { if (b > 0) printf "%.5f", a / b; else print "null" }'; }
check() { # check WHAT FIGURE OPERATOR BOUND
  awk -v a="${2:-nan}" -v b="$4" "BEGIN { exit !(a ~ /^-?[0-9]/ && a + 0 $3 b + 0) }" ||
    failed "$1: ${2:-nothing} is not $3 $4"
}

# file_of NAME: where its output is, without an ending.
file_of() { echo "$work/${1//[^A-Za-z0-9_.-]/-}"; }

declare -A pids started_at
# start NAME COMMAND...: in the background, for at most the limit.
start() {
  local name=$1 file
  file=$(file_of "$1")
  shift
  printf '==== %s, %s: %s\n' "$name" "$(date -u +%T)" "$*" >>"$raw"
  # timeout(1) ends the program's whole process group, which is its own. Standard input stays open.
  timeout --kill-after=10 "$limit" "$@" <"$work/never" >"$file.out" 2>"$file.err" &
  pids[$name]=$!
  started_at[$name]=$SECONDS
}
# join NAME: waits for it. Sets `status`; whatever is not 0 is a failure, but for 77: a program that
# says that something is not there. $log is its output.
join() {
  local name=$1 file
  file=$(file_of "$1")
  status=0
  wait "${pids[$name]}" || status=$?
  unset "pids[$name]"
  log=$file.out
  { printf '==== output of %s\n' "$name"; cat "$log"; sed 's/^/! /' "$file.err"; } >>"$raw"
  [ "$status" != 0 ] || return 0
  if [ "$status" = 77 ]; then
    without "$name: $(tail -n 1 "$file.err")"
    return 0
  fi
  tail -n 20 "$file.err" >&2
  if ((SECONDS - started_at[$name] >= limit)); then
    failed "$name: ended at its limit of $limit s"
  else
    failed "$name: exit status $status"
  fi
}
# bounded NAME COMMAND...: start and join.
bounded() {
  start "$@"
  join "$1"
}
# object_of NAME: after join: the JSON object that is the output's last line, as $object.
object_of() {
  object=null
  [ "$status" != 77 ] || return 0
  object=$(tail -n 1 "$(file_of "$1").out")
  case "$object" in
    '{'*'}') ;;
    *) failed "$1: printed no figures"; object=null ;;
  esac
}
# figures NAME COMMAND...: all of it.
figures() {
  bounded "$@"
  object_of "$1"
}

# bare: before a command that runs without Baton on the GPU of the step.
bare=(env)
# pod NAME FLAG...: sets $pod, which goes before a command that is to be this pod.
pod() {
  pod=(baton run --name "$1" "${on_gpu[@]}" "${@:2}" --)
}
on_gpu=()

# daemon [MORE_TOML]: a batond of this step's own, until its end.
daemon_pid=
daemon() {
  mkdir -p "$work/$step_name/run" "$work/$step_name/state"
  {
    echo '[server]'
    echo "socket_dir = \"$work/$step_name/run\""
    echo "state_dir = \"$work/$step_name/state\""
    # Root's batond, where one runs, holds the lock of the GPU: then this one says so and ends.
    if $simulated || [ "$(id -u)" != 0 ]; then echo "lock_dir = \"$work/locks\""; fi
    printf '[http]\nlisten = ""\n'
    printf '%b' "${1:-}"
  } >"$work/$step_name/batond.toml"
  export BATON_SOCKET_DIR=$work/$step_name/run
  batond --config "$work/$step_name/batond.toml" 2>"$work/$step_name/batond.log" &
  daemon_pid=$!
  local _
  for _ in $(seq 100); do
    { timeout 10 baton status >/dev/null 2>&1 || ! kill -0 "$daemon_pid" 2>/dev/null; } && break
    sleep 0.1
  done
  if ! timeout 10 baton status >>"$raw" 2>&1; then
    cat "$work/$step_name/batond.log" >&2
    failed "$step_name: batond did not start"
    exit 1
  fi
}

end_step() {
  local name
  trap - EXIT
  for name in "${!pids[@]}"; do kill "${pids[$name]}" 2>/dev/null || true; done
  for name in "${!pids[@]}"; do
    wait "${pids[$name]}" 2>/dev/null || true
    { cat "$(file_of "$name").out"; sed 's/^/! /' "$(file_of "$name").err"; } >>"$raw" 2>/dev/null || true
  done
  if [ -n "$daemon_pid" ]; then
    kill "$daemon_pid" 2>/dev/null || true
    wait "$daemon_pid" 2>/dev/null || true
    { echo "==== batond's log"; cat "$work/$step_name/batond.log"; } >>"$raw"
  fi
}

# run_step NAME: in a subshell.
run_step() {
  step_name=$1
  trap end_step EXIT
  trap 'exit 143' INT TERM
  mkdir -p "$work/$step_name"
  [ -p "$work/never" ] || mkfifo "$work/never"
  exec 9<>"$work/never"  # so that nobody who reads it meets its end
  if $simulated; then
    local file=$work/$step_name/0.gpu
    baton-simgpu create "$file" "${simgpu[@]}" >>"$raw"
    export BATON_SIM_DEVICES=$file
    export LD_LIBRARY_PATH=$build/lib/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  elif [[ $uuid == GPU-* ]]; then
    on_gpu=(--gpu "$uuid")
    bare=(env "CUDA_VISIBLE_DEVICES=$uuid")
  fi
  if [ -n "$own_libraries" ]; then
    # Behind what is there: the driver's folder, and what a framework brings, come first.
    export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$own_libraries
  fi
  "step_$step_name"
}
simgpu=()

# race NAME COMMAND... -- POD...: programs that count their steps, all at once. COMMAND gets --ready,
# --go and --seconds. POD is NAME:FLAG:FLAG..., "bare" without Baton. Sets steps[POD],
# result[POD]; false where one of them gave none.
declare -A steps result
race() {
  local label=$1 command=() spec name flags ready complete=true all
  shift
  while [ "$1" != -- ]; do command+=("$1"); shift; done
  shift
  rm -f "$work/go"
  for spec in "$@"; do
    name=${spec%%:*}
    IFS=: read -ra flags <<<"${spec#*:}"
    ready=$work/ready.$label.$name
    rm -f "$ready"
    if [ "$name" = bare ]; then
      pod=("${bare[@]}")
    else
      pod "$name" "${flags[@]}"
    fi
    start "$label-$name" "${pod[@]}" "${command[@]}" --ready "$ready" --go "$work/go" --seconds "$seconds"
  done
  # The window begins when all of them are warm.
  local until=$((SECONDS + limit))
  while ((SECONDS < until)); do
    all=true
    for spec in "$@"; do
      name=${spec%%:*}
      [ -e "$work/ready.$label.$name" ] || ! kill -0 "${pids[$label-$name]}" 2>/dev/null || all=false
    done
    ! $all || break
    sleep 0.1
  done
  awk -v n="$(date +%s.%N)" -v s="$seconds" 'BEGIN { printf "%.3f\n", n + s + 0.2 }' >"$work/go.new"
  mv "$work/go.new" "$work/go"
  for spec in "$@"; do
    name=${spec%%:*}
    join "$label-$name"
    object_of "$label-$name"
    steps[$name]=$(number "$object" steps)
    result[$name]=$(word "$object" result)
    [ -n "${steps[$name]}" ] || complete=false
  done
  $complete
}

# shares_of LABEL WANT...: what these pods of the last race have of all steps, as $shares ("a, b"); each
# must be close to what it asked for, and have computed the same as without Baton. WANT is NAME:PERCENT.
shares_of() {
  local label=$1 want line=''
  shift
  for want in "$@"; do
    line+="${want#*:} ${steps[${want%:*}]} "
    [ "${result[${want%:*}]}" = "$bare_result" ] ||
      failed "$label: beside others it computes ${result[${want%:*}]}, and alone $bare_result"
  done
  {
    read -r shares
    read -r all
    while read -r want; do failed "$label: $want"; done
  } < <(awk '{
    for (i = 1; i <= NF; i += 2) all += $(i + 1)
    for (i = 1; i <= NF; i += 2) {
      share = (all > 0 ? 100 * $(i + 1) / all : 0)
      shares = shares (i > 1 ? ", " : "") sprintf("%.2f", share)
      off = (share > $i ? share - $i : $i - share)
      if (off > 3) wrong = wrong sprintf("a share of %.2f percent is %.2f points from %s\n", share, off, $i)
    }
    printf "%s\n%d\n%s", shares, all, wrong
  }' <<<"$line")
}

# compared LABEL COMMAND...: a program that counts its steps, alone without and with Baton, two pods of
# 50, and three of 60, 30 and 10 percent. Shares are of completed steps.
compared() {
  local label=$1 shares two all
  shift
  race "$label" "$@" -- bare || return 0
  local bare_steps=${steps[bare]} bare_result=${result[bare]} of_bare
  race "$label" "$@" -- alone:--request:100 || return 0
  of_bare=$(ratio "${steps[alone]}" "$bare_steps")
  check "$label: alone, of bare" "$of_bare" ">=" 0.95
  [ "${result[alone]}" = "$bare_result" ] ||
    failed "$label: alone it computes ${result[alone]}, and without Baton $bare_result"
  race "$label" "$@" -- half:--request:50 other:--request:50 || return 0
  shares_of "$label" half:50 other:50
  two=$shares
  race "$label" "$@" -- most:--request:60 some:--request:30 little:--request:10 || return 0
  shares_of "$label" most:60 some:30 little:10
  figure "$label" "{\"of_bare\": $of_bare, \"two\": [$two], \"three\": [$shares], \"three_of_bare\": $(ratio "$all" "$bare_steps"), \"result\": \"$bare_result\"}"
}
