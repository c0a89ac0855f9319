#!/usr/bin/env bash
# The trial of bench/gpu_nccl.sh, with which bench/gpu.sh ends: each part works on the stand-ins, and a
# part that fails is named. Catches a job that Frostline refuses, and a part that measures nothing.
#   nccl_bench.sh SOURCE_DIR OUT_DIR TESTS_DIR, with FROSTLINE in the environment
set -euo pipefail
cd "$1"
export OUT_DIR=$2 TESTS=$3 TRIAL=cpu
[ -f "$TESTS/cuda_standin.so" ] || exit 77
rm -rf "$OUT_DIR"
mkdir -p "$OUT_DIR"

fail() {
    echo "nccl_bench.sh: $1" >&2
    cat "$OUT_DIR/printed" >&2
    exit 1
}

code=0
bench/gpu_nccl.sh 8 >"$OUT_DIR/printed" 2>&1 || code=$?
[ "$code" = 0 ] || fail "exit code $code"
for text in '| one rank | sums, a graph, ncclCommAbort took ' '| all-reduce | ' \
    ' launches of backward with its sums' '| transitions of two workers | 3 changes, median ms: prepare ' \
    '| transitions of four workers | 3 changes, ' '| death | going on after '; do
    grep -qF -- "$text" "$OUT_DIR/printed" || fail "it does not print: $text"
done

# A library that does not load: what needs it fails, and is named.
code=0
FROSTLINE_NCCL_STANDIN=version=1 bench/gpu_nccl.sh 1 >"$OUT_DIR/printed" 2>&1 || code=$?
[ "$code" = 1 ] || fail "exit code $code"
grep -qF 'all-reduce failed' "$OUT_DIR/printed" || fail "all-reduce is not named"
