#!/usr/bin/env bash
# What the network between hosts costs: two hosts of one worker against one host of two workers, the
# benchmarks' ViT as two replicas and as a pipeline of two stages, with the data plane plain (Gloo) and
# encrypted (TLS); and PyTorch's DDP between the same two hosts, if a Python with torch is given. The
# hosts are network name spaces of this machine with a virtual cable between them: the cost is that of
# the processors, not of a wire. Needs the right to make name spaces.
#   bench/hosts_cost.sh [PYTHON] [ROUNDS] [STEPS]
#   python3 -m venv V && V/bin/pip install torch numpy && bench/hosts_cost.sh V/bin/python
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
# shellcheck source=bench/two_hosts.sh
. bench/two_hosts.sh
need_program

python=${1:-}
rounds=${2:-3}
steps=${3:-50}
data=${DATA:-/usr/share/datasets/fashion-mnist}
if [ -n "$python" ] && ! "$python" -c 'import torch, numpy' 2>/dev/null; then
    echo "$0: $python has no torch and numpy; see the first lines of $0" >&2
    exit 2
fi
rates=$(realpath "$out_dir")/hosts_cost.txt # "name: milliseconds a step", a line for each run
: >"$rates"

# note NAME RUN: the median step of the run.
note() {
    echo "$1: $(median_ms "$2")" | tee -a "$rates"
}

plan_of() {
    case $1 in
    replicas) plan=(--set pipe.k=1 --set autodp.r=2 --set pipe.m=1) ;;
    stages) plan=(--set pipe.k=2 --set autodp.r=1 --set pipe.m=8) ;;
    esac
    plan+=(--set data.path="$data" --set train.max_steps="$steps" --set elastic.enabled=false
        --set pipe.tune=false)
}

one_host() {
    plan_of "$1"
    run_job "hosts-one-$1" "${plan[@]}" --set devices.count=2
    note "one host, $1" "hosts-one-$1"
}

# two_hosts PLAN SECURITY
two_hosts() {
    plan_of "$1"
    train_on_two_hosts "hosts-two-$1-$2" configs/vit-fashion.yaml "${model[@]}" "${plan[@]}" \
        --set autodp.security="$2"
    note "two hosts, $1, $2" "hosts-two-$1-$2"
}

# ddp NAME SPACE SPACE: one process in each of the two.
ddp() {
    local name=$1 rank=0 space address=$address_a process=()
    shift
    for space in "$@"; do
        ip netns exec "$space" env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR="$address" \
            MASTER_PORT=5572 GLOO_SOCKET_IFNAME=fl0 OMP_NUM_THREADS=1 "$python" bench/peers/peer_vit.py \
            --mode torchrun --threads 1 --steps "$steps" --data "$data" >"$out_dir/ddp-$rank.log" 2>&1 &
        process+=($!)
        rank=$((rank + 1))
    done
    if ! wait "${process[0]}" || ! wait "${process[1]}"; then
        tail -n 5 "$out_dir/ddp-0.log" "$out_dir/ddp-1.log" >&2
        echo "$0: PyTorch failed" >&2
        return 1
    fi
    # It prints samples a second, of batches of 128.
    echo "$name: $(calc "128000 / $(tail -n 1 "$out_dir/ddp-0.log")")" | tee -a "$rates"
}

median_of() {
    sed -n "s/^$1: //p" "$rates" | median
}

make_hosts
for ((i = 0; i < rounds; i++)); do
    for plan_name in replicas stages; do
        one_host "$plan_name"
        for security in none tls; do
            two_hosts "$plan_name" "$security"
        done
    done
    if [ -n "$python" ]; then
        ddp "PyTorch DDP, one host" "$host_a" "$host_a"
        ddp "PyTorch DDP, two hosts" "$host_a" "$host_b"
    fi
done
echo "medians of $rounds runs, milliseconds a step:"
cut -d: -f1 "$rates" | awk '!seen[$0]++' | while read -r name; do
    printf '%-28s %8.2f\n' "$name" "$(median_of "$name")"
done
