#!/usr/bin/env bash
# Runs that are stopped at random moments and resumed, against the same run without interruption.
#   bench/resume_rounds.sh [ROUNDS] [ROUNDS_ON_ANOTHER_PLAN] [SEED]
# Each round starts a run, ends it at a random moment (kill -9 of the controller or of a worker, also
# while a checkpoint is being written, SIGTERM, SIGINT), once or several times, and resumes it until it
# has finished. On the same plan every loss, the weights after every tenth step and those at the end
# must be equal to the last bit; on another plan the losses of the next 20 steps within 1e-5. The ledger
# must be complete. A run that finished before it was ended counts for nothing and is repeated. Prints
# one line per round, and how often each way ended a run; ends with 1 at the first difference.
set -euo pipefail
cd "$(dirname "$0")/.."
frostline=$(realpath "${FROSTLINE:-build/release/frostline}")
[ -x "$frostline" ] || { echo "$0: $frostline is not there; ./quickstart builds it" >&2; exit 2; }

rounds=${1:-50}
other_rounds=${2:-20}
RANDOM=${3:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
job=(
    --set model.blocks=4 --set model.dim=16 --set model.heads=2 --set model.dropout=0.1
    --set data.samples=1000 --set data.augment=crop-flip --set train.batch=50 --set train.epochs=6
    --set train.warmup=10 --set devices.count=2 --set devices.memory=2GiB --set pipe.tune=false
    --set freeze.policy=gradnorm --set freeze.start=25% --set freeze.every="15 steps"
    --set freeze.must_pay=false
    --set train.hash_weights=10 --set checkpoint.every="7 steps" --set train.evaluate_samples=100
    --set fault.on_loss=stop # a killed worker ends the run
)
script=(--set "elastic.script=[{step: 33, k: 1, r: 2}, {step: 160, k: 2, r: 1}]")

fail() {
    echo "$0: $*" >&2
    tail -n 8 "$work"/*.log >&2
    exit 1
}

begin() { # RUN ARGUMENT...: in the background
    local run=$1
    shift
    "$frostline" run configs/quickstart.yaml --run-dir "$run" "${job[@]}" "$@" >"$run.log" 2>&1 \
        </dev/null &
    pid=$!
}

resume() { # RUN ARGUMENT...: in the background
    local run=$1
    shift
    "$frostline" run --resume "$run" "$@" >>"$run.log" 2>&1 </dev/null &
    pid=$!
}

steps_of() { # RUN: lines of steps.jsonl, 0 before there are any
    { wc -l <"$1/steps.jsonl"; } 2>/dev/null || echo 0
}

await_step() { # RUN STEP: or until the run has ended
    while kill -0 "$pid" 2>/dev/null && [ "$(steps_of "$1")" -lt "$2" ]; do
        sleep 0.002
    done
}

await_writing() { # RUN: a checkpoint is being written, or the run has ended
    local folder
    while kill -0 "$pid" 2>/dev/null; do
        for folder in "$1"/checkpoints/step-*; do
            [ -e "$folder/manifest.json" ] || [ ! -d "$folder" ] || return 0
        done
    done
}

# end_run HOW: and wait for the end of its process.
end_run() {
    local workers
    case $1 in
    worker | writing-worker)
        mapfile -t workers < <(pgrep -P "$(pgrep -P "$pid")")
        [ ${#workers[@]} -eq 0 ] || kill -9 "${workers[RANDOM % ${#workers[@]}]}" 2>/dev/null || true
        ;;
    controller | writing-controller) kill -9 "$pid" 2>/dev/null || true ;;
    term) kill -TERM "$pid" 2>/dev/null || true ;;
    int) kill -INT "$pid" 2>/dev/null || true ;;
    esac
    { wait "$pid" && code=0 || code=$?; } 2>/dev/null
}

has_checkpoint() {
    compgen -G "$1/checkpoints/step-*/manifest.json" >/dev/null
}

await_checkpoint() { # RUN STEP: a whole one after at least this many steps, or the run has ended
    local found
    while kill -0 "$pid" 2>/dev/null; do
        found=$(compgen -G "$1/checkpoints/step-*/manifest.json" | tail -n 1 || true)
        found=${found%/manifest.json}
        [ -z "$found" ] || [ $((10#${found##*step-})) -lt "$2" ] || return 0
        sleep 0.002
    done
}

complete() { # RUN: its ledger and its steps
    "$frostline" ledger "$1" >"$work/ledger.log" || fail "$1: the ledger is not complete"
    [ "$(steps_of "$1")" -eq "$(steps_of "$work/whole")" ] || fail "$1: $(steps_of "$1") steps"
}

# stop_and_resume RUN HOW: from a random step on; ends with the run's exit code in $code.
stop_and_resume() {
    if [[ $2 == writing-* ]]; then
        await_step "$1" $((RANDOM % 80))
        await_writing "$1"
    else
        await_step "$1" $((RANDOM % 110 + 5))
    fi
    end_run "$2"
    stopped=$(steps_of "$1")
}

begin "$work/whole" "${script[@]}"
wait "$pid" || fail "the run without interruption failed"
complete "$work/whole"

how=(controller worker term int writing-controller writing-worker)
declare -A ended
for ((round = 1; round <= rounds; round++)); do
    run=$work/run times=0 told=
    begin "$run" "${script[@]}"
    for ((n = RANDOM % 3; n >= 0; n--)); do
        kind=${how[RANDOM % ${#how[@]}]}
        stop_and_resume "$run" "$kind"
        [ "$code" -ne 0 ] || break
        told+=" $kind at step $stopped,"
        if has_checkpoint "$run"; then
            ended[$kind]=$((${ended[$kind]:-0} + 1))
            resume "$run"
            times=$((times + 1))
        else
            rm -rf "$run"
            begin "$run" "${script[@]}"
        fi
    done
    if [ "$code" -ne 0 ]; then
        wait "$pid" || fail "round $round ($told): the resumed run failed"
    fi
    complete "$run"
    "$frostline" diff "$work/whole" "$run" >"$work/diff.log" || fail "round $round ($told): different"
    cmp -s "$work/whole/model/model.safetensors" "$run/model/model.safetensors" ||
        fail "round $round ($told): other weights"
    if [ "$times" -eq 0 ]; then
        round=$((round - 1))
    else
        echo "round $round:$told resumed $times times: equal to the last bit"
    fi
    rm -rf "$run" "$run.log"
done
for kind in "${!ended[@]}"; do
    echo "$kind: ${ended[$kind]} times"
done

# The losses of 20 steps from step $3 on, within 1e-5.
close_to() { # WHOLE RUN STEP
    paste -d' ' <(sed -nE 's/.*"loss": ([-0-9.e+]+),.*/\1/p' "$1/steps.jsonl") \
        <(sed -nE 's/.*"loss": ([-0-9.e+]+),.*/\1/p' "$2/steps.jsonl") |
        awk -v from="$3" 'NR > from && NR <= from + 20 {
                d = ($1 - $2) / $1; d = d < 0 ? -d : d; worst = d > worst ? d : worst }
            END { print worst + 0; exit worst > 1e-5 }'
}

[ "$other_rounds" -eq 0 ] || { begin "$work/plain" && wait "$pid"; } || fail "a whole run failed"
plans=('pipe.k=1 autodp.r=1 devices.count=1' 'pipe.k=2 autodp.r=1' 'pipe.k=1 autodp.r=2 pipe.m=1'
    'pipe.k=1 autodp.r=3 devices.count=3' 'pipe.k=3 autodp.r=1 devices.count=3' 'pipe.m=5')
for ((round = 1; round <= other_rounds; round++)); do
    run=$work/run sets=()
    plan=${plans[RANDOM % ${#plans[@]}]}
    for set in $plan; do
        sets+=(--set "$set")
    done
    while :; do
        rm -rf "$run"
        begin "$run"
        await_checkpoint "$run" $((RANDOM % 80 + 1))
        end_run controller
        [ -e "$run/checkpoints/step-000000120" ] || [ "$code" -eq 0 ] || break # not its last step
    done
    resume "$run" "${sets[@]}"
    wait "$pid" || fail "round $round ($plan): the resumed run failed"
    complete "$run"
    from=$(sed -nE 's/.*"event": "run.resumed".*"step": ([0-9]+).*/\1/p' "$run/events.jsonl" | head -n 1)
    worst=$(close_to "$work/plain" "$run" "$from") || fail "round $round ($plan): differs by $worst"
    echo "round $round: resumed after step $from with $plan: 20 steps within $worst"
    rm -rf "$run" "$run.log"
done
