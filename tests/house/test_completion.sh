#!/usr/bin/env bash
# The completion for bash, fish and zsh offers what there is: commands, their options, the words of
# ctl, runs, fields. A shell that is not installed is named as skipped.
# The functions are called by names that are put together.
# shellcheck disable=SC2317
set -uo pipefail
cd "$2" || exit 1
PATH=$PWD:$PATH
failed=0
work=$PWD/tests/completion
share=$PWD/share
rm -rf "$work"
# Names are data: a shell that expanded them would run the touch.
for name in first-run "my run" "a\$(touch\${IFS}EXECUTED)"; do
    mkdir -p "$work/runs/$name"
    touch "$work/runs/$name/job.yaml"
done
mkdir "$work/runs/first-run-node7" # the logs of another host: no run

# A run on several hosts answers.
mkdir "$work/bin"
cat >"$work/bin/frostline" <<TEXT
#!/bin/sh
case "\$*" in
"ctl status --timeout 2" | "ctl first-run status --timeout 2") ;;
*) exec '$PWD/frostline' "\$@" ;;
esac
cat <<STATUS
job         vit
hosts
  name  address   state    first_worker
  nodea 10.0.0.1  joined              0
  nodeb 10.0.0.2  drained             1
  nodec 10.0.0.3  joined              2
links
  between  latency_us
  nodex    10.0.0.4  joined
STATUS
TEXT
chmod +x "$work/bin/frostline"
PATH=$work/bin:$PATH

# The words typed so far, the last one to be completed; "=" and all that is offered.
cases=(
    "frostline va|validate"
    "frostline c|check-model ctl"
    "frostline check-model job.yaml --l|--layer"
    "frostline ctl pau|pause"
    "frostline ctl first-run st|status stop"
    "frostline ctl --j|--json"
    "frostline ctl drain h|host"
    "frostline ctl first-run drain w|worker"
    "frostline ctl drain host nod|nodec"
    "frostline ctl first-run drain host nod|nodec"
    "frostline ctl stop ep|epoch"
    "frostline ctl set freeze.a|freeze.alpha"
    "frostline manifest job.yaml --kind jobs|jobset"
    "frostline export first-run --dtype bf|bf16"
    "frostline run --run|--run-dir"
    "frostline top --o|--once"
    "frostline top fir|first-run"
    "frostline rep|report"
    "frostline report my|my run"
    "frostline report a|a\$(touch\${IFS}EXECUTED)"
    "frostline exp|export"
    "frostline export --f|--format"
    "frostline tokenize --pie|--pieces"
    "frostline report --o|--out"
    "frostline help led|ledger"
    "frostline schema train.lab|"
    "frostline schema train.warm|train.warmup"
    "frostline run job.yaml --set train.warm|train.warmup"
)

# shellcheck source=/dev/null
. "$share/bash-completion/completions/frostline"
offer_in_bash() {
    read -ra COMP_WORDS <<<"$1"
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _frostline
    echo "${COMPREPLY[*]}"
}

offer_in_fish() {
    fish --no-config -c "source $share/fish/vendor_completions.d/frostline.fish
        complete -C '$1' | string replace -r '\t.*' '' | sort" </dev/null | paste -sd' '
}

# A zsh in a terminal of its own completes the line; ctrl-x prints the line. What a menu offers cannot
# be read, but a single match stands in the line afterwards.
offer_in_zsh() {
    local line
    line=$(timeout 30 zsh -f -s -- "$share/zsh/vendor-completions" "$1" <<'TEXT'
zmodload zsh/zpty
zpty shell zsh -f -i
zpty -w shell "fpath=($1 \$fpath); autoload -U compinit; compinit -u -D; PS1=; unsetopt beep
show_line() { print -r -- \"<<\$BUFFER>>\"; BUFFER=; zle accept-line }
zle -N show_line; bindkey '^X' show_line; bindkey '^I' complete-word; print -r re''ady"
zpty -r shell found '*ready*'
zpty -n -w shell $2$'\t\x18'
zpty -r shell found '*<<*>>*'
found=${found##*<<}
print -r -- ${found%%>>*}
zpty -d shell
TEXT
    )
    line=${line%[ /]}
    line=${line//\\/} # a name is quoted on the line
    echo "${line##* }"
}

check_shell() { # its name, and how many matches it can show
    local one offered expected n=0
    if ! command -v "$1" >/dev/null; then
        echo "$1: skipped, it is not installed"
        return
    fi
    for one in "${cases[@]}"; do
        expected=${one#*|}
        if [ "$2" = one ] && [[ -z $expected || $expected == *' '* ]]; then
            continue
        fi
        if [ "$1" = bash ] && [[ $expected == *'$'* ]]; then
            expected= # readline would expand it
        fi
        offered=$("offer_in_$1" "${one%|*}")
        if [ "$offered" != "$expected" ]; then
            echo "$1: '${one%|*}' offers '$offered', expected '$expected'"
            failed=1
        fi
        n=$((n + 1))
    done
    if [ -e EXECUTED ]; then
        echo "$1: the name of a folder was run as code"
        rm EXECUTED
        failed=1
    fi
    echo "$1: $n lines completed"
}

cd "$work" || exit 1
check_shell bash all
check_shell fish all
check_shell zsh one
exit $failed
