#!/usr/bin/env bash
# Names tell what they are for: no two headers give a type the same name, and in the folders that are
# listed here no file-local function is a verb alone ("put" what?), and no file-local type shares its
# name with a type of another file.
set -uo pipefail
cd "$1" || exit 1
failed=0

# Folders whose functions have their nouns; a folder joins when its last bare verb is gone.
done_folders='data cache freeze control launcher'
verbs='add|answer|apply|ask|begin|cancel|check|choose|close|commit|compare|copy|count|describe|dispatch'
verbs+='|drain|draw|end|explain|fill|find|finish|forget|gather|get|hear|heard|judge|keep|load|look|make'
verbs+='|measure|move|moved|note|open|parse|prepare|print|publish|put|read|record|refuse|release|report'
verbs+='|rest|run|save|say|send|set|set_up|settle|show|skip|start|stop|take|tell|update|wait|watch|weigh'
verbs+='|write'

# shellcheck disable=SC2086
bare=$(grep -rnE "^static [a-z_0-9 ]+[ *]($verbs)\(" --include='*.c' $done_folders)
if [ -n "$bare" ]; then
    echo "a file-local function needs a noun beside its verb:"
    echo "$bare"
    failed=1
fi

# "name file" of each type that a header defines.
types=$(grep -rnoE '^(typedef )?(struct|enum|union) [a-z_0-9]+ \{' --include='*.h' include device nn data \
    freeze cache autodp pipe control launcher | awk -F '[: ]' '{ print $(NF - 1), $1 }' | sort -u)
while read -r name; do
    echo "two headers have a type called $name: $(awk -v n="$name" '$1 == n { print $2 }' <<<"$types" | xargs)"
    failed=1
done < <(cut -d' ' -f1 <<<"$types" | uniq -d)
# A file-local type of these folders has a name that no other file gives to a type.
tags=$(grep -rnoE '^(typedef )?(struct|enum|union) [a-z_0-9]+ \{' --include='*.[ch]' include device nn data \
    freeze cache autodp pipe control launcher | awk -F '[: ]' '{ print $(NF - 1), $1 }' | sort -u)
while read -r name; do
    files=$(awk -v n="$name" '$1 == n { print $2 }' <<<"$tags" | xargs)
    if grep -qE "(^| )(${done_folders// /|})/" <<<"$files"; then
        echo "several files have a type called $name: $files"
        failed=1
    fi
done < <(cut -d' ' -f1 <<<"$tags" | uniq -d)
if [ "$(wc -l <<<"$types")" -lt 100 ]; then
    echo "too few types found: this test looks in the wrong place"
    failed=1
fi
exit $failed
