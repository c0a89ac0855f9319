#!/bin/bash
# Whether the TLS of the kernel works between hosts: a Debian 12 with the package boots under qemu
# with Debian's own kernel, without KVM, and trains on two hosts with and without it.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: packaging/ktls.sh FOLDER [PACKAGE.deb]

Makes a bare Debian 12 in FOLDER/base with debootstrap, unless packaging/bare.sh or an earlier call
has made it, and installs the package, the tests of TLS and Debian's kernel for virtual machines in a
copy. A guest of qemu (one processor, no KVM, 2 GiB) then runs these tests with the kernel's
TLS, and trains a job on two network name spaces with it and without it: the losses must be the
same. Its time counts instructions (8 ns each), so that a busy host does not change what it sees.
The default is the newest package of build/release; test_tls and test_tls_stream
must be built.
Needs root, debootstrap, qemu-system-x86, cpio, and Debian's mirror; MIRROR names another one.
TEXT
}

case ${1-} in
'' | -h | --help)
    usage
    exit 2
    ;;
esac
folder=$(realpath -m "$1")
package=${2-}
mirror=${MIRROR:-http://deb.debian.org/debian}
tests=build/release/tests
if [ -z "$package" ]; then
    # shellcheck disable=SC2012
    package=$(ls -t build/release/frostline_*.deb 2>/dev/null | head -n 1) || true
fi
if [ ! -e "$package" ] || [ ! -x $tests/test_tls ] || [ ! -x $tests/test_tls_stream ]; then
    echo "ktls.sh: needs the package ((cd build/release && cpack -G DEB) makes one), $tests/test_tls and $tests/test_tls_stream" >&2
    exit 2
fi
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap qemu-system-x86_64 cpio >/dev/null; then
    echo "ktls.sh: needs root, and the packages debootstrap, qemu-system-x86 and cpio" >&2
    exit 2
fi

mkdir -p "$folder"
if [ ! -e "$folder/base.made" ]; then
    echo "ktls.sh: debootstrap into $folder/base"
    rm -rf "$folder/base"
    debootstrap --variant=minbase bookworm "$folder/base" "$mirror" >"$folder/debootstrap.log" ||
        { tail -n 5 "$folder/debootstrap.log" && exit 1; }
    touch "$folder/base.made"
fi
root=$folder/guest
rm -rf "$root"
cp -a "$folder/base" "$root"
cp "$package" "$root/frostline.deb"
cp $tests/test_tls $tests/test_tls_stream "$root/usr/local/bin"
cp /etc/resolv.conf "$root/etc/resolv.conf"
cat >"$root/inside.sh" <<'TEXT'
set -e
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -y -q --no-install-recommends /frostline.deb kmod iproute2 libcmocka0 >/install.log 2>&1 || { tail /install.log; exit 1; }
kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p')
cd /tmp
apt-get download -q "$kernel" >/install.log 2>&1 || { tail /install.log; exit 1; }
dpkg-deb -x "$kernel"_*.deb /kernel
modules=/usr/lib/modules/${kernel#linux-image-}
mkdir -p "$modules"
cd /kernel/lib/modules/*
cp -a --parents kernel/{net/tls,net/ipv6,crypto,arch,lib,drivers/net/veth.ko} modules.order modules.builtin* "$modules"
depmod "${kernel#linux-image-}"
cp /kernel/boot/vmlinuz-* /vmlinuz
apt-get clean
rm -rf /kernel /tmp/* /frostline.deb /var/lib/apt/lists/* /var/cache/* /usr/share/doc /usr/share/locale
TEXT
# The mounts go with the name space. The variable is for the shell in it.
# shellcheck disable=SC2016
root=$root unshare -m -p -f bash -c '
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 chroot "$root" bash /inside.sh'

cat >"$root/init" <<'TEXT'
#!/bin/bash
export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm
for folder in /dev/shm /run /tmp; do mount -t tmpfs tmpfs $folder; done
ip link set lo up
bash /guest.sh 2>&1
echo o >/proc/sysrq-trigger
sleep 100
TEXT
chmod +x "$root/init"
cat >"$root/guest.sh" <<'TEXT'
set -euo pipefail
fail() {
    echo "guest: $*"
    exit 1
}
# counters COMMAND...: those of the name space that the command enters.
counters() { "$@" grep -E 'Tls(Tx|Rx)Sw|TlsDecryptError' /proc/net/tls_stat | tr -s '\t\n' '  '; }

echo "guest: Linux $(uname -r), $(dpkg-query -W libssl3)"
modprobe -a tls veth
test_tls_stream || fail "test_tls_stream has failed"
test_tls >/test.log 2>&1 || { tail -n 20 /test.log; fail "test_tls has failed"; }
grep -q 'by the kernel' /test.log || fail "test_tls did not use the kernel's TLS"
echo "guest: the tests of TLS pass; $(counters env)"

mkdir -p /job/data
cd /job
for split in train t10k; do
    {
        printf '\000\000\010\003\000\000\001\000\000\000\000\034\000\000\000\034'
        head -c $((256 * 784)) /dev/urandom
    } >data/$split-images-idx3-ubyte
    {
        printf '\000\000\010\001\000\000\001\000'
        printf '\000\001%.0s' {1..128}
    } >data/$split-labels-idx1-ubyte
done
cat >job.yaml <<YAML
name: kernel-tls
model: {kind: vit, blocks: 2, dim: 8, heads: 2, patch: 7}
data: {kind: idx, path: /job/data}
train: {epochs: 1, batch: 16, max_steps: 6, evaluate: false}
devices: {count: auto, cores: 1, memory: 256MiB}
pipe: {tune: false}
freeze: {policy: none}
fault: {detect: 20s}
YAML
cat >hosts.yaml <<YAML
hosts:
  - {name: a, devices: 1, address: 10.9.0.1, speed: 1.0}
  - {name: b, devices: 1, address: 10.9.0.2, speed: 1.0}
links:
  between_hosts: {latency_us: 50, bandwidth: 1GiB}
YAML
ip netns add a
ip netns add b
ip -n a link add fl0 type veth peer name fl0 netns b
ip -n a addr add 10.9.0.1/24 dev fl0
ip -n b addr add 10.9.0.2/24 dev fl0
for space in a b; do
    ip -n $space link set lo up
    ip -n $space link set fl0 up
done

train() { # DIR WHO ARGUMENT...
    local dir=$1 who=$2 head
    shift 2
    ip netns exec a frostline run job.yaml --run-dir "$dir" --hosts hosts.yaml --listen tcp://10.9.0.1:5570 "$@" >"$dir.log" 2>&1 &
    head=$!
    ip netns exec b frostline agent --join tcp://10.9.0.1:5570 --key "$dir/hosts.key" --name b --wait 600 >"$dir.agent.log" 2>&1 &&
        wait $head || { tail -n 5 "$dir.log" "$dir.agent.log"; fail "the run $dir has failed"; }
    [ "$(grep -l "AES-128-GCM, $who" "$dir"/worker-*.log | wc -l)" -eq 2 ] || fail "in $dir, TLS is not $who"
}
for k in 1 2; do
    train with-$k 'by the kernel' --set pipe.k=$k --set autodp.r=$((3 - k))
done
echo "guest: trained on two hosts; $(counters ip netns exec a)"
rmmod tls
mv /lib/modules/*/kernel/net/tls/tls.ko /
for k in 1 2; do
    train without-$k 'not by the kernel' --set pipe.k=$k --set autodp.r=$((3 - k))
    for run in with without; do grep -o '"loss":[^,]*' $run-$k/steps.jsonl >$run-$k.losses; done
    [ -s with-$k.losses ] && cmp with-$k.losses without-$k.losses || fail "the losses differ, with pipe.k=$k"
done
echo "guest: the losses with the kernel's TLS and without it are the same"
echo "guest: good"
TEXT
(cd "$root" && find . -xdev | cpio -o -H newc --quiet) >"$folder/initrd"
nice -n 19 qemu-system-x86_64 -accel tcg,thread=single -icount shift=3,sleep=off -cpu max -smp 1 -m 2048 \
    -nodefaults -no-reboot -nographic -serial stdio -kernel "$root/vmlinuz" -initrd "$folder/initrd" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off rdinit=/init" </dev/null |
    sed -u 's:\r::g' | tee "$folder/guest.log" | grep -a --line-buffered '^guest:\|^\[\|^==>' || true
grep -q '^guest: good' "$folder/guest.log" || { echo "ktls.sh: failed; see $folder/guest.log" >&2 && exit 1; }
echo "ktls.sh: good"
