#!/usr/bin/env bash
# Windows and targets of a file of questions against Hugging Face's tokenizers: every id, every
# token type, every answer's place. Needs a Python with tokenizers 0.23.3.
set -euo pipefail

if [ $# -lt 2 ]; then
    echo "usage: bench/squad_windows.sh FILE VOCAB_FOLDER [MAX_TOKENS [STRIDE]]   (384, 128; PYTHON names the Python)" >&2
    exit 2
fi
cd "$(dirname "$0")/.."
max_tokens=${3:-384} stride=${4:-128}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
"${BENCH_SQUAD:-build/release/bench/bench_squad}" --print "$1" "$2" "$max_tokens" "$stride" >"$out/ours"
"${PYTHON:-python3}" tests/reference/make_squad_reference.py --windows "$1" "$2/vocab.txt" "$max_tokens" "$stride" \
    >"$out/theirs"
cmp "$out/ours" "$out/theirs"
echo "$(wc -l <"$out/ours") windows are the same"
