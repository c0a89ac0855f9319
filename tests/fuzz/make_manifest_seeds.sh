#!/usr/bin/env bash
# The seeds of fuzz_manifest that runs write: tests/fuzz/corpus/fuzz_manifest/run-*. Short runs of
# small models write checkpoints; a seed is such a manifest behind a 1 and without its last member,
# which the target makes. Run it again when the version of the manifest rises, or it gets members.
# usage: tests/fuzz/make_manifest_seeds.sh BUILD_FOLDER
set -euo pipefail
if [ $# -ne 1 ] || [ ! -x "$1/frostline" ]; then
    echo "usage: $0 BUILD_FOLDER (with the program frostline)" >&2
    exit 2
fi
program=$(realpath "$1")/frostline
corpus=$(dirname "$(realpath "$0")")/corpus/fuzz_manifest
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache
cd "$work"

# 64 images of noise in two classes.
mkdir data
for split in train t10k; do
    {
        printf '\000\000\010\003\000\000\000\100\000\000\000\034\000\000\000\034'
        head -c $((64 * 784)) /dev/urandom
    } >data/$split-images-idx3-ubyte
    {
        printf '\000\000\010\001\000\000\000\100'
        for ((i = 0; i < 32; i++)); do printf '\000\001'; done
    } >data/$split-labels-idx1-ubyte
done
cat >job.yaml <<'END'
model:      {kind: vit, blocks: 2, dim: 16, heads: 2, patch: 7}
data:       {kind: idx, path: data}
train:      {epochs: 3, batch: 16}
devices:    {count: 2}
checkpoint: {every: 2 steps, keep: 1000}
END

# A run, from whose checkpoints the last and one in its middle become run-NAME-1 and run-NAME-2.
seed() { # name, further options of frostline run
    local name=$1 manifests i=0
    shift
    "$program" run job.yaml --run-dir "$name" "$@" >log 2>&1 || { cat log >&2 && exit 1; }
    mapfile -t manifests < <(printf '%s\n' "$name"/checkpoints/step-*/manifest.json)
    for manifest in "${manifests[@]: -1}" "${manifests[${#manifests[@]} / 2]}"; do
        i=$((i + 1))
        { printf 1 && head -n -2 "$manifest"; } >"$corpus/run-$name-$i"
        tail -n 2 "$manifest" | grep -q '^  "xxh64": ' || {
            echo "$0: the last member of a manifest is another one" >&2
            exit 1
        }
    done
}
rm -f "$corpus"/run-*
freeze=(--set freeze.start=10% --set 'freeze.every=1 step' --set freeze.keep=1 --set freeze.must_pay=false)
seed pipeline --set pipe.k=2 --set autodp.r=1 --set pipe.m=2
seed replicas --set pipe.k=1 --set autodp.r=2 --set train.optimizer=sgd
seed frozen "${freeze[@]}" --set freeze.policy=schedule --set 'freeze.list=[1]' --set elastic.enabled=false
seed thawed --set 'elastic.script=[{step: 3, f: 1}, {step: 6, f: 0, k: 2, r: 1}]'
seed best --set data.validation=25% --set train.metric=accuracy --set 'train.evaluate_every=1 steps' \
    --set 'train.stop_after=2 epochs'
seed shrunk --set devices.count=3 --set 'elastic.script=[{step: 4, k: 1, r: 1}]'
seed skipped --set train.lr=100 --set train.clip=1e9 --set train.optimizer=sgd --set train.on_nonfinite=skip
seed gradnorm "${freeze[@]}" --set freeze.policy=gradnorm
seed stability "${freeze[@]}" --set freeze.policy=stability
ls -l "$corpus"/run-*
