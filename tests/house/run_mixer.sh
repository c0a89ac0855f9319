#!/usr/bin/env bash
# Run the example of a layer of one's own and require that it learned over two stages: four kinds,
# so chance is 0.25.
set -euo pipefail
program=$1
work=$2
frostline=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
"$program" | tee output
accuracy=$(sed -nE 's/^accuracy ([0-9.]+) with 2 stages$/\1/p' output)
[ -n "$accuracy" ] || { echo "no line 'accuracy ... with 2 stages'" && exit 1; }
awk "BEGIN { exit !($accuracy > 0.9) }" || { echo "accuracy $accuracy is not above 0.9" && exit 1; }

# Its callback ends the run: 8 epochs are 256 steps.
run=$(ls -d runs/*)
grep -q '"event": "run.stopping".*"why": "on_epoch"' "$run/events.jsonl" || { echo "the callback did not end the run" && exit 1; }
[ "$(wc -l <"$run/steps.jsonl")" -lt 256 ] || { echo "all steps were done in spite of the callback" && exit 1; }

# Its other callback named each checkpoint, and the last of them is that of the stop.
steps=$(wc -l <"$run/steps.jsonl")
last=$(sed -nE "s/^checkpoint after $steps steps: (.*)$/\1/p" output)
if [ -z "$last" ] || [ ! -f "$last/manifest.json" ] || [ ! -f "$last/config.json" ]; then
    echo "no line names the checkpoint after $steps steps"
    exit 1
fi

# The record says whose model it was; it named a ViT on Fashion-MNIST, and offered to train that.
grep -q '^# model: mixer, 8 layers in 3 blocks, ' "$run/job.yaml" || { echo "job.yaml does not name the model" && exit 1; }
grep -q '^  kind: program$' "$run/job.yaml" || { echo "job.yaml does not say: kind: program" && exit 1; }
! grep -qE 'vit|fashion|heads' "$run/job.yaml" || { echo "job.yaml describes a ViT" && exit 1; }
grep -q '"model": {"kind": "program", "name": "mixer", "layers": 8, "blocks": 3' "$run/events.jsonl" ||
    { echo "run.started does not describe the model" && exit 1; }
! grep -q 'frostline run' output || { echo "the output refers to frostline run" && exit 1; }
code=0
"$frostline" run "$run/job.yaml" 2>refusal || code=$?
[ $code -eq 2 ] || { echo "frostline run of the record ended with $code, not 2" && exit 1; }
grep -q 'a run of a program: only that program has its model and data set' refusal || { cat refusal && exit 1; }
"$frostline" report "$run" >/dev/null
grep -q "A program's own model, mixer, of 8 layers in 3 blocks" "$run/report.html" ||
    { echo "the report does not name the model" && exit 1; }

# It continues its own run, from the checkpoint that the stop has left.
"$program" "$run" >resumed
grep -qE '^accuracy 0.9[0-9]* with 2 stages$' resumed || { cat resumed && exit 1; }
[ "$(wc -l <"$run/steps.jsonl")" -gt "$steps" ] || { echo "the resumed run made no step" && exit 1; }
grep -q '"event": "run.resumed".*"ended": "stopped"' "$run/events.jsonl" ||
    { echo "events.jsonl has no run.resumed" && exit 1; }
"$frostline" ledger "$run" >/dev/null || { echo "the ledger of the resumed run is not complete" && exit 1; }
code=0
"$frostline" run --resume "$run" 2>refusal || code=$?
[ $code -eq 2 ] || { echo "frostline run --resume of a program's run ended with $code, not 2" && exit 1; }
grep -q 'that program continues the run with fl_run_resume' refusal || { cat refusal && exit 1; }
