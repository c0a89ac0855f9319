#!/usr/bin/env bash
# Whole runs of the program under a sanitizer: transitions, cache, control requests, trace and
# metrics; a lost worker; an interrupted run; a run that decides by itself; a worker of two threads;
# the asynchronous test device; and commands that compute without a run.
# Workers are forked and end by themselves, so every process writes its reports into one folder, and
# any report fails the check.
# usage: run_sanitized.sh tsan|asan BUILD
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
sanitizer=$1
build=$(realpath "$2")
program=$build/frostline
work=$(mktemp -d)
reports=$work/reports
runs=0
requests=0
failed=0
n_samples=64

# ---- the sanitizer ----

mkdir "$reports"
export XDG_CACHE_HOME=$work/cache
export TSAN_OPTIONS="suppressions=$PWD/tests/house/tsan.supp log_path=$reports/report exitcode=66"
export ASAN_OPTIONS="detect_leaks=1 log_path=$reports/report exitcode=66"
export UBSAN_OPTIONS="print_stacktrace=1 log_path=$reports/report"
export LSAN_OPTIONS="suppressions=$PWD/tests/house/lsan.supp print_suppressions=0 exitcode=66"

fail() {
    echo "run_sanitized: $*"
    failed=$((failed + 1))
}

# The sanitizer sees what it must see, in a forked process, under these very options.
try_the_sanitizer() {
    local fault=race
    [ "$sanitizer" = tsan ] || fault=leak
    "$build/tests/sanitizer_control" $fault
    if ! cat "$reports"/report.* 2>/dev/null | grep -q "SUMMARY: .*Sanitizer"; then
        fail "the sanitizer does not report a $fault in a forked process"
    fi
    rm -f "$reports"/report.*
}

# ---- a job and its runs ----

cut_dataset() {
    local name
    mkdir "$work/data"
    for name in {train,t10k}-{images-idx3,labels-idx1}-ubyte; do
        tests/support/data/first_samples.sh "/usr/share/datasets/fashion-mnist/$name.gz" "$work/data/$name" $n_samples
    done
}

write_job() {
    cat >"$work/job.yaml" <<YAML
model:   {kind: vit, blocks: 4, dim: 16, heads: 2, patch: 14}
data:    {path: $work/data}
train:   {epochs: 100000, batch: 16}
pipe:    {k: 1, m: 2}
autodp:  {r: 2, bucket: 4KiB}
devices: {count: 3}
fault:   {detect: 30s, deadline: 60s}
YAML
}

# start NAME [--set FIELD=VALUE]...: a run in the background, once it takes requests.
start() {
    run=$work/$1
    shift
    "$program" run "$work/job.yaml" --run-dir "$run" "$@" >"$run.out" 2>&1 &
    controller=$!
    runs=$((runs + 1))
    for _ in $(seq 600); do
        if [ -e "$run/job.yaml" ] && "$program" ctl "$run" status >/dev/null 2>&1; then
            return
        fi
        kill -0 $controller 2>/dev/null || break
        sleep 0.1
    done
    if grep -q '"run.running"' "$run/events.jsonl" 2>/dev/null; then
        return # it trained and ended before it was asked
    fi
    fail "$run: the run does not start: $(tail -n 3 "$run.out")"
    conclude
}

# ask COMMAND...: a request that must be answered with success.
ask() {
    local output
    output=$("$program" ctl "$run" "$@" 2>&1) || fail "ctl $*: $output"
    requests=$((requests + 1))
}

# ends WITH: the run must end by itself with this exit code.
ends() {
    local code=0
    wait $controller || code=$?
    [ $code -eq "$1" ] || fail "$run ended with $code, not $1: $(tail -n 3 "$run.out")"
}

await_step() {
    local step=0
    for _ in $(seq 600); do
        kill -0 $controller 2>/dev/null || break
        step=$("$program" ctl "$run" status --json 2>/dev/null | sed -nE 's/.*"step": ?([0-9]+).*/\1/p')
        [ "${step:-0}" -lt "$1" ] || return
        sleep 0.1
    done
    fail "$run: no step $1: $(tail -n 3 "$run.out")"
    conclude
}

# How many events of this kind the run recorded.
events() {
    grep -c "\"event\": *\"$1\"" "$run/events.jsonl"
}

expect_events() {
    local n
    n=$(events "$1")
    [ "$n" -ge "$2" ] || fail "$run: $n events $1, not $2"
}

# ---- the runs ----

# What a person's screen and a monitoring system do, all the time.
watch_it() {
    local port
    port=$(sed -nE 's|.*"metrics": ?"http://127.0.0.1:([0-9]+)/.*|\1|p' "$run/events.jsonl")
    while kill -0 "$controller" 2>/dev/null; do
        "$program" top "$run" --once >/dev/null 2>&1
        exec 3<>"/dev/tcp/127.0.0.1/$port" && printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3 &&
            grep -q frostline_steps_total <&3 && echo scraped >>"$run.scrapes"
    done 2>/dev/null
}

steered_run() {
    local script='[{step: 4, f: 1, k: 1, r: 3}, {step: 8, f: 2, k: 3, r: 1, m: 3}, {step: 12, f: 0, k: 2, r: 1},
        {step: 16, f: 2, k: 1, r: 2, m: 4}, {step: 20, f: 3, k: 1, r: 3, m: 1}]'
    start steered --set "elastic.script=$script" --set cache.policy=on --set cache.memory=256KiB \
        --set cache.disk=1MiB --set "cache.path=$work" --set trace.steps=20 --set trace.start=2 \
        --set control.metrics=127.0.0.1:0
    "$program" ctl "$run" watch >"$run.watch" 2>&1 &
    watch_it &
    await_step 26
    ask status
    ask plan
    ask plan devices=1 frozen=2
    ask scale 1
    ask scale k=3 r=1
    ask thaw 0
    ask freeze 1
    ask pin 3
    ask unpin 3
    ask pause
    ask status
    ask resume
    ask set train.lr 1e-4
    ask trace steps=4
    ask flight
    ask scale k=1 r=3
    ask drain 1
    ask stop
    ends 130
    wait
    expect_events transition.done 11
    expect_events cache.used 1
    [ -s "$run.scrapes" ] || fail "metrics were never scraped"
    [ -s "$run.watch" ] || fail "watch showed nothing"
    "$program" report "$run" >/dev/null 2>"$run.err" || fail "report: $(cat "$run.err")"
    "$program" trace-report "$run/trace-2-21.json" >/dev/null 2>"$run.err" || fail "trace-report: $(cat "$run.err")"
}

lost_worker() {
    local worker
    start lost --set fault.detect=2s --set fault.on_loss=stop
    await_step 3
    worker=$(pgrep -P "$(pgrep -P $controller)" | head -n 1) # of the agent
    kill -KILL "$worker"
    ends 3
}

interrupted_run() {
    start interrupted --set pipe.k=2 --set autodp.r=1
    await_step 3
    kill -INT $controller
    ends 130
}

# Plans, blocks to freeze and what is cached: all chosen by the run itself.
automatic_run() {
    start automatic --set devices.count=2 --set pipe.k=auto --set pipe.m=auto --set autodp.r=auto \
        --set train.epochs=8 --set freeze.policy=gradnorm --set freeze.start=25% \
        --set freeze.must_pay=false
    ends 0
    expect_events epoch.finished 8
    expect_events transition.done 1
}

threaded_run() {
    start threaded --set devices.count=1 --set devices.cores=2 --set autodp.r=1 --set train.epochs=1
    ends 0
}

# What ThreadSanitizer sees here, a GPU would hide: a wait for the device that is missing.
asynchronous_run() {
    script='[{step: 4, f: 1, k: 2, r: 1}, {step: 8, f: 2, k: 1, r: 2}, {step: 12, f: 0, k: 2, r: 1}]'
    start asynchronous --set devices.kind=async-test --set devices.count=2 --set train.epochs=10 \
        --set cache.policy=on --set "elastic.script=$script"
    ends 0
    expect_events transition.done 3
}

# What computes or reads data without a run; plans are made by automatic_run. tests/unit/launcher/cli/test_cli_jobs.c and
# test_check_model.c have their other cases.
commands_without_a_run() {
    local command
    for command in validate check-model; do
        "$program" $command "$work/job.yaml" >"$work/$command.out" 2>&1 ||
            fail "$command: exit code $?: $(tail -n 3 "$work/$command.out")"
    done
}

# ---- the end ----

conclude() {
    local report
    for report in "$reports"/report.*; do
        if [ -e "$report" ]; then
            fail "process ${report##*.} reports:"
            cat "$report"
        fi
    done
    echo "run_sanitized: $runs runs, $requests requests, $failed failures"
    [ -n "${FL_KEEP_RUNS:-}" ] || rm -rf "$work"
    [ $failed -eq 0 ]
    exit
}

try_the_sanitizer
cut_dataset
write_job
steered_run
lost_worker
interrupted_run
automatic_run
threaded_run
asynchronous_run
commands_without_a_run
conclude
