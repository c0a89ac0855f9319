#!/usr/bin/env bash
# What frostline manifest writes passes the schemas that Kubernetes publishes, by kubernetes-validate
# (PyPI) where that is in PATH. JobSet is not among these schemas: tests/unit/launcher/cli/test_jobset_fields.c.
set -uo pipefail
build_dir=$2
work=$build_dir/tests/manifest
if ! command -v kubernetes-validate >/dev/null; then
    echo "skipped: kubernetes-validate is not installed"
    exit 77
fi
rm -rf "$work"
mkdir -p "$work"
for options in "--set run.shared=false" "--claim disk --secret mine --grace 100" \
    "--claim disk --set devices.kind=cuda"; do
    # shellcheck disable=SC2086
    "$build_dir/frostline" manifest "$1/configs/quickstart.yaml" --kind job --hosts 3 --devices 2 \
        --set devices.count=auto $options >"$work/job.yaml" || exit 1
    kubernetes-validate --strict -k 1.33 "$work/job.yaml" || exit 1
done
for broken in 's/restartPolicy:/restartPolicies:/' 's/onExitCodes:/onExitCode:/' \
    's/onPodConditions:/onPodCondition:/' 's/backoffLimitPerIndex:/backoffLimitPerPod:/' \
    's/succeededIndexes: "0"/succeededIndexes: 0/' 's/status: "True"/status: true/'; do
    sed "$broken" "$work/job.yaml" >"$work/broken.yaml"
    if kubernetes-validate --strict -k 1.33 "$work/broken.yaml" >/dev/null 2>&1; then
        echo "not found: $broken"
        exit 1
    fi
done
