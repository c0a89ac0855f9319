#!/usr/bin/env bash
# Run the worked example and require that it learned over two stages: four kinds, so chance is 0.25.
set -euo pipefail
program=$1
work=$2
rm -rf "$work"
mkdir -p "$work"
cd "$work"
"$program" | tee output
accuracy=$(sed -nE 's/^accuracy ([0-9.]+) with 2 stages$/\1/p' output)
[ -n "$accuracy" ] || { echo "no line 'accuracy ... with 2 stages'" && exit 1; }
awk "BEGIN { exit !($accuracy > 0.9) }" || { echo "accuracy $accuracy is not above 0.9" && exit 1; }
