#!/usr/bin/env bash
# A program that links Frostline keeps its own names: every external symbol begins with fl_.
set -uo pipefail
cd "$2" || exit 1
failed=0
n_symbols=0
shopt -s nullglob
for library in libfrostline*.a; do
    while read -r symbol; do
        n_symbols=$((n_symbols + 1))
        case $symbol in
        fl_*) ;;
        _Z* | DW.ref.*) ;; # C++ templates and vtables: weak, mangled
        *)
            echo "$library: $symbol does not begin with fl_"
            failed=1
            ;;
        esac
    done < <(nm -g --defined-only "$library" 2>/dev/null | awk 'NF == 3 { print $3 }')
done
if [ $n_symbols -lt 100 ]; then
    echo "only $n_symbols symbols found: this test looks in the wrong place"
    failed=1
fi
exit $failed
