#!/usr/bin/env bash
# What is installed is enough: the example builds against it by pkg-config and by find_package, and
# sees no file of the source tree.
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
cmake --install "$build_dir" --prefix "$prefix" >"$work/install.log"
cp "$source_dir/examples/mixer.c" "$work/"

for file in bin/frostline include/frostline.h include/frostline/run.h; do
    [ -e "$prefix/$file" ] || { echo "not installed: $file" && exit 1; }
done
"$prefix/bin/frostline" --version

pkg_dir=$(dirname "$(find "$prefix" -name frostline.pc)")
export PKG_CONFIG_PATH=$pkg_dir
read -ra flags <<<"$(pkg-config --cflags --libs frostline)"
"${CC:-cc}" -std=c11 -Wall -Werror "$work/mixer.c" -o "$work/by-pkg-config" "${flags[@]}"

cat >"$work/CMakeLists.txt" <<'TEXT'
cmake_minimum_required(VERSION 3.25)
project(mine C)
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
