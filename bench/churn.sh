#!/usr/bin/env bash
# Many generations in one run: what its processes hold must not grow.
#   bench/churn.sh [GENERATIONS] [EVERY]
#
# A run of three workers changes its plan again and again, as fast as it answers: up and down, frozen and thawed, with
# the cache on. Every 100 generations worker 2 leaves the run, and a new process takes its place.
#
# Prints at the start, and after each EVERY generations (a tenth of GENERATIONS if not given): memory of the process
# that belongs to it alone (KiB), file descriptors and threads, of the controller, the agent and workers 0 and 1; files
# in /dev/shm; and transitions a second. Exit code 1 if, from the first line after the start to the last, descriptors, threads or
# files grew, or memory by more than 5 % and 512 KiB. The first tenth fills what has a fixed size: rings, pools, caches.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

generations=${1:-10000}
every=${2:-$(((generations + 9) / 10))}
dir=$out_dir/churn
controller=0
trap '[ $controller = 0 ] || kill -KILL $controller 2>/dev/null || true' EXIT

ctl() { "$frostline" ctl "$dir" "$@" --timeout 600; }
field() { awk -v name="$1:" '$1 == name { print $2 }' "/proc/$2/status"; } # field NAME PID
generation() { ctl status --json | sed -nE 's/.*"generation": ([0-9]+).*/\1/p'; }
process_of() { ctl status --json | sed -nE 's/.*"rank": '"$1"', "pid": ([0-9]+).*/\1/p'; }
# Between two transitions: nothing is open beside the running generation.
await_idle() { until ctl status --json | grep -q '"transition": "idle"'; do sleep 0.01; done; }

look() { # look NAME PID
    printf '%s %d %d %d ' "$1" "$(field RssAnon "$2")" "$(find "/proc/$2/fd" -mindepth 1 | wc -l)" "$(field Threads "$2")"
}
look_at_all() {
    await_idle
    look controller "$controller"
    look agent "$agent"
    look worker-0 "$(process_of 0)"
    look worker-1 "$(process_of 1)"
    printf 'shm %d\n' "$(find /dev/shm -user "$(id -u)" 2>/dev/null | wc -l)"
}
report_looks() { # the line of look_at_all, for people
    awk -v g="$1" -v s="$2" '{
        printf "%6d", g
        for (i = 1; i + 3 < NF; i += 4) printf "  %s %d KiB %d fd %d th", $i, $(i + 1), $(i + 2), $(i + 3)
        printf "  /dev/shm %d  %.1f/s\n", $NF, s
    }'
}

rm -rf "$dir"
"$frostline" run configs/quickstart.yaml --run-dir "$dir" --set devices.count=3 --set devices.memory=64MiB \
    --set model.blocks=4 --set model.dim=32 --set data.samples=6400 --set train.batch=64 --set train.epochs=1000000 \
    --set pipe.k=1 --set autodp.r=1 --set pipe.m=2 --set train.evaluate=false --set checkpoint.every=none \
    --set freeze.policy=none --set data.augment=none --set cache.policy=on --set cache.memory=8MiB \
    --set fault.snapshot=none >"$dir.log" 2>&1 </dev/null &
controller=$!
until [ -e "$dir/steps.jsonl" ] && [ "$(wc -l <"$dir/steps.jsonl")" -ge 5 ]; do
    kill -0 $controller || { tail -n 3 "$dir.log" >&2; exit 1; }
    sleep 0.05
done
agent=$(pgrep -P $controller | head -n 1)

# Each of these changes the plan, whichever came before.
changes=("scale k=3 r=1 m=3" "freeze 1" "scale k=1 r=3 m=2" "freeze 2" "scale k=2 r=1 m=4" "scale k=1 r=1 m=2"
    "thaw 1" "scale k=1 r=2 m=1" "thaw 0" "scale k=2 r=1 m=2")

first='' last=''
begun=$(generation)
done_before=0 time_before=$EPOCHREALTIME
look_at_all | report_looks 0 0
for ((i = 0; ; i++)); do
    # shellcheck disable=SC2086 # words of the command
    ctl ${changes[i % ${#changes[@]}]} >/dev/null
    if [ $((i % 100)) = 99 ]; then
        ctl drain 2 >/dev/null
        ctl scale 3 >/dev/null
    fi
    # Always on the same plan, long after worker 2 came back.
    [ $((i % 100)) = 49 ] || continue
    n=$(($(generation) - begun))
    [ $n -ge $((done_before + every)) ] || [ $n -ge "$generations" ] || continue
    last=$(look_at_all)
    [ -n "$first" ] || first=$last
    now=$EPOCHREALTIME
    report_looks $n "$(calc "($n - $done_before) / ($now - $time_before)")" <<<"$last"
    done_before=$n time_before=$now
    [ $n -lt "$generations" ] || break
done
ctl stop >/dev/null
wait $controller || true
controller=0

printf '%s\n%s\n' "$first" "$last" | awk '
    NR == 1 { for (i = 1; i <= NF; i++) before[i] = $i }
    NR == 2 {
        for (i = 1; i + 3 < NF; i += 4) {
            if ($(i + 1) > before[i + 1] * 1.05 && $(i + 1) > before[i + 1] + 512) grown = grown " " $i "(memory)"
            if ($(i + 2) > before[i + 2]) grown = grown " " $i "(descriptors)"
            if ($(i + 3) > before[i + 3]) grown = grown " " $i "(threads)"
        }
        if ($NF > before[NF]) grown = grown " /dev/shm"
    }
    END {
        if (grown != "") { print "grown:" grown; exit 1 }
        print "nothing has grown"
    }'
