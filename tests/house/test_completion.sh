#!/usr/bin/env bash
# The completion for bash offers what there is: commands, their options, the commands of ctl.
set -uo pipefail
source_dir=$1
cd "$2" || exit 1
PATH=$PWD:$PATH
# shellcheck source=/dev/null
. "$source_dir/launcher/cli/frostline.bash"
failed=0

offers() { # the words typed so far, the last one to be completed; "=" and all that is offered
    local expected=${*: -1}
    COMP_WORDS=("${@:1:$#-1}")
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    COMPREPLY=()
    _frostline
    if [ "${COMPREPLY[*]}" != "$expected" ]; then
        echo "'${COMP_WORDS[*]}' offers '${COMPREPLY[*]}', expected '$expected'"
        failed=1
    fi
}

offers frostline va validate
offers frostline c "check-model ctl"
offers frostline check-model job.yaml --l --layer
offers frostline ctl pau pause
offers frostline ctl some-run st "status stop"
offers frostline ctl --j --json
offers frostline run --run --run-dir
offers frostline top --o --once
offers frostline rep report
offers frostline exp export
offers frostline export --f --format
offers frostline tokenize --pie --pieces
offers frostline report --o --out
offers frostline help led ledger
exit $failed
