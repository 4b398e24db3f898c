// Releases resident memory: pages of program files, which can be mapped again at any time, malloc's free memory, and garbage.
#include <fcntl.h>
#include <link.h>
#include <malloc.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <unistd.h>
#include <v8.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <vector>

#include "common.h"

namespace weft {
namespace {

// Bits of an entry of /proc/self/pagemap (Linux: Documentation/admin-guide/mm/pagemap.rst).
constexpr uint64_t PAGE_PRESENT = 1ULL << 63;
constexpr uint64_t PAGE_OF_FILE = 1ULL << 61;
// Entries read at once: 16 MiB of address space.
constexpr size_t ENTRIES = 4096;

struct Walk {
  int pagemap = -1;
  uintptr_t pageSize = 0;
  uintptr_t vdso = 0;
  std::vector<uint64_t> entries = std::vector<uint64_t>(ENTRIES);
  int64_t released = 0;
  int error = 0;
};

// A page that was written (a segment moved to memory, a debugger's breakpoint) no longer belongs to the file.
bool unchanged(uint64_t entry) { return (entry & PAGE_PRESENT) != 0 && (entry & PAGE_OF_FILE) != 0; }

void release(Walk& walk, uintptr_t from, uintptr_t to) {
  // EINVAL: the page is locked in memory; leave it.
  if (madvise(reinterpret_cast<void*>(from), to - from, MADV_DONTNEED) == 0) {
    walk.released += static_cast<int64_t>(to - from);
  } else if (errno != EINVAL) {
    walk.error = errno;
  }
}

// Releases each run of unchanged pages of [from, to); false when the table cannot be read.
bool releaseRange(Walk& walk, uintptr_t from, uintptr_t to) {
  while (from < to && walk.error == 0) {
    const size_t wanted = std::min<size_t>(ENTRIES, (to - from) / walk.pageSize);
    const auto offset = static_cast<off_t>(from / walk.pageSize * sizeof(uint64_t));
    const ssize_t bytes = pread(walk.pagemap, walk.entries.data(), wanted * sizeof(uint64_t), offset);
    if (bytes < 0) walk.error = errno;
    const size_t count = bytes <= 0 ? 0 : static_cast<size_t>(bytes) / sizeof(uint64_t);
    if (count == 0) return false;
    size_t index = 0;
    while (index < count && walk.error == 0) {
      size_t end = index;
      while (end < count && unchanged(walk.entries[end])) end++;
      if (end > index) release(walk, from + index * walk.pageSize, from + end * walk.pageSize);
      index = end + 1;
    }
    from += count * walk.pageSize;
  }
  return walk.error == 0;
}

// Runs under the loader's lock: no object is unmapped or replaced between the check and the release.
int releaseObject(dl_phdr_info* object, size_t, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  for (int index = 0; index < object->dlpi_phnum; index++) {
    const auto& segment = object->dlpi_phdr[index];
    // Pages that are or were writable are in other segments.
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t start = object->dlpi_addr + segment.p_vaddr;
    const uintptr_t from = start / walk.pageSize * walk.pageSize;
    const uintptr_t to = (start + segment.p_memsz + walk.pageSize - 1) / walk.pageSize * walk.pageSize;
    // The kernel's own object has no file.
    if (walk.vdso >= from && walk.vdso < to) continue;
    if (!releaseRange(walk, from, to)) return 1;
  }
  return 0;
}

napi_value releaseProgramPages(napi_env env, napi_callback_info) {
  Walk walk;
  walk.pageSize = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  walk.vdso = getauxval(AT_SYSINFO_EHDR);
  const Descriptor pagemap(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (pagemap.get() < 0) return throwErrno(env, "open", errno, "/proc/self/pagemap");
  walk.pagemap = pagemap.get();
  dl_iterate_phdr(releaseObject, &walk);
  if (walk.error != 0) return throwErrno(env, "madvise", walk.error);
  return makeInteger(env, walk.released);
}

napi_value releaseFreeMemory(napi_env, napi_callback_info) {
  malloc_trim(0);
  return nullptr;
}

// Under moderate pressure V8 marks the heap in small steps beside the program, and then returns what it can. Taken back at once,
// because V8 looks at a change of the level, and would keep the heap small for as long as the pressure lasts.
napi_value collectInSteps(napi_env, napi_callback_info) {
  v8::Isolate* isolate = v8::Isolate::GetCurrent();
  isolate->MemoryPressureNotification(v8::MemoryPressureLevel::kModerate);
  isolate->MemoryPressureNotification(v8::MemoryPressureLevel::kNone);
  return nullptr;
}

}  // namespace

void registerMemory(napi_env env, napi_value exports) {
  setFunction(env, exports, "releaseProgramPages", releaseProgramPages);
  setFunction(env, exports, "releaseFreeMemory", releaseFreeMemory);
  setFunction(env, exports, "collectInSteps", collectInSteps);
}

}  // namespace weft
