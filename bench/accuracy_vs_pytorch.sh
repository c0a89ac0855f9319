#!/usr/bin/env bash
# Test accuracy of the quickstart's model, Frostline and PyTorch with the same settings, a row a seed;
# nothing freezes. Frostline and PyTorch run at the same time, each on one thread.
#   python3 -m venv V && V/bin/pip install torch numpy && bench/accuracy_vs_pytorch.sh V/bin/python 3 "0 1 2"
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

python=${1:-python3}
epochs=${2:-3}
seeds=${3:-0 1 2}
data=${DATA:-/usr/share/datasets/fashion-mnist}
if ! "$python" -c 'import torch, numpy' 2>/dev/null; then
    echo "$0: $python has no torch and numpy; see the first lines of $0" >&2
    exit 2
fi

# ours SEED
ours() {
    rm -rf "${out_dir:?}/accuracy"
    # shellcheck disable=SC2154
    "$frostline" run configs/quickstart.yaml --run-dir "$out_dir/accuracy" --set data.path="$data" \
        --set train.epochs="$epochs" --set train.seed="$1" --set freeze.policy=none \
        --set devices.count=1 --set devices.memory=2GiB >"$out_dir/accuracy.log" 2>&1 </dev/null
    sed -nE '/"run.finished"/s/.*"test_accuracy": ?([0-9.]+).*/\1/p' "$out_dir/accuracy/events.jsonl"
}

# theirs SEED: the settings of configs/quickstart.yaml.
theirs() {
    "$python" bench/peers/peer_vit.py --mode single --threads 1 --epochs "$epochs" --seed "$1" --data "$data" \
        --blocks 8 --dim 64 --heads 4 --patch 7 --dropout 0.0 --augment crop-flip --crop 1 --batch 128 \
        --lr 1.5e-3 --weight-decay 0.05 --decay cosine | sed -nE 's/.*accuracy ([0-9.]+).*/\1/p'
}

a=()
b=()
for seed in $seeds; do
    theirs "$seed" >"$out_dir/accuracy.theirs" &
    a+=("$(ours "$seed")")
    wait $!
    b+=("$(cat "$out_dir/accuracy.theirs")")
    echo "seed $seed: frostline ${a[-1]}, PyTorch ${b[-1]}"
done
mean() {
    printf '%s\n' "$@" | awk '{ s += $1 } END { printf "%.4f", s / NR }'
}
echo "means after $epochs epochs: frostline $(mean "${a[@]}"), PyTorch $(mean "${b[@]}")"
