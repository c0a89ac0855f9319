#!/usr/bin/env bash
# MB/s of text on one core, Frostline and Hugging Face's tokenizers in turn, and the ratio.
#   python3 -m venv V && V/bin/pip install tokenizers transformers
#   bench/tokenize.sh V/bin/python DIR TEXT [ROUNDS]
# DIR is the folder of a tokenizer (vocab.txt, or vocab.json and merges.txt), TEXT a file whose lines are
# encoded. Hugging Face's best way counts: encode_batch, encode_batch_fast or encode.
set -euo pipefail
if [ $# -lt 3 ]; then
    sed -n '2,6s/^# *//p' "$0" >&2
    exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
python=$1 dir=$2 text=$3 rounds=${4:-3}
program=$root/build/release/bench/bench_tokenize
core=${CORE:-0}
if ! "$python" -c 'import tokenizers, transformers' 2>/dev/null; then
    echo "$0: $python has no tokenizers and transformers; see the first lines of $0" >&2
    exit 2
fi
if [ ! -x "$program" ]; then
    echo "$0: $program is not there; cmake --build build/release --target bench_tokenize" >&2
    exit 2
fi

median() {
    sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

rows=()
for ((i = 0; i < rounds; i++)); do
    read -r cold warm tokens < <(taskset -c "$core" "$program" "$dir" "$text")
    read -r _ spans _ < <(taskset -c "$core" "$program" "$dir" "$text" 5 spans)
    read -r batch fast each < <(taskset -c "$core" "$python" "$root/bench/peers/peer_tokenize.py" "$dir" "$text" 2>/dev/null)
    rows+=("$cold $warm $spans $batch $fast $each")
    echo "round $i: frostline $cold (first pass), $warm (again; $tokens M tokens/s), $spans with spans;" \
        "tokenizers $batch (encode_batch), $fast (encode_batch_fast), $each (encode) MB/s"
done
column() {
    printf '%s\n' "${rows[@]}" | cut -d' ' -f"$1" | median
}
awk -v cold="$(column 1)" -v warm="$(column 2)" -v spans="$(column 3)" \
    -v batch="$(column 4)" -v fast="$(column 5)" -v each="$(column 6)" 'BEGIN {
    best = batch > fast ? batch : fast
    best = each > best ? each : best
    slow = batch > each ? batch : each
    printf "medians: frostline %s (first pass), %s (again), %s with spans; tokenizers %s MB/s\n",
        cold, warm, spans, best
    printf "frostline / tokenizers = %.1f on the first pass, %.1f again, %.1f with spans\n",
        cold / best, warm / best, spans / slow
}'
