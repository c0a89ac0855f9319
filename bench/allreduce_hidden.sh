#!/usr/bin/env bash
# What the gradient all-reduce costs: two replicas (K = 1, R = 2, batch 128) against the same work
# without it, which is two runs of their own at once, each of one worker with batch 64, in turn. Of
# these two the slower counts, step by step: replicas meet at the end of each step whatever they
# exchange there.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-9}
steps=${2:-25}

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
ratios=()
for ((i = 0; i < rounds; i++)); do
    run_job replicas --set devices.count=2 --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 \
        --set train.max_steps="$steps"
    with+=("$(median_ms replicas)")
    alone 0 &
    other=$!
    alone 1
    wait $other
    without+=("$(paste <(step_field alone-0 ms) <(step_field alone-1 ms) |
        awk '{ print ($1 > $2 ? $1 : $2) }' | median)")
    ratios+=("$(calc "${with[i]} / ${without[i]}")")
    echo "round $i: with all-reduce ${with[i]} ms, without ${without[i]} ms"
done
a=$(printf '%s\n' "${with[@]}" | median)
b=$(printf '%s\n' "${without[@]}" | median)
c=$(printf '%s\n' "${ratios[@]}" | median)
echo "with all-reduce $a ms, without $b ms"
# Of the rounds' ratios, not the ratio of the medians: a machine that others share changes its speed
# from one round to the next by more than what is looked for.
echo "costs $(calc "100 * ($c - 1)") %"
