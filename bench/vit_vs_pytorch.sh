#!/usr/bin/env bash
# Samples a second on two cores, Frostline and PyTorch in turn: the same ViT (12 blocks, C 128, 17
# tokens), the same data, batch and optimizer, in fp32 and in bf16. PyTorch runs in each of its modes,
# with MODES="--compile" (or other options of bench/peers/peer_vit.py, separated by commas) in those as well;
# its best counts.
#   python3 -m venv V && V/bin/pip install torch numpy && bench/vit_vs_pytorch.sh V/bin/python
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

python=${1:-python3}
rounds=${2:-3}
steps=${3:-50}
data=${DATA:-/usr/share/datasets/fashion-mnist}
if ! "$python" -c 'import torch, numpy' 2>/dev/null; then
    echo "$0: $python has no torch and numpy; see the first lines of $0" >&2
    exit 2
fi

modes=("--mode single --threads 2" "--mode ddp --processes 2 --threads 1"
    "--mode single --threads 2 --bf16" "--mode ddp --processes 2 --threads 1 --bf16")
if [ -n "${MODES:-}" ]; then
    IFS=, read -ra more <<<"$MODES"
    modes+=("${more[@]}")
fi
rates=$out_dir/vit_vs_pytorch.txt # "name: samples a second", a line for each run
: >"$rates"

# ours PRECISION: train in it, and note the rate.
ours() {
    run_job "vit-$1" --set data.path="$data" --set train.max_steps="$steps" --set train.precision="$1"
    local plan
    plan="K = $(step_field "vit-$1" k | head -n 1), R = $(step_field "vit-$1" r | head -n 1)"
    plan+=", M = $(step_field "vit-$1" m | head -n 1)"
    echo "frostline $1: $(calc "128000 / $(median_ms "vit-$1")")" | tee -a "$rates" | sed "s/$/ samples\/s ($plan)/"
}

# median_of NAME: of its runs.
median_of() {
    sed -n "s/^$1: //p" "$rates" | median
}

for ((i = 0; i < rounds; i++)); do
    ours fp32
    ours bf16
    for mode in "${modes[@]}"; do
        # shellcheck disable=SC2086 # a mode is several words
        echo "PyTorch $mode: $("$python" bench/peers/peer_vit.py $mode --steps "$steps" --data "$data")" | tee -a "$rates"
    done
done
best=0
for mode in "${modes[@]}"; do
    rate=$(median_of "PyTorch $mode")
    best=$(calc "$rate > $best ? $rate : $best")
done
a=$(median_of "frostline fp32")
b=$(median_of "frostline bf16")
echo "medians: frostline fp32 $a, bf16 $b, PyTorch's best $best samples/s"
echo "fp32 / PyTorch's best = $(calc "$a / $best"), bf16 / PyTorch's best = $(calc "$b / $best"), bf16 / fp32 = $(calc "$b / $a")"
