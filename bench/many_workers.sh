#!/usr/bin/env bash
# Many workers of a tiny model, on one host or half of them on each of two (name spaces of this machine): how long until all are ready, how long a transition of
# all of them takes and stalls training, what a worker takes of memory beside its model, and how long
# the run takes to end. Ready counts from the start of the program, with the profile measured before.
# Pss shares what processes have in common (code, the data set) among them; private is what the
# worker alone holds. On two hosts, `ready` contains the start of the other host's agent, and the last column
# counts the connections that end on it while the second plan trains.
#   bench/many_workers.sh [--hosts] [WORKERS]...
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
# shellcheck source=bench/two_hosts.sh
. bench/two_hosts.sh
need_program

hosts=1
if [ "${1:-}" = --hosts ]; then
    hosts=2
    shift
    make_hosts
fi
counts=("$@")
[ $# -gt 0 ] || counts=(8 16 32 64 128)

# of_workers FIELD PID...: the field of smaps_rollup, KiB, one process a line.
of_workers() {
    local field=$1 pid
    shift
    for pid in "$@"; do
        awk -v field="$field:" '$1 == field { n += $2 } END { print n }' "/proc/$pid/smaps_rollup"
    done
}

# start_run DIR WORKERS ARGUMENT...: in $dir, as process $controller; on two hosts also $agent.
start_run() {
    local count=$2 on_hosts=(--set devices.count="$2") as=()
    dir=$1
    shift 2
    rm -rf "$dir"
    if [ $hosts = 2 ]; then
        write_hosts_file $((count / 2))
        as=(ip netns exec "$host_a")
        on_hosts=(--set devices.count=auto --hosts "$out_dir/hosts.yaml" --listen "tcp://$address_a:5570")
    fi
    "${as[@]}" "$frostline" run configs/quickstart.yaml --run-dir "$dir" --set model.blocks=2 --set model.dim=16 \
        --set model.heads=2 --set model.patch=14 --set train.batch=256 --set data.samples=2560 \
        --set train.epochs=100000 --set train.evaluate=false --set freeze.policy=none \
        --set data.augment=none --set cache.policy=off "${on_hosts[@]}" \
        --set devices.memory=64MiB --set pipe.k=1 --set autodp.r="$count" --set pipe.m=1 \
        --set pipe.tune=false --set fault.deadline=10min --set fault.detect=2min "$@" \
        >"$dir.log" 2>&1 </dev/null &
    controller=$!
    if [ $hosts = 2 ]; then
        ip netns exec "$host_b" "$frostline" agent --join "tcp://$address_a:5570" --key "$dir/hosts.key" \
            --name b >"$dir.agent.log" 2>&1 </dev/null &
        agent=$!
    fi
}

# await_end: of the run, and of the agent, which ends as the run does.
await_end() {
    wait "$controller" || true
    [ $hosts = 1 ] || wait "$agent" || true
}

# last_below PID: the processes below it that have started none, one a line.
last_below() {
    local pid
    for pid in $(pgrep -P "$1"); do
        if pgrep -P "$pid" >/dev/null; then
            last_below "$pid"
        else
            echo "$pid"
        fi
    done
}

# worker_pids: of all hosts.
worker_pids() {
    last_below "$controller"
    [ $hosts = 1 ] || last_below "$agent"
}

# n_connections: that end on the other host; those within it have two ends there.
n_connections() {
    [ $hosts = 1 ] || ip netns exec "$host_b" ss -Htn state established | wc -l
}

# await COMMAND...: until it succeeds, as long as the run goes on, at most ten minutes.
await() {
    SECONDS=0
    until "$@"; do
        if ! kill -0 "$controller" 2>/dev/null || [ $SECONDS -gt 600 ]; then
            tail -n 3 "$dir.log" >&2
            echo "$0: $count workers did not train as meant; see $dir.log" >&2
            kill -TERM "$controller" 2>/dev/null || true
            exit 1
        fi
        sleep 0.05
    done
}

# n_events NAME NUMBER: whether the run has recorded that many.
n_events() {
    [ -s "$dir/events.jsonl" ] && [ "$(grep -c "\"event\": \"$1\"" "$dir/events.jsonl")" -ge "$2" ]
}

end_run() {
    kill -TERM "$controller"
    await_end
}

# last_of EVENT FIELD: of the last such event.
last_of() {
    sed -nE "/\"event\": \"$1\"/s/.*\"$2\": ?([0-9.]+).*/\1/p" "$dir/events.jsonl" | tail -n 1
}

now_s() {
    date +%s.%N
}

printf '%8s %9s %15s %10s %10s %13s %8s %8s %12s\n' workers 'ready, s' 'transition, ms' 'stall, ms' \
    'Pss, KiB' 'private, KiB' threads 'end, s' connections
for count in "${counts[@]}"; do
    start_run "$out_dir/profile-$count" "$count" --set train.max_steps=2
    await_end
    started=$(now_s)
    start_run "$out_dir/workers-$count" "$count" \
        --set "elastic.script=[{step: 10, k: 2, r: $((count / 2)), m: 1}]"
    await n_events worker.ready "$count"
    ready=$(now_s)
    await n_events transition.done 1
    steps=$(wc -l <"$dir/steps.jsonl")
    # shellcheck disable=SC2317 # called by await
    further() { [ "$(wc -l <"$dir/steps.jsonl")" -ge $((steps + 3)) ]; }
    await further
    mapfile -t workers < <(worker_pids)
    threads=$(awk '/^Threads/ { print $2 }' "/proc/${workers[0]}/status")
    pss=$(of_workers Pss "${workers[@]}" | median)
    private=$(of_workers Private_Dirty "${workers[@]}" | median)
    connections=$(n_connections)
    ending=$(now_s)
    end_run
    printf '%8d %9.2f %15.0f %10.0f %10.0f %13.0f %8d %8.2f %12s\n' "$count" \
        "$(calc "$ready - $started")" "$(last_of transition.done prepare_ms)" \
        "$(last_of transition.done stall_ms)" "$pss" "$private" "$threads" \
        "$(calc "$(now_s) - $ending")" "${connections:--}"
done
