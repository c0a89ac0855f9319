#!/usr/bin/env bash
# NCCL on the GPUs of this machine, part by part; bench/gpu.sh ends with it.
#   bench/gpu_nccl.sh [STEPS]
#   one rank      opening, sums, registered buffers and a graph with a sum; an opening that never ends is
#                 aborted (tests/multiproc/autodp/test_nccl_device.c)
#   all-reduce    payload that two GPUs sum in a second, as the profile has it, beside the bandwidth that
#                 nccl-tests finds for the same size, if ALL_REDUCE_PERF names its all_reduce_perf
#   overlap       a step of two replicas against the same work without sums: what backward does not hide
#   transitions   two and four workers through K x R, with the time of each part
#   death         one of two replicas is killed: how long until the run goes on
# STEPS is of each plan, 30 if unset. With one GPU, only the first part has something to measure: the others
# are left out by name, as is the plan of four workers with fewer than four GPUs. The environment adds:
#   TRIAL=cpu     a trial of this script on the stand-ins for GPUs and for NCCL, which measures nothing
# It prints a table. A part that fails is named, and the exit code is 1.
# shellcheck disable=SC2317 # parts are functions that are called by their names
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=bench/common.sh
. bench/common.sh
need_program

steps=${1:-30}
tests=${TESTS:-build/release/tests}
failed=0
if ! [[ $steps =~ ^[1-9][0-9]{0,5}$ ]]; then
    echo "$0: STEPS: found '$steps', allowed: 1 to 999999" >&2
    exit 2
fi
shape=(--set model.blocks=8 --set model.dim=1024 --set model.heads=16 --set autodp.bucket=64MiB
    --set devices.memory="${MEMORY:-16GiB}" --set train.batch=256)
case ${TRIAL:-} in
'') n_gpus=$(nvidia-smi --list-gpus 2>/dev/null | grep -c '^GPU' || true) ;;
cpu)
    n_gpus=4
    export FROSTLINE_CUDA_PLUGIN=$tests/cuda_standin.so FROSTLINE_STANDIN=devices=4,graphs=fast
    export FROSTLINE_NCCL=$tests/nccl_standin.so FROSTLINE_NCCL_STANDIN=streams=none${FROSTLINE_NCCL_STANDIN:+,$FROSTLINE_NCCL_STANDIN}
    FROSTLINE_CUDA_PLUGIN=$(realpath "$FROSTLINE_CUDA_PLUGIN")
    FROSTLINE_NCCL=$(realpath "$FROSTLINE_NCCL")
    shape=(--set model.blocks=2 --set model.dim=16 --set model.heads=2 --set devices.memory=64MiB
        --set train.batch=16 --set data.samples=64)
    ;;
*)
    echo "$0: TRIAL: found '$TRIAL', allowed: cpu" >&2
    exit 2
    ;;
esac
if [ "$n_gpus" -lt 1 ]; then
    echo "$0: this machine has no GPU (nvidia-smi lists none)" >&2
    exit 2
fi

row() { echo "| $1 | $2 |"; }

# part NAME FUNCTION: its result as a row, or a line that names it.
part() {
    local line
    if line=$("$2"); then
        row "$1" "$line"
    else
        echo "$0: $1 failed" >&2
        failed=1
    fi
}

# gpu_job DIR STEPS ARGUMENT...: over NCCL.
gpu_job() {
    local dir=$1 n=$2
    shift 2
    train_job "$dir" configs/quickstart.yaml "${shape[@]}" --set devices.kind=cuda \
        --set autodp.transport=nccl --set train.evaluate=false --set freeze.policy=none \
        --set checkpoint.every=none --set run.save_model=false --set pipe.tune=false \
        --set train.epochs=10000 --set train.max_steps="$n" "$@"
}

# events DIR EVENT: its lines.
events() { grep "\"event\": \"$2\"" "$out_dir/$1/events.jsonl"; }

# number FIELD: of each line on standard input.
number() { sed -nE "s/.*\"$1\": ?([-0-9.e+]+).*/\1/p"; }

one_rank() {
    local log=$out_dir/nccl-one.log env=FL_TEST_GPU=1
    [ -z "${TRIAL:-}" ] || env=FL_TEST_TRIAL=1
    env "$env" "$tests/test_nccl_device" >"$log" 2>&1 || {
        tail -n 5 "$log" >&2
        return 1
    }
    if grep -q SKIPPED "$log"; then
        grep -m 1 '^skipped' "$log" >&2
        return 1
    fi
    echo "sums, a graph, $(grep -o 'ncclCommAbort took .*' "$log")"
}

all_reduce() {
    local rate theirs='' bytes=$((64 << 20)) profile=$out_dir/nccl-profile.yaml
    rm -f "$profile"
    gpu_job nccl-rate 2 --set devices.count=2 --set pipe.k=1 --set autodp.r=2 --set pipe.m=1 \
        --set pipe.profile="$profile" || return
    grep -q 'over NCCL' "$profile" || {
        echo "$0: the link was not measured over NCCL; see $profile" >&2
        return 1
    }
    rate=$(sed -nE 's/^ *reduce_bytes_per_us: *//p' "$profile")
    if [ -n "${ALL_REDUCE_PERF:-}" ]; then
        theirs=$("$ALL_REDUCE_PERF" -b "$bytes" -e "$bytes" -g 2 | awk -v n="$bytes" '$1 == n { print $8 }') || return
        theirs="; nccl-tests: $theirs GB/s (busbw, of two the same)"
    fi
    echo "$(calc "$rate / 1000") GB/s${theirs:-; nccl-tests: no ALL_REDUCE_PERF}"
}

# The same work of each GPU without sums: one worker with half the batch. Traces do not have what NCCL does
# on the device.
overlap() {
    local batch with without
    batch=$(sed -nE 's/.*train\.batch=([0-9]+).*/\1/p' <<<"${shape[*]}")
    gpu_job nccl-sums $((2 * steps)) --set devices.count=2 --set pipe.k=1 --set autodp.r=2 \
        --set pipe.m=2 --set pipe.profile=none || return
    gpu_job nccl-alone $((2 * steps)) --set devices.count=1 --set pipe.k=1 --set autodp.r=1 \
        --set pipe.m=2 --set pipe.profile=none --set train.batch=$((batch / 2)) || return
    with=$(median_ms nccl-sums)
    without=$(median_ms nccl-alone)
    echo "a step of $with ms, $without ms without sums: $(calc "100 * ($with / $without - 1)") % not hidden;" \
        "$(events nccl-sums graphs | tail -n 1 | number sum_launches) launches of backward with its sums"
}

# transitions WORKERS SCRIPT K R: the middle of each part.
transitions() {
    local dir=nccl-changes-$1 line name
    gpu_job "$dir" $((4 * steps)) --set devices.count="$1" --set pipe.k="$3" --set autodp.r="$4" \
        --set pipe.m=2 --set pipe.profile=none --set "elastic.script=$2" || return
    "$frostline" ledger "$out_dir/$dir" >"$out_dir/$dir-ledger.log" || return
    line="$(events "$dir" transition.done | grep -c .) changes, median ms:"
    for name in prepare comm migrate switch stall; do
        line+=" $name $(events "$dir" transition.done | number "${name}_ms" | median)"
    done
    echo "$line; $(events "$dir" transition.done | grep -o '"comm": "[a-z]*"' | cut -d '"' -f 4 | sort | uniq -c | xargs)"
}

two_workers() {
    transitions 2 "[{step: $steps, k: 2, r: 1}, {step: $((2 * steps)), k: 1, r: 2}, {step: $((3 * steps)), k: 1, r: 1}]" 1 2
}

four_workers() {
    transitions 4 "[{step: $steps, k: 4, r: 1}, {step: $((2 * steps)), k: 1, r: 4}, {step: $((3 * steps)), k: 1, r: 3}]" 2 2
}

death() {
    local dir=$out_dir/nccl-death pid='' begun run done_steps i
    rm -rf "$dir"
    gpu_job nccl-death $((20 * steps)) --set devices.count=2 --set pipe.k=1 --set autodp.r=2 \
        --set pipe.m=2 --set pipe.profile=none --set fault.on_loss=continue 2>/dev/null &
    run=$!
    for ((i = 0; i < 600; i++)); do
        done_steps=$(grep -c . "$dir/steps.jsonl" 2>/dev/null) || true
        [ "${done_steps:-0}" -lt 2 ] || break
        kill -0 "$run" 2>/dev/null || break
        sleep 0.2
    done
    pid=$("$frostline" ctl "$dir" status --json 2>/dev/null | grep -o '"rank": *1, *"pid": *[0-9]*' |
        grep -o '[0-9]*$' || true)
    if [ -z "$pid" ]; then
        kill "$run" 2>/dev/null || true
        wait "$run" || true
        echo "$0: worker 1 was not found" >&2
        return 1
    fi
    begun=$EPOCHREALTIME
    kill -KILL "$pid"
    for ((i = 0; i < 600; i++)); do
        ! grep -q '"event": "run.recovered"' "$dir/events.jsonl" || break
        kill -0 "$run" 2>/dev/null || break
        sleep 0.02
    done
    grep -q '"event": "run.recovered"' "$dir/events.jsonl" || return 1
    i=$(calc "1000 * ($EPOCHREALTIME - $begun)")
    "$frostline" ctl "$dir" stop >/dev/null 2>&1 || true
    wait "$run" || true # it was stopped
    "$frostline" ledger "$dir" >"$out_dir/nccl-death-ledger.log" || return
    echo "going on after $i ms, ledger exact"
}

printf '| NCCL on %s %s | |\n|---|---|\n' "$n_gpus" "$([ "${TRIAL:-}" = cpu ] && echo "stand-ins" || echo "GPUs")"
part "one rank" one_rank
if [ "$n_gpus" -lt 2 ]; then
    echo "$0: all-reduce, overlap, transitions and death are left out: this machine has one GPU"
    exit $failed
fi
part "all-reduce" all_reduce
part "overlap" overlap
part "transitions of two workers" two_workers
if [ "$n_gpus" -lt 4 ]; then
    echo "$0: transitions of four workers are left out: this machine has $n_gpus GPUs"
else
    part "transitions of four workers" four_workers
fi
part "death" death
exit $failed
