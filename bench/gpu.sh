#!/usr/bin/env bash
# Speed on one GPU, Frostline and its peers in turn: GPT-2 124M on blocks of 1,024 tokens, ViT-B/16 and
# BERT-base, against PyTorch (torch.compile, scaled_dot_product_attention), and GPT-2 against llm.c, too.
#   bench/gpu.sh PYTHON [ROUNDS] [STEPS]
# PYTHON has torch and safetensors. The environment adds:
#   TEXT, TOKENIZER  a text of a few MB and GPT-2's tokenizer, as the first lines of
#                    configs/gpt2-shakespeare.yaml get them; without them, GPT-2 is left out
#   LLMC             a folder with llm.c's source; it is built there. Without it, llm.c is left out
#   PRECISION        bf16 (default), tf32 or fp32, of all programs; llm.c is built for it
#   PEAK             the GPU's TFLOPS without sparsity, as 989 of an H100 in bf16: adds the MFU
#   NCCL=skip        leave out what bench/gpu_nccl.sh measures, with which this ends
#   TRIAL=cpu        a trial of this script: small models on this machine's processors, in fp32
#                    unless PRECISION is bf16. What needs more than that is left out by name: PyTorch
#                    where PYTHON has none; of llm.c, its program for processors is built and not run
# It prints a table; the rates of all rounds are in build/bench/gpu.rates. A part that fails is named,
# and the exit code is 1.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

python=${1:-python3}
rounds=${2:-3}
steps=${3:-30} # of Frostline and llm.c ten more, which do not count
text=${TEXT:-shakespeare/input.txt}
tokenizer=${TOKENIZER:-shakespeare/gpt2}
llmc=${LLMC:-}
precision=${PRECISION:-bf16}
rates=$out_dir/gpu.rates
failed=0

case $precision in
bf16) llmc_build=BF16 llmc_tf32=0 ;;
tf32) llmc_build=FP32 llmc_tf32=1 ;;
fp32) llmc_build=FP32 llmc_tf32=0 ;;
*)
    echo "$0: PRECISION: found '$precision', allowed: bf16, tf32 or fp32" >&2
    exit 2
    ;;
esac
case ${TRIAL:-} in
'' | cpu) ;;
*)
    echo "$0: TRIAL: found '$TRIAL', allowed: cpu" >&2
    exit 2
    ;;
esac
for number in "ROUNDS $rounds" "STEPS $steps"; do
    if ! [[ ${number#* } =~ ^[1-9][0-9]{0,5}$ ]]; then
        echo "$0: ${number%% *}: found '${number#* }', allowed: 1 to 999999" >&2
        exit 2
    fi
done
if ! command -v "$python" >/dev/null; then
    echo "$0: PYTHON: found '$python', which is no program" >&2
    exit 2
fi
has_torch=1
if ! "$python" -c 'import torch, safetensors' 2>/dev/null; then
    has_torch=
    if [ "${TRIAL:-}" != cpu ]; then
        echo "$0: $python has no torch and safetensors; see the first lines of $0" >&2
        exit 2
    fi
    PEAK=0 # BERT has another size then
    echo "$0: PyTorch is left out: $python has no torch and safetensors"
fi

# What is measured: all peers take these sizes.
kind=cuda
data=$out_dir/gpu-data
memory=${MEMORY:-32GiB}
llmc_program=train_gpt2cu
n_samples=2000
tokens=1024
declare -A batch=([gpt2]=16 [vit]=128 [bert]=128)
shape=(--set model.blocks=12 --set model.dim=768 --set model.heads=12)
small=()
bert_sets=()
peer=(--peak "${PEAK:-0}" --steps "$steps" --precision "$precision")
if [ "${TRIAL:-}" = cpu ]; then
    kind=cpu
    data+=-trial
    n_samples=40
    tokens=64
    batch=([gpt2]=4 [vit]=4 [bert]=4)
    shape=(--set model.blocks=2 --set model.dim=32 --set model.heads=2)
    small=(--tiny)
    memory=${MEMORY:-1GiB}
    llmc_program=train_gpt2
    precision=${PRECISION:-fp32}
    text=${TEXT:-README.md}
    tokenizer=${TOKENIZER:-tests/reference/hf_gpt2/model}
    if [ "$precision" = tf32 ]; then
        echo "$0: PRECISION: found 'tf32', allowed with TRIAL=cpu: fp32 or bf16" >&2
        exit 2
    fi
    peer+=(--device cpu --tiny --eager --precision "$precision")
fi

# ---- one measurement each: prints "RATE UNIT/s, MFU SHARE" ----

frostline_rate() {
    local name=$1 config sets per=1
    case $name in
    gpt2)
        config=configs/gpt2-shakespeare.yaml
        sets=("${shape[@]}" --set data.path="$text" --set data.tokenizer="$tokenizer"
            --set data.max_tokens="$tokens" --set model.dropout=0)
        per=$tokens
        ;;
    vit)
        config=configs/vit-images.yaml
        sets=("${shape[@]}" --set model.patch=16 --set data.size=224 --set data.augment=none
            --set data.path="{train: $data/images, test: $data/images}")
        ;;
    bert)
        config=configs/sst2-minilm.yaml
        sets=("${bert_sets[@]}" --set model.path="$bert" --set data.text=text
            --set data.path="{train: $data/table.tsv, test: $data/table.tsv}")
        ;;
    esac
    [ "$precision" = fp32 ] || sets+=(--set train.precision="$precision")
    train_job "gpu-$name" $config "${sets[@]}" --set devices.kind=$kind --set devices.count=1 \
        --set devices.memory="$memory" --set train.batch="${batch[$name]}" \
        --set train.evaluate=false --set data.validation=none --set checkpoint.every=none \
        --set train.epochs=1000 --set train.max_steps=$((steps + 10)) || return
    "$python" bench/peers/peer_gpu.py mfu --model "$name" "${peer[@]}" \
        --rate "$(calc "1000 * ${batch[$name]} * $per / $(median_ms "gpu-$name")")"
}

pytorch_rate() {
    "$python" bench/peers/peer_gpu.py train --model "$1" --batch "${batch[$1]}" "${peer[@]}"
}

# The median of llm.c's own rates but the first ten.
llmc_rate() {
    local log=$out_dir/llmc.log
    if ! "$llmc/train_gpt2cu" -i "$data/tokens.bin" -j "$data/tokens.bin" -e d12 -b "${batch[gpt2]}" \
        -t "$tokens" -d $((batch[gpt2] * tokens)) -x $((steps + 10)) -v 0 -s 0 -h 0 -f $llmc_tf32 >"$log" 2>&1; then
        tail -n 3 "$log" >&2
        return 1
    fi
    "$python" bench/peers/peer_gpu.py mfu --model gpt2 "${peer[@]}" \
        --rate "$(sed -nE 's/^step .* ([0-9.]+) tok\/s.*/\1/p' "$log" | tail -n +11 | median)"
}

# measure MODEL PROGRAM
measure() {
    local line
    case $2 in
    frostline) line=$(frostline_rate "$1") ;;
    pytorch) line=$(pytorch_rate "$1") ;;
    llm.c) line=$(llmc_rate) ;;
    esac || {
        echo "$0: $2 failed on $1" >&2
        failed=1
        return 0
    }
    echo "$1 $2 $line" | tee -a "$rates"
}

# ---- preparation ----

mkdir -p "$data"
[ -d "$data/images" ] || "$python" bench/peers/peer_gpu.py images "$data/images" $n_samples
[ -f "$data/table.tsv" ] || "$python" bench/peers/peer_gpu.py table "$data/table.tsv" $n_samples
bert=$data/bert
if [ -z "$has_torch" ]; then
    bert=tests/reference/hf_bert/base # a small one, with 40 positions
    bert_sets=(--set data.max_tokens=40)
elif [ ! -f "$bert/vocab.txt" ]; then
    "$python" bench/peers/peer_gpu.py bert "$bert" "${small[@]}"
fi
if [ -z "$llmc" ]; then
    echo "$0: llm.c is left out: no source was given (LLMC)"
else
    [ -f "$data/tokens.bin" ] || "$python" bench/peers/peer_gpu.py tokens "$data/tokens.bin" $((2000 * n_samples))
    if ! make -C "$llmc" -B $llmc_program PRECISION=$llmc_build >"$out_dir/llmc-build.log" 2>&1; then
        echo "$0: llm.c was not built; see $out_dir/llmc-build.log" >&2
        failed=1
        llmc=
    elif [ "$kind" = cpu ]; then
        echo "$0: llm.c is built and not run: its $llmc_program has one size, and reads gpt2_124M.bin"
        llmc=
    fi
fi
names=(vit bert)
if [ -f "$text" ] && [ -e "$tokenizer" ]; then
    names=(gpt2 "${names[@]}")
else
    echo "$0: GPT-2 is left out: there is no $text, or no $tokenizer (TEXT, TOKENIZER)"
fi

# ---- the sitting ----

: >"$rates"
for ((round = 0; round < rounds; round++)); do
    for name in "${names[@]}"; do
        measure "$name" frostline
        [ -z "$has_torch" ] || measure "$name" pytorch
        if [ -n "$llmc" ] && [ "$name" = gpt2 ]; then
            measure gpt2 llm.c
        fi
    done
done

printf '\n| %s, one %s | program | median of %s | MFU |\n|---|---|---|---|\n' "$precision" \
    "$([ $kind = cpu ] && echo CPU || echo GPU)" "$rounds"
for name in "${names[@]}"; do
    for program in frostline pytorch llm.c; do
        of_this=$(grep "^$name $program " "$rates" || true)
        [ -n "$of_this" ] || continue
        middle=$(awk '{ print $3 }' <<<"$of_this" | median)
        line=$("$python" bench/peers/peer_gpu.py mfu --model "$name" "${peer[@]}" --rate "$middle")
        echo "| $name | $program | ${line%%,*} | ${line#*MFU } |"
    done
done
if [ "${NCCL:-}" = skip ]; then
    echo "$0: NCCL is left out (NCCL=skip)"
else
    echo
    bench/gpu_nccl.sh "$steps" || failed=1
fi
exit $failed
