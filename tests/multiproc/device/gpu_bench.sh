#!/usr/bin/env bash
# The trial of bench/gpu.sh, which measures on a GPU: its parts work on a machine without one, what is
# left out is named, and a part that fails is named with exit code 1. Catches a job that Frostline
# refuses, a table without a program that ran, and a peer that is left out in silence.
#   gpu_bench.sh SOURCE_DIR OUT_DIR, with FROSTLINE in the environment
set -euo pipefail
cd "$1"
export OUT_DIR=$2 TRIAL=cpu NCCL=skip # which has a trial of its own: nccl_bench.sh
command -v python3 >/dev/null || exit 77
rm -rf "$OUT_DIR"
mkdir -p "$OUT_DIR/llmc" "$OUT_DIR/broken"
printf 'train_gpt2:\n\t@echo built >built\n' >"$OUT_DIR/llmc/Makefile"
printf 'train_gpt2:\n\t@false\n' >"$OUT_DIR/broken/Makefile"

fail() {
    echo "gpu_bench.sh: $1" >&2
    cat "$OUT_DIR/printed" >&2
    exit 1
}

# expect TEXT: what the trial printed has it.
expect() {
    grep -qF -- "$1" "$OUT_DIR/printed" || fail "it does not print: $1"
}

LLMC=$OUT_DIR/llmc bench/gpu.sh python3 1 2 >"$OUT_DIR/printed" 2>&1 || fail "exit code $?"
for model in gpt2 vit bert; do
    expect "| $model | frostline | "
done
expect "llm.c is built and not run"
[ -f "$OUT_DIR/llmc/built" ] || fail "llm.c was not built"
if python3 -c 'import torch, safetensors' 2>/dev/null; then
    expect "| vit | pytorch | "
else
    expect "PyTorch is left out: python3 has no torch and safetensors"
fi

# A text that is not there, an llm.c that cannot be built, and jobs that are refused.
code=0
LLMC=$OUT_DIR/broken TEXT=$OUT_DIR/no-text MEMORY=1MiB bench/gpu.sh python3 1 2 >"$OUT_DIR/printed" 2>&1 || code=$?
[ $code = 1 ] || fail "exit code $code"
expect "GPT-2 is left out: there is no $OUT_DIR/no-text"
expect "llm.c was not built; see $OUT_DIR/llmc-build.log"
expect "frostline failed on vit"
