#!/usr/bin/env bash
# What a cache is worth that cannot hold everything: 6 of 12 blocks frozen from the first step on, one
# worker, room for a share of the samples' values. Step time and hits of the last two of four epochs, and
# how many of the samples there is room for: the best possible policy hits about as many an epoch.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

samples=${1:-1280}
value_bytes=$((17 * 128 * 4 + 80))
freeze=(--set freeze.policy=schedule --set freeze.start=0 --set 'freeze.list=[6]')
one=(--set devices.count=1 --set pipe.k=1 --set autodp.r=1 --set pipe.m=1)
one+=(--set data.samples="$samples" --set train.epochs=4)

# The last field of this name in each event of the last two epochs, added up.
used() {
    grep '"event": "cache.used"' "$out_dir/$1/events.jsonl" | tail -n 2 |
        sed -nE "s/.*\"$2\": ?([0-9]+).*/\1/p" | awk '{ sum += $1 } END { print sum + 0 }'
}

late_ms() {
    step_field "$1" ms | tail -n $((2 * samples / 128)) | median
}

run_job budget-off "${one[@]}" "${freeze[@]}" --set cache.policy=off
echo "without a cache: $(late_ms budget-off) ms a step"
for share in 10 50 90 100; do
    memory=$((64 * 1024 + samples * 4 + samples * share * value_bytes / 100))
    run_job budget-$share "${one[@]}" "${freeze[@]}" --set cache.policy=on --set cache.memory=$memory
    opened=$(grep '"event": "cache.opened"' "$out_dir/budget-$share/events.jsonl" |
        sed -nE 's/.*"memory_bytes": ?([0-9]+).*/\1/p')
    hits=$(used budget-$share hits)
    echo "room for $share %: $(late_ms budget-$share) ms a step; $hits of $((2 * samples)) read," \
        "$(calc "$hits / (2.0 * $samples)") of all; $opened of $memory bytes taken"
done
