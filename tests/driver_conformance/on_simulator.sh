#!/bin/sh
# on_simulator.sh BUILD_DIR PROGRAM [ARG...]: runs a program on two fresh simulated GPUs.
set -eu
build=$1
shift
dir=$(mktemp -d "$([ -w /dev/shm ] && echo /dev/shm || echo /tmp)/baton-sim.XXXXXX")
trap 'rm -rf "$dir"' EXIT INT TERM
"$build/bin/baton-simgpu" create "$dir/0.gpu"
"$build/bin/baton-simgpu" create "$dir/1.gpu"
export BATON_SIM_DEVICES="$dir/0.gpu:$dir/1.gpu"
export LD_LIBRARY_PATH="$build/lib/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"$@"
