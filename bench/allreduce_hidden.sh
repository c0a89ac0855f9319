#!/usr/bin/env bash
# What the gradient all-reduce costs: two replicas (K = 1, R = 2, batch 128) against the same work
# without it, which is two runs of their own at once, each of one worker with batch 64, in turn.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-3}
steps=${2:-50}

# alone CPU: one worker with half the batch on this processor.
alone() {
    local frostline_here=$frostline
    cat >"$out_dir/on-$1" <<TEXT
#!/bin/sh
exec taskset -c $1 $frostline_here "\$@"
TEXT
    chmod +x "$out_dir/on-$1"
    frostline=$out_dir/on-$1 run_job "alone-$1" --set train.batch=64 --set devices.count=1 \
        --set pipe.k=1 --set autodp.r=1 --set pipe.m=1 --set train.max_steps="$steps"
}

with=()
without=()
for ((i = 0; i < rounds; i++)); do
    run_job replicas --set devices.count=2 --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 \
        --set train.max_steps="$steps"
    with+=("$(median_ms replicas)")
    alone 0 &
    other=$!
    alone 1
    wait $other
    without+=("$({ step_field alone-0 ms && step_field alone-1 ms; } | median)")
    echo "round $i: with all-reduce ${with[i]} ms, without ${without[i]} ms"
done
a=$(printf '%s\n' "${with[@]}" | median)
b=$(printf '%s\n' "${without[@]}" | median)
echo "with all-reduce $a ms, without $b ms"
echo "costs $(calc "100 * ($a / $b - 1)") % (asked: at most 5 %)"
