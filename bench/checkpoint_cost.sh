#!/usr/bin/env bash
# What checkpoints, or snapshots in memory, cost a run: the quickstart's model with them and without any. The speed of a
# machine changes by more than what is measured here, so short runs come in pairs, one of each kind right after the
# other, and every second pair in the other order. Each pair gives one ratio of the times of the whole runs.
#   bench/checkpoint_cost.sh [PAIRS] [STEPS] [EVERY] [checkpoint.every|fault.snapshot]
# Prints two figures:
#   pairs   the median of the ratios, with the interval that holds it in 95 of 100 sittings (the sign test's; it needs
#           at least 6 pairs)
#   stall   how long training stood still for one of them (copy_ms, the longest of any worker), and the share of the
#           run's time that all of them took: what fault.snapshot: auto keeps below 1 %
# Snapshots are measured with two stages and one replica, the case for which they are made.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

pairs=${1:-20}
steps=${2:-300}
every=${3:-50 steps}
field=${4:-checkpoint.every}

choose_job quickstart
plan=(--set pipe.k=1 --set autodp.r=2 --set pipe.m=1 --set fault.snapshot=none)
event=checkpoint.written
if [ "$field" = fault.snapshot ]; then
    plan=(--set pipe.k=2 --set autodp.r=1 --set pipe.m=4 --set checkpoint.every=none)
    event=snapshot.taken
fi
ratios=$out_dir/checkpoint_cost.ratios
stalls=$out_dir/checkpoint_cost.stalls # ms, a line for each
: >"$ratios"
: >"$stalls"
spent_s=0

# run_kind KIND: its seconds in $seconds.
run_kind() {
    local setting=none
    [ "$1" = without ] || setting=$every
    train_job checkpoint_cost "$config" "${sets[@]}" --set train.max_steps="$steps" "${plan[@]}" --set "$field=$setting"
    seconds=$(finished checkpoint_cost seconds)
    if [ "$1" = with ]; then
        sed -nE "/\"$event\"/s/.*\"copy_ms\": ?([0-9.e+-]+).*/\1/p" "$out_dir/checkpoint_cost/events.jsonl" >>"$stalls"
        spent_s=$(calc "$spent_s + $seconds")
    fi
}

for ((i = 0; i < pairs; i++)); do
    order=(with without)
    [ $((i % 2)) = 0 ] || order=(without with)
    for kind in "${order[@]}"; do
        run_kind "$kind"
        declare "$kind=$seconds"
    done
    # shellcheck disable=SC2154 # the loop above sets them
    calc "1e6 * $with / $without" >>"$ratios"
    echo "pair $i, first ${order[0]}: $with s with, $without s without" >&2
done
if ! [ -s "$stalls" ]; then
    echo "$0: no run was long enough for one with $field=$every" >&2
    exit 1
fi
read -r middle low high < <(median_interval <"$ratios")
cost() { calc "($1 - 1e6) / 1e4"; } # millionths, as percent more
interval="fewer than 6 pairs: no interval"
[ "$low" = - ] || interval="95 % interval $(cost "$low") to $(cost "$high") %"
echo "pairs: $pairs of $steps steps, $field=$every: the run takes $(cost "$middle") % longer (median; $interval)"
echo "stall: $(wc -l <"$stalls") of them, $(median <"$stalls") ms each (median), together" \
    "$(awk -v s="$spent_s" '{ ms += $1 } END { printf "%.3f", ms / s / 10 }' "$stalls") % of the time"
