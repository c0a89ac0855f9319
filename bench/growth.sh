#!/usr/bin/env bash
# What growing costs: a run that began with one worker goes to two replicas and then to four, for which workers are
# started. Beside it the same transitions of a run that has had four workers from the start. Runs of both kinds in turn.
#   bench/growth.sh [ROUNDS] [STEPS]
# STEPS: steps between two transitions. Prints for each transition and kind of run, as medians over the rounds: for how
# long training stood still (all transitions of the request together: workers join in one of their own), how many
# transitions that were, the MB that were sent, and the time from the request to its reply, during which the run trains.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-3}
steps=${2:-30}
patience_s=${PATIENCE_S:-120}
dir=$out_dir/growth
results=$out_dir/growth.txt # kind from to stall_ms transitions MB request_ms
: >"$results"
controller=0
trap '[ $controller = 0 ] || kill -KILL $controller 2>/dev/null || true' EXIT

now_ms() { date +%s%3N; }
n_lines() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }
await_steps() { # N more steps
    local wanted end=$(($(now_ms) + patience_s * 1000))
    wanted=$(($(n_lines "$dir/steps.jsonl") + $1))
    until [ "$(n_lines "$dir/steps.jsonl")" -ge $wanted ]; do
        if ! kill -0 $controller 2>/dev/null || [ "$(now_ms)" -ge $end ]; then
            echo "$0: $wanted steps were not reached; see $dir.log" >&2
            exit 1
        fi
        sleep 0.01
    done
}

# start_run DEVICE_FIELD...
start_run() {
    rm -rf "$dir"
    "$frostline" run configs/quickstart.yaml --run-dir "$dir" "$@" --set devices.memory=512MiB --set pipe.k=1 \
        --set train.batch=16 --set pipe.m=1 --set autodp.r=1 --set train.epochs=10000 --set train.evaluate=false --set freeze.policy=none \
        --set checkpoint.every=none --set fault.snapshot=none >"$dir.log" 2>&1 </dev/null &
    controller=$!
    await_steps "$steps"
}

# sums FROM_LINE: of the transitions in the event log from that line on: stall_ms, how many, MB
sums() {
    tail -n "+$1" "$dir/events.jsonl" | sed -nE '/"transition.done"/s/.*"stall_ms": ?([0-9.]+).*"moved_bytes": ?([0-9]+).*/\1 \2/p' |
        awk '{ ms += $1; bytes += $2; n++ } END { if (n == 0) exit 1; print ms, n, bytes / 1e6 }'
}

# grow KIND FROM TO: replicas
grow() {
    local line begun
    line=$(($(n_lines "$dir/events.jsonl") + 1))
    begun=$(now_ms)
    if ! "$frostline" ctl "$dir" scale k=1 "r=$3" >"$dir.reply" 2>&1; then
        cat "$dir.reply" >&2
        exit 1
    fi
    local took=$(($(now_ms) - begun))
    await_steps "$steps"
    echo "$1 $2 $3 $(sums $line) $took" | tee -a "$results" >&2
}

for ((i = 0; i < rounds; i++)); do
    for kind in grows planned; do
        if [ $kind = grows ]; then
            start_run --set devices.count=1 --set devices.max=4
        else
            start_run --set devices.count=4
        fi
        grow $kind 1 2
        grow $kind 2 4
        kill -INT $controller
        wait $controller || true
        controller=0
    done
done

# value KIND TO COLUMN: the median
value() { awk -v k="$1" -v to="$2" -v c="$3" '$1 == k && $3 == to { print $c }' "$results" | median; }
echo "| replicas | workers | stall, ms | transitions | sent, MB | request to reply, ms |"
echo "|---|---|---|---|---|---|"
for to in 2 4; do
    for kind in grows planned; do
        name="are started"
        [ $kind = grows ] || name="are there"
        echo "| $((to / 2)) to $to | $name | $(value $kind $to 4) | $(value $kind $to 5) | $(value $kind $to 6) | $(value $kind $to 7) |"
    done
done
