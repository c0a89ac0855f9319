#!/usr/bin/env bash
# Every relative link of the pages leads to a file that exists, and every anchor to a heading, named
# by GitHub's rule. A wrong link is reported with its file and line.
set -uo pipefail
cd "$1" || exit 1
failed=0

# The anchors of a page, one a line: lower case; only letters, digits, '_' and '-' remain; a space
# becomes '-'; the second heading of the same name gets "-1", the third "-2".
anchors() {
    awk '/^ *```/ { fence = !fence; next } !fence && /^#+ / { sub(/^#+ +/, ""); print }' "$1" |
        LC_ALL=C.UTF-8 sed -E 's/!?\[([^]]*)\]\([^)]*\)/\1/g; s/ +$//; s/.*/\L&/
            s/[^[:alnum:]_ -]//g; s/ /-/g' |
        awk '{ n = seen[$0]++; print $0 (n ? "-" n : "") }'
}

# The links of a page, one a line, "line<TAB>target"; not those to other sites, nor code.
links() {
    awk '/^ *```/ { fence = !fence; next }
        fence { next }
        match($0, /^\[[^]]+\]: +/) { $0 = "](" substr($0, RLENGTH + 1) ")" }
        {
            while (match($0, /\]\([^)]+\)/)) {
                target = substr($0, RSTART + 2, RLENGTH - 3)
                $0 = substr($0, RSTART + RLENGTH)
                sub(/ .*/, "", target) # a title may follow
                if (target !~ /^[a-z]+:/) {
                    print NR "\t" target
                }
            }
        }' "$1"
}

declare -A anchors_of=() # of each page that a link names an anchor of
n_links=0
n_anchors=0

# Check one link of `page`; print what is wrong with it.
check_link() {
    local page=$1 line=$2 target=$3 path=$1
    n_links=$((n_links + 1))
    [[ $target == '#'* ]] || path=$(dirname "$page")/${target%%#*}
    if [ ! -e "$path" ]; then
        echo "$page:$line: the link $target: there is no $path"
        return 1
    fi
    [[ $target == *'#'* && $path == *.md ]] || return 0
    n_anchors=$((n_anchors + 1))
    [ -n "${anchors_of[$path]+known}" ] || anchors_of[$path]=$'\n'$(anchors "$path")$'\n'
    if [[ ${anchors_of[$path]} != *$'\n'"${target#*#}"$'\n'* ]]; then
        echo "$page:$line: the link $target: no heading of $path has the anchor #${target#*#}"
        return 1
    fi
}

check_page() {
    local line target status=0
    while IFS=$'\t' read -r line target; do
        check_link "$1" "$line" "$target" || status=1
    done < <(links "$1")
    return $status
}

while read -r page; do
    check_page "$page" || failed=1
done < <(
    ls README.md ARCHITECTURE.md
    find . -maxdepth 1 -name 'CONTRIBUTING*'
    find docs -name '*.md' | sort
)
if [ $n_links -lt 100 ] || [ $n_anchors -lt 20 ]; then
    echo "only $n_links links and $n_anchors anchors found: this test looks in the wrong place"
    failed=1
fi

# The check itself: of this page's links, the last three are wrong.
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
cat > "$folder/page.md" << 'END'
# When it's lost: `ctl status`, A/B
## Twice
## Twice
[self](#when-its-lost-ctl-status-ab) [second](page.md#twice-1) [site](https://example.org/#none)
```
[code](nowhere.md)
```
[heading](#when-its-lost) and
[other](page.md#twice-2), [file](nowhere.md)
END
found=$(check_page "$folder/page.md" | sed "s|$folder/||g" | cut -d: -f1-3)
wanted='page.md:8: the link #when-its-lost
page.md:9: the link page.md#twice-2
page.md:9: the link nowhere.md'
if [ "$found" != "$wanted" ]; then
    printf 'of a page with three wrong links, these were found:\n%s\n' "$found"
    failed=1
fi
exit $failed
