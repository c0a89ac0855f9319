#!/usr/bin/env bash
# MiniLM on SST-2 with frozen blocks: time and accuracy against the best static plan and PyTorch, over
# seeds; the table of docs/finetune.md.
#   bench/sst2_table.sh [-k] [-s "SEEDS"] [-n ROWS] [-p PYTHON] [-x "FIELD=VALUE;..."] SST2 [ROW...]
# SST2 is a folder with train.tsv and dev.tsv (or .tsv.gz), as in SST-2.zip of the GLUE benchmark. 10,000
# rows of train are held out, always the same ones; -n trains on that many of the others. -p names a Python
# with torch and transformers, for the rows whose names begin with PyTorch: their fields are options of
# bench/peers/peer_bert.py. MODEL is MiniLM's folder (default .cache/sst2-minilm/model, which
# configs/sst2-minilm.sh makes). -x holds for all rows of Frostline; -k keeps finished runs.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
# shellcheck source=bench/rows.sh
. bench/rows.sh
need_program

usage() {
    sed -n '2,10s/^# //p' "$0" >&2
    exit 2
}

# shellcheck disable=SC2034 # read by rows.sh
table=sst2 seeds='0 1 2' all='' keep=''
n_rows=0 python='' weights=${MODEL:-.cache/sst2-minilm/model}
while getopts kn:p:s:x: option; do
    # shellcheck disable=SC2034
    case $option in
    k) keep=1 ;;
    n) n_rows=$OPTARG ;;
    p) python=$OPTARG ;;
    s) seeds=$OPTARG ;;
    x) all=$OPTARG ;;
    *) usage ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || usage
sst2=$1
shift
paper='freeze.policy=schedule;freeze.start=1 epoch;freeze.every=1 epoch;freeze.alpha=1/3'
early='freeze.policy=schedule;freeze.start=0;freeze.every=1 epoch;freeze.alpha=1/3;freeze.keep=1'
if [ $# -eq 0 ]; then
    set -- 'static' \
        "frozen:$paper;elastic.enabled=false;cache.policy=off" \
        "frozen + cache:$paper;elastic.enabled=false" \
        "frozen + cache + elastic:$paper" \
        "the same, keep 1:$paper;freeze.keep=1" \
        "from the first epoch, keep 1:$early"
    [ -z "$python" ] || set -- "$@" 'PyTorch, like length:--pad=bucket;--threads=2'
fi

data=$out_dir/sst2
mkdir -p "$data"
for name in train dev; do
    if [ -f "$sst2/$name.tsv.gz" ]; then
        gzip -dc "$sst2/$name.tsv.gz" >"$data/$name.tsv"
    elif ! cp "$sst2/$name.tsv" "$data/$name.tsv"; then
        exit 2
    fi
done
# The multiples of a number without a factor in common with n_rows, modulo n_rows, are all of its numbers.
awk -v rest="$data/rest.tsv" -v held="$data/held.tsv" -v n_rows="$(($(wc -l <"$data/train.tsv") - 1))" '
    NR == 1 { print >rest; print >held; next }
    { print >((NR - 2) * 7919 % n_rows < 10000 ? held : rest) }' "$data/train.tsv"

train_row() {
    local dir=$1 name=$2 seed=$3 option options=()
    shift 3
    case $name in
    PyTorch*)
        for option in "$@"; do
            [[ $option != --*=* ]] || options+=("$option")
        done
        "$python" bench/peers/peer_bert.py --weights "$weights" --train "$data/rest.tsv" --test "$data/held.tsv" \
            --test "$data/dev.tsv" --text sentence --label label --samples "$n_rows" --epochs 10 \
            --seed "$seed" "${options[@]}" 2>"$out_dir/$dir.log" >"$out_dir/$dir.txt"
        return
        ;;
    esac
    [ "$n_rows" = 0 ] || set -- --set "data.samples=$n_rows" "$@"
    train_job "$dir" configs/sst2-minilm.yaml --set "model.path=$weights" --set train.epochs=10 \
        --set "data.path={train: $data/rest.tsv, test: $data/held.tsv}" --set train.evaluate=false \
        --set "train.seed=$seed" "$@"
    for name in held dev; do
        "$frostline" evaluate "$out_dir/$dir" --json \
            --set "data.path={train: $data/rest.tsv, test: $data/$name.tsv}" >"$out_dir/$dir/$name.json"
    done
}

is_finished() {
    [ -s "$out_dir/$1/dev.json" ] || grep -qs accuracy "$out_dir/$1.txt"
}

measure_row() {
    if [ -s "$out_dir/$1/dev.json" ]; then
        echo "$(finished "$1" seconds)" \
            "$(sed -nE 's/.*"accuracy": ?([0-9.]+).*/\1/p' "$out_dir/$1/held.json" "$out_dir/$1/dev.json" | tr '\n' ' ')"
    else
        sed -nE 's/.*seconds ([0-9.]+), test accuracy ([0-9.]+).*, test accuracy ([0-9.]+).*/\1 \2 \3/p' \
            "$out_dir/$1.txt"
    fi
}

run_rows "$@"
print_rows 'held-out accuracy' 'dev accuracy'
