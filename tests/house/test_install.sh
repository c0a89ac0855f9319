#!/usr/bin/env bash
# What is installed is enough: the example builds against it by pkg-config and by find_package, and
# sees no file of the source tree. It installs after the program alone was built, as after
# ./quickstart; and the library needs nothing of the command line, its screen or its report.
set -euo pipefail
source_dir=$1
build_dir=$2
prefix=$build_dir/tests/install
work=$build_dir/tests/install-work

if grep -q '^FL_SANITIZE:STRING=.' "$build_dir/CMakeCache.txt"; then
    echo "skipped: a sanitized library needs the sanitizer's flags"
    exit 77
fi

rm -rf "$prefix" "$work"
mkdir -p "$work"
fail() {
    echo "$*"
    exit 1
}

# A second configuration changes no flags: else the builds below compile most files again.
for round in first second; do
    cmake -S "$source_dir" -B "$work/configured" >"$work/configure.log" 2>&1 || fail "see $work/configure.log"
    cp "$work/configured/compile_commands.json" "$work/$round.json"
done
diff "$work/first.json" "$work/second.json" >"$work/flags.diff" ||
    fail "configured a second time, CMake compiles with other flags: $(grep -c '^<' "$work/flags.diff") differ, see $work/flags.diff"

rm -f "$build_dir/libfrostline.a"
cmake --build "$build_dir" --target frostline >"$work/build.log" 2>&1 || fail "see $work/build.log"
cmake --install "$build_dir" --prefix "$prefix" >"$work/install.log"
cp "$source_dir/examples/mixer.c" "$work/"

for file in bin/frostline include/frostline.h include/frostline/run.h; do
    [ -e "$prefix/$file" ] || fail "not installed: $file"
done
"$prefix/bin/frostline" --version

# Units and scripts name the program where it is once it is installed. DESTDIR holds the tree until it
# is moved there.
check_prefix() { # the prefix, and where its tree lies
    local unit wanted given
    for unit in frostline@ frostline-agent@; do
        given=$(sed -nE 's/^ExecStart="([^"]*)" .*/\1/p' "$2/lib/systemd/system/$unit.service")
        wanted=$1/bin/frostline
        [ $unit = frostline-agent@ ] || wanted=$1/$lib/frostline/service
        [ "$given" = "$wanted" ] || fail "$unit.service starts '$given', not '$wanted'"
        [ -x "$2${given#"$1"}" ] || fail "$unit.service starts what is not installed: $given"
    done
    grep -q "$1/bin/frostline" "$2/$lib/frostline/service" || fail "the service starts another program"
    if grep -rE '@FL_|/usr/(bin|lib)/frostline' "$2/lib/systemd" "$2/$lib/frostline"/s*; then
        fail "the lines above name another prefix than $1"
    fi
}
lib=$(sed -n 's/^CMAKE_INSTALL_LIBDIR:[A-Z]*=//p' "$build_dir/CMakeCache.txt")
check_prefix "$prefix" "$prefix"
"$prefix/$lib/frostline/service" missing.yaml >"$work/service.log" 2>&1 || true
grep -q 'missing.yaml: cannot be opened' "$work/service.log" || fail "the service does not start: $(cat "$work/service.log")"
# A head that was killed while it waited for hosts leaves its key and no events.
(
    mkdir -p "$work/killed/run/checkpoints" && cd "$work/killed"
    touch run/job.yaml run/hosts.key
    "$prefix/$lib/frostline/service" missing.yaml >service.log 2>&1 || true
    kept=$(ls run.*)
    if grep -q '^tail: ' service.log || [[ $kept != *job.yaml* || $kept = *hosts.key* ]]; then
        fail "after a kill in the wait for hosts, the service prints: $(cat service.log); it keeps: $kept"
    fi
)
DESTDIR=$work/staged cmake --install "$build_dir" --prefix /opt/frostline >"$work/staged.log"
check_prefix /opt/frostline "$work/staged/opt/frostline"

# systemd takes words apart at blanks, and % begins a specifier.
odd="/opt/my tools/100%n"
DESTDIR=$work/odd cmake --install "$build_dir" --prefix "$odd" >"$work/odd.log"
for unit in frostline@ frostline-agent@; do
    file=$work/odd$odd/lib/systemd/system/$unit.service
    grep -qE '^ExecStart="/opt/my tools/100%%n/[^" ]*" ' "$file" || fail "not quoted: $(grep ExecStart "$file")"
    grep -q '^Documentation=.* file:/opt/my%%20tools/100%%25n/share/' "$file" ||
        fail "not escaped: $(grep Documentation "$file")"
done

# The pages stand to each other as in the source tree, so that their links hold.
doc_dir=$(dirname "$(find "$prefix" -name ARCHITECTURE.md)")
cmp "$source_dir/README.md" "$doc_dir/README.md" || fail "the README is another page"
cmp "$source_dir/docs/README.md" "$doc_dir/docs/README.md" || fail "the index of docs/ is missing"
while read -r link; do
    [ -e "$doc_dir/$link" ] || fail "README.md names $link, which is not installed"
done < <(sed -nE 's/.*\]\((docs\/[^)#]*).*/\1/p' "$source_dir/README.md")
while read -r picture; do
    [ -e "$doc_dir/docs/$picture" ] || fail "a page shows $picture, which is not installed"
done < <(grep -ohE '\]\(img/[^)]*' "$source_dir"/docs/*.md | sed 's/.*(//')

pkg_dir=$(dirname "$(find "$prefix" -name frostline.pc)")
export PKG_CONFIG_PATH=$pkg_dir
read -ra flags <<<"$(pkg-config --cflags --libs frostline)"
"${CC:-cc}" -std=c11 -Wall -Werror "$work/mixer.c" -o "$work/by-pkg-config" "${flags[@]}"

# Every object of the library links with these flags, not only those that the example needs.
library=$(find "$prefix" -name libfrostline.a)
read -ra others <<<"${flags[*]/-lfrostline/}"
"${CC:-cc}" -std=c11 "$work/mixer.c" -o "$work/whole" -Wl,--whole-archive "$library" \
    -Wl,--no-whole-archive "${others[@]}" ||
    fail "an object of libfrostline.a needs a library that frostline.pc does not name"
[[ " ${flags[*]} " != *ncurses* ]] || fail "frostline.pc names ncurses"
if nm --defined-only "$library" | grep -E ' [A-Z] fl_(cli|main|top|page|html|report)(_|$)'; then
    fail "libfrostline.a contains the functions above, which belong to the program"
fi

cat >"$work/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.25)
project(mine C)
# Targets that a user may well have, named like libraries that frostline links.
file(WRITE "${CMAKE_BINARY_DIR}/mine.c" "int mine;")
foreach(name IN ITEMS m z yaml gloo)
  add_library(${name} STATIC "${CMAKE_BINARY_DIR}/mine.c")
endforeach()
find_package(frostline 0.1 REQUIRED)
add_executable(by-cmake mixer.c)
target_link_libraries(by-cmake PRIVATE frostline::frostline)
TEXT
cmake -S "$work" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" >"$work/cmake.log"
cmake --build "$work/build"

# A C++ program may include the header too, and link by the C names.
cat >"$work/version.cc" <<'TEXT'
#include <frostline.h>
int main()
{
    fl_job job;
    fl_job_defaults(&job);
    return fl_job_set(&job, "pipe.k", "2") == FL_OK && job.pipe.k == 2 ? 0 : 1;
}
TEXT
"${CXX:-c++}" -std=c++14 -Wall -Werror "$work/version.cc" -o "$work/in-cxx" "${flags[@]}"
"$work/in-cxx"
echo "by pkg-config, by find_package and from C++: built"
