#!/usr/bin/env bash
# The time that the death of one of two workers costs: Frostline, whose other worker goes on; Frostline with two stages,
# which goes back to a snapshot in memory, taken every 20 steps; Frostline with fault.on_loss=stop, resumed from its
# checkpoint; and PyTorch under torchrun, which restarts both processes from their
# checkpoint. The same ViT, batch and number of workers, a checkpoint after every 100 steps; worker 1 is killed at
# step 250 (KILL_AT). What counts is the time from the kill until a step beyond the last one before it is done.
#   python3 -m venv V && V/bin/pip install torch numpy && bench/loss_vs_restart.sh V/bin [ROUNDS]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

bin=${1:?the folder of the programs of a Python environment with torch}
rounds=${2:-3}
data=${DATA:-/usr/share/datasets/fashion-mnist}
kill_at=${KILL_AT:-250}
shape=(--set model.blocks=4 --set model.dim=64 --set model.heads=4 --set model.patch=7 --set model.dropout=0
    --set train.batch=128 --set train.evaluate=false --set data.augment=none --set data.path="$data"
    --set devices.count=2 --set pipe.k=1 --set pipe.m=1 --set autodp.r=2 --set train.max_steps=600
    --set checkpoint.every="100 steps")
times=$out_dir/loss_vs_restart.txt # "name: seconds steps", a line for each kill
: >"$times"
dir=$out_dir/loss
pid=0
trap '[ $pid = 0 ] || kill -KILL $pid 2>/dev/null || true' EXIT

now() { date +%s.%N; }
wait_for() { # COMMAND...: until it is true; ends with 1 when the run is over, or after LIMIT_S
    local end=$((SECONDS + ${LIMIT_S:-300}))
    until "$@"; do
        if ! kill -0 $pid 2>/dev/null || [ $SECONDS -ge $end ]; then
            echo "$0: not reached: $*; see $dir.log" >&2
            exit 1
        fi
        sleep 0.01
    done
}
end_run() { # SIGNAL
    kill "-$1" $pid
    wait $pid || true
    pid=0
}
n_lines() { if [ -e "$1" ]; then wc -l <"$1"; else echo 0; fi; }
has_lines() { [ "$(n_lines "$1")" -ge "$2" ]; }

start() { # ARGUMENT...
    "$frostline" "$@" >"$dir.log" 2>&1 </dev/null &
    pid=$!
}
kill_worker() {
    kill -KILL "$(sed -nE '/"worker.ready"/s/.*"rank": *1, "pid": *([0-9]+).*/\1/p' "$dir/events.jsonl" | tail -n 1)"
}

goes_on() {
    rm -rf "$dir"
    start run configs/vit-fashion.yaml --run-dir "$dir" "${shape[@]}"
    wait_for has_lines "$dir/steps.jsonl" "$kill_at"
    local begun steps
    begun=$(now)
    kill_worker
    wait_for grep -q '"run.recovered"' "$dir/events.jsonl"
    steps=$(sed -nE '/"run.recovered"/s/.*"step": *([0-9]+).*/\1/p' "$dir/events.jsonl")
    wait_for has_lines "$dir/steps.jsonl" $((steps + 1))
    echo "the other goes on: $(calc "$(now) - $begun") 0" | tee -a "$times"
    end_run INT
}

goes_back() {
    rm -rf "$dir"
    start run configs/vit-fashion.yaml --run-dir "$dir" "${shape[@]}" --set pipe.k=2 --set autodp.r=1 --set pipe.m=4 \
        --set fault.snapshot="20 steps"
    wait_for has_lines "$dir/steps.jsonl" "$kill_at"
    local begun before from
    begun=$(now)
    kill_worker
    wait_for grep -q '"run.resumed"' "$dir/events.jsonl"
    from=$(sed -nE '/"run.resumed"/s/.*"step": *([0-9]+).*/\1/p' "$dir/events.jsonl")
    before=$((from + $(sed -nE '/"run.resumed"/s/.*"cut_steps": *([0-9]+).*/\1/p' "$dir/events.jsonl")))
    wait_for has_lines "$dir/steps.jsonl" $((before + 1))
    echo "goes back to a snapshot: $(calc "$(now) - $begun") $((before - from))" | tee -a "$times"
    end_run INT
}

resumes() {
    rm -rf "$dir"
    start run configs/vit-fashion.yaml --run-dir "$dir" "${shape[@]}" --set fault.on_loss=stop
    wait_for has_lines "$dir/steps.jsonl" "$kill_at"
    local begun before from
    begun=$(now)
    kill_worker
    wait $pid || true
    before=$(n_lines "$dir/steps.jsonl")
    start run --resume "$dir"
    wait_for grep -q '"run.resumed"' "$dir/events.jsonl"
    from=$(sed -nE '/"run.resumed"/s/.*"step": *([0-9]+).*/\1/p' "$dir/events.jsonl" | tail -n 1)
    wait_for has_lines "$dir/steps.jsonl" $((before + 1))
    echo "stopped and resumed: $(calc "$(now) - $begun") $((before - from))" | tee -a "$times"
    end_run INT
}

restarts() {
    local keep=$dir.pt log=$dir.steps begun before
    rm -f "$keep" "$log"
    "$bin/torchrun" --nproc-per-node 2 --max-restarts 3 bench/peers/peer_vit.py --mode torchrun --steps 600 --blocks 4 --dim 64 \
        --heads 4 --patch 7 --batch 128 --data "$data" --keep "$keep" --steps-file "$log" >"$dir.log" 2>&1 &
    pid=$!
    wait_for awk_reached "$log" "$kill_at"
    begun=$(now)
    kill -KILL "$(awk '$4 == 1 { p = $3 } END { print p }' "$log")"
    before=$(awk '$1 > m { m = $1 } END { print m }' "$log")
    wait_for awk_reached "$log" $((before + 1))
    echo "torchrun restarts: $(calc "$(now) - $begun") $((before % 100))" | tee -a "$times"
    end_run TERM
}
awk_reached() { [ -e "$1" ] && [ "$(awk '$1 > m { m = $1 } END { print m + 0 }' "$1")" -ge "$2" ]; }

for ((i = 0; i < rounds; i++)); do
    goes_on
    goes_back
    resumes
    restarts
done
for name in "the other goes on" "goes back to a snapshot" "stopped and resumed" "torchrun restarts"; do
    echo "$name: median $(sed -nE "s/^$name: ([0-9.]+) .*/\1/p" "$times" | median) s, $(sed -nE "s/^$name: [0-9.]+ (.*)/\1/p" "$times" | median) steps done again"
done
