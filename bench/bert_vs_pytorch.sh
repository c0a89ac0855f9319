#!/usr/bin/env bash
# Samples a second on two cores while MiniLM is fine-tuned on SST-2: Frostline, and transformers in each of
# its modes: one process or two, samples in any order or batches of like length. Fp32, 32 samples a step.
#   python3 -m venv V && V/bin/pip install torch transformers && bench/bert_vs_pytorch.sh SST2 V/bin/python 2
# SST2 is a folder with train.tsv and dev.tsv (or .tsv.gz); MODEL is MiniLM's folder (default
# .cache/sst2-minilm/model, which configs/sst2-minilm.sh makes). Every mode takes the same number of steps; the
# seconds that they take count, not the median step, since steps differ in length.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

if [ $# -lt 1 ]; then
    sed -n '2,8s/^# //p' "$0" >&2
    exit 2
fi
sst2=$1
python=${2:-python3}
rounds=${3:-2}
steps=${4:-100}
weights=${MODEL:-.cache/sst2-minilm/model}
batch=32
if ! "$python" -c 'import torch, transformers' 2>/dev/null; then
    echo "$0: $python has no torch and transformers; see the first lines of $0" >&2
    exit 2
fi
suffix=tsv
[ ! -f "$sst2/train.tsv.gz" ] || suffix=tsv.gz

theirs() {
    "$python" bench/peers/peer_bert.py --weights "$weights" --train "$sst2/train.$suffix" --test "$sst2/dev.$suffix" \
        --text sentence --label label --batch $batch --steps "$steps" "$@" 2>/dev/null |
        awk -v n=$((batch * steps)) '{ printf "%.1f\n", n / $4 }'
}

names=('Frostline' 'one process' 'two processes' 'one process, like length' 'two processes, like length')
modes=('' '--threads=2' '--mode=ddp' '--threads=2 --pad=bucket' '--mode=ddp --pad=bucket')
for ((i = 0; i < ${#names[@]}; i++)); do
    : >"$out_dir/bert.$i"
done
for ((round = 0; round < rounds; round++)); do
    train_job bert configs/sst2-minilm.yaml --set "model.path=$weights" \
        --set "data.path={train: $sst2/train.$suffix, test: $sst2/dev.$suffix}" \
        --set train.evaluate=false --set train.max_steps="$steps"
    calc "$batch * $steps / $(finished bert seconds)" >>"$out_dir/bert.0"
    for ((i = 1; i < ${#names[@]}; i++)); do
        read -r -a mode <<<"${modes[i]}"
        theirs "${mode[@]}" >>"$out_dir/bert.$i"
    done
done
printf '| samples/s | rounds | median | Frostline is faster by |\n|---|---|---|---|\n'
for ((i = 0; i < ${#names[@]}; i++)); do
    awk -v n="${names[i]}" -v all="$(paste -sd ' ' "$out_dir/bert.$i")" -v m="$(median <"$out_dir/bert.$i")" \
        -v ours="$(median <"$out_dir/bert.0")" \
        'BEGIN { gsub(" ", ", ", all); printf "| %s | %s | %.1f | %.2f |\n", n, all, m, ours / m }'
done
