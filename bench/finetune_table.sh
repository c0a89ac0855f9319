#!/usr/bin/env bash
# Fine-tuning with frozen blocks: time and accuracy against the best static plan, over seeds; the
# table of docs/finetune.md.
#   bench/finetune_table.sh [-k] [-s "SEEDS"] [-x "FIELD=VALUE;..."] [ROW...]
# A row is NAME or "NAME:FIELD=VALUE;FIELD=VALUE..."; -x holds for all rows. The rows run in turn, seed
# by seed. With -k, runs that an earlier call with the same rows finished are kept. The general model is
# trained once and kept in build/bench/general.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
# shellcheck source=bench/rows.sh
. bench/rows.sh
need_program

# shellcheck disable=SC2034 # read by rows.sh
table=finetune seeds='0 1 2' all='' keep=''
while getopts ks:x: option; do
    # shellcheck disable=SC2034
    case $option in
    k) keep=1 ;;
    s) seeds=$OPTARG ;;
    x) all=$OPTARG ;;
    *)
        sed -n '2,7s/^# //p' "$0" >&2
        exit 2
        ;;
    esac
done
shift $((OPTIND - 1))
small=devices.memory=6900KiB
if [ $# -eq 0 ]; then
    set -- 'static:freeze.policy=none' \
        'static, K=2:freeze.policy=none;pipe.k=2;autodp.r=1' \
        'frozen:elastic.enabled=false;cache.policy=off' \
        'frozen + cache:elastic.enabled=false' \
        'frozen + cache + elastic' \
        "static, small memory:freeze.policy=none;$small" \
        "frozen, small memory:elastic.enabled=false;cache.policy=off;$small" \
        "frozen + cache + elastic, small memory:$small" \
        'static, lr 1e-4:freeze.policy=none;train.lr=1e-4' \
        'static, drawn weights, lr 1e-3:freeze.policy=none;model.init=none;model.init_allow=none;train.lr=1e-3'
fi

train_row() {
    local dir=$1 seed=$3
    shift 3
    train_job "$dir" examples/finetune-tops.yaml --set "model.init=$out_dir/general" \
        --set "train.seed=$seed" "$@"
}

is_finished() {
    grep -qs '"run.finished"' "$out_dir/$1/events.jsonl"
}

measure_row() {
    echo "$(finished "$1" seconds) $(finished "$1" test_accuracy)"
}

[ -f "$out_dir/general/model/model.safetensors" ] || train_job general examples/finetune-general.yaml
run_rows "$@"
print_rows accuracy
