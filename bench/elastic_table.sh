#!/usr/bin/env bash
# Time and accuracy of elastic training against the best static plan: the same job, the same number
# of epochs, the same seeds, in turn.
#   bench/elastic_table.sh [-j JOB] [-s "SEEDS"] [-x FIELD=VALUE,...] [ROW...]
# A row is NAME or NAME:FIELD=VALUE,FIELD=VALUE...; -x holds for all rows. Without rows, those of the
# paper's breakdown, and the plan that is static and the fastest where memory allows any.
# The first row is what the others are compared with; once by seconds, and once by what a run took of
# its own steps with nothing frozen, for the machine may be slower in one run than in another.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

job=configs/quickstart.yaml
seeds='0 1 2'
all=
while getopts j:s:x: option; do
    case $option in
    j) job=$OPTARG ;;
    s) seeds=$OPTARG ;;
    x) all=$OPTARG ;;
    *)
        sed -n '2,9s/^# //p' "$0" >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -eq 0 ]; then
    set -- 'no freezing:freeze.policy=none' \
        'freeze only:elastic.enabled=false,cache.policy=off' \
        '+ AutoPipe + AutoCache:autodp.r=1' \
        '+ AutoPipe + AutoDP:cache.policy=off' \
        'all of it' \
        'no freezing, 2 GiB:freeze.policy=none,devices.memory=2GiB'
fi

# own_steps DIR: the run's seconds, in median steps of its own before the first block froze.
own_steps() {
    local ms
    ms=$(sed -nE 's/.*"f": ?0,.*"ms": ?([0-9.]+).*/\1/p' "$out_dir/$1/steps.jsonl" | median)
    calc "1e3 * $(finished "$1" seconds) / $ms"
}

# train DIR FIELD=VALUE...
train() {
    local dir=$1 settings=() field
    shift
    for field in "$@"; do
        settings+=(--set "$field")
    done
    train_job "$dir" "$job" "${settings[@]}"
}

declare -A seconds accuracy steps
names=()
for seed in $seeds; do
    row=0
    for asked in "$@"; do
        names[row]=${asked%%:*}
        fields=
        [ "${names[row]}" = "$asked" ] || fields=${asked#*:}
        # shellcheck disable=SC2086
        train "elastic-$row-$seed" train.seed="$seed" ${all//,/ } ${fields//,/ }
        seconds[$row]+=" $(finished "elastic-$row-$seed" seconds)"
        steps[$row]+=" $(own_steps "elastic-$row-$seed")"
        accuracy[$row]+=" $(finished "elastic-$row-$seed" test_accuracy)"
        echo "seed $seed, ${names[row]}: $(finished "elastic-$row-$seed" seconds) s, accuracy $(finished "elastic-$row-$seed" test_accuracy)" >&2
        row=$((row + 1))
    done
done

mean() {
    # shellcheck disable=SC2086
    printf '%s\n' $1 | awk '{ s += $1 } END { printf "%.5f", s / NR }'
}

base_s=$(mean "${seconds[0]}")
base_a=$(mean "${accuracy[0]}")
base_steps=$(mean "${steps[0]}")
printf '| %-24s | seconds | times faster | in its own steps | times faster | accuracy, %% | points |\n' run
printf '|---|---|---|---|---|---|---|\n'
for ((row = 0; row < ${#names[@]}; row++)); do
    s=$(mean "${seconds[$row]}")
    a=$(mean "${accuracy[$row]}")
    own=$(mean "${steps[$row]}")
    awk -v n="${names[row]}" -v s="$s" -v a="$a" -v bs="$base_s" -v ba="$base_a" -v o="$own" -v bo="$base_steps" \
        'BEGIN { printf "| %-24s | %7.1f | %12.2f | %16.0f | %12.2f | %11.2f | %+6.2f |\n", n, s, bs / s, o, bo / o, 100 * a, 100 * (a - ba) }'
done
