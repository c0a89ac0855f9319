#!/usr/bin/env bash
# What README.md and docs/ tell people to type exists: scripts, subcommands and options of the program.
set -uo pipefail
cd "$1" || exit 1
program=$2/frostline
failed=0

fail() {
    echo "$*"
    failed=1
}

# What the fenced blocks of a page tell to type: all lines of sh, those behind a prompt in others.
commands() {
    awk '/^```/ { fence = !fence; shell = fence && /^```sh/; next }
        fence && (shell || /^\$ /) { sub(/^\$ /, ""); print }' "$1"
}

help=$("$program" --help 2>&1) || fail "frostline --help failed"
n_commands=0
while read -r page; do
    while read -r word rest; do
        case $word in
        ./*)
            n_commands=$((n_commands + 1))
            [[ $word == ./build/* ]] || [ -x "$word" ] || [[ $word == *.* ]] ||
                fail "$page: there is no command $word"
            ;;
        frostline | build/release/frostline)
            n_commands=$((n_commands + 1))
            subcommand=${rest%% *}
            [[ $help == *"$subcommand"* ]] || fail "$page: frostline has no '$subcommand'"
            ;;
        esac
        for argument in $rest; do
            case $argument in
            configs/*.yaml | bench/*.sh | examples/*.c)
                [ -e "$argument" ] || fail "$page: there is no $argument"
                ;;
            esac
        done
    done < <(commands "$page")
done < <(echo README.md && find docs -name '*.md' | sort)
[ $n_commands -gt 5 ] || fail "only $n_commands commands found: this test looks in the wrong place"

# Every page is on the list of pages.
for page in docs/*.md; do
    [ "$page" = docs/README.md ] || grep -qF "(${page#docs/})" docs/README.md ||
        fail "docs/README.md does not list $page"
done

# setup and docs/dependencies.md name the same packages.
in_setup=$(sed -nE "/^(product|check)_packages=/,/^'/s/^([a-z][a-z0-9.+-]*)\|.*/\1/p" setup | sort)
# shellcheck disable=SC2016
in_page=$(sed -nE 's/^\| `([a-z][a-z0-9.+-]*)` \|.*/\1/p' docs/dependencies.md | sort)
if [ "$in_setup" != "$in_page" ]; then
    fail "setup and docs/dependencies.md name different packages:"
    diff <(echo "$in_setup") <(echo "$in_page")
fi
exit $failed
