#!/usr/bin/env bash
# The first N samples of an idx file, packed by gzip or not, as an idx file.
# usage: first_samples.sh FROM TO N
set -eu
from=$1 to=$2 n=$3

# The bytes of the header: 0 0 TYPE RANK, and four of each dimension.
mapfile -t byte < <(zcat -f "$from" 2>/dev/null | head -c 16 | od -An -v -w1 -tu1)
rank=$((byte[3]))
size=1 # of a sample
for ((at = 8; at < 4 + 4 * rank; at += 4)); do
    size=$((size * ((byte[at] << 24) + (byte[at + 1] << 16) + (byte[at + 2] << 8) + byte[at + 3])))
done

{
    zcat -f "$from" 2>/dev/null | head -c 4
    # shellcheck disable=SC2059
    printf "$(printf '\\%03o\\%03o\\%03o\\%03o' $((n >> 24)) $((n >> 16 & 255)) $((n >> 8 & 255)) $((n & 255)))"
    zcat -f "$from" 2>/dev/null | tail -c +9 | head -c $((4 * (rank - 1) + n * size))
} >"$to"
