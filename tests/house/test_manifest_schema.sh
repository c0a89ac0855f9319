#!/usr/bin/env bash
# What frostline manifest writes passes the schemas that Kubernetes and JobSet publish. Neither they
# nor kubernetes-validate (PyPI) are in Debian: docs/check.md says how to get them into a folder,
# build/kubernetes of the sources or $KUBERNETES_SCHEMAS. Without them, the test is skipped; the fields
# of a JobSet are then checked by tests/unit/launcher/cli/test_jobset_fields.c alone.
set -uo pipefail
sources=$1
build_dir=$2
work=$build_dir/tests/manifest
from=${KUBERNETES_SCHEMAS:-$sources/build/kubernetes}
advice="docs/check.md, 'Schemas of Kubernetes', says how to get it"
validate=$(PATH=$PATH:$from/bin command -v kubernetes-validate)
if [ -z "$validate" ]; then
    echo "skipped: there is no kubernetes-validate in PATH or in $from/bin; $advice"
    exit 77
fi
python=$(sed -n '1s/^#!//p' "$validate")
rm -rf "$work"
mkdir -p "$work"

# manifest KIND OPTION...: it is in $work/KIND.yaml
manifest() {
    "$build_dir/frostline" manifest "$sources/configs/quickstart.yaml" --kind "$1" --hosts 3 --devices 2 \
        --set devices.count=auto "${@:2}" >"$work/$1.yaml" || exit 1
}

check_job() {
    "$validate" --strict -k 1.33 "$1"
}

check_jobset() {
    "$python" "$sources/tests/house/jobset_schema.py" "$from/jobset.yaml" "$1"
}

# check KIND EDIT...: what is written passes, and does not with any of these mistakes.
check() {
    local kind=$1 broken
    for options in "--set run.shared=false" "--claim disk --secret mine --grace 100" \
        "--claim disk --set devices.kind=cuda"; do
        # shellcheck disable=SC2086
        manifest "$kind" $options
        "check_$kind" "$work/$kind.yaml" || exit 1
    done
    for broken in "${@:2}"; do
        sed "$broken" "$work/$kind.yaml" >"$work/broken.yaml"
        if "check_$kind" "$work/broken.yaml" >/dev/null 2>&1; then
            echo "not found in a $kind: $broken"
            exit 1
        fi
    done
    echo "$kind: 3 manifests pass, and $(($# - 1)) mistakes are found"
}

mistakes=('s/restartPolicy:/restartPolicies:/' 's/onExitCodes:/onExitCode:/'
    's/onPodConditions:/onPodCondition:/' 's/backoffLimitPerIndex:/backoffLimitPerPod:/'
    's/status: "True"/status: true/')
check job "${mistakes[@]}" 's/succeededIndexes: "0"/succeededIndexes: 0/'
if [ ! -f "$from/jobset.yaml" ]; then
    echo "skipped: the Job passes; there is no definition of the JobSet, $from/jobset.yaml; $advice"
    exit 77
fi
check jobset "${mistakes[@]}" 's/replicatedJobs:/replicatedJob:/' 's/maxRestarts: .*/maxRestarts: many/' \
    's/enableDNSHostnames:/enableDnsHostnames:/'
