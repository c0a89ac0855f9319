#!/usr/bin/env bash
# Tokens a second on two cores, Frostline and PyTorch in turn: the same GPT-2 (6 blocks, C 384, blocks
# of 128 tokens, 50,257 ids, tied head), the same batch and optimizer, fp32. PyTorch runs in each of
# its modes; its best counts. The first lines of configs/gpt2-shakespeare.yaml get text and tokenizer.
#   python3 -m venv V && V/bin/pip install torch && bench/gpt2_vs_pytorch.sh V/bin/python
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

python=${1:-python3}
rounds=${2:-3}
steps=${3:-8} # of PyTorch; of Frostline ten more, which do not count
text=${TEXT:-shakespeare/input.txt}
tokenizer=${TOKENIZER:-shakespeare/gpt2}
batch=16
tokens=128
if ! "$python" -c 'import torch' 2>/dev/null; then
    echo "$0: $python has no torch; see the first lines of $0" >&2
    exit 2
fi

ours=()
single=()
ddp=()
for ((i = 0; i < rounds; i++)); do
    train_job gpt2 configs/gpt2-shakespeare.yaml --set data.path="$text" --set data.tokenizer="$tokenizer" \
        --set data.max_tokens=$tokens --set train.batch=$batch --set model.dropout=0 --set train.evaluate=false \
        --set train.max_steps=$((steps + 10))
    ours+=("$(calc "1000 * $batch * $tokens / $(median_ms gpt2)")")
    plan="K = $(step_field gpt2 k | head -n 1), R = $(step_field gpt2 r | head -n 1), M = $(step_field gpt2 m | head -n 1)"
    single+=("$("$python" bench/peers/peer_gpt2.py --mode single --threads 2 --steps "$steps")")
    ddp+=("$("$python" bench/peers/peer_gpt2.py --mode ddp --processes 2 --threads 1 --steps "$steps")")
    echo "round $i: frostline ${ours[i]} ($plan); PyTorch single ${single[i]}, DDP ${ddp[i]} tokens/s"
done
a=$(printf '%s\n' "${ours[@]}" | median)
b=$(printf '%s\n' "${single[@]}" | median)
c=$(printf '%s\n' "${ddp[@]}" | median)
best=$(calc "$b > $c ? $b : $c")
echo "medians: frostline $a, PyTorch single $b, DDP $c tokens/s"
echo "frostline / PyTorch's best = $(calc "$a / $best")"
