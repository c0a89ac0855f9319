#!/usr/bin/env bash
# What it costs that messages between hosts are encrypted: bench_net over loopback, with the speed of
# the cipher by itself beside it.
#
#   bench/net_cost.sh [ROUNDS [ADDRESS]]
set -euo pipefail
cd "$(dirname "$0")/.."
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
"$program" "${1:-5}" "${2:-127.0.0.1}"
