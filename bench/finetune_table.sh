#!/usr/bin/env bash
# Fine-tuning with frozen blocks: time and accuracy against the best static plan, over seeds; the
# table of docs/finetune.md.
#   bench/finetune_table.sh [-k] [-s "SEEDS"] [-x FIELD=VALUE,...] [ROW...]
# A row is NAME or NAME:FIELD=VALUE,FIELD=VALUE...; -x holds for all rows. The rows run in turn, seed
# by seed, and each is compared with the first row of the same seed: the machine may be slower in one
# minute than in another. With -k, runs that an earlier call with the same rows finished are kept. The
# general model is trained once and kept in build/bench/general.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

seeds='0 1 2'
all=
keep=
while getopts ks:x: option; do
    case $option in
    k) keep=1 ;;
    s) seeds=$OPTARG ;;
    x) all=$OPTARG ;;
    *)
        sed -n '2,9s/^# //p' "$0" >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
small=devices.memory=6900KiB
if [ $# -eq 0 ]; then
    set -- 'static:freeze.policy=none' \
        'static, K=2:freeze.policy=none,pipe.k=2,autodp.r=1' \
        'frozen:elastic.enabled=false,cache.policy=off' \
        'frozen + cache:elastic.enabled=false' \
        'frozen + cache + elastic' \
        "static, small memory:freeze.policy=none,$small" \
        "frozen, small memory:elastic.enabled=false,cache.policy=off,$small" \
        "frozen + cache + elastic, small memory:$small" \
        'static, lr 1e-4:freeze.policy=none,train.lr=1e-4' \
        'static, drawn weights, lr 1e-3:freeze.policy=none,model.init=none,model.init_allow=none,train.lr=1e-3'
fi

[ -f "$out_dir/general/model/model.safetensors" ] || train_job general examples/finetune-general.yaml

# plan_of DIR: K x R at the beginning and at the end.
plan_of() {
    sed -nE 's/.*"k": ?([0-9]+),.*"r": ?([0-9]+),.*/\1x\2/p' "$out_dir/$1/steps.jsonl" |
        awk 'NR == 1 { first = $0 } { last = $0 } END { print first == last ? first : first " to " last }'
}

names=()
results=$out_dir/finetune.txt
: >"$results"
for seed in $seeds; do
    row=0
    for asked in "$@"; do
        names[row]=${asked%%:*}
        fields=
        [ "${names[row]}" = "$asked" ] || fields=${asked#*:}
        settings=(--set "model.init=$out_dir/general" --set "train.seed=$seed")
        for field in ${all//,/ } ${fields//,/ }; do
            settings+=(--set "$field")
        done
        if [ -z "$keep" ] || ! grep -qs '"run.finished"' "$out_dir/finetune-$row-$seed/events.jsonl"; then
            train_job "finetune-$row-$seed" examples/finetune-tops.yaml "${settings[@]}"
        fi
        echo "$row $(finished "finetune-$row-$seed" seconds) $(finished "finetune-$row-$seed" test_accuracy)" >>"$results"
        echo "seed $seed, ${names[row]}: $(tail -n 1 "$results" | cut -d' ' -f2-)" >&2
        row=$((row + 1))
    done
done

# values ROW COLUMN: of all seeds, one a line.
values() {
    awk -v row="$1" -v column="$2" '$1 == row { print $column }' "$results"
}

# ratios ROW: seconds of the first row / seconds of this one, seed by seed.
ratios() {
    paste -d' ' <(values 0 2) <(values "$1" 2) | awk '{ print $1 / $2 }'
}

mean() {
    awk '{ s += $1 } END { printf "%.5f", s / NR }'
}

base=$(values 0 3 | mean)
printf '| run | K x R | seconds | times faster | accuracy, %% | points | seeds |\n'
printf '|---|---|---|---|---|---|---|\n'
for ((row = 0; row < ${#names[@]}; row++)); do
    awk -v n="${names[row]}" -v p="$(plan_of "finetune-$row-${seeds%% *}")" -v s="$(values $row 2 | median)" \
        -v r="$(ratios $row | median)" -v a="$(values $row 3 | mean)" -v b="$base" \
        -v each="$(values $row 3 | awk '{ printf "%s%.2f", NR == 1 ? "" : ", ", 100 * $1 }')" \
        'BEGIN { printf "| %s | %s | %.1f | %.1f | %.2f | %+.2f | %s |\n", n, p, s, r, 100 * a, 100 * (a - b), each }'
done
