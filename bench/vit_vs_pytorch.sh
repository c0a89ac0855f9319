#!/usr/bin/env bash
# Samples a second on two cores, Frostline and PyTorch in turn: the same ViT (12 blocks, C 128, 17
# tokens), the same data, batch and optimizer, fp32. PyTorch runs in each of its modes; its best counts.
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

ours=()
single=()
ddp=()
for ((i = 0; i < rounds; i++)); do
    run_job vit --set data.path="$data" --set train.max_steps="$steps"
    ours+=("$(calc "128000 / $(median_ms vit)")")
    plan="K = $(step_field vit k | head -n 1), R = $(step_field vit r | head -n 1), M = $(step_field vit m | head -n 1)"
    single+=("$("$python" bench/peer_vit.py --mode single --threads 2 --steps "$steps" --data "$data")")
    ddp+=("$("$python" bench/peer_vit.py --mode ddp --processes 2 --threads 1 --steps "$steps" --data "$data")")
    echo "round $i: frostline ${ours[i]} ($plan); PyTorch single ${single[i]}, DDP ${ddp[i]} samples/s"
done
a=$(printf '%s\n' "${ours[@]}" | median)
b=$(printf '%s\n' "${single[@]}" | median)
c=$(printf '%s\n' "${ddp[@]}" | median)
best=$(calc "$b > $c ? $b : $c")
echo "medians: frostline $a, PyTorch single $b, DDP $c samples/s"
echo "frostline / PyTorch's best = $(calc "$a / $best")"
