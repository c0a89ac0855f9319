#!/usr/bin/env bash
# The memory of a worker when many of them train a tiny model on one machine: what a worker takes
# beside its model. Pss shares what processes have in common (code, the data set) among them; private
# is what the worker alone holds.
#   bench/workers_memory.sh [WORKERS]...
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

counts=("$@")
[ $# -gt 0 ] || counts=(64 128)

# of_workers FIELD PID...: the field of smaps_rollup, KiB, one process a line.
of_workers() {
    local field=$1 pid
    shift
    for pid in "$@"; do
        awk -v field="$field:" '$1 == field { n += $2 } END { print n }' "/proc/$pid/smaps_rollup"
    done
}

printf '%8s %14s %18s %14s\n' workers 'Pss, KiB' 'private dirty, KiB' 'threads'
for count in "${counts[@]}"; do
    dir=$out_dir/workers-$count
    rm -rf "$dir"
    "$frostline" run configs/quickstart.yaml --run-dir "$dir" --set model.blocks=1 --set model.dim=16 \
        --set model.heads=2 --set model.patch=14 --set train.batch=128 --set data.samples=1280 \
        --set train.epochs=10000 --set train.evaluate=false --set freeze.policy=none \
        --set data.augment=none --set cache.policy=off --set devices.count="$count" \
        --set devices.memory=64MiB --set pipe.k=1 --set autodp.r="$count" --set pipe.m=1 \
        --set pipe.profile=none --set fault.deadline=10min --set fault.detect=2min \
        >"$dir.log" 2>&1 </dev/null &
    controller=$!
    SECONDS=0
    until [ -s "$dir/steps.jsonl" ] && [ "$(wc -l <"$dir/steps.jsonl")" -ge 3 ]; do
        if ! kill -0 $controller || [ $SECONDS -gt 600 ]; then
            tail -n 3 "$dir.log" >&2
            echo "$0: $count workers did not train within 10 minutes; see $dir.log" >&2
            kill -TERM $controller
            exit 1
        fi
        sleep 0.5
    done
    mapfile -t workers < <(pgrep -P "$(pgrep -P $controller)")
    threads=$(awk '/^Threads/ { print $2 }' "/proc/${workers[0]}/status")
    printf '%8d %14.0f %18.0f %14d\n' "$count" "$(of_workers Pss "${workers[@]}" | median)" \
        "$(of_workers Private_Dirty "${workers[@]}" | median)" "$threads"
    kill -TERM $controller
    wait $controller || true
done
