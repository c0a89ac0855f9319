#!/usr/bin/env bash
# How fast a checkpoint of a model of 100 million parameters (1.2 GB with AdamW's moments) is written
# and read, beside dd and PyTorch on the same disk, and how long training stands still for it. All take
# turns in each round; what is written counts until it is on the disk, what is read is read from there.
# dd writes twice, through the page cache and past it; the faster of its medians counts.
#   python3 -m venv V && V/bin/pip install torch numpy && bench/checkpoint_io.sh V/bin/python [ROUNDS] [DIR] [BLOCKS]
# Without a python that has torch ("none") only dd is compared.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh

python=${1:-none}
rounds=${2:-5}
dir=${3:-$out_dir/checkpoint}
blocks=${4:-14}
program=${BENCH_CHECKPOINT:-build/release/bench/bench_checkpoint}
if [ ! -x "$program" ]; then
    echo "$0: build $program first" >&2
    exit 2
fi
if [ "$python" != none ] && ! "$python" -c 'import torch, numpy' 2>/dev/null; then
    echo "$0: $python has no torch and numpy; see the first lines of $0" >&2
    exit 2
fi
rm -rf "$dir"
mkdir -p "$dir"
trap 'rm -rf "$dir"' EXIT

# field NAME: of a line "NAME VALUE NAME VALUE ..." on standard input.
field() {
    awk -v name="$1" '{ for (i = 1; i < NF; i++) if ($i == name) print $(i + 1) }'
}

# dd_mbps ARGUMENT...: megabytes a second of one copy in blocks of 4 MiB.
dd_mbps() {
    local before after
    before=$(date +%s%N)
    dd bs=4M status=none "$@"
    after=$(date +%s%N)
    calc "$bytes * 1000 / ($after - $before)"
}

folder=$dir/step-000000001
files=$dir/noise
declare -A mbps
note() { # NAME VALUE
    mbps[$1]+="$2"$'\n'
}
for ((i = 0; i < rounds; i++)); do
    rm -rf "$folder"
    line=$("$program" write "$dir" "$blocks")
    bytes=$(field bytes <<<"$line")
    note write "$(field MBps <<<"$line")"
    note stall "$(field stall_ms <<<"$line")"
    note memcpy "$(field memcpy_ms <<<"$line")"
    note read "$("$program" read "$dir" "$blocks" | field MBps)"
    cat "$folder"/*.safetensors >"$files" # what dd writes lies in the page cache
    rm -f "$dir/dd"
    note dd-write "$(dd_mbps if="$files" of="$dir/dd" conv=fsync)"
    rm -f "$dir/dd"
    note dd-direct "$(dd_mbps if="$files" of="$dir/dd" oflag=direct conv=fsync)"
    "$program" evict "$dir/dd"
    note dd-read "$(dd_mbps if="$dir/dd" of=/dev/null)"
    rm -f "$dir/dd" "$files"
    if [ "$python" != none ]; then
        for how in torch dcp; do
            rm -rf "$dir/peer.$how"
            note $how-write "$("$python" -W ignore bench/peers/peer_checkpoint.py save $how "$dir" "$folder" | field MBps)"
            note $how-read "$("$python" -W ignore bench/peers/peer_checkpoint.py load $how "$dir" "$folder" | field MBps)"
            rm -rf "$dir/peer.$how"
        done
    fi
    echo "round $i: write $(tail -n 2 <<<"${mbps[write]}" | head -n 1), read $(tail -n 2 <<<"${mbps[read]}" | head -n 1);" \
        "dd $(tail -n 2 <<<"${mbps[dd-write]}" | head -n 1), $(tail -n 2 <<<"${mbps[dd-direct]}" | head -n 1), $(tail -n 2 <<<"${mbps[dd-read]}" | head -n 1) MB/s"
done

# middle NAME: the median of what was noted.
middle() {
    printf '%s' "${mbps[$1]}" | median
}
echo "medians of $rounds rounds, $bytes bytes of tensors, MB/s:"
printf '%-28s %10s %10s\n' "" write read
printf '%-28s %10s %10s\n' frostline "$(middle write)" "$(middle read)" "dd bs=4M, fsync" "$(middle dd-write)" "$(middle dd-read)" \
    "dd bs=4M, direct, fsync" "$(middle dd-direct)" ""
if [ "$python" != none ]; then
    printf '%-28s %10s %10s\n' "torch.save, torch.load" "$(middle torch-write)" "$(middle torch-read)" \
        torch.distributed.checkpoint "$(middle dcp-write)" "$(middle dcp-read)"
fi
best=$(printf '%s\n' "$(middle dd-write)" "$(middle dd-direct)" | sort -g | tail -n 1)
echo "frostline / dd: write $(calc "$(middle write) / $best"), read $(calc "$(middle read) / $(middle dd-read)")"
echo "training stands still for $(middle stall) ms; one memory copy of the same bytes takes $(middle memcpy) ms"
