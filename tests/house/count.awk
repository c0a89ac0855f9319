# Counts tests in the output of `ctest -V`: prints "passed failed skipped". Every test function of a
# cmocka program counts; a program that reports none counts once, as ctest judged it.
function of_line(line) { sub(/.*\] */, "", line); return line + 0 }
/^[0-9]+: \[  PASSED  \] [0-9]+ test/ { split($0, part, ":"); ok[part[1]] += of_line($0) }
/^[0-9]+: \[  FAILED  \] [0-9]+ test/ { split($0, part, ":"); bad[part[1]] += of_line($0) }
/^[0-9]+: \[  SKIPPED \] [0-9]+ test/ { split($0, part, ":"); skip[part[1]] += of_line($0) }
/^ *[0-9]+\/[0-9]+ Test +#[0-9]+:/ {
    id = $0
    sub(/^[^#]*#/, "", id)
    id += 0
    judged[id] = /\*\*\*Skipped/ ? "skip" : (/ Passed / ? "ok" : "bad")
}
END {
    for (id in judged) {
        none = !(id in ok) && !(id in bad) && !(id in skip)
        passed += ok[id] + (none && judged[id] == "ok")
        skipped += skip[id] + (none && judged[id] == "skip")
        failed += bad[id] + (judged[id] == "bad" && bad[id] == 0)
    }
    print passed + 0, failed + 0, skipped + 0
}
