#!/usr/bin/env bash
# Is the plan that is chosen the fastest there is? A run that compares several M on its own steps
# goes first, as a user's first run does, and leaves what it found in the profile; the plan
# that a run chooses after it is the one in question. Then every plan that two workers can run is
# run, each for some steps; then the fastest ones and the chosen one some rounds more, in turn. The
# ratio of the chosen plan's step (its lower quartile) to the fastest plan's is taken in each round, since the machine
# changes from one round to the next.
#
#   bench/auto_vs_all.sh [quickstart|vit|BLOCKS,DIM,PATCH,BATCH] [STEPS] [ROUNDS] [FIRST_STEPS]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

what=${1:-quickstart}
steps=${2:-30}
rounds=${3:-3}
first_steps=${4:-600}
n_finalists=4
choose_job "$what"
profile=$out_dir/auto-$what.yaml

# measure K,R,M: the lower quartile of the steps of a run, milliseconds.
measure() {
    local k r m
    IFS=, read -r k r m <<<"$1"
    cp "$profile" "$out_dir/auto-run.yaml" # a run may write what it learned
    rm -rf "$out_dir/auto"
    "$frostline" run "$config" --run-dir "$out_dir/auto" "${sets[@]}" \
        --set pipe.profile="$out_dir/auto-run.yaml" --set pipe.k="$k" --set autodp.r="$r" \
        --set pipe.m="$m" --set train.max_steps="$steps" >"$out_dir/auto.log" 2>&1 </dev/null
    quartile_ms auto
}

rm -rf "$profile" "$out_dir/auto-first"
"$frostline" run "$config" --run-dir "$out_dir/auto-first" "${sets[@]}" \
    --set pipe.profile="$profile" --set train.max_steps="$first_steps" >"$out_dir/auto.log" 2>&1 </dev/null
planned "$config" --profile "$profile" "${sets[@]}" >"$out_dir/auto-plans"
grep -h '"tune.done"' "$out_dir/auto-first/events.jsonl" |
    sed -E 's/.*"cost_ms": *([-0-9.]+).*"budget_ms": *([0-9.]+).*"why": *"([^"]*)".*/tuning: \3; cost \1 of \2 ms/' || true
chosen=$(grep chosen "$out_dir/auto-plans" | cut -d' ' -f1)
: >"$out_dir/auto-table"
while read -r plan predicted _; do
    printf '%s %s %s\n' "$plan" "$predicted" "$(measure "$plan")" >>"$out_dir/auto-table"
done <"$out_dir/auto-plans"

printf '%-10s %12s %12s\n' K,R,M predicted measured
sort -g -k3 "$out_dir/auto-table" |
    awk -v chosen="$chosen" '{ printf "%-10s %9.2f ms %9.2f ms %s\n", $1, $2, $3, $1 == chosen ? "chosen" : "" }'

mapfile -t finalists < <(sort -g -k3 "$out_dir/auto-table" | cut -d' ' -f1 | head -n "$n_finalists")
case " ${finalists[*]} " in
*" $chosen "*) ;;
*) finalists+=("$chosen") ;;
esac
rm -f "$out_dir"/auto-final-*
for ((i = 0; i < rounds; i++)); do
    for plan in "${finalists[@]}"; do
        measure "$plan" >>"$out_dir/auto-final-$plan"
    done
done
best='' best_ms=''
for plan in "${finalists[@]}"; do
    t=$(median <"$out_dir/auto-final-$plan")
    echo "again, $rounds rounds: $plan $t ms"
    if [ -z "$best" ] || awk "BEGIN { exit !($t < $best_ms) }"; then
        best=$plan best_ms=$t
    fi
done
paste "$out_dir/auto-final-$chosen" "$out_dir/auto-final-$best" | awk '{ print $1 / $2 }' >"$out_dir/auto-ratios"
echo "chosen $chosen: $(calc "100 * ($(median <"$out_dir/auto-ratios") - 1)") % over the fastest, $best, in the median of the rounds"
