#!/usr/bin/env bash
# A failure about a field of the job carries the field (fl_fail_field): a path that stands only in
# the words of a message is never found in the job's file.
set -uo pipefail
cd "$1" || exit 1
paths=$(grep -ohE '\.path = "[a-z]+\.[a-z_]+"' launcher/job/schema/schema_*.c | grep -oE '"[^"]*"' | tr -d '"' | sort -u)
if [ "$(wc -l <<<"$paths")" -lt 40 ]; then
    echo "only a few fields found in launcher/job/schema/schema_*.c: this test looks in the wrong place"
    exit 1
fi
pattern=$(paste -sd '|' <<<"${paths//./\\.}")
failed=0
while IFS= read -r file; do
    # One line a file, so that a call and its message are found together.
    found=$(tr '\n' ' ' <"$file" | grep -oE "fl_(fail|within)\([^\"();]*\"($pattern)[:\"]" | tr -s ' ')
    if [ -n "$found" ]; then
        echo "$file: use fl_fail_field for: $found"
        failed=1
    fi
done < <(find autodp cache control data device freeze launcher nn pipe -name '*.c')
exit $failed
