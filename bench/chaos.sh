#!/usr/bin/env bash
# Runs under random faults at random moments, while workers come back, runs are scaled and blocks freeze and thaw.
#   bench/chaos.sh [FAULTS] [SEED]
#
# The faults: kill, stop (SIGSTOP), cut (all sockets of a worker shut down), hang (its training thread alone is
# stopped), head (the controller or the agent is stopped for a moment: nobody may be lost). Each run has one of these
# shapes, and meets FAULTS_A_RUN faults before it is stopped and its ledger is read:
#   wide      four workers, one stage each: each layer has another owner
#   deep      four workers, two stages in two replicas
#   single    two workers, two stages, one replica: each loss goes back to a snapshot in memory
#   growing   starts with two workers, is scaled up to five and down again, and has snapshots
# Half of the runs write a checkpoint each 40 steps; in half of them the cache of frozen blocks is on.
#
# Prints: the faults, by kind; how many the run survived; workers that were lost without a fault; samples lost and
# used twice; steps in steps.jsonl twice; steps done again after a return to a snapshot; and the time from a fault, or
# the last step finished after it, to the first step after the run has recovered: median, 99th percentile, longest, and
# the longest without the time for which a thread of the run waited for a processor (other programs' use of the
# machine). Exit code 1 if a fault was not survived, a worker was lost without a fault, a sample or step is wrong, or
# that last figure is above WITHIN ms, 5000 if unset.
#
# KINDS and SHAPES, lists such as "kill kill stop", choose what happens. fault.detect is DETECT, 1s if unset: a stopped
# worker is noticed after 65 % of it. The head stops for PAUSE seconds, 1.5 if unset. fault.deadline is
# DEADLINE seconds, 5 if unset: a training thread that stops in a read of samples or between two operations is lost
# after twice that (docs/runs.md); such hangs are counted apart. In $OUT_DIR stay chaos.times (milliseconds, kind, shape,
# run, wait for a processor) and, of a run that fails or has a wrong ledger, its directory.
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

faults=${1:-50}
seed=${2:-1}
RANDOM=$seed
a_run=${FAULTS_A_RUN:-5}
within_ms=${WITHIN:-5000}
read -r -a kinds <<<"${KINDS:-kill kill kill kill stop stop cut hang hang head}"
read -r -a shapes <<<"${SHAPES:-wide wide deep single growing}"
patience_s=${PATIENCE:-30}
pause_s=${PAUSE:-1.5}
deadline_s=${DEADLINE:-5}
injector=${INJECTOR:-$(dirname "$frostline")/bench/bench_fault}
dir=$out_dir/chaos
times=$dir.times
: >"$times"
n=0 scaled=0 survived=0 lost=0 doubled=0 repeated=0 again=0 runs=0 innocent=0
declare -A of_kind=([kill]=0 [stop]=0 [cut]=0 [hang]=0 [head]=0)
controller=0 shape=wide replicas=0 dormant=0 last_step=0 last_step_ms=0

end_all() {
    local job
    [ $controller = 0 ] || kill -KILL $controller 2>/dev/null || true
    for job in $(jobs -p); do kill -KILL "$job" 2>/dev/null || true; done
}
trap end_all EXIT

# Cutting and hanging need the right to trace another process.
probe_injector() {
    local probe rc=0
    [ -x "$injector" ] || { echo "$0: $injector is not there; it is built with everything else" >&2; exit 2; }
    sleep 60 &
    probe=$!
    timeout 0.2 "$injector" hang $probe 2>/dev/null || rc=$?
    "$injector" cut $probe 2>/dev/null || rc=$?
    kill -KILL $probe
    wait $probe 2>/dev/null || true
    [ $rc = 77 ] || return 0
    echo "$0: no cuts and hangs: the system does not let this process trace another one" >&2
    read -r -a kinds < <(printf '%s\n' "${kinds[@]}" | grep -vxE 'cut|hang' | tr '\n' ' ')
    [ ${#kinds[@]} -gt 0 ] || exit 77
}

now_ms() { echo $((${EPOCHREALTIME/./} / 1000)); }
count() { # count FILE TEXT: lines with TEXT
    if [ -e "$dir/$1" ]; then grep -c -- "$2" "$dir/$1" || true; else echo 0; fi
}
steps() { if [ -e "$dir/steps.jsonl" ]; then wc -l <"$dir/steps.jsonl"; else echo 0; fi; }

# until_true COMMAND...: wait for it; fails when the run has ended or after patience_s.
until_true() {
    local end=$((${EPOCHREALTIME/./} / 1000 + patience_s * 1000))
    until "$@"; do
        kill -0 $controller 2>/dev/null && [ $((${EPOCHREALTIME/./} / 1000)) -lt $end ] || return 1
        sleep 0.01
    done
}
has_steps() { [ "$(steps)" -ge "$1" ]; }
is_gone() { ! kill -0 "$1" 2>/dev/null || [ "$(ps -o stat= -p "$1" | cut -c 1)" = Z ]; }
# What the run did about the last loss; it changes with every loss, and with every return to a snapshot.
last_recovery() {
    grep -E '"(worker.lost|run.recovered|run.resumed)"' "$dir/events.jsonl" 2>/dev/null | tail -n 1 || true
}
last_loss() {
    grep -E '"(worker.lost|run.resumed)"' "$dir/events.jsonl" 2>/dev/null | tail -n 1 || true
}
# The others need not regroup when one in standby is lost.
has_recovered() {
    local last
    last=$(last_recovery)
    [ "$last" != "$1" ] && [[ $last != *'"worker.lost"'* || $last == *'(standby)'* ]]
}

# The same; and notes when the run finished its last step before that.
sees_recovery() {
    has_recovered "$1" && return
    [ "$(steps)" = "$last_step" ] || last_step=$(steps) last_step_ms=$(now_ms)
    false
}

status() { "$frostline" ctl "$dir" status --json --timeout 5 2>/dev/null; }
# workers: "PID STATE" of each worker, one a line
workers() {
    status | grep -o '"rank": *[0-9]*, *"pid": *[0-9]*, *"state": *"[a-z]*"' |
        sed -nE 's/.*"pid": *([0-9]+), *"state": *"([a-z]*)".*/\1 \2/p'
}
recovered() { # recovered FIELD: of the status
    status | sed -nE 's/.*"recovery": \{[^}]*"'"$1"'": ([0-9]+).*/\1/p'
}

start_run() {
    local sets=()
    rm -rf "$dir"
    shape=${shapes[RANDOM % ${#shapes[@]}]} replicas=0 dormant=0
    case $shape in
    wide) replicas=2 sets=(--set devices.count=4 --set pipe.k=1 --set pipe.m=2) ;;
    deep) replicas=4 sets=(--set devices.count=4 --set pipe.k=2 --set pipe.m=2) ;;
    single) sets=(--set devices.count=2 --set pipe.k=2 --set autodp.r=1 --set pipe.m=2) ;;
    growing) sets=(--set devices.count=2 --set devices.max=5 --set pipe.k=1 --set pipe.m=2) ;;
    esac
    [ $replicas != 0 ] || sets+=(--set "fault.snapshot=20 steps")
    if [ $((RANDOM % 2)) = 0 ]; then sets+=(--set "checkpoint.every=40 steps"); else sets+=(--set checkpoint.every=none); fi
    if [ $((RANDOM % 2)) = 0 ]; then sets+=(--set cache.policy=on); else sets+=(--set cache.policy=off); fi
    if [ $((RANDOM % 2)) = 0 ]; then sets+=(--set train.evaluate=false); fi
    "$frostline" run configs/quickstart.yaml --run-dir "$dir" --set devices.memory=64MiB --set fault.restarts=1000 \
        --set model.blocks=4 --set model.dim=32 --set data.samples=6400 --set train.batch=64 --set train.epochs=2000 \
        --set fault.detect="${DETECT:-1s}" --set fault.deadline="${deadline_s}s" --set freeze.policy=schedule --set freeze.start=1 --set freeze.every=1 \
        --set data.augment=none "${sets[@]}" >"$dir.log" 2>&1 </dev/null &
    controller=$!
    runs=$((runs + 1))
    until_true has_steps 20
}

# Another owner for each layer, or a snapshot to go back to.
may_lose() {
    if [ $replicas = 0 ]; then
        [ -n "$(recovered snapshot_step)" ] # no number, but -1: none yet
    else
        [ "$(workers | grep -c active)" -ge $replicas ]
    fi
}
may_lose_or_ask() {
    may_lose && return
    [ $replicas = 0 ] || "$frostline" ctl "$dir" scale k=$((replicas / 2)) r=2 --timeout 10 >/dev/null 2>&1 || true
    false
}

commit_head() {
    local before target=$controller begun
    [ $((RANDOM % 2)) = 0 ] || target=$(pgrep -P $controller | head -n 1)
    before=$(last_loss)
    waited >"$dir.waited"
    kill -STOP "$target" 2>/dev/null || return 0
    sleep "$pause_s"
    kill -CONT "$target"
    begun=$(now_ms)
    until_true has_steps $(($(steps) + 2)) || return 1
    record "$begun" head
    if [ $dormant = 0 ] && [ "$(last_loss)" != "$before" ]; then
        innocent=$((innocent + 1))
        echo "lost while the head was stopped: $(last_loss)" >&2
    fi
}
# How long each thread of the run has waited for a processor so far: "TASK NANOSECONDS".
waited() {
    local agent pids
    agent=$(pgrep -P $controller | head -n 1)
    pids="$controller $agent $(pgrep -P "${agent:-0}" | tr '\n' ' ')"
    # shellcheck disable=SC2046,SC2086
    awk '{ print FILENAME, $2 }' $(printf '/proc/%s/task/*/schedstat ' $pids) 2>/dev/null || true
}
# record BEGUN_MS KIND: the step after the fault is done. What a thread of the run has waited for a processor since
# then is time that other programs took.
record() {
    local took=$(($(now_ms) - $1)) delay
    delay=$({ sed 's/^/before /' "$dir.waited"; waited; } | awk '
        $1 == "before" { before[$2] = $3; next }
        $2 - before[$1] > most { most = $2 - before[$1] } # all of it for a thread that began later
        END { printf "%d\n", most / 1e6 }')
    echo "$took $2 $shape $runs $delay" >>"$times"
    survived=$((survived + 1))
    [ $((took - delay)) -le "$within_ms" ] || [ "$2" = deadline ] || keep_files late
}
keep_files() { # keep_files WHY: a copy of what the run has written so far
    mkdir -p "$dir.kept/run-$runs-$1-$n"
    cp -r "$dir"/*.jsonl "$dir"/*.log "$dir.log" "$dir.faults" "$dir.kept/run-$runs-$1-$n/" 2>/dev/null || true
    status >"$dir.kept/run-$runs-$1-$n/status" || true
}

# The worker that was lost last hung in an operation whose limit is fault.deadline, or twice that.
had_deadline() {
    last_recovery | sed -nE 's/.*has stood still for ([0-9]+)\.[0-9]+ s, although.*/\1/p' |
        awk -v deadline="$deadline_s" '$1 >= deadline { found = 1 } END { exit !found }'
}

# One fault to a worker, and the next step. A thread that hangs in standby sleeps on: the run finds it later.
commit_fault() {
    local pid state before begun kind=$1
    until_true may_lose_or_ask || return 1
    read -r pid state < <(workers | grep -E 'active|standby' | shuf -n 1 --random-source=<(yes "$RANDOM")) || return 0
    waited >"$dir.waited"
    sleep 0.0$((RANDOM % 10))$((RANDOM % 10))
    before=$(last_recovery)
    begun=$(now_ms)
    case $kind in
    kill) kill -KILL "$pid" 2>/dev/null || return 0 ;;
    stop) kill -STOP "$pid" 2>/dev/null || return 0 ;;
    cut) "$injector" cut "$pid" || return 0 ;;
    hang) "$injector" hang "$pid" 2>/dev/null & ;;
    esac
    n=$((n + 1)) of_kind[$kind]=$((of_kind[$kind] + 1))
    echo "$(date +%T.%3N) $kind $pid $state" >>"$dir.faults"
    # Nobody waits for a thread that hangs in standby before a change of the plan needs it: steps go on until then.
    if [ "$kind $state" != "hang standby" ]; then
        last_step=$(steps) last_step_ms=$begun
        until_true sees_recovery "$before" || return 1
        [ "$last_step_ms" -le "$begun" ] || begun=$last_step_ms
    fi
    [ "$kind $state" != "hang standby" ] || dormant=1
    until_true has_steps $(($(steps) + 1)) || return 1
    [ "$kind $state" != "hang active" ] || ! had_deadline || kind=deadline
    record "$begun" "$kind"
}

scale_somehow() {
    local most=4 wanted
    [ "$shape" != growing ] || most=5
    [ "$shape" != single ] || return 0
    wanted=$((2 + RANDOM % (most - 1)))
    if "$frostline" ctl "$dir" scale $wanted --timeout 10 >/dev/null 2>&1; then scaled=$((scaled + 1)); fi
}
freeze_somehow() {
    local F=$((RANDOM % 3)) what=freeze
    [ $((RANDOM % 2)) = 0 ] || what=thaw
    "$frostline" ctl "$dir" $what $F --timeout 10 >/dev/null 2>&1 || true
}

read_ledger() {
    local ids l=0 d=0
    "$frostline" ledger "$dir" >"$dir.ledger" 2>&1 || true
    # Of each epoch: once, never, more. The last one was cut short.
    read -r l d < <(awk '$1 ~ /^[0-9]+$/ && NF == 4 { if (seen) l += never; never = $3; d += $4; seen = 1 } END { print l + 0, d + 0 }' "$dir.ledger")
    ids=$(sed -nE 's/.*"step": *([0-9]+).*/\1/p' "$dir/steps.jsonl" | sort -n | uniq -d | wc -l)
    lost=$((lost + l)) doubled=$((doubled + d)) repeated=$((repeated + ids))
    [ $((l + d + ids)) = 0 ] || { keep_files ledger; cp "$dir/ledger.bin" "$dir.ledger" "$dir.kept/"; }
}

probe_injector
failed=0
while [ $n -lt "$faults" ]; do
    : >"$dir.faults"
    start_run || { failed=1; keep_files start; break; }
    for ((i = 0; i < a_run && n < faults; i++)); do
        kind=${kinds[RANDOM % ${#kinds[@]}]}
        [ $((RANDOM % 3)) -ne 0 ] || scale_somehow
        [ $((RANDOM % 3)) -ne 0 ] || freeze_somehow &
        helper=$!
        if [ "$kind" = head ]; then
            n=$((n + 1)) of_kind[head]=$((of_kind[head] + 1))
            commit_head || { failed=1; break; }
        else
            commit_fault "$kind" || { failed=1; break; }
        fi
        wait $helper || true
    done
    if [ $failed = 0 ]; then
        again=$((again + $(recovered repeated_steps)))
        losses=$(recovered losses)
        if [ "$losses" -gt "$(wc -l <"$dir.faults")" ]; then
            innocent=$((innocent + losses - $(wc -l <"$dir.faults")))
            keep_files innocent
        fi
        "$frostline" ctl "$dir" stop >/dev/null 2>&1 || true
    else
        cat "$dir.faults" >&2
        tail -n 5 "$dir.log" >&2
        "$frostline" ctl "$dir" flight --timeout 5 >"$dir.flight" 2>&1 || true
        keep_files failed
        kill -KILL $controller 2>/dev/null || true
    fi
    wait $controller || true
    controller=0
    [ $failed = 0 ] || break
    read_ledger
done

sort -n "$times" | awk -v n="$n" -v k="${of_kind[kill]}" -v s="${of_kind[stop]}" -v cut="${of_kind[cut]}" \
    -v h="${of_kind[hang]}" -v head="${of_kind[head]}" -v r=$runs -v c=$scaled -v ok=$survived -v l=$lost \
    -v d=$doubled -v rep=$repeated -v again=$again -v innocent=$innocent -v within="$within_ms" '
    $2 == "deadline" { slow++; slowest = $1; next }
    { t[++m] = $1; if ($1 - $5 > longest) longest = $1 - $5 }
    END {
        printf "faults           %d in %d runs: kill %d, stop %d, cut %d, hang %d, head %d; %d scale requests\n",
            n, r, k, s, cut, h, head, c
        printf "survived         %d\nlost, no fault   %d\n", ok, innocent
        printf "samples lost     %d\nsamples doubled  %d\nsteps repeated   %d\n", l, d, rep
        printf "done again       %d steps, after returns to a snapshot or checkpoint\n", again
        if (slow > 0)
            printf "deadline         %d hangs where fault.deadline is the limit: %d ms (longest)\n", slow, slowest
        if (m > 0)
            printf "next step after  %d ms (median), %d ms (99th percentile), %d ms (longest)\n",
                t[int((m + 1) / 2)], t[int(m * 0.99 + 0.999)], t[m]
        printf "of which its own %d ms (longest): without what its threads waited for a processor\n", longest
        exit longest > within
    }' || failed=1
[ $failed = 0 ] && [ $survived = $n ] && [ $lost = 0 ] && [ $doubled = 0 ] && [ $repeated = 0 ] &&
    [ $innocent = 0 ]
