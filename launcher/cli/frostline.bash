# Completion for bash: commands, options, runs and the commands of frostline ctl. Everything comes
# from frostline itself, so it is never out of date.

_frostline_words() { # the names that a help lists under a heading
    "$1" "${@:3}" --help 2>/dev/null |
        awk -v heading="$2" '$0 == heading { on = 1; next } /^[^ ]/ { on = 0 } on { print $1 }'
}

_frostline_options() {
    "$1" "${@:2}" --help 2>/dev/null | grep -oE -- '--[a-z][a-z-]*' | sort -u
}

_frostline() {
    local program=${COMP_WORDS[0]} word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]:-}
    local candidates=
    if [ "$COMP_CWORD" -eq 1 ]; then
        candidates=$(_frostline_words "$program" commands:)
    elif [[ $word == -* ]]; then
        candidates=$(_frostline_options "$program" "$command")
    elif [ "$command" = ctl ]; then
        candidates=$(_frostline_words "$program" commands: ctl)
        if [ "$COMP_CWORD" -eq 2 ] && [ -d runs ]; then
            candidates+=" $(cd runs && printf '%s ' *)"
        fi
    elif [[ $command =~ ^(top|report|export|trace-report|evaluate|predict)$ && $COMP_CWORD -eq 2 && -d runs ]]; then
        candidates=$(cd runs && printf '%s ' *)
    elif [ "$command" = help ]; then
        candidates=$(_frostline_words "$program" commands:)
    fi
    mapfile -t COMPREPLY < <(compgen -W "$candidates" -- "$word")
    if [ ${#COMPREPLY[@]} -eq 0 ]; then
        mapfile -t COMPREPLY < <(compgen -f -- "$word")
    fi
}

complete -o filenames -F _frostline frostline
