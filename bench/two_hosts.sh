# Two hosts as network name spaces of this machine, with a virtual cable between them: their
# link is as fast as the processors. Needs the right to make name spaces. Sourced behind bench/common.sh, not run.
# shellcheck shell=bash
# shellcheck disable=SC2154 # bench/common.sh sets $out_dir and $frostline

host_a=flc$$a host_b=flc$$b
address_a=10.213.9.1 address_b=10.213.9.2

remove_hosts() {
    ip netns del "$host_a" 2>/dev/null || true
    ip netns del "$host_b" 2>/dev/null || true
}

# make_hosts: they are there, and go when the script ends; $out_dir/hosts.yaml names them, with one device each.
make_hosts() {
    trap remove_hosts EXIT
    ip netns add "$host_a" && ip netns add "$host_b"
    ip -n "$host_a" link add fl0 type veth peer name fl0 netns "$host_b"
    ip -n "$host_a" addr add "$address_a/24" dev fl0
    ip -n "$host_b" addr add "$address_b/24" dev fl0
    local space
    for space in "$host_a" "$host_b"; do
        ip -n "$space" link set lo up
        ip -n "$space" link set fl0 up
    done
    write_hosts_file 1
}

# write_hosts_file DEVICES: write $out_dir/hosts.yaml, in which each host has this number of devices.
write_hosts_file() {
    cat >"$out_dir/hosts.yaml" <<YAML
hosts:
  - {name: a, devices: $1, address: $address_a}
  - {name: b, devices: $1, address: $address_b}
links:
  between_hosts: {latency_us: 50, bandwidth: 1GiB}
YAML
}

# train_on_two_hosts DIR JOB ARGUMENT...: train in a new run directory DIR under build/bench.
train_on_two_hosts() {
    local dir=$out_dir/$1 job=$2 head status=0
    shift 2
    rm -rf "$dir"
    ip netns exec "$host_a" taskset -c 0 "$frostline" run "$job" --run-dir "$dir" "$@" \
        --set devices.count=auto --hosts "$out_dir/hosts.yaml" --listen "tcp://$address_a:5570" \
        >"$dir.log" 2>&1 </dev/null &
    head=$!
    until [ -s "$dir/hosts.key" ] || ! kill -0 "$head" 2>/dev/null; do
        sleep 0.05
    done
    ip netns exec "$host_b" taskset -c 1 "$frostline" agent --join "tcp://$address_a:5570" --key "$dir/hosts.key" \
        --name b >"$dir.agent.log" 2>&1 </dev/null || status=$?
    if ! wait "$head" || [ $status -ne 0 ]; then
        tail -n 5 "$dir.log" "$dir.agent.log" >&2
        echo "$0: the run failed; see $dir.log" >&2
        return 1
    fi
}
