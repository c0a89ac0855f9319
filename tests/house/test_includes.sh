#!/usr/bin/env bash
# Calls go one way: a folder includes only from itself and from folders below it, and within a folder
# a room (subfolder) includes only from itself and from rooms below it. A program in examples/
# includes only <frostline...>, and every public header compiles alone, as C11 and as C++14.
set -uo pipefail
cd "$1" || exit 1
failed=0

fail() {
    echo "$*"
    failed=1
}

# "place: what it may include from", lowest first. A place with rooms names each of them; "folder/."
# stands for the files that lie in the folder itself.
order='
device: device
nn: device nn
data: device data
freeze: device nn data freeze
cache: device nn data cache
autodp/net: device nn data autodp/net
autodp/group: device nn data autodp/net autodp/group
autodp/.: device nn data autodp/net autodp/group autodp/.
pipe/plan: device nn data freeze cache autodp pipe/plan
pipe/measure: device nn data freeze cache autodp pipe/plan pipe/measure
pipe/state: device nn data freeze cache autodp pipe/plan pipe/state
pipe/step: device nn data freeze cache autodp pipe/plan pipe/state pipe/step
control/link: device nn data freeze cache autodp pipe control/link
control/state: device nn data freeze cache autodp pipe control/link control/state
control/events: device nn data freeze cache autodp pipe control/link control/state control/events
control/observe: device nn data freeze cache autodp pipe control/link control/state control/events control/observe
control/elastic: device nn data freeze cache autodp pipe control/link control/state control/events control/observe control/elastic
control/socket: device nn data freeze cache autodp pipe control/link control/state control/events control/observe control/elastic control/socket
control/controller: device nn data freeze cache autodp pipe control/link control/state control/events control/observe control/elastic control/socket control/controller
launcher/job: device nn data freeze cache autodp pipe control launcher/job
launcher/worker: device nn data freeze cache autodp pipe control launcher/job launcher/worker
launcher/run: device nn data freeze cache autodp pipe control launcher/job launcher/worker launcher/run
launcher/report: device nn data freeze cache autodp pipe control launcher/job launcher/run launcher/report
launcher/cli: device nn data freeze cache autodp pipe control launcher/job launcher/worker launcher/run launcher/report launcher/cli
launcher/top: device nn data freeze cache autodp pipe control launcher/job launcher/run launcher/cli launcher/top
'

# The line of `order` that a file or an included path belongs to; nothing if there is none.
place_of() {
    local folder=${1%/*} place
    for place in "$folder" "${folder%%/*}/." "${folder%%/*}"; do
        if [[ $place == */. && $folder == */* ]]; then
            continue # a file of a room does not lie in the folder itself
        fi
        if [[ $order == *$'\n'"$place: "* ]]; then
            echo "$place"
            return
        fi
    done
}

allowed_of() {
    sed -n "s|^$1: ||p" <<<"$order"
}

n_includes=0
while IFS=: read -r file line include; do
    n_includes=$((n_includes + 1))
    path=${include#*\"}
    path=${path%%\"*}
    if [[ $path != */* ]]; then
        fail "$file:$line: \"$path\" is not written from the root of the tree"
        continue
    fi
    from=$(place_of "$file")
    to=$(place_of "$path")
    allowed=" $(allowed_of "$from") "
    [ -n "$from" ] || fail "$file: its room is not in the order that this test knows"
    [[ -n $to && ($allowed == *" $to "* || $allowed == *" ${to%%/*} "*) ]] ||
        fail "$file:$line: ${from:-it} must not include \"$path\" (allowed:$allowed)"
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' \
    device nn data freeze cache autodp pipe control launcher --include='*.[ch]' --include='*.cc')
[ $n_includes -gt 500 ] || fail "only $n_includes includes found: this test looks in the wrong place"

while IFS=: read -r file line include; do
    fail "$file:$line: public headers include only <...>: $include"
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' include)
while IFS=: read -r file line include; do
    fail "$file:$line: an example includes only <...>: $include"
done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' examples --include='*.c')

for header in include/frostline.h include/frostline/*.h; do
    name=${header#include/}
    echo "#include <$name>" | "${CC:-cc}" -std=c11 -Wall -Wextra -pedantic -Werror -Iinclude \
        -fsyntax-only -x c - || fail "$header does not compile alone as C11"
    echo "#include <$name>" | "${CXX:-c++}" -std=c++14 -Wall -Wextra -pedantic -Werror -Iinclude \
        -fsyntax-only -x c++ - || fail "$header does not compile alone as C++14"
done
exit $failed
