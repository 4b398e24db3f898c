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
#include <memory>
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

// Work of a pool thread, with the promise that it settles. It may block for tens of milliseconds: no event loop waits for it.
struct Release {
  napi_async_work work = nullptr;
  napi_deferred deferred = nullptr;
  void (*run)(Release&) = nullptr;
  int64_t released = 0;
  // Set when it failed.
  const char* call = nullptr;
  const char* path = nullptr;
  int error = 0;
};

void runRelease(napi_env, void* data) {
  auto& release = *static_cast<Release*>(data);
  release.run(release);
}

void settleRelease(napi_env env, napi_status, void* data) {
  const std::unique_ptr<Release> release(static_cast<Release*>(data));
  if (release->call != nullptr) {
    napi_reject_deferred(env, release->deferred, makeErrno(env, release->call, release->error, release->path));
  } else {
    napi_resolve_deferred(env, release->deferred, makeInteger(env, release->released));
  }
  napi_delete_async_work(env, release->work);
}

napi_value begin(napi_env env, const char* name, void (*run)(Release&)) {
  auto release = std::make_unique<Release>();
  release->run = run;
  napi_value promise = nullptr;
  if (napi_create_promise(env, &release->deferred, &promise) != napi_ok ||
      napi_create_async_work(env, nullptr, makeText(env, name), runRelease, settleRelease, release.get(),
                             &release->work) != napi_ok ||
      napi_queue_async_work(env, release->work) != napi_ok) {
    return throwErrno(env, name, ENOMEM);
  }
  release.release();
  return promise;
}

void dropProgramPages(Release& release) {
  Walk walk;
  walk.pageSize = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  walk.vdso = getauxval(AT_SYSINFO_EHDR);
  const Descriptor pagemap(open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC));
  if (pagemap.get() < 0) {
    release.call = "open";
    release.path = "/proc/self/pagemap";
    release.error = errno;
    return;
  }
  walk.pagemap = pagemap.get();
  dl_iterate_phdr(releaseObject, &walk);
  release.released = walk.released;
  if (walk.error == 0) return;
  release.call = "madvise";
  release.error = walk.error;
}

napi_value releaseProgramPages(napi_env env, napi_callback_info) {
  return begin(env, "releaseProgramPages", dropProgramPages);
}

napi_value releaseFreeMemory(napi_env env, napi_callback_info) {
  return begin(env, "releaseFreeMemory", [](Release&) { malloc_trim(0); });
}

// Under moderate pressure V8 marks the heap in small steps beside the program, and then returns what it can. Taken back at once,
// because V8 looks at a change of the level, and would keep the heap small for as long as the pressure lasts.
napi_value collectInSteps(napi_env, napi_callback_info) {
  v8::Isolate* isolate = v8::Isolate::GetCurrent();
  isolate->MemoryPressureNotification(v8::MemoryPressureLevel::kModerate);
  isolate->MemoryPressureNotification(v8::MemoryPressureLevel::kNone);
  return nullptr;
}

napi_value saveMemory(napi_env, napi_callback_info) {
  v8::Isolate::GetCurrent()->SetMemorySaverMode(true);
  return nullptr;
}

}  // namespace

void registerMemory(napi_env env, napi_value exports) {
  setFunction(env, exports, "releaseProgramPages", releaseProgramPages);
  setFunction(env, exports, "releaseFreeMemory", releaseFreeMemory);
  setFunction(env, exports, "collectInSteps", collectInSteps);
  setFunction(env, exports, "saveMemory", saveMemory);
}

}  // namespace weft
