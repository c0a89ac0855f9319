#!/usr/bin/env bash
# Run the example of a regression and require that it learned. A model that always answers with the
# mean of the targets has a mean absolute error of about 0.4.
set -euo pipefail
program=$1
work=$2
frostline=$3
rm -rf "$work"
mkdir -p "$work"
cd "$work"
"$program" | tee output
for run in 'one wave' 'two waves, fine-tuned'; do
    mae=$(sed -nE "s/^$run: test mae ([0-9.]+) with 2 replicas$/\\1/p" output)
    [ -n "$mae" ] || { echo "no line '$run: test mae ... with 2 replicas'" && exit 1; }
    awk "BEGIN { exit !($mae < 0.1) }" || { echo "$run: mae $mae is not below 0.1" && exit 1; }
done
grep -qE '^embed.fc.weight has the norm [1-9][0-9]*\.[0-9]+ after training$' output ||
    { echo "the trained weight could not be read" && exit 1; }

# Its files and tables have the metric, and no accuracy.
run=$(find runs -mindepth 1 -maxdepth 1 | sort | head -n 1)
grep -q '"loss": "mse", "metrics": \[{"name": "mae", "share": false}\]' "$run/events.jsonl" ||
    { echo "run.started does not name the loss and its metric" && exit 1; }
! grep -q accuracy "$run/events.jsonl" "$run/steps.jsonl" || { echo "a regression has no accuracy" && exit 1; }
"$frostline" export "$run" --format csv >/dev/null
head -n 1 "$run/steps.csv" | grep -q ',train_mae' || { echo "steps.csv lacks train_mae" && exit 1; }
