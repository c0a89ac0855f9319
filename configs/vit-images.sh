#!/usr/bin/env bash
# A vision transformer on image files: make a folder for each class, start the run.
set -euo pipefail

usage() {
    cat <<'TEXT'
usage: configs/vit-images.sh DATA [OPTION of frostline run]...

DATA  a folder with the four idx files of Fashion-MNIST, as Debian's package dataset-fashion-mnist has
      them in /usr/share/datasets/fashion-mnist, or the archive cifar-10-binary.tar.gz

The images become PNG files in .cache/vit-images, once for each DATA. FROSTLINE names the program if
it is not build/release/frostline; IMAGES is the most images that are taken of each split.
TEXT
}

if [ $# -lt 1 ] || [ "$1" = --help ]; then
    usage
    [ $# -ge 1 ] && exit 0
    exit 2
fi
data=$(realpath -m "$1")
shift
cd "$(dirname "$0")/.."
cache=.cache/vit-images
made_from="$data ${IMAGES:-all}"
if [ "$(cat "$cache/made_from" 2>/dev/null)" != "$made_from" ]; then
    rm -rf "$cache" "$cache.part"
    python3 configs/make_image_folders.py "$data" "$cache.part" ${IMAGES:+"$IMAGES"}
    echo "$made_from" >"$cache.part/made_from"
    mv "$cache.part" "$cache"
fi
"${FROSTLINE:-build/release/frostline}" run configs/vit-images.yaml "$@"
