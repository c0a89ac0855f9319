#!/usr/bin/env bash
# Time and accuracy of elastic training against the best static plan: the same job, the same number
# of epochs, the same seeds, in turn.
#   bench/elastic_table.sh [-j JOB] [-s "SEEDS"] [ROW...]
# A row is NAME or NAME:FIELD=VALUE,FIELD=VALUE...; without rows, those of the paper's breakdown.
# The first row is what the others are compared with.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

job=configs/quickstart.yaml
seeds='0 1 2'
while getopts j:s: option; do
    case $option in
    j) job=$OPTARG ;;
    s) seeds=$OPTARG ;;
    *)
        sed -n '2,6s/^# //p' "$0" >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
if [ $# -eq 0 ]; then
    set -- static:freeze.policy=none,devices.memory=2GiB,cache.policy=off \
        'freeze only:devices.memory=2GiB,pipe.k=1,autodp.r=2,pipe.m=1,cache.policy=off' \
        'pipeline, static:freeze.policy=none,pipe.k=2,autodp.r=1,cache.policy=off' \
        '+ AutoPipe and AutoDP:cache.policy=off' \
        '+ AutoCache:cache.policy=auto'
fi

# finished DIR FIELD: of the event that ends a run.
finished() {
    sed -nE "/\"run.finished\"/s/.*\"$2\": ?([-0-9.e+]+).*/\1/p" "$out_dir/$1/events.jsonl"
}

# train DIR FIELD=VALUE...
train() {
    local dir=$1 settings=() field
    shift
    for field in "$@"; do
        settings+=(--set "$field")
    done
    rm -rf "${out_dir:?}/$dir"
    if ! "$frostline" run "$job" --run-dir "$out_dir/$dir" "${settings[@]}" >"$out_dir/$dir.log" 2>&1 </dev/null; then
        tail -n 5 "$out_dir/$dir.log" >&2
        echo "$0: the run failed; see $out_dir/$dir.log" >&2
        return 1
    fi
}

declare -A seconds accuracy
names=()
for seed in $seeds; do
    row=0
    for asked in "$@"; do
        names[row]=${asked%%:*}
        fields=
        [ "${names[row]}" = "$asked" ] || fields=${asked#*:}
        # shellcheck disable=SC2086
        train "elastic-$row-$seed" train.seed="$seed" ${fields//,/ }
        seconds[$row]+=" $(finished "elastic-$row-$seed" seconds)"
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
printf '| %-24s | seconds | times faster | accuracy, %% | points |\n|---|---|---|---|---|\n' run
for ((row = 0; row < ${#names[@]}; row++)); do
    s=$(mean "${seconds[$row]}")
    a=$(mean "${accuracy[$row]}")
    awk -v n="${names[row]}" -v s="$s" -v a="$a" -v bs="$base_s" -v ba="$base_a" \
        'BEGIN { printf "| %-24s | %7.1f | %12.2f | %11.2f | %+6.2f |\n", n, s, bs / s, 100 * a, 100 * (a - ba) }'
done
