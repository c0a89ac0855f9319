#!/usr/bin/env bash
# Draw the screen of a program in a terminal, with its colours:
#   docs/img/screen.sh OUT.svg COLUMNSxLINES TEXT KEYS COMMAND...
# TEXT is a regular expression that the screen of the running program has to match; then KEYS are
# typed ("" for none), as tmux names them. "" for TEXT draws what is there when the command has ended,
# below the command itself. What stands for this machine (its folders, its user's home) is not in the
# picture. docs/img/quickstart.svg, and, while configs/quickstart.yaml trained, docs/img/top-80.svg and
# docs/img/top-200.svg were made as in
#   docs/img/screen.sh docs/img/quickstart.svg 100x60 '' '' ./quickstart --again
#   docs/img/screen.sh docs/img/top-80.svg 80x24 'F [1-8]/8' '' build/release/frostline top
set -euo pipefail
if [ $# -lt 5 ]; then
    sed -n '2,10s/^# //p' "$0" >&2
    exit 2
fi
if ! command -v tmux >/dev/null; then
    echo "$0: needs tmux" >&2
    exit 2
fi
out=$1 columns=${2%x*} lines=${2#*x} text=$3 keys=$4
shift 4
session=frostline-screen-$$
printf -v command '%q ' "$@"
command="LC_ALL=C.UTF-8 TERM=tmux-256color $command; tmux wait-for -S $session; sleep 60"
if [ -z "$text" ]; then
    printf -v shown '%q' "$*"
    command="printf '\\033[36m\$ %s\\033[m\\n' $shown; $command"
fi
tmux -u new-session -d -s "$session" -x "$columns" -y "$lines" "$command"
trap 'tmux kill-session -t "$session" 2>/dev/null || true' EXIT
if [ -z "$text" ]; then
    timeout 600 tmux wait-for "$session"
else
    for ((i = 0; i < 6000; i++)); do
        if tmux capture-pane -p -t "$session" | grep -qE "$text"; then
            break
        fi
        sleep 0.1
    done
fi
sleep 1
if [ -n "$keys" ]; then
    tmux send-keys -t "$session" "$keys"
    sleep 1
fi
# A folder goes to the end of its text as blanks, so that what stands beside it does not move.
here=$PWD/ no_here=$(printf '%*s' $((${#PWD} + 1)) '') no_home=$(printf '%*s' $((${#HOME} - 1)) '')
tmux capture-pane -e -p -t "$session" |
    sed -E "s#$here([^…]*…?)#\\1$no_here#; s#$HOME([^…]*…?)#~\\1$no_home#" | LC_ALL=C awk -v columns="$columns" '
    BEGIN {
        cell = 8.1; step = 17
        split("#e0655f #6cc574 #d9b458 #5b8fd9 #c47fd0 #58c4c9 #dfe7ee", colour, " ")
        reset()
    }
    function reset() { fill = "#dfe7ee"; bold = dim = reverse = 0 }
    function sgr(codes,   n, i, part) {
        n = split(codes, part, ";")
        if (n == 0) reset()
        for (i = 1; i <= n; i++) {
            if (part[i] == 0) reset()
            else if (part[i] == 1) bold = 1
            else if (part[i] == 2) dim = 1
            else if (part[i] == 7) reverse = 1
            else if (part[i] == 22) bold = dim = 0
            else if (part[i] == 27) reverse = 0
            else if (part[i] >= 31 && part[i] <= 37) fill = colour[part[i] - 30]
            else if (part[i] == 39) fill = "#dfe7ee"
        }
    }
    function cells(run) { # of UTF-8, byte by byte: those that begin a character
        gsub(/[\200-\277]/, "", run)
        return length(run)
    }
    function put(run,   n, word) {
        if (reverse)
            body = body sprintf("<rect x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\" fill=\"%s\"/>\n", \
                16 + x * cell, NR * step, cells(run) * cell, step, fill)
        while (match(run, /[^ ]+/)) { # word by word: blanks of SVG are not to be relied on
            word = substr(run, RSTART, RLENGTH)
            x += RSTART - 1
            run = substr(run, RSTART + RLENGTH)
            n = cells(word)
            gsub(/&/, "\\&amp;", word); gsub(/</, "\\&lt;", word); gsub(/>/, "\\&gt;", word)
            body = body sprintf("<text x=\"%.1f\" y=\"%d\" textLength=\"%.1f\" fill=\"%s\"%s%s>%s</text>\n", \
                16 + x * cell, NR * step + 13, n * cell, reverse ? "#10151c" : fill, \
                bold ? " font-weight=\"bold\"" : "", dim ? " opacity=\"0.6\"" : "", word)
            x += n
        }
        x += length(run)
    }
    {
        x = 0; rest = $0
        while (match(rest, /\033\[[0-9;]*m/)) {
            before = substr(rest, 1, RSTART - 1)
            codes = substr(rest, RSTART + 2, RLENGTH - 3)
            rest = substr(rest, RSTART + RLENGTH)
            put(before)
            sgr(codes)
        }
        put(rest)
        if (x > 0) last = NR
    }
    END {
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" ", columns * cell + 32, last * step + 32
        print "font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13.4\">"
        print "<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10151c\"/>"
        printf "%s</svg>\n", body
    }' >"$out"
