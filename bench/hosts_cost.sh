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
need_program

python=${1:-}
rounds=${2:-3}
steps=${3:-50}
data=${DATA:-/usr/share/datasets/fashion-mnist}
if [ -n "$python" ] && ! "$python" -c 'import torch, numpy' 2>/dev/null; then
    echo "$0: $python has no torch and numpy; see the first lines of $0" >&2
    exit 2
fi
a=flc$$a b=flc$$b
address_a=10.213.9.1 address_b=10.213.9.2
rates=$(realpath "$out_dir")/hosts_cost.txt # "name: milliseconds a step", a line for each run
: >"$rates"

remove_hosts() {
    ip netns del "$a" 2>/dev/null || true
    ip netns del "$b" 2>/dev/null || true
}

make_hosts() {
    ip netns add "$a" && ip netns add "$b"
    ip -n "$a" link add fl0 type veth peer name fl0 netns "$b"
    ip -n "$a" addr add "$address_a/24" dev fl0
    ip -n "$b" addr add "$address_b/24" dev fl0
    local space
    for space in "$a" "$b"; do
        ip -n "$space" link set lo up
        ip -n "$space" link set fl0 up
    done
}

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
    local dir=$out_dir/hosts-two-$1-$2 head status=0
    plan_of "$1"
    rm -rf "$dir"
    ip netns exec "$a" taskset -c 0 "$frostline" run configs/vit-fashion.yaml --run-dir "$dir" "${model[@]}" \
        "${plan[@]}" --set devices.count=auto --set autodp.security="$2" --hosts "$out_dir/hosts.yaml" \
        --listen "tcp://$address_a:5570" >"$dir.log" 2>&1 </dev/null &
    head=$!
    until [ -s "$dir/hosts.key" ] || ! kill -0 "$head" 2>/dev/null; do
        sleep 0.05
    done
    ip netns exec "$b" taskset -c 1 "$frostline" agent --join "tcp://$address_a:5570" --key "$dir/hosts.key" \
        --name b >"$dir.agent.log" 2>&1 </dev/null || status=$?
    if ! wait "$head" || [ $status -ne 0 ]; then
        tail -n 5 "$dir.log" "$dir.agent.log" >&2
        echo "$0: the run failed; see $dir.log" >&2
        return 1
    fi
    note "two hosts, $1, $2" "hosts-two-$1-$2"
}

# ddp NAME SPACE SPACE: one process in each of the two.
ddp() {
    local name=$1 rank=0 space address=$address_a process=()
    shift
    for space in "$@"; do
        ip netns exec "$space" env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR="$address" \
            MASTER_PORT=5572 GLOO_SOCKET_IFNAME=fl0 OMP_NUM_THREADS=1 "$python" bench/peer_vit.py \
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

trap remove_hosts EXIT
make_hosts
cat >"$out_dir/hosts.yaml" <<YAML
hosts:
  - {name: a, devices: 1, address: $address_a}
  - {name: b, devices: 1, address: $address_b}
links:
  between_hosts: {latency_us: 50, bandwidth: 1GiB}
YAML
for ((i = 0; i < rounds; i++)); do
    for plan_name in replicas stages; do
        one_host "$plan_name"
        for security in none tls; do
            two_hosts "$plan_name" "$security"
        done
    done
    if [ -n "$python" ]; then
        ddp "PyTorch DDP, one host" "$a" "$a"
        ddp "PyTorch DDP, two hosts" "$a" "$b"
    fi
done
echo "medians of $rounds runs, milliseconds a step:"
cut -d: -f1 "$rates" | awk '!seen[$0]++' | while read -r name; do
    printf '%-28s %8.2f\n' "$name" "$(median_of "$name")"
done
