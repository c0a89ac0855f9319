#!/usr/bin/env bash
# Calls go one way, like includes: no object file refers to a function or a variable that a room above
# its own defines. An include is not needed for that: a declaration of one's own would do.
set -uo pipefail
cd "$1" || exit 1
build=$2
. tests/house/rooms.sh
objects=$(mktemp)
trap 'rm -f "$objects"' EXIT

# One line for each symbol of each object file: "place kind symbol", kind U for undefined.
symbols() {
    local object source folder
    declare -A rooms
    while read -r object; do
        source=${object#*.dir/}
        source=${source%.o}
        [ -e "$source" ] || continue # left over from a file that was moved
        folder=${source%/*}
        [ -n "${rooms[$folder]+known}" ] || rooms[$folder]=$(place_of "$source")
        [ -n "${rooms[$folder]}" ] || echo "- - $source"
        echo "place $object ${rooms[$folder]}"
    done < <(find "$build"/CMakeFiles/frostline*.dir -name '*.o') | awk -v objects="$objects" '
        $1 == "-" { print; next }
        { place[$2] = $3; print $2 >objects }
        END {
            close(objects)
            command = "xargs nm -A <" objects
            while ((command | getline) > 0) {
                object = $1
                sub(/:[^:]*$/, "", object)
                print place[object], $(NF - 1), $NF
            }
        }'
}

{
    sed -n 's/^\([^:]*\): \(.*\)/order \1 \2/p' <<<"$order"
    symbols
} | awk '
    $1 == "order" { for (i = 3; i <= NF; i++) allowed[$2, $i] = 1; next }
    $1 == "-" { print $3 ": its room is not in the order that this test knows"; failed = 1; next }
    $3 !~ /^fl_/ { next }
    $2 ~ /^[TDBRGSC]$/ { home[$3] = $1; n_defined++; next }
    $2 == "U" { used[$1 " " $3] = 1 }
    END {
        for (use in used) {
            split(use, part, " ")
            from = part[1]
            to = home[part[2]]
            folder = to
            while (!((from, folder) in allowed) && sub("/[^/]*$", "", folder)) {
            }
            if (to == "" || from == to || (from, folder) in allowed) {
                n_good++
                continue
            }
            print from " must not use " part[2] " of " to
            failed = 1
        }
        if (n_defined < 500 || n_good < 500) {
            print "only " n_defined " symbols and " n_good " uses found: this test looks in the wrong place"
            failed = 1
        }
        exit failed
    }'
