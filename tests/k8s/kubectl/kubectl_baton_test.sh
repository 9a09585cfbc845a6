#!/usr/bin/env bash
# kubectl_baton_test.sh BIN: kubectl-baton against a batond with pods, on simulated GPUs. A stand-in
# for kubectl lists pods as the test says and forwards a "port" to that batond's page.
set -euo pipefail
bin=$1
plugin=$(cd "$(dirname "$0")/../../../k8s/kubectl" && pwd)/kubectl-baton
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')

mkdir "$work/bin"
cat > "$work/bin/kubectl" <<END
#!/usr/bin/env bash
echo "\$*" >> "$work/asked"
case " \$* " in
  *" get pods "*)
    if [ -e "$work/forbidden" ]; then
      echo 'Error from server (Forbidden): pods is forbidden: User "a" cannot list resource "pods"' >&2
      exit 1
    fi
    cat "$work/pods" ;;
  *" get pod "*" missing "*) echo 'Error from server (NotFound): pods "missing" not found' >&2; exit 1 ;;
  *" get pod "*" waits "*) printf 'vision/waits||Unschedulable: 0/1 nodes available\\ngpu-1: GPU 0: full' ;;
  *" get pod "*" silent "*) echo "vision/silent||" ;;
  *" get pod "*) echo "default/a|gpu-2|" ;;
  *" port-forward "*)
    if [ -e "$work/no-forward" ]; then
      echo 'error: pods "x" is forbidden: cannot create resource "pods/portforward"' >&2
      exit 1
    fi
    echo "\$\$" >> "$work/forwarders"
    echo "Forwarding from 127.0.0.1:$port -> 7412"
    exec sleep 60 ;;
  *) exit 1 ;;
esac
END
chmod +x "$work/bin/kubectl"

cat > "$work/cases" <<END
set -u
export PATH="$work/bin:$bin:\$PATH"
unset BATON_URL BATON_TOKEN_FILE BATON_CA_FILE BATON_SOCKET_DIR
failed=0
check() {  # WANTED_STATUS TEXT COMMAND...: the output has the text
  local wanted=\$1 text=\$2 out status=0
  shift 2
  : > "$work/asked"
  out=\$(timeout 20 "\$@" 2>&1) || status=\$?
  if [ "\$status" != "\$wanted" ] || [[ \$out != *"\$text"* ]]; then
    echo "FAILED: \$*: status \$status, wanted \$wanted with '\$text':"; echo "\$out"; failed=1
  fi
}
asked() { grep -qe "\$1" "$work/asked" || { echo "FAILED: kubectl was not asked '\$1':"; cat "$work/asked"; failed=1; }; }
k="$plugin"
two='node|baton-node-x|gpu-1|batond agent|
node|baton-node-y|gpu-2|batond agent|'

check 0 "kubectl baton report --by team" \$k --help
complete=\$(dirname "\$k")/kubectl_complete-baton
check 0 ":4" \$complete
check 0 "report
:4" \$complete -n baton-system rep
check 0 "--by
:4" \$complete --node gpu-1 report --b
check 0 "placement" \$complete explain ""
check 2 "Usage:" \$k
check 1 "none of the commands that only read" \$k set a --request 3
check 1 "unknown option --nods" \$k --nods=a status
check 0 "Usage: baton report" \$k report --help

: > "$work/pods"
check 1 "no pod of Baton runs in namespace baton-system" \$k status
check 1 "no pod of Baton runs in namespace other" \$k -n other status
asked '-n other'
touch "$work/forbidden"
check 1 "pods/portforward, in namespace baton-system" \$k status
rm "$work/forbidden"

echo 'node|baton-node-x|gpu-1|batond agent|' > "$work/pods"
check 0 GPU- \$k --context=there status
asked '--context=there port-forward -n baton-system pod/baton-node-x :7412'
touch "$work/no-forward"
check 1 "create pods/portforward" \$k status
rm "$work/no-forward"
check 0 '"gpus"' \$k status --json
check 0 capacity_hours \$k report --by pod --last 1h --json

echo "\$two" > "$work/pods"
check 0 "== gpu-2" \$k status
asked pod/baton-node-x; asked pod/baton-node-y
check 1 "name it with --node, one of: gpu-1 gpu-2" \$k top
check 1 "no batond runs on node gpu-9; there is one on: gpu-1 gpu-2" \$k --node gpu-9 status
check 0 GPU- \$k --node gpu-2 status
asked pod/baton-node-y

# A pod's node is looked up, and its full name is what batond is asked for.
check 1 "default/a" \$k explain a
asked pod/baton-node-y
check 1 'pods "missing" not found' \$k explain vision/missing
asked '-n vision missing'
# Of one that is on no node its condition says why.
check 0 'pod vision/waits is on no node yet.
Unschedulable: 0/1 nodes available
gpu-1: GPU 0: full' \$k explain vision/waits
check 1 "see kubectl describe pod" \$k explain vision/silent

# A central batond has the books of all nodes, and is live where nodes have none.
echo "\$two
central|baton-central|cpu-1|batond agent|nodes" > "$work/pods"
check 0 capacity_hours \$k report --by pod --last 1h --json
asked pod/baton-central
check 0 "== gpu-1" \$k status
echo "node|baton-node-x|gpu-1|frontend agent|
central|baton-central|cpu-1|batond agent|nodes" > "$work/pods"
check 0 GPU- \$k status
asked pod/baton-central
check 0 'pod vision/waits is on no node yet.' \$k explain vision/waits
check 1 "vision/missing" \$k explain vision/missing
asked pod/baton-central

# A page with a token is not asked without one.
echo 'node|baton-node-x|gpu-1|batond agent|https' > "$work/pods"
check 1 "set BATON_TOKEN_FILE" \$k status

# No forwarder stays.
while read -r pid; do
  # It has been told to end; one that has ended may not have been waited for by anybody.
  for _ in \$(seq 50); do
    state=\$(cut -d' ' -f3 "/proc/\$pid/stat" 2> /dev/null) && [ "\$state" != Z ] || continue 2
    sleep 0.1
  done
  echo "FAILED: forwarder \$pid runs on"; failed=1
done < "$work/forwarders"
rm "$work/bin/kubectl"
check 1 "kubectl was not found" env PATH="$bin:/nowhere" "\$(command -v bash)" \$k status
[ "\$failed" = 0 ] && echo ALL-CASES-PASSED
END
"$bin/baton-demo" --shell --transport unix --pods a:60:100 --http "127.0.0.1:$port" \
  < <(echo "bash $work/cases") > "$work/out" 2>&1 || true
grep -v '^ *$' "$work/out" | grep -a 'FAILED' -A8 || true
grep -qa ALL-CASES-PASSED "$work/out" || { tail -40 "$work/out"; exit 1; }
