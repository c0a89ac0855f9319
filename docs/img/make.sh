#!/usr/bin/env bash
# Draw what a command really leaves on a terminal: docs/img/make.sh OUT.svg COMMAND...
# Runs it in tmux, 100 columns wide, and turns the screen into an SVG. docs/img/quickstart.svg is
#   docs/img/make.sh docs/img/quickstart.svg ./quickstart --again
set -euo pipefail
if [ $# -lt 2 ]; then
    sed -n '2,4s/^# //p' "$0" >&2
    exit 2
fi
if ! command -v tmux >/dev/null; then
    echo "$0: needs tmux" >&2
    exit 2
fi
out=$1
shift
session=frostline-picture-$$
done_file=$(mktemp)
rm "$done_file"
printf -v command '%q ' "$@"
tmux new-session -d -s $session -x 100 -y 60 "echo '\$ $*'; $command; touch $done_file; sleep 60"
trap 'tmux kill-session -t $session 2>/dev/null || true; rm -f "$done_file"' EXIT
for ((i = 0; i < 6000; i++)); do
    if [ -e "$done_file" ]; then
        break
    fi
    sleep 0.1
done
tmux capture-pane -p -t $session | awk '
    { sub(/ +$/, ""); lines[NR] = $0; if ($0 != "") last = NR }
    END {
        step = 18
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"860\" height=\"%d\" ", last * step + 40
        print "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13.5\">"
        print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10151c\"/>"
        for (i = 1; i <= last; i++) {
            gsub(/&/, "\\&amp;", lines[i]); gsub(/</, "\\&lt;", lines[i]); gsub(/>/, "\\&gt;", lines[i])
            fill = lines[i] ~ /^\$ / ? "#7fd1ff" : lines[i] ~ /^(done|epoch)/ ? "#e8f0f7" : "#b7c3cf"
            printf "<text x=\"20\" y=\"%d\" fill=\"%s\" xml:space=\"preserve\">%s</text>\n", i * step + 14, fill, lines[i]
        }
        print "</svg>"
    }' >"$out"
