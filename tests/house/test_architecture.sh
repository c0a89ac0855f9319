#!/usr/bin/env bash
# ARCHITECTURE.md is a tour of what exists: every path that it names is in the tree, and every
# function and type is in the code. So are those of README.md and docs/.
set -uo pipefail
cd "$1" || exit 1
failed=0

fail() {
    echo "$*"
    failed=1
}

# What stands between backquotes, one a line, "file<TAB>text".
quoted() {
    awk -v file="$1" '/^```/ { fence = !fence; next }
        !fence { n = split($0, part, "`"); for (i = 2; i <= n; i += 2) print part[i] }' "$1"
}

exists() {
    local matches
    matches=$(compgen -G "$1") && [ -n "$matches" ]
}

n_paths=0
n_names=0
documents=(ARCHITECTURE.md README.md)
while read -r page; do documents+=("$page"); done < <(find docs -name '*.md' | sort)
for document in "${documents[@]}"; do
    while IFS= read -r text; do
        case $text in
        *' '* | *'<'* | *'{'* | '~'* | /* | runs/* | build/* | -*) ;;
        */*.* | */ | */* | *.md | *.sh | *.yaml)
            case $text in
            *.jsonl | *:* | *=* | *\|* | *'('*) continue ;;
            esac
            # Only what begins like a folder or a file of the tree is taken for a path.
            first=${text#./}
            first=${first%%/*}
            [ -e "$first" ] || [[ $first == *.md ]] || continue
            n_paths=$((n_paths + 1))
            exists "${text#./}" || exists "docs/$text" || fail "$document: there is no $text"
            ;;
        esac
    done < <(quoted "$document")
    while IFS= read -r name; do
        n_names=$((n_names + 1))
        grep -rqwE --include='*.[ch]' --include='*.cc' --include='*.cmake' --include=check \
            --include='*.txt' -e "$name" include device nn data freeze cache autodp pipe control \
            launcher tests cmake check 2>/dev/null ||
            fail "$document: nothing is called $name"
    done < <(quoted "$document" | grep -oE '\b(fl|FL)_[A-Za-z0-9_]*[A-Za-z0-9]\b' | sort -u)
done
if [ $n_paths -le 20 ] || [ $n_names -le 10 ]; then
    fail "only $n_paths paths and $n_names names found: this test looks in the wrong place"
fi
exit $failed
