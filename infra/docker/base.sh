#!/bin/sh
# Makes the base image where no image registry can be reached: Debian by debootstrap, imported into Docker.
#   sh infra/docker/base.sh [NAME]     NAME defaults to weft-base:bookworm
# Root only. DEBIAN_ARCH is the machine's own unless set; arm64 on amd64 needs the kernel to run it (qemu-user-static and
# binfmt_misc), as does the build on it (docker build --platform linux/arm64). DEBIAN_MIRROR names the mirror; certificates that this machine trusts besides Debian's
# (/usr/local/share/ca-certificates) are trusted in the image too, as builds go out the same way.
set -eu

name=${1:-weft-base:bookworm}
suite=bookworm
mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
security=${DEBIAN_SECURITY_MIRROR:-http://deb.debian.org/debian-security}

own=$(dpkg --print-architecture)
arch=${DEBIAN_ARCH:-$own}

fail() {
  printf 'base: %s\n' "$*" >&2
  exit 1
}
case $arch in
  amd64) machine=x86_64 ;;
  arm64) machine=aarch64 ;;
  *) fail "no image for $arch: amd64 or arm64" ;;
esac
if [ "$arch" != "$own" ] && ! [ -e "/proc/sys/fs/binfmt_misc/qemu-$machine" ]; then
  fail "this machine cannot run programs of $arch: apt-get install qemu-user-static binfmt-support"
fi
[ "$(id -u)" = 0 ] || fail 'debootstrap needs root'
command -v docker >/dev/null 2>&1 || fail 'docker is missing: apt-get install docker.io'
command -v debootstrap >/dev/null 2>&1 || fail 'debootstrap is missing: apt-get install debootstrap'

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
debootstrap --variant=minbase --arch="$arch" "$suite" "$work/root" "$mirror" >"$work/log" 2>&1 || {
  tail -n 20 "$work/log" >&2
  fail "debootstrap failed with the mirror $mirror"
}
cat >"$work/root/etc/apt/sources.list" <<EOF
deb $mirror $suite main
deb $mirror $suite-updates main
deb $security $suite-security main
EOF
# Remove files that a container never needs and files that differ in every build.
rm -rf "$work/root/var/cache/apt/archives/"*.deb "$work/root/var/lib/apt/lists/"* "$work/root/var/log/"* \
  "$work/root/usr/share/doc/"* "$work/root/usr/share/man/"* "$work/root/usr/share/locale/"*
: >"$work/root/etc/resolv.conf"
: >"$work/root/etc/hostname"
for certificate in /usr/local/share/ca-certificates/*.crt; do
  if [ -f "$certificate" ]; then install -D -m 644 -t "$work/root/usr/local/share/ca-certificates" "$certificate"; fi
done
tar -C "$work/root" --numeric-owner -c . | docker import --platform "linux/$arch" --change 'CMD ["/bin/sh"]' - "$name" >/dev/null
printf 'base: %s\n' "$name" >&2
