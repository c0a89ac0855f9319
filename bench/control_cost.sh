#!/usr/bin/env bash
# The cost of watching and controlling a run. One run trains the quickstart's model as two replicas,
# whose workers use the first two cores. Periods of the following kinds take turns:
#   idle    the control plane, the metrics and the events are on, and there are no requests
#   off     the controller is stopped: the workers train and keep their reports
#   load    1,000 status requests and one event per second, with 50 subscribers that never read
#   scrape  a client reads the metrics once per second
#   trace   20 steps are traced; they and the two in which the file is written count
#   bench/control_cost.sh [ROUNDS] [SECONDS_PER_PERIOD]
# Prints for each kind: the mean step; its cost relative to the idle periods before and after it ("off": the cost
# of those relative to it), as median, minimum and maximum over the rounds; the same for the median step; the
# share of time in which the training threads were ready but another thread used their processor
# ("displaced"), which does not depend on the load of other machines; and the processor time of the controller
# and of the load's client in percent of one processor. All of them share the workers' cores, so the step's
# time includes all of it.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

rounds=${1:-8}
seconds=${2:-2}
read -ra kinds <<<"${KINDS:-off load scrape trace}"
port=${PORT:-9477}
dir=$out_dir/control-cost
notes=$dir.stretches
rm -rf "$dir" "$notes" "$dir.load"
"$frostline" run configs/quickstart.yaml --run-dir "$dir" --set freeze.policy=none --set devices.memory=64MiB \
    --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 --set train.evaluate=false --set control.metrics="$port" \
    --set train.epochs=1000 >"$dir.log" 2>&1 </dev/null &
controller=$!
trap 'kill -CONT $controller; kill -INT $controller; wait $controller || true' EXIT

n_steps() {
    if [ -e "$dir/steps.jsonl" ]; then wc -l <"$dir/steps.jsonl"; else echo 0; fi
}
while [ "$(n_steps)" -lt 100 ]; do
    kill -0 $controller || { tail -n 5 "$dir.log" >&2; exit 1; }
    sleep 0.2
done

# Seconds of processor time that the controller's threads have used.
used() {
    cat /proc/$controller/task/*/schedstat | awk '{ s += $1 } END { printf "%.6f\n", s * 1e-9 }'
}

# Nanoseconds since boot, and the nanoseconds for which the training threads of both workers together have waited
# for a processor.
displaced() {
    awk '{ print $1 * 1e9 }' /proc/uptime
    for pid in $(pgrep -P "$(pgrep -P $controller)"); do cat "/proc/$pid/task/$pid/schedstat"; done | awk '{ s += $2 } END { print s }'
}

# measure_period KIND: run one period, and note "KIND STEPS MEAN_MS MEDIAN_MS CONTROLLER_PERCENT CLIENT_PERCENT
# DISPLACED_PERCENT". The first and the last few steps are not counted: they may belong to the neighbouring periods.
measure_period() {
    local kind=$1 first last margin=3 client=0 before after
    local -a from to=()
    before=$(used)
    mapfile -t from < <(displaced)
    first=$(n_steps)
    after=
    case $kind in
    off)
        kill -STOP $controller
        sleep "$seconds"
        after=$(used)
        mapfile -t to < <(displaced)
        kill -CONT $controller
        sleep 0.3 # until the kept reports are written
        margin=10
        ;;
    load)
        client=$(build/release/bench/bench_control_load "$dir" 1000 50 "$seconds" | tee -a "$dir.load" |
            sed -nE 's/.* ([0-9.]+) % of a processor/\1/p')
        ;;
    scrape) for ((s = 0; s < seconds; s++)); do curl -s -o /dev/null "http://127.0.0.1:$port/metrics"; sleep 1; done ;;
    trace)
        first=$("$frostline" ctl "$dir" trace 20 --json | sed -nE 's/.*"step": ?([0-9]+).*/\1/p')
        sleep "$seconds"
        while [ "$(n_steps)" -lt $((first + 22)) ]; do
            kill -0 $controller || { tail -n 5 "$dir.log" >&2; exit 1; }
            sleep 0.2
        done
        margin=0
        ;;
    idle) sleep "$seconds" ;;
    esac
    after=${after:-$(used)}
    [ ${#to[@]} -gt 0 ] || mapfile -t to < <(displaced)
    last=$(n_steps)
    if [ "$kind" = trace ]; then last=$((first + 22)); fi
    sed -nE "$((first + 1 + margin)),$((last - margin))s/.*\"ms\": ?([0-9.]+).*/\1/p" "$dir/steps.jsonl" >"$notes.ms"
    awk -v kind="$kind" -v median="$(median <"$notes.ms")" -v client="$client" \
        -v used="$(calc "100 * ($after - $before) / $seconds")" \
        -v displaced="$(calc "100 * (${to[1]} - ${from[1]}) / 2 / (${to[0]} - ${from[0]})")" \
        '{ s += $1 } END { print kind, NR, s / NR, median, used, client, displaced }' "$notes.ms" >>"$notes"
}

# costs KIND COLUMN: for each of its periods, the difference from the neighbouring idle periods in percent.
costs() {
    awk -v kind="$1" -v c="$2" '{ was[NR] = $1; v[NR] = $c } END { for (i = 2; i < NR; i++) if (was[i] == kind) {
            r = 2 * v[i] / (v[i - 1] + v[i + 1]); print 100 * ((kind == "off" ? 1 / r : r) - 1) } }' "$notes" | sort -g
}

measure_period idle
for ((round = 0; round < rounds; round++)); do
    for kind in "${kinds[@]}"; do
        measure_period "$kind"
        measure_period idle
    done
done

format='%-7s %6s %8s   %-26s %-10s %12s %14s %9s\n'
# shellcheck disable=SC2059 # it is our own
printf "$format" '' steps 'ms, mean' 'cost of the mean step, %' 'of median' 'displaced, %' 'controller, %' 'client, %'
for kind in idle "${kinds[@]}"; do
    mean=- mid=-
    if [ "$kind" != idle ]; then
        mean=$(costs "$kind" 3 | median | xargs printf '%+.2f')
        mean="$mean ($(costs "$kind" 3 | sed -n '1p;$p' | xargs printf '%+.2f .. %+.2f'))"
        mid=$(costs "$kind" 4 | median | xargs printf '%+.2f')
    fi
    awk -v kind="$kind" -v mean="$mean" -v mid="$mid" -v format="$format" '
        function two(x) { return sprintf("%.2f", x) }
        $1 == kind { n++; steps += $2; ms += $2 * $3; controller += $5; client += $6; displaced += $7 }
        END { printf format, kind, steps, two(ms / steps), mean, mid, two(displaced / n), two(controller / n), two(client / n) }' "$notes"
done
if [ -e "$dir.load" ]; then
    awk '{ sent += $1; answered += $3; ok += $5; events += $7 }
        END { printf "load: %d requests, %d answered, %d of them ok; %d events\n", sent, answered, ok, events }' \
        "$dir.load"
fi
