# Shared by the benchmarks: run a job for some steps, read its steps.jsonl. Sourced, not run.
# shellcheck shell=bash

frostline=${FROSTLINE:-build/release/frostline}
out_dir=build/bench
mkdir -p "$out_dir"

# The model of the benchmarks: 12 blocks, C 128, 17 tokens, batch 128, no evaluation.
model=(
    --set model.blocks=12 --set model.dim=128 --set model.heads=4 --set model.patch=7
    --set train.batch=128 --set train.evaluate=false --set data.augment=none --set model.dropout=0
)

# choose_job quickstart|vit: its file in $config, and in $sets what makes it a benchmark of fixed
# plans: the quickstart's model with the memory for any of them, or the model above.
choose_job() {
    # shellcheck disable=SC2034 # read by the script that sources this one
    config=configs/vit-fashion.yaml
    sets=("${model[@]}")
    if [ "$1" = quickstart ]; then
        # shellcheck disable=SC2034
        config=configs/quickstart.yaml
        sets=(--set train.evaluate=false --set freeze.policy=none --set devices.memory=2GiB)
    fi
    sets+=(--set devices.count=2)
}

# run_job DIR ARGUMENT...: train in the run directory DIR under build/bench, made anew.
run_job() {
    local dir=$out_dir/$1
    shift
    rm -rf "$dir"
    if ! "$frostline" run configs/vit-fashion.yaml --run-dir "$dir" "${model[@]}" "$@" \
        >"$dir.log" 2>&1 </dev/null; then
        tail -n 5 "$dir.log" >&2
        echo "$0: the run failed; see $dir.log" >&2
        return 1
    fi
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
