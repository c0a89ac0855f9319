#!/usr/bin/env bash
# How well step times are predicted: each plan of a list, as predicted from a profile that was
# measured beforehand (once, before any of them ran), and as it runs.
#
#   bench/predict.sh [quickstart|vit] [STEPS] [F...]
#
# quickstart is the model and batch of configs/quickstart.yaml, vit that of the other benchmarks.
# Plans are K,R,M of two workers; each comes once for every F (default: 0 and 4 frozen blocks).
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

what=${1:-vit}
steps=${2:-30}
shift $(($# < 2 ? $# : 2))
frozen=("${@:-0}")
if [ $# -eq 0 ]; then
    frozen=(0 4)
fi
plans=('1,1,1' '1,1,4' '1,2,1' '1,2,2' '2,1,2' '2,1,4' '2,1,8' '2,1,12')
choose_job "$what"
# Frozen layers cost nothing once the cache holds what they make; here they are to cost what they take.
sets+=(--set cache.policy=off)
profile=$out_dir/predict-$what.yaml

# predict K R M F: milliseconds, from the profile as it was measured.
predict() {
    local more=()
    [ "$4" -eq 0 ] || more=(--frozen "$4")
    "$frostline" plan "$config" --json --profile "$profile" "${sets[@]}" --set pipe.k="$1" \
        --set autodp.r="$2" --set pipe.m="$3" "${more[@]}" |
        sed -E 's/\{"f": ?/\n&/g' | sed -nE 's/.*"step_ms": ?([0-9.]+).*/\1/p' | tail -n 1
}

# measure K R M F: the median step of a run, milliseconds.
measure() {
    local more=()
    [ "$4" -eq 0 ] || more=(--set "elastic.script=[{step: 2, f: $4}]")
    cp "$profile" "$out_dir/predict-run.yaml" # a run may write what it learned
    rm -rf "$out_dir/predict"
    "$frostline" run "$config" --run-dir "$out_dir/predict" "${sets[@]}" \
        --set pipe.profile="$out_dir/predict-run.yaml" --set pipe.k="$1" --set autodp.r="$2" \
        --set pipe.m="$3" --set train.max_steps="$steps" "${more[@]}" \
        >"$out_dir/predict.log" 2>&1 </dev/null
    median_ms predict
}

rm -f "$profile"
"$frostline" plan "$config" "${sets[@]}" --set pipe.profile="$profile" >"$out_dir/predict.log"
printf '%3s %3s %3s %3s  %12s  %12s  %7s\n' F K R M predicted measured error
worst=0
for f in "${frozen[@]}"; do
    for plan in "${plans[@]}"; do
        IFS=, read -r k r m <<<"$plan"
        p=$(predict "$k" "$r" "$m" "$f")
        t=$(measure "$k" "$r" "$m" "$f")
        e=$(calc "100 * ($p / $t - 1)")
        printf '%3d %3d %3d %3d  %9.2f ms  %9.2f ms  %+6.1f%%\n' "$f" "$k" "$r" "$m" "$p" "$t" "$e"
        worst=$(awk "BEGIN { e = ($e < 0 ? -($e) : $e); print (e > $worst ? e : $worst) }")
    done
done
printf 'largest error %.1f %%\n' "$worst"
