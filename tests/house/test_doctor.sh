#!/usr/bin/env bash
# frostline doctor on this host, and on hosts that lack something: made by limits and name spaces.
set -uo pipefail
source_dir=$1
program=$2/frostline
work=$2/tests/doctor
failed=0
rm -rf "$work"
mkdir -p "$work"
cd "$work" || exit 1
if grep -q '^FL_SANITIZE:STRING=.' "$2/CMakeCache.txt"; then
    echo "skipped: a sanitizer needs other limits"
    exit 77
fi

# what; the exit code; a line that must be printed; the command
expect() {
    local what=$1 code=$2 line=$3 status=0
    shift 3
    "$@" >output 2>&1 || status=$?
    if [ $status -ne "$code" ] || ! grep -qE -- "$line" output; then
        echo "$what: exit code $status, expected $code and a line $line:"
        cat output
        failed=1
    fi
}
# shellcheck disable=SC2317 # expect calls it
limited() { # a limit of ulimit, then the command
    (ulimit "$1" "$2" && shift 2 && "$@")
}

expect "this host" 0 '^ok +sockets ' "$program" doctor
expect "this host, for programs" 0 '^\{"version": "[0-9.]+", "verdict": "(ok|warning)", "checks": \[' "$program" doctor --json
expect "runs, not made yet" 0 '^(ok|warning) +runs +/.*/doctor/runs can be made' "$program" doctor
mkdir runs
expect "runs" 0 '^(ok|warning) +runs +/.*/doctor/runs can be written' "$program" doctor
rmdir runs
expect "few files" 2 '^error +files +50 open' limited -n 50 "$program" doctor
expect "fewer files than usual" 0 '^warning +files +512 open' limited -n 512 "$program" doctor
expect "one processor" 0 '^(warning|ok) +processors +1 of' taskset -c "$(taskset -cp $$ | sed 's/.*: //; s/[-,].*//')" "$program" doctor
expect "no HOME" 0 '^warning +profiles ' env -u HOME -u XDG_CACHE_HOME "$program" doctor
expect "a wrong plugin" 2 '^error +GPUs +.*FROSTLINE_CUDA_PLUGIN: none.so' \
    env FROSTLINE_CUDA_PLUGIN=none.so "$program" doctor "$source_dir/configs/quickstart.yaml" --set devices.kind=cuda
expect "a wrong plugin, no job" 0 '^warning +GPUs +FROSTLINE_CUDA_PLUGIN: none.so' \
    env FROSTLINE_CUDA_PLUGIN=none.so "$program" doctor
expect "a job without its data" 2 '^error +job +--set data.path=none' \
    "$program" doctor "$source_dir/configs/quickstart.yaml" --set data.path=none
expect "a job without its data, by a relative path" 2 "; its relative paths begin in $work\$" \
    "$program" doctor "$source_dir/configs/quickstart.yaml" --set data.path=none
expect "no such job" 2 '^error +job +none.yaml' "$program" doctor none.yaml
expect "what to do without a job" 2 '-> name a file with a job' "$program" doctor none.yaml
if unshare -n true 2>/dev/null; then
    expect "no loopback interface" 0 '^warning +sockets +TCP over 127.0.0.1' unshare -n "$program" doctor
    expect "no loopback interface, one worker" 0 '^warning +sockets +TCP over 127.0.0.1' \
        unshare -n "$program" doctor "$source_dir/configs/quickstart.yaml" --set devices.count=1 --set devices.memory=64MiB
    expect "no loopback interface, two workers" 2 '^error +sockets +TCP over 127.0.0.1.*; the 2 workers of this host need it' \
        unshare -n "$program" doctor "$source_dir/configs/quickstart.yaml" --set devices.count=2
else
    echo "skipped: no loopback interface (name spaces are not allowed here)"
fi
# Whatever is not ok says what to do.
advised() {
    awk '/^(warning|error) /{if (bad) print last; bad = 1; last = $0; next} /^ +-> /{bad = 0; next} {if (bad) print last; bad = 0}' output >without
    [ ! -s without ] || { echo "$1: no advice below:" && cat without && failed=1; }
    rm without
}
# Other hosts: ssh as the program finds it in PATH runs what it gets here; one host is out of reach.
mkdir bin
cat >bin/ssh <<'END'
#!/bin/sh
[ "$1 $2" = '-o BatchMode=yes' ] || exit 9
if [ "$3" = 127.0.0.3 ]; then
    echo "first line" >&2
    echo "ssh: connect to host 127.0.0.3 port 22: No route to host" >&2
    exit 255
fi
case "$3 $4" in
127.0.0.[45]*doctor*)
    [ "$3" = 127.0.0.5 ] || sh -c "$4"
    exec sleep 600 >&- 2>&-
    ;;
esac
exec sh -c "$4"
END
chmod 755 bin/ssh
printf 'hosts:\n' >hosts.yaml
for i in 1 2 3; do
    echo "  - {name: h$i, devices: 1, address: 127.0.0.$i}" >>hosts.yaml
done
printf 'links:\n  between_hosts: {latency_us: 50, bandwidth: 1MiB}\n' >>hosts.yaml
expect "a host out of reach" 2 '^error +ssh +host h3 \(127.0.0.3\): ssh ended with exit code 255: "ssh: connect to host 127.0.0.3 port 22: No route to host"$' \
    env PATH="$work/bin:$PATH" "$program" doctor --hosts hosts.yaml
advised "a host out of reach"
for line in '^3 hosts: 2 without an error; h3: ssh; errors between the hosts$' \
    '^error +pair +host h3 \(127.0.0.3\) was not measured: ssh could not ask it'; do
    grep -qE "$line" output || { echo "a host out of reach: no line $line" && cat output && failed=1; }
done
# An error of the job, and the hosts that it names: both.
{
    printf 'train: {batch: none}\n'
    sed '/^links:/,$d' hosts.yaml
} >wrong.yaml
expect "a wrong job with hosts" 2 '^error +job +wrong.yaml:1:16: train.batch: found' \
    env PATH="$work/bin:$PATH" "$program" doctor wrong.yaml
grep -q '^error *ssh *host h3 (127.0.0.3): ssh ended' output || { echo "a wrong job hides its hosts" && cat output && failed=1; }
sed '/h3/d' hosts.yaml >two.yaml
expect "two hosts" 0 '^ok +same +the version of this host' \
    env PATH="$work/bin:$PATH" "$program" doctor --hosts two.yaml
expect "two hosts, for programs" 0 '^\{"hosts": \[\{"host": "h1", .*"host": "h2", "address": "127.0.0.2", "verdict": "(ok|warning)"' \
    env PATH="$work/bin:$PATH" "$program" doctor --hosts two.yaml --json
# An ssh that does not end: with its answer, and without one.
sed 's/127.0.0.2/127.0.0.4/; s/127.0.0.3/127.0.0.5/' hosts.yaml >endless.yaml
expect "an ssh that does not end" 2 '^warning +ssh +ssh had not ended 2 s after its answer, and was killed$' \
    env PATH="$work/bin:$PATH" "$program" doctor --hosts endless.yaml
grep -qE '^error +ssh +host h3 .127.0.0.5.: ssh closed its output without an answer, had not ended 2 s later and was killed$' output ||
    { echo "an ssh that does not end, without an answer" && cat output && failed=1; }
sed 's/address: 127.0.0.2/&, profile: none.yaml/' two.yaml >stated.yaml
expect "a profile that is stated and not there" 2 '^error +job +stated.yaml:3:5: hosts: entry 2, profile: none.yaml: No such file' \
    env PATH="$work/bin:$PATH" "$program" doctor "$source_dir/configs/quickstart.yaml" --set devices.count=auto --hosts stated.yaml
expect "the link between two hosts" 0 '^ok +links +1 pair measured; the worst of each: [0-9]+ us' \
    env PATH="$work/bin:$PATH" "$program" doctor --hosts two.yaml
sed '/^links:/,$d; s/127.0.0.2/fd00::2/' two.yaml >six.yaml
expect "an IPv6 address" 2 "address: found fd00::2, an IPv6 address; allowed: the IPv4 address of one host" \
    "$program" doctor --hosts six.yaml
expect "no such file of hosts" 2 'none.yaml: cannot be opened' "$program" doctor --hosts none.yaml
rm -r bin endless.yaml hosts.yaml two.yaml stated.yaml six.yaml wrong.yaml
left=$(ls -A)
[ "$left" = output ] || { echo "files are left: $left" && failed=1; }
exit $failed
