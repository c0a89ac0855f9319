#!/usr/bin/env bash
# cpack makes a package; what it holds works in another folder, its man pages are ones that man takes
# without a warning and name every option of --help, and lintian finds no error. packaging/bare.sh
# installs it on a bare system.
set -uo pipefail
build_dir=$2
work=$build_dir/tests/package
if grep -q '^FL_SANITIZE:STRING=.' "$build_dir/CMakeCache.txt" || ! command -v dpkg-shlibdeps >/dev/null; then
    echo "skipped: a sanitized build, or no dpkg-shlibdeps"
    exit 77
fi
rm -rf "$work"
mkdir -p "$work"
fail() {
    echo "$*"
    exit 1
}

cmake --build "$build_dir" --target frostline >"$work/build.log" 2>&1 || fail "see $work/build.log"
(cd "$build_dir" && cpack -G DEB -B "$work") >"$work/cpack.log" 2>&1 || fail "see $work/cpack.log"
package=$(echo "$work"/frostline_*.deb)
dpkg-deb -x "$package" "$work/root" || fail "$package is no package"
depends=$(dpkg-deb -f "$package" Depends)
for library in libgloo0 libzmq5 libyaml-0-2 libc6; do
    [[ $depends == *"$library "* || $depends == *"$library,"* ]] || fail "it does not depend on $library: $depends"
done
recommends=$(dpkg-deb -f "$package" Recommends)
[ "$recommends" = openssh-client ] || fail "it recommends '$recommends', not the ssh that starts agents"

PREFIX=$work/root/usr "$work/root/usr/lib/frostline/smoke" >"$work/smoke.log" 2>&1 ||
    { tail -n 20 "$work/smoke.log" && fail "the package does not work"; }
tail -n 2 "$work/smoke.log"

failed=0
pages=$work/root/usr/share/man/man1
n_options=0
for command in $("$build_dir/frostline" --help | sed -nE '/^commands:/,/^$/s/^  ([a-z-]+) .*/\1/p'); do
    page=$(zcat "$pages/frostline-$command.1.gz") || fail "there is no page for $command"
    for option in $("$build_dir/frostline" "$command" --help | sed -nE 's/^  (-., )?(--[a-z-]+).*/\2/p'); do
        n_options=$((n_options + 1))
        if [[ $page != *"\\fB${option//-/\\-}\\fR"* ]]; then
            echo "frostline-$command.1 does not name $option"
            failed=1
        fi
    done
done
[ $n_options -gt 40 ] || fail "only $n_options options found: this test looks in the wrong place"
if command -v groff >/dev/null; then
    for page in "$pages"/*.gz; do
        warnings=$(zcat "$page" | groff -man -Tutf8 -ww -z 2>&1)
        [ -z "$warnings" ] || { echo "$page: $warnings" && failed=1; }
    done
else
    echo "skipped: warnings of man pages (no groff)"
fi
units=$work/root/usr/lib/systemd/system
[ -e "$units" ] || units=$work/root/lib/systemd/system
grep -q '^ExecStart="/usr/lib/frostline/service" ' "$units/frostline@.service" ||
    fail "the unit does not start the service's script"
while read -r option; do
    "$build_dir/frostline" agent --help | grep -q -e "$option " || fail "the agent's unit: no option $option"
done < <(sed -n 's/^ExecStart=.* agent / /p' "$units/frostline-agent@.service" | grep -o -e '--[a-z]*')
# Instances, of units whose programs are where the package has put them.
if command -v systemd-analyze >/dev/null; then
    mkdir "$work/units"
    for unit in frostline@ frostline-agent@; do
        sed "s|^ExecStart=\"/usr|ExecStart=\"$work/root/usr|" "$units/$unit.service" >"$work/units/$unit.service"
        said=$(SYSTEMD_UNIT_PATH=$work/units: systemd-analyze verify --man=no "$work/units/${unit}root.service" 2>&1) ||
            said="exit code $?: $said"
        [ -z "$said" ] || { echo "$unit.service: $said" && failed=1; }
    done
else
    echo "skipped: systemd-analyze verify (no systemd)"
fi
if command -v lintian >/dev/null; then
    lintian --allow-root --fail-on error "$package" || failed=1
else
    echo "skipped: lintian (not installed)"
fi
exit $failed
