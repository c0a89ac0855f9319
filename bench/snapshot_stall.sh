#!/usr/bin/env bash
# For how long snapshots in memory keep training: one host of two workers, and two hosts of one worker, which are
# network name spaces of this machine (it needs the right to make them). A pipeline of two stages, so that no layer has
# another owner; rounds with snapshots and without follow each other.
#   bench/snapshot_stall.sh [ROUNDS] [STEPS] [EVERY] [SHAPE]
#   FROSTLINE=OTHER bench/snapshot_stall.sh      another version of the program
# Prints, of both:
#   stall   for how long training stood still for one of them (copy_ms, the longest of any worker)
#   step    one of a run without snapshots; and a stall with the step behind it, during which it may be on its way
#   run     how much longer it takes with snapshots
# All figures are medians.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
# shellcheck source=bench/two_hosts.sh
. bench/two_hosts.sh
need_program

rounds=${1:-3}
steps=${2:-120}
every=${3:-20 steps}
choose_job "${4:-8,384,7,32}" # blocks, dim, patch, batch: 14 million weights, 170 MB with AdamW's moments

plan=(--set pipe.k=2 --set autodp.r=1 --set pipe.m=4 --set elastic.enabled=false --set pipe.tune=false
    --set run.save_model=false --set train.max_steps="$steps" --set devices.memory=4GiB --set fault.detect=30s)

# train HOSTS DIR SNAPSHOTS
train() {
    local how=train_job
    [ "$1" = one ] || how=train_on_two_hosts
    "$how" "$2" "$config" "${sets[@]}" "${plan[@]}" --set fault.snapshot="$3"
}

# step_ms DIR: "STEP MILLISECONDS", each.
step_ms() {
    sed -nE 's/.*"step": ?([0-9]+).*"ms": ?([0-9.e+]+).*/\1 \2/p' "$out_dir/$1/steps.jsonl"
}

# taken DIR FIELD: of each snapshot.
taken() {
    sed -nE "/\"snapshot.taken\"/s/.*\"$2\": ?([0-9.e+-]+).*/\1/p" "$out_dir/$1/events.jsonl"
}

make_hosts
for hosts in one two; do
    name=snapshot-$hosts
    for file in stalls plain behind ratios; do
        : >"$out_dir/$name.$file"
    done
    for ((i = 0; i < rounds; i++)); do
        train "$hosts" "$name-without" none
        train "$hosts" "$name-with" "$every"
        step_field "$name-without" ms >>"$out_dir/$name.plain"
        taken "$name-with" copy_ms >>"$out_dir/$name.stalls"
        # After N finished steps comes step N.
        paste -d' ' <(taken "$name-with" step) <(taken "$name-with" copy_ms) |
            awk 'NR == FNR { stall[$1] = $2; next } $1 in stall { print stall[$1] + $2 }' - \
                <(step_ms "$name-with") >>"$out_dir/$name.behind"
        calc "100 * $(finished "$name-with" seconds) / $(finished "$name-without" seconds)" >>"$out_dir/$name.ratios"
    done
    if ! [ -s "$out_dir/$name.stalls" ]; then
        echo "$0: no run was long enough for a snapshot" >&2
        exit 1
    fi
    echo "$hosts: stall $(median <"$out_dir/$name.stalls") ms, of $(wc -l <"$out_dir/$name.stalls"); step without" \
        "$(median <"$out_dir/$name.plain") ms, stall and the next step $(median <"$out_dir/$name.behind") ms;" \
        "a run takes $(calc "$(median <"$out_dir/$name.ratios") - 100") % longer"
done
