#!/usr/bin/env bash
# How close a pipeline comes to its ideal. Two workers as K = 2, M = 8 against one worker with the same
# micro-batches, in turn. A pipeline without any cost of its own keeps its workers busy for
# M / (M + K - 1) of the time; what is printed is the share of that which is reached.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-3}
steps=${2:-50}
K=2
M=8

one=()
two=()
for ((i = 0; i < rounds; i++)); do
    run_job one --set devices.count=1 --set pipe.k=1 --set autodp.r=1 --set pipe.m=$M \
        --set train.max_steps="$steps"
    one+=("$(median_ms one)")
    run_job two --set devices.count=$K --set pipe.k=$K --set autodp.r=1 --set pipe.m=$M \
        --set train.max_steps="$steps"
    two+=("$(median_ms two)")
    echo "round $i: one worker ${one[i]} ms, K = $K and M = $M ${two[i]} ms"
done
a=$(printf '%s\n' "${one[@]}" | median)
b=$(printf '%s\n' "${two[@]}" | median)
echo "one worker $a ms; K = $K, M = $M: $b ms; speed-up $(calc "$a / $b")"
echo "busy $(calc "$a / ($K * $b)") of the time; ideal $(calc "$M / ($M + $K - 1)")"
echo "reached $(calc "$a / ($K * $b) / ($M / ($M + $K - 1))") of the ideal"
