// The few functions that the headers of GCC's C++ library need from the library itself. That library is built for glibc, and the
// plugin is linked with musl (docs/decisions/cni-plugin.md). Without exceptions these failures end the process.
#include <bits/functexcept.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <new>

namespace {

[[noreturn]] void die(const char* reason) {
  for (const char* text : {"weft: ", reason, "\n"}) {
    if (write(STDERR_FILENO, text, std::strlen(text)) < 0) break;
  }
  _exit(1);
}

// A request fits in here. Each group of musl's allocator costs two system calls and the fault of a new page.
constexpr size_t kArenaBytes = 32 * 1024;
constexpr size_t kUnit = alignof(std::max_align_t);
alignas(kUnit) char arena[kArenaBytes];
size_t arenaUsed = 0;

bool isOfArena(const void* memory) { return memory >= arena && memory < arena + kArenaBytes; }

}  // namespace

void* operator new(size_t size) {
  if (size < kArenaBytes) {
    // At least one unit, so that no address is the arena's end.
    const size_t units = size / kUnit + 1;
    if (units <= (kArenaBytes - arenaUsed) / kUnit) {
      arenaUsed += units * kUnit;
      return arena + arenaUsed - units * kUnit;
    }
  }
  void* memory = std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) die("out of memory");
  return memory;
}

void operator delete(void* memory) noexcept {
  if (!isOfArena(memory)) std::free(memory);
}
void operator delete(void* memory, size_t) noexcept { operator delete(memory); }

namespace std {

void __throw_bad_alloc() { die("out of memory"); }
void __throw_bad_array_new_length() { die("out of memory"); }
void __throw_length_error(const char* where) { die(where); }
void __throw_logic_error(const char* where) { die(where); }
void __throw_out_of_range_fmt(const char* where, ...) { die(where); }
void __throw_bad_function_call() { die("a function that is none"); }

}  // namespace std
