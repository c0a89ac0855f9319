#!/usr/bin/env bash
# Is a whole run that plans for itself ever slower than the best plan that does not change? For every
# job in configs/, shortened: the static plans that are predicted to be the fastest; a run that plans,
# tunes and caches for itself where nothing ever freezes; and one where blocks freeze. In turn.
#
#   bench/auto_vs_static.sh [ROUNDS] [SAMPLES] [EPOCHS] [PLANS] [JOB...]
#
# Prints the seconds of whole runs, medians over the rounds. Each run begins with the same profile,
# which no run has learned from yet.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-2}
samples=${2:-7680}
epochs=${3:-8}
n_plans=${4:-2}
jobs=("${@:5}")
if [ ${#jobs[@]} -eq 0 ]; then
    jobs=(configs/*.yaml)
fi
freezing=(freeze.policy=gradnorm freeze.start=75% freeze.every=5% cache.augment=stop)

# train JOB NAME FIELD=VALUE...: its seconds go to a file.
train() {
    local job=$1 name=$2 settings=() field
    shift 2
    for field in devices.count=2 data.samples="$samples" train.epochs="$epochs" \
        train.evaluate=false pipe.profile="$out_dir/static-run.yaml" "$@"; do
        settings+=(--set "$field")
    done
    cp "$out_dir/static-profile.yaml" "$out_dir/static-run.yaml"
    train_job static-run "$job" "${settings[@]}"
    finished static-run seconds >>"$out_dir/static-$name.s"
    echo "$job, $name: $(tail -n 1 "$out_dir/static-$name.s") s" >&2
}

# fastest_plans JOB: K,R,M of those predicted to be the fastest, one a line.
fastest_plans() {
    planned "$1" --profile "$out_dir/static-profile.yaml" --set devices.count=2 \
        --set freeze.policy=none | sort -g -k2 | head -n "$n_plans" | cut -d' ' -f1
}

printf '| %-24s | best static plan | seconds | auto, nothing freezes | times faster | auto, freezing | times faster |\n' job
printf '|---|---|---|---|---|---|---|\n'
for job in "${jobs[@]}"; do
    rm -f "$out_dir"/static-*.s "$out_dir/static-profile.yaml"
    "$frostline" plan "$job" --set devices.count=2 --set pipe.profile="$out_dir/static-profile.yaml" \
        >"$out_dir/static-run.log"
    mapfile -t plans < <(fastest_plans "$job")
    for ((round = 0; round < rounds; round++)); do
        for plan in "${plans[@]}"; do
            IFS=, read -r k r m <<<"$plan"
            train "$job" "$plan" freeze.policy=none elastic.enabled=false \
                pipe.k="$k" autodp.r="$r" pipe.m="$m"
        done
        train "$job" plain freeze.policy=none
        train "$job" freezing "${freezing[@]}"
    done
    best='' best_s=''
    for plan in "${plans[@]}"; do
        s=$(median <"$out_dir/static-$plan.s")
        if [ -z "$best" ] || awk "BEGIN { exit !($s < $best_s) }"; then
            best=$plan best_s=$s
        fi
    done
    plain=$(median <"$out_dir/static-plain.s")
    frozen=$(median <"$out_dir/static-freezing.s")
    awk -v job="$(basename "$job" .yaml)" -v best="$best" -v b="$best_s" -v p="$plain" -v f="$frozen" \
        'BEGIN { printf "| %-24s | %-16s | %7.2f | %21.2f | %12.2f | %14.2f | %12.2f |\n", job, best, b, p, b / p, f, b / f }'
done
