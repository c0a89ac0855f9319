#!/usr/bin/env bash
# Every kernel on a GPU under one tool of compute-sanitizer: memcheck, racecheck or synccheck.
#   tests/gpu/sanitize.sh TOOL FOLDER_OF_TEST_PROGRAMS
# Exit code 77, with the reason, where there is no compute-sanitizer; without a GPU, the tests are
# skipped by name. The launch shim finds the same mistakes without a GPU (docs/cuda.md); this is about
# what nvcc has made of the kernels.
set -euo pipefail
tool=$1
programs=$2
sanitizer=$(command -v compute-sanitizer || true)
if [ -z "$sanitizer" ] && [ -x /usr/local/cuda/bin/compute-sanitizer ]; then
    sanitizer=/usr/local/cuda/bin/compute-sanitizer
fi
if [ -z "$sanitizer" ]; then
    echo "skipped: compute-sanitizer $tool: compute-sanitizer was not found"
    exit 77
fi
leaks=()
[ "$tool" != memcheck ] || leaks=(--leak-check full)
exec "$sanitizer" --tool "$tool" "${leaks[@]}" --error-exitcode 9 "$programs/test_gpu_kernels"
