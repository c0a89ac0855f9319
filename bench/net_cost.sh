#!/usr/bin/env bash
# What the network between hosts costs, by message size: two workers on one host (through shared
# memory), and on two hosts, plain and encrypted (bench/programs/bench_net.c). The hosts are network
# name spaces of this machine with a virtual cable between them and a processor each: the cost is that
# of the processors, not of a wire. The speed of the cipher by itself is beside it. Needs the right to
# make name spaces.
#
#   bench/net_cost.sh [ROUNDS]     3 rounds: less than a minute on two idle cores
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
# shellcheck source=bench/two_hosts.sh
. bench/two_hosts.sh
program=${BENCH_NET:-build/release/bench/bench_net}
if [ ! -x "$program" ]; then
    echo "$program is missing: cmake --build build/release --target bench_net" >&2
    exit 2
fi
if grep -qw tls /proc/sys/net/ipv4/tcp_available_ulp; then
    echo "kernel TLS: available"
else
    echo "kernel TLS: not available in this kernel"
fi
echo "processors: $(nproc), load $(cut -d' ' -f1 /proc/loadavg)"
if command -v openssl >/dev/null; then
    openssl speed -seconds 1 -bytes 16384 -evp aes-128-gcm 2>/dev/null | tail -n 1
fi
make_hosts
# shellcheck disable=SC2154 # of bench/two_hosts.sh
"$program" "${1:-3}" "$host_a@$address_a" "$host_b@$address_b"
