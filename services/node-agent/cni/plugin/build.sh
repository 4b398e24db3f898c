#!/bin/sh
# Builds build/weft-cni, a static program: hosts may lack every library. Skips the work when no source is newer.
# It is linked with musl, for glibc asks the processor 43 times for its features before `main`, and a virtual machine leaves for its
# host each time: three quarters of what an ADD cost. The C++ library serves by its headers alone.
set -eu
cd "$(dirname "$0")"
stamp=$(cat ./*.cc ./*.h base/*.cc build.sh | sha256sum)
if [ -f build/weft-cni ] && [ "$(cat build/stamp 2>/dev/null)" = "$stamp" ]; then exit 0; fi
gnu=$(g++ -dumpmachine)
musl=$(printf %s "$gnu" | sed 's/gnu$/musl/')
version=$(g++ -dumpversion)
mkdir -p build
tmp=build/weft-cni.$$
trap 'rm -f "$tmp"' EXIT
# The three definitions stand for names of glibc that the headers expect.
g++ -std=c++20 -Wall -Wextra -Werror -Os -fno-exceptions -fno-rtti -ffunction-sections -fdata-sections -fno-pie \
  -nostdinc -isystem "/usr/include/c++/$version" -isystem "/usr/include/$gnu/c++/$version" -isystem "/usr/include/$musl" \
  -isystem "$(g++ -print-file-name=include)" \
  '-D__GLIBC_PREREQ(major,minor)=0' -D__locale_t=locale_t -D_GLIBCXX_EXTERN_TEMPLATE=0 \
  -static -no-pie -nostdlib -s -Wl,--gc-sections,-z,noseparate-code,-z,norelro -o "$tmp" \
  "/usr/lib/$musl/crt1.o" "/usr/lib/$musl/crti.o" ./*.cc base/*.cc "/usr/lib/$musl/libc.a" -lgcc "/usr/lib/$musl/crtn.o"
mv "$tmp" build/weft-cni
printf '%s' "$stamp" >build/stamp
