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

. tests/house/rooms.sh

# Looked up once for each folder.
declare -A rooms below
n_includes=0
while IFS=: read -r file line include; do
    n_includes=$((n_includes + 1))
    path=${include#*\"}
    path=${path%%\"*}
    if [[ $path != */* ]]; then
        fail "$file:$line: \"$path\" is not written from the root of the tree"
        continue
    fi
    [ -n "${rooms[${file%/*}]+known}" ] || rooms[${file%/*}]=$(place_of "$file")
    [ -n "${rooms[${path%/*}]+known}" ] || rooms[${path%/*}]=$(place_of "$path")
    from=${rooms[${file%/*}]}
    to=${rooms[${path%/*}]}
    [ -n "${below[$from.]+known}" ] || below[$from.]=" $(allowed_of "$from") "
    allowed=${below[$from.]}
    [ -n "$from" ] || fail "$file: its room is not in the order that this test knows"
    { [ -n "$to" ] && has_place "$allowed" "$to"; } ||
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
