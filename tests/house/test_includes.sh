#!/usr/bin/env bash
# Calls go one way: a folder includes only from itself and from those before it, a program in
# examples/ only <frostline...>, and every public header compiles alone, as C11 and as C++14.
set -uo pipefail
cd "$1" || exit 1
failed=0

fail() {
    echo "$*"
    failed=1
}

allowed_of() {
    case $1 in
    device) echo device ;;
    nn | data) echo "device $1" ;;
    freeze | cache | autodp) echo "device nn data $1" ;;
    pipe) echo "device nn data freeze cache autodp pipe" ;;
    control) echo "device nn data freeze cache autodp pipe control" ;;
    launcher) echo "device nn data freeze cache autodp pipe control launcher" ;;
    esac
}

n_includes=0
for folder in device nn data freeze cache autodp pipe control launcher; do
    [ -d "$folder" ] || continue
    allowed=" $(allowed_of "$folder") "
    while IFS=: read -r file line include; do
        n_includes=$((n_includes + 1))
        path=${include#*\"}
        path=${path%%\"*}
        case $path in
        */*) ;;
        *) fail "$file:$line: \"$path\" is not written from the root of the tree" && continue ;;
        esac
        [[ $allowed == *" ${path%%/*} "* ]] ||
            fail "$file:$line: $folder/ must not include \"$path\" (allowed:$allowed)"
    done < <(grep -rnE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"' "$folder" --include='*.[ch]' --include='*.cc')
done
[ $n_includes -gt 20 ] || fail "only $n_includes includes found: this test looks in the wrong place"

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
