#!/usr/bin/env bash
# How close the bubble that a trace measures is to the one that the schedule predicts from the same
# trace's times: two stages on cores of their own, with few and with many micro-batches, under each
# schedule. They differ by what neither stage's operations explain, such as other programs' use of
# the processors.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

steps=${1:-20}
begin=10

# bubble FIELD FILE: a field of trace-report's JSON, in percent.
bubble() {
    calc "100 * $(sed -nE "s/.*\"$1\": ?([-0-9.e+]+).*/\1/p" "$2")"
}

for schedule in gpipe 1f1b; do
    for M in 2 8; do
        run_job traced --set devices.count=2 --set pipe.k=2 --set autodp.r=1 --set pipe.m=$M \
            --set pipe.schedule=$schedule --set train.max_steps=$((begin + steps + 5)) \
            --set trace.start=$begin --set trace.steps="$steps"
        "$frostline" trace-report "$out_dir/traced" --json >"$out_dir/traced.json"
        echo "$schedule, K = 2, M = $M: bubble $(bubble bubble "$out_dir/traced.json") % measured," \
            "$(bubble schedule_bubble "$out_dir/traced.json") % by the schedule"
    done
done
