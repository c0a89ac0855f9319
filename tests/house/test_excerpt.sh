#!/usr/bin/env bash
# A red ./check says what was wrong: each failed test with what it printed, and nothing of the others.
set -euo pipefail
source=$1

log='    Start 62: test_queue
    Start 85: test_spoon
    Start 86: house_test_fork
62: [ RUN      ] test_queue__keeps_order
85: [ RUN      ] test_spoon__is_round
85: nothing to see
85: [       OK ] test_spoon__is_round
85: [ RUN      ] test_spoon__shines
62: of another program
85: ERROR: its colour is 3
85: [  ERROR   ] --- [   LINE   ] --- test_spoon.c:8: error: Failure!
85: [  FAILED  ] test_spoon__shines
85: [ RUN      ] test_spoon__bends
85: about to bend
1/3 Test #85: test_spoon .......................Subprocess aborted***Exception:   0.00 sec
62: [       OK ] test_queue__keeps_order
62: [  PASSED  ] 1 test(s).
2/3 Test #62: test_queue .......................   Passed    0.10 sec
86: fork: there is no fork
3/3 Test #86: house_test_fork ..................***Failed    0.03 sec'

expected='test_spoon: test_spoon__shines
    ERROR: its colour is 3
    [  ERROR   ] --- [   LINE   ] --- test_spoon.c:8: error: Failure!
test_spoon: test_spoon__bends: Exception
    about to bend
house_test_fork: Failed
    fork: there is no fork'

diff <(echo "$expected") <(echo "$log" | awk -f "$source/tests/house/excerpt.awk")

# Of a long story the end, and every line that names an error.
long=$(echo "    Start 1: test_long"
    echo "1: [ RUN      ] test_long__tells"
    echo "1: SUMMARY: AddressSanitizer: heap-use-after-free"
    for i in $(seq 40); do echo "1: line $i"; done
    echo "1: [  FAILED  ] test_long__tells")
[ "$(echo "$long" | awk -v LINES=3 -f "$source/tests/house/excerpt.awk" | tr -s ' \n' ' ')" = \
    "test_long: test_long__tells SUMMARY: AddressSanitizer: heap-use-after-free line 38 line 39 line 40 " ]
