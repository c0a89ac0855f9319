#!/bin/bash
# Install the package on a bare Debian 12 and run its smoke test there. Prints what each step took.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
    cat <<'TEXT'
usage: packaging/bare.sh FOLDER [PACKAGE.deb]

Makes a bare Debian 12 in FOLDER/base with debootstrap, unless one is there from an earlier call, and
installs the package in a copy of it with apt-get. The default is the newest package of
build/release. Needs root, and Debian's mirror; MIRROR names another one.
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
if [ -z "$package" ]; then
    # shellcheck disable=SC2012
    package=$(ls -t build/release/frostline_*.deb 2>/dev/null | head -n 1) || true
fi
if [ ! -e "$package" ]; then
    echo "bare.sh: there is no package; (cd build/release && cpack -G DEB) makes one" >&2
    exit 2
fi
if [ "$(id -u)" -ne 0 ] || ! command -v debootstrap >/dev/null; then
    echo "bare.sh: needs root, and the package debootstrap" >&2
    exit 2
fi

mkdir -p "$folder"
if [ ! -e "$folder/base.made" ]; then
    echo "bare.sh: debootstrap into $folder/base"
    rm -rf "$folder/base"
    debootstrap --variant=minbase bookworm "$folder/base" "$mirror" >"$folder/debootstrap.log" ||
        { tail -n 5 "$folder/debootstrap.log" && exit 1; }
    touch "$folder/base.made"
fi
rm -rf "$folder/root"
cp -a "$folder/base" "$folder/root"
cp "$package" "$folder/root/frostline.deb"
cp /etc/resolv.conf "$folder/root/etc/resolv.conf"
cat >"$folder/root/inside.sh" <<'TEXT'
set -e
echo "packages before: $(dpkg-query -W | wc -l)"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -y -q --no-install-recommends /frostline.deb >/install.log 2>&1 || { tail /install.log; exit 1; }
echo "packages after: $(dpkg-query -W | wc -l)"
/usr/lib/frostline/smoke
apt-get install -y -q --no-install-recommends $(dpkg-query -W -f '${Suggests}' frostline | tr -d ,) >/install.log 2>&1 || { tail /install.log; exit 1; }
echo "packages with those that are suggested: $(dpkg-query -W | wc -l)"
/usr/lib/frostline/smoke | tee /smoke.log | tail -n 2
grep -q 'the example builds' /smoke.log
dpkg --audit
dpkg -r frostline >/dev/null
[ ! -e /usr/bin/frostline ]
echo "removed again"
TEXT
# The mounts go with the name space. The variable is for the shell in it.
# shellcheck disable=SC2016
root=$folder/root unshare -m -p -f bash -c '
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount --rbind /sys "$root/sys"
    exec env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 chroot "$root" bash /inside.sh'
echo "bare.sh: good"
