#!/usr/bin/env bash
# docs/exit-codes.md has a row for each exit code that `frostline --help` lists, and no other. Would
# catch: a code that a scheduler gets and no page explains.
set -uo pipefail
helped=$("$2/frostline" --help | sed -n '/^exit codes:/,$ s/^ *\([0-9][0-9]*\) .*/\1/p' | sort -n)
told=$(sed -n '/^| code | means/,/^$/ s/^| \([0-9][0-9]*\) |.*/\1/p' "$1/docs/exit-codes.md" | sort -n)
if [ "$(wc -w <<<"$helped")" -lt 5 ]; then
    echo "frostline --help lists the exit codes '$helped': this test looks in the wrong place"
    exit 1
fi
if [ "$helped" != "$told" ]; then
    diff <(echo "$helped") <(echo "$told")
    echo "left: frostline --help; right: docs/exit-codes.md"
    exit 1
fi
