#!/bin/sh
# service JOB.yaml: train the job in ./run, or continue it there; frostline@.service calls it. Does
# nothing once the job is finished. A run that was cut off before its first checkpoint has nothing to
# continue from: it is kept as run.TIME, and the job begins anew.
set -eu
frostline=${FROSTLINE:-@FL_PREFIX@/@FL_BINDIR@/frostline}
job=$1

if [ -e run/job.yaml ] && tail -n 1 run/events.jsonl 2>/dev/null | grep -q '"event": *"run.finished"'; then
    echo "service: the job is finished; its result is in $PWD/run. To train it again, remove that folder"
    exit 0
fi
if [ -e run/job.yaml ] && [ -d run/checkpoints ] && ! ls run/checkpoints/step-* >/dev/null 2>&1; then
    kept=run.$(date +%Y%m%d-%H%M%S)
    echo "service: the run has no checkpoint to continue from; it is kept as $PWD/$kept"
    rm -f run/hosts.key # agents join no run that has ended
    mv run "$kept"
fi
if [ -e run/job.yaml ]; then
    exec "$frostline" run --resume run
fi
exec "$frostline" run "$job" --run-dir run
