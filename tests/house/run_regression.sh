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
mae=$(sed -nE 's/^test mae ([0-9.]+) with 2 replicas$/\1/p' output)
[ -n "$mae" ] || { echo "no line 'test mae ... with 2 replicas'" && exit 1; }
awk "BEGIN { exit !($mae < 0.1) }" || { echo "mae $mae is not below 0.1" && exit 1; }

# Its files and tables have the metric, and no accuracy.
run=$(ls -d runs/*)
grep -q '"loss": "mse", "metrics": \[{"name": "mae", "share": false}\]' "$run/events.jsonl" ||
    { echo "run.started does not name the loss and its metric" && exit 1; }
! grep -q accuracy "$run/events.jsonl" "$run/steps.jsonl" || { echo "a regression has no accuracy" && exit 1; }
"$frostline" export "$run" --format csv >/dev/null
head -n 1 "$run/steps.csv" | grep -q ',train_mae' || { echo "steps.csv lacks train_mae" && exit 1; }
