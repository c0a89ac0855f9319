#!/usr/bin/env bash
# What checkpoints cost a run: the quickstart's model with a checkpoint every N steps and without any,
# in turn. The time of the whole run counts, with the checkpoint at its end.
#   bench/checkpoint_cost.sh [ROUNDS] [STEPS] [N]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-5}
steps=${2:-800}
every=${3:-100}

choose_job quickstart
with=()
without=()
for ((i = 0; i < rounds; i++)); do
    for kind in with without; do
        setting=none
        if [ $kind = with ]; then
            setting="$every steps"
        fi
        train_job checkpoint_cost "$config" "${sets[@]}" --set train.max_steps="$steps" \
            --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 --set checkpoint.every="$setting"
        if [ $kind = with ]; then
            with+=("$(finished checkpoint_cost seconds)")
            written=$(grep -c '"checkpoint.written"' "$out_dir/checkpoint_cost/events.jsonl")
        else
            without+=("$(finished checkpoint_cost seconds)")
        fi
    done
    echo "round $i: ${with[i]} s with $written checkpoints, ${without[i]} s without"
done
a=$(printf '%s\n' "${with[@]}" | median)
b=$(printf '%s\n' "${without[@]}" | median)
echo "medians of $rounds rounds, $steps steps: $a s with a checkpoint every $every steps, $b s without: $(calc "100 * ($a - $b) / $b") %"
