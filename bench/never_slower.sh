#!/usr/bin/env bash
# Freezing alone must never make a run slower: the same steps without a policy and with each of them,
# in turn, where nothing but the frost line may move (no other plan, no cache).
#   bench/never_slower.sh [ROUNDS] [STEPS]
# Prints the seconds of whole runs, medians, and how many times faster than without freezing. The
# last row gathers norms for a decision that never comes.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-3}
steps=${2:-40}
tenth=$((steps / 10 > 0 ? steps / 10 : 1))
names=('no freezing' gradnorm schedule stability 'gradnorm, never due')
policies=(none gradnorm schedule stability gradnorm)
starts=("$tenth" "$((2 * tenth))" "$tenth" "$((2 * tenth))" "$((steps + 1))")

# train ROW ROUND: the seconds of the run, and how many blocks were frozen at its end.
train() {
    local dir=never-slower-$1-$2
    run_job "$dir" --set elastic.enabled=false --set cache.policy=off --set devices.count=2 \
        --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 --set train.max_steps="$steps" \
        --set freeze.policy="${policies[$1]}" --set freeze.start="${starts[$1]} steps" \
        --set freeze.every="$tenth steps" --set freeze.percentile=80
    finished "$dir" seconds
    sed -nE 's/.*"f": ?([0-9]+).*/\1/p' "$out_dir/$dir/steps.jsonl" | tail -n 1
}

seconds=()
frozen=()
for ((round = 0; round < rounds; round++)); do
    for ((row = 0; row < ${#names[@]}; row++)); do
        train "$row" "$round" >"$out_dir/never-slower.txt"
        { read -r s; read -r f; } <"$out_dir/never-slower.txt"
        seconds[row]+=" $s"
        frozen[row]=$f
        echo "round $((round + 1)), ${names[row]}: $s s, $f blocks frozen at the end" >&2
    done
done

# shellcheck disable=SC2086
base=$(printf '%s\n' ${seconds[0]} | median)
printf '| %-20s | seconds | times faster | frozen at the end |\n|---|---|---|---|\n' policy
for ((row = 0; row < ${#names[@]}; row++)); do
    # shellcheck disable=SC2086
    s=$(printf '%s\n' ${seconds[row]} | median)
    awk -v n="${names[row]}" -v s="$s" -v b="$base" -v f="${frozen[row]}" \
        'BEGIN { printf "| %-20s | %7.2f | %12.2f | %17d |\n", n, s, b / s, f }'
done
