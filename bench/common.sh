# Shared by the benchmarks: run a job for some steps, read its steps.jsonl. Sourced, not run.
# shellcheck shell=bash

frostline=${FROSTLINE:-build/release/frostline}
out_dir=${OUT_DIR:-build/bench}
mkdir -p "$out_dir"

# The model of the benchmarks: 12 blocks, C 128, 17 tokens, batch 128, no evaluation.
model=(
    --set model.blocks=12 --set model.dim=128 --set model.heads=4 --set model.patch=7
    --set train.batch=128 --set train.evaluate=false --set data.augment=none --set model.dropout=0
)

# choose_job quickstart|vit|BLOCKS,DIM,PATCH,BATCH: its file in $config, and in $sets what makes it a
# benchmark of fixed plans: the quickstart's model with the memory for any of them, the model above,
# or that model in another shape.
choose_job() {
    local blocks dim patch batch
    # shellcheck disable=SC2034 # read by the script that sources this one
    config=configs/vit-fashion.yaml
    sets=("${model[@]}")
    if [ "$1" = quickstart ]; then
        # shellcheck disable=SC2034
        config=configs/quickstart.yaml
        sets=(--set train.evaluate=false --set freeze.policy=none --set devices.memory=2GiB)
    fi
    if [[ $1 == *,* ]]; then
        IFS=, read -r blocks dim patch batch <<<"$1"
        sets+=(--set model.blocks="$blocks" --set model.dim="$dim" --set model.patch="$patch"
            --set train.batch="$batch")
    fi
    sets+=(--set devices.count=2)
}

# train_job DIR JOB ARGUMENT...: train in a new run directory DIR under build/bench.
train_job() {
    local dir=$out_dir/$1 job=$2
    shift 2
    rm -rf "$dir"
    if ! "$frostline" run "$job" --run-dir "$dir" "$@" >"$dir.log" 2>&1 </dev/null; then
        tail -n 5 "$dir.log" >&2
        echo "$0: the run failed; see $dir.log" >&2
        return 1
    fi
}

# run_job DIR ARGUMENT...: the same of the benchmarks' model.
run_job() {
    local dir=$1
    shift
    train_job "$dir" configs/vit-fashion.yaml "${model[@]}" "$@"
}

# finished DIR FIELD: of the event that ends a run.
finished() {
    sed -nE "/\"run.finished\"/s/.*\"$2\": ?([-0-9.e+]+).*/\1/p" "$out_dir/$1/events.jsonl"
}

# planned ARGUMENT...: what `frostline plan` predicts of each plan that fits, one a line: K,R,M and
# milliseconds; "chosen" behind the one it would take.
planned() {
    local fields='"k": *([0-9]+), *"r": *([0-9]+), *"m": *([0-9]+), *"step_ms": *([0-9.]+)'
    "$frostline" plan "$@" --json | sed 's/{"k": */\n&/g' |
        sed -nE "s/.*$fields(.*)/\\1,\\2,\\3 \\4 \\5/p" |
        awk '{ print $1, $2 (/"chosen": *true/ ? " chosen" : "") }'
}

# step_field DIR FIELD: this field of every step but the first ten, one a line.
step_field() {
    sed -nE "s/.*\"$2\": ?([-0-9.e+]+).*/\1/p" "$out_dir/$1/steps.jsonl" | tail -n +11
}

# The middle one of the numbers on standard input.
median() {
    sort -g | awk '{ v[NR] = $1 }
        END { if (NR == 0) exit 1; print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# The median of the numbers on standard input, and the two of them that enclose the median of all
# such numbers with a probability of at least 95 % (the sign test); "- -" for fewer than 6.
median_interval() {
    sort -g | awk '{ v[NR] = $1 }
        END {
            if (NR == 0) exit 1
            middle = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
            p = sum = 0.5 ^ NR # that at most k of NR lie below
            for (k = 0; sum <= 0.025; k++) {
                p *= (NR - k) / (k + 1)
                sum += p
            }
            if (k == 0) print middle, "-", "-"
            else print middle, v[k], v[NR + 1 - k]
        }'
}

# quartile_ms DIR: the lower quartile of the steps: what is above it is mostly other programs' use of
# the processors.
quartile_ms() {
    step_field "$1" ms | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 3) / 4)] }'
}

# median_ms DIR: the median step.
median_ms() {
    step_field "$1" ms | median
}

# calc EXPRESSION: with awk, three decimals.
calc() {
    awk "BEGIN { printf \"%.3f\\n\", ($1) }"
}

need_program() {
    if [ ! -x "$frostline" ]; then
        echo "$0: $frostline is not there; ./quickstart builds it" >&2
        exit 2
    fi
}
