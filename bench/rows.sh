# Tables of runs: rows in turn, seed by seed. Sourced after common.sh, not run.
# shellcheck shell=bash
#
# A row is NAME or NAME:FIELD=VALUE;FIELD=VALUE... The script that sources this file sets
#   table  the name of the run directories and of the file of results below build/bench
#   seeds  "0 1 2"
#   all    FIELD=VALUE;... of all rows
#   keep   not empty: runs that an earlier call with the same rows finished are kept
# and defines
#   train_row DIR NAME SEED ARGUMENT...   train in build/bench/DIR, with --set FIELD=VALUE of the row
#   is_finished DIR                       whether an earlier call trained there to the end
#   measure_row DIR                       print seconds and accuracies, shares of 1
# Each row is compared with the first one of the same seed: the machine may be slower in one minute
# than in another.

# shellcheck disable=SC2154 # table, seeds, all, keep and out_dir are set by that script

row_names=()

# settings_of ROW: its fields and those of all rows, one a line.
settings_of() {
    local fields=
    case $1 in
    *:*) fields=${1#*:} ;;
    esac
    tr ';' '\n' <<<"$all;$fields" | sed '/^$/d'
}

# run_rows ROW...
run_rows() {
    local seed asked dir row settings line
    results=$out_dir/$table.txt
    : >"$results"
    for seed in $seeds; do
        row=0
        for asked in "$@"; do
            row_names[row]=${asked%%:*}
            settings=()
            while read -r line; do
                settings+=(--set "$line")
            done < <(settings_of "$asked")
            dir=$table-$row-$seed
            if [ -z "$keep" ] || ! is_finished "$dir"; then
                train_row "$dir" "${row_names[row]}" "$seed" "${settings[@]}"
            fi
            echo "$row $(measure_row "$dir")" >>"$results"
            echo "seed $seed, ${row_names[row]}: $(tail -n 1 "$results" | cut -d' ' -f2-)" >&2
            row=$((row + 1))
        done
    done
}

# values ROW COLUMN: of all seeds, one a line.
values() {
    awk -v row="$1" -v column="$2" '$1 == row { print $column }' "$results"
}

# ratios ROW: seconds of the first row / seconds of this one, seed by seed.
ratios() {
    paste -d' ' <(values 0 2) <(values "$1" 2) | awk '{ print $1 / $2 }'
}

mean() {
    awk '{ s += $1 } END { printf "%.5f", s / NR }'
}

# plan_of DIR: K x R at the beginning and at the end.
plan_of() {
    [ -f "$out_dir/$1/steps.jsonl" ] || return 0
    sed -nE 's/.*"k": ?([0-9]+),.*"r": ?([0-9]+),.*/\1x\2/p' "$out_dir/$1/steps.jsonl" |
        awk 'NR == 1 { first = $0 } { last = $0 } END { print first == last ? first : first " to " last }'
}

# print_rows ACCURACY...: the table in Markdown; ACCURACY names each accuracy that measure_row prints.
print_rows() {
    local row column accuracy cells
    printf '| run | K x R | seconds | times faster |'
    for accuracy in "$@"; do
        printf ' %s, %% | points | seeds |' "$accuracy"
    done
    printf '\n|---|---|---|---|'
    printf -- '---|---|---|%.0s' "$@"
    printf '\n'
    for ((row = 0; row < ${#row_names[@]}; row++)); do
        cells=
        for ((column = 3; column < 3 + $#; column++)); do
            cells+=$(awk -v a="$(values $row $column | mean)" -v b="$(values 0 $column | mean)" \
                -v each="$(values $row $column |
                    awk '{ printf "%s%.2f", NR == 1 ? "" : ", ", 100 * $1 }')" \
                'BEGIN { printf " %.2f | %+.2f | %s |", 100 * a, 100 * (a - b), each }')
        done
        awk -v n="${row_names[row]}" -v p="$(plan_of "$table-$row-${seeds%% *}")" \
            -v s="$(values $row 2 | median)" -v r="$(ratios $row | median)" -v cells="$cells" \
            'BEGIN { printf "| %s | %s | %.1f | %.1f |%s\n", n, p, s, r, cells }'
    done
}
