#!/bin/bash
# Whether an installed Frostline works: every part of the package is there, and a small job trains on
# two workers, ends by SIGTERM, and continues. Needs no network and no data; takes some seconds.
# PREFIX: where the package lies, if not in @FL_PREFIX@.
set -euo pipefail
prefix=${PREFIX:-@FL_PREFIX@}
frostline=$prefix/@FL_BINDIR@/frostline
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache PKG_CONFIG_PATH=$prefix/@FL_LIBDIR@/pkgconfig

fail() {
    echo "smoke: $*" >&2
    exit 1
}

"$frostline" --version

# A page for each command, unless this system is set up to leave pages out, as images often are.
if grep -qsE '^path-exclude=?/usr/share/(man|doc)' /etc/dpkg/dpkg.cfg.d/*; then
    echo "smoke: skipped: man pages and documentation (dpkg leaves them out here)"
else
    for command in '' $("$frostline" --help | sed -nE '/^commands:/,/^$/s/^  ([a-z-]+) .*/-\1/p'); do
        compgen -G "$prefix/share/man/man1/frostline$command.1*" >/dev/null ||
            fail "there is no man page frostline$command"
    done
    [ -e "$prefix/share/doc/frostline/copyright" ] || fail "the documentation is missing"
fi
for file in share/bash-completion/completions/frostline @FL_LIBDIR@/frostline/smoke include/frostline.h \
    lib/systemd/system/frostline@.service lib/systemd/system/frostline-agent@.service; do
    [ -e "$prefix/$file" ] || fail "not installed: $prefix/$file"
done

# 256 images of noise in two classes.
mkdir "$work/data"
for split in train t10k; do
    {
        printf '\000\000\010\003\000\000\001\000\000\000\000\034\000\000\000\034'
        head -c $((256 * 784)) /dev/urandom
    } >"$work/data/$split-images-idx3-ubyte"
    {
        printf '\000\000\010\001\000\000\001\000'
        printf '\000\001%.0s' {1..128}
    } >"$work/data/$split-labels-idx1-ubyte"
done
cat >"$work/job.yaml" <<TEXT
name: smoke
model: {kind: vit, blocks: 2, dim: 16, heads: 2, patch: 7}
data: {kind: idx, path: $work/data}
train: {epochs: 1, batch: 16}
devices: {count: 2, cores: 1, memory: 256MiB}
pipe: {k: 2}
checkpoint: {every: 4 steps}
run: {dir: $work/runs}
TEXT
"$frostline" doctor "$work/job.yaml" || fail "this host cannot run the job"
"$frostline" run "$work/job.yaml" --run-dir "$work/runs/first" --set train.max_steps=8 ||
    fail "the job failed"
"$frostline" run --resume "$work/runs/first" --set train.max_steps=12 || fail "it does not continue"
"$frostline" ledger "$work/runs/first"
"$frostline" export "$work/runs/first" --to "$work/model" >/dev/null
[ -s "$work/model/model.safetensors" ] || fail "no model was exported"

# The service: what was cut off before its first checkpoint begins anew, what was ended continues,
# and what is finished is left alone.
mkdir -p "$work/service/run/checkpoints"
cd "$work/service"
touch run/job.yaml run/events.jsonl
export FROSTLINE=$frostline
"$prefix/@FL_LIBDIR@/frostline/service" "$work/job.yaml" >begun 2>&1 &
controller=$!
until [ -s run/steps.jsonl ] || ! kill -0 $controller 2>/dev/null; do sleep 0.1; done
kill -TERM $controller 2>/dev/null || true
status=0
wait $controller || status=$?
[ $status -eq 5 ] || [ $status -eq 0 ] || fail "the service ended with $status: $(cat begun)"
compgen -G "run.*/job.yaml" >/dev/null || fail "the service did not keep the run without a checkpoint: $(cat begun)"
"$prefix/@FL_LIBDIR@/frostline/service" "$work/job.yaml" >continued 2>&1 ||
    fail "the service does not continue its job: $(cat continued)"
"$prefix/@FL_LIBDIR@/frostline/service" "$work/job.yaml" >again || fail "a finished job is no success"
grep -q 'the job is finished' again || fail "the service trained a finished job: $(cat again)"
cd "$work"
echo "smoke: the service began with exit code $status, continued, and left the finished job alone"

# A job that does not fit is refused with a line.
status=0
"$frostline" validate "$work/job.yaml" --set pipe.k=99 2>"$work/refusal" || status=$?
[ $status -eq 2 ] || fail "a wrong job ended with $status: $(cat "$work/refusal")"

# The library, where there is a compiler with what it needs.
example=$prefix/share/doc/frostline/examples/mixer.c
if command -v cc >/dev/null && pkg-config --exists frostline 2>/dev/null && [ -e "$example" ] &&
    read -ra flags <<<"$(pkg-config --cflags --libs frostline)" &&
    cc -xc -o "$work/empty" - "${flags[@]}" <<<'int main(void){return 0;}' 2>/dev/null; then
    cc "$example" -o "$work/mixer" "${flags[@]}"
    echo "smoke: the example builds"
else
    echo "smoke: skipped: building with the library (no compiler, or -dev packages are missing)"
fi
echo "smoke: good"
