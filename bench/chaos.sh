#!/usr/bin/env bash
# Runs under random faults at random moments: a worker is killed or stopped, workers come back, the run is scaled, and
# blocks freeze meanwhile. Each run of four workers meets some faults, is then stopped, and its ledger is read. A fault
# comes only while two replicas train: what a single owner of a layer loses is not kept elsewhere yet.
#   bench/chaos.sh [FAULTS] [SEED]
# Prints: the faults, by kind; how many the run survived; samples lost and used twice; steps done twice; and the time
# from a fault to the next finished step: median, 99th percentile, longest. Exit code 1 if a fault was not survived,
# or a sample or step is wrong. fault.detect is DETECT, 1s if unset: a stopped worker is noticed after 65 % of it.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

faults=${1:-50}
RANDOM=${2:-1}
a_run=${FAULTS_A_RUN:-5}
patience_s=30
dir=$out_dir/chaos
times=$dir.times
: >"$times"
n=0 killed=0 stopped=0 scaled=0 survived=0 lost=0 doubled=0 repeated=0 runs=0
controller=0
trap '[ $controller = 0 ] || kill -KILL $controller 2>/dev/null || true' EXIT

now_ms() { date +%s%3N; }
count() { # count FILE TEXT: lines with TEXT
    if [ -e "$dir/$1" ]; then grep -c -- "$2" "$dir/$1" || true; else echo 0; fi
}
steps() { if [ -e "$dir/steps.jsonl" ]; then wc -l <"$dir/steps.jsonl"; else echo 0; fi; }

# until_true COMMAND...: wait for it; fails when the run has ended or after patience_s.
until_true() {
    local end=$(($(now_ms) + patience_s * 1000))
    until "$@"; do
        kill -0 $controller 2>/dev/null && [ "$(now_ms)" -lt $end ] || return 1
        sleep 0.01
    done
}
has_steps() { [ "$(steps)" -ge "$1" ]; }
has_losses() { [ "$(count events.jsonl '"worker.lost"')" -gt "$1" ]; }

start_run() {
    rm -rf "$dir"
    "$frostline" run configs/quickstart.yaml --run-dir "$dir" --set devices.count=4 --set devices.memory=64MiB \
        --set model.blocks=4 --set model.dim=32 --set data.samples=6400 --set train.batch=64 --set train.epochs=2000 \
        --set pipe.k=1 --set pipe.m=2 --set fault.detect="${DETECT:-1s}" \
        --set freeze.policy=schedule --set freeze.start=1 --set freeze.every=1 --set checkpoint.every=none \
        --set data.augment=none >"$dir.log" 2>&1 </dev/null &
    controller=$!
    runs=$((runs + 1))
    until_true has_steps 20
}
two_replicas() {
    [ "$("$frostline" ctl "$dir" status --json 2>/dev/null | grep -o '"state": *"active"' | wc -l)" -ge 2 ] ||
        { "$frostline" ctl "$dir" scale k=1 r=2 >/dev/null 2>&1 && false; } # the best plan may have one
}

# The process of a random worker that trains or stands by.
pick_worker() {
    "$frostline" ctl "$dir" status --json 2>/dev/null |
        grep -o '"rank": *[0-9]*, *"pid": *[0-9]*, *"state": *"[a-z]*"' | grep -E '"(active|standby)"' |
        grep -o '"pid": *[0-9]*' | grep -o '[0-9]*' | shuf -n 1 --random-source=<(yes "$RANDOM")
}

# One fault, and the next step.
commit_fault() {
    local pid before begun signal=KILL
    until_true two_replicas || return 1
    pid=$(pick_worker) && [ -n "$pid" ] || return 0
    [ $((RANDOM % 4)) -ne 0 ] || signal=STOP
    before=$(count events.jsonl '"worker.lost"')
    begun=$(now_ms)
    kill -$signal "$pid" 2>/dev/null || return 0
    n=$((n + 1))
    if [ $signal = KILL ]; then killed=$((killed + 1)); else stopped=$((stopped + 1)); fi
    until_true has_losses "$before" || return 1
    until_true has_steps $(($(steps) + 1)) || return 1
    echo $(($(now_ms) - begun)) >>"$times"
    survived=$((survived + 1))
}

scale_somehow() {
    if "$frostline" ctl "$dir" scale k=1 r=$((2 + RANDOM % 3)) >/dev/null 2>&1; then scaled=$((scaled + 1)); fi
}

read_ledger() {
    local ids
    "$frostline" ledger "$dir" >"$dir.ledger" 2>&1 || true
    # Of each epoch: once, never, more. The last one was cut short.
    read -r l d < <(awk '$1 ~ /^[0-9]+$/ && NF == 4 { if (seen) l += never; never = $3; d += $4; seen = 1 } END { print l + 0, d + 0 }' "$dir.ledger")
    lost=$((lost + l)) doubled=$((doubled + d))
    ids=$(sed -nE 's/.*"step": *([0-9]+).*/\1/p' "$dir/steps.jsonl" | sort -n | uniq -d | wc -l)
    repeated=$((repeated + ids))
}

failed=0
while [ $n -lt "$faults" ] && [ $failed = 0 ]; do
    start_run || { failed=1; break; }
    for ((i = 0; i < a_run && n < faults; i++)); do
        sleep 0.$((RANDOM % 10))
        [ $((RANDOM % 3)) -ne 0 ] || scale_somehow
        commit_fault || { failed=1; break; }
    done
    if [ $failed = 0 ]; then
        "$frostline" ctl "$dir" stop >/dev/null 2>&1 || true
    else
        tail -n 5 "$dir.log" >&2
        kill -KILL $controller 2>/dev/null || true
    fi
    wait $controller || true
    controller=0
    [ $failed = 1 ] || read_ledger
done

sort -n "$times" | awk -v n="$n" -v k=$killed -v s=$stopped -v r=$runs -v c=$scaled -v ok=$survived -v l=$lost -v d=$doubled -v rep=$repeated '
    { t[NR] = $1 }
    END {
        printf "faults           %d in %d runs: %d killed, %d stopped; %d scale requests\n", n, r, k, s, c
        printf "survived         %d\n", ok
        printf "samples lost     %d\nsamples doubled  %d\nsteps repeated   %d\n", l, d, rep
        if (NR > 0)
            printf "next step after  %d ms (median), %d ms (99th percentile), %d ms (longest)\n",
                t[int((NR + 1) / 2)], t[int(NR * 0.99 + 0.999)], t[NR]
    }'
[ $failed = 0 ] && [ $survived = $n ] && [ $lost = 0 ] && [ $doubled = 0 ] && [ $repeated = 0 ]
