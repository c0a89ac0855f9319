#!/usr/bin/env bash
# What checkpoints, or snapshots in memory, cost a run: the quickstart's model with them and without
# any, in turn. The time of the whole run counts, with the checkpoint at its end.
#   bench/checkpoint_cost.sh [ROUNDS] [STEPS] [EVERY] [checkpoint.every|fault.snapshot]
# Snapshots are measured with two stages and one replica, the case for which they are made.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-5}
steps=${2:-800}
every=${3:-100 steps}
field=${4:-checkpoint.every}

choose_job quickstart
plan=(--set pipe.k=1 --set autodp.r=2 --set pipe.m=1 --set fault.snapshot=none)
event=checkpoint.written
if [ "$field" = fault.snapshot ]; then
    plan=(--set pipe.k=2 --set autodp.r=1 --set pipe.m=4 --set checkpoint.every=none)
    event=snapshot.taken
fi
with=()
without=()
for ((i = 0; i < rounds; i++)); do
    for kind in with without; do
        setting=none
        if [ $kind = with ]; then
            setting=$every
        fi
        train_job checkpoint_cost "$config" "${sets[@]}" --set train.max_steps="$steps" "${plan[@]}" \
            --set "$field=$setting"
        if [ $kind = with ]; then
            with+=("$(finished checkpoint_cost seconds)")
            taken=$(grep -c "\"$event\"" "$out_dir/checkpoint_cost/events.jsonl" || true)
        else
            without+=("$(finished checkpoint_cost seconds)")
        fi
    done
    echo "round $i: ${with[i]} s with $taken of them, ${without[i]} s without"
done
a=$(printf '%s\n' "${with[@]}" | median)
b=$(printf '%s\n' "${without[@]}" | median)
echo "medians of $rounds rounds, $steps steps: $a s with $field=$every, $b s without: $(calc "100 * ($a - $b) / $b") %"
