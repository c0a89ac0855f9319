# What failed in the output of `ctest -V`: every failed test function of a cmocka program with the lines
# that it printed, and of a program that was cut short, or has no such functions, the last lines. At
# most LINES a place (default 12), besides those that name an error.
BEGIN { LINES = LINES ? LINES : 12 }
function show(id, what,    i, from) {
    print program[id] (name[id] == "" ? "" : ": " name[id]) what
    from = n[id] - LINES
    for (i = 1; i <= n[id]; i++) {
        if (i > from || lines[id, i] ~ /ERROR|error:|SUMMARY:/) {
            print "    " lines[id, i]
        }
    }
    shown[id] = 1
    n[id] = 0
}
/^ *Start +[0-9]+: / { id = $2 + 0; program[id] = $3; next }
/^[0-9]+: / {
    id = $0 + 0
    line = $0
    sub(/^[0-9]+: /, "", line)
    if (line ~ /^\[ RUN +\] /) {
        name[id] = line
        sub(/.*\] /, "", name[id])
        n[id] = 0
    } else if (line ~ /^\[ +OK +\] / || line ~ /^\[  SKIPPED \] /) {
        name[id] = ""
        n[id] = 0
    } else if (line ~ /^\[  FAILED  \] / && name[id] != "") {
        show(id, "")
        name[id] = ""
    } else if (line != "") {
        lines[id, ++n[id]] = line
    }
    next
}
/^ *[0-9]+\/[0-9]+ Test +#[0-9]+:/ && /\*\*\*/ && !/\*\*\*Skipped/ {
    id = $0
    sub(/^[^#]*#/, "", id)
    id += 0
    outcome = $0
    sub(/.*\*\*\*/, "", outcome)
    sub(/:? +[0-9.]+ sec.*/, "", outcome)
    if (!shown[id] || name[id] != "") {
        show(id, ": " outcome)
    }
}
