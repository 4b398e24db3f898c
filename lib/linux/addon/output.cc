// Holds lines and writes them to a descriptor without waiting for its reader. They are held here and not in JavaScript,
// so that lines of a terminated thread are written too.
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>

#include "common.h"

namespace weft {
namespace {

// Time for which a slow reader may delay the end of a thread.
constexpr int LAST_WAIT_MS = 500;
// A line of usual length is copied once.
constexpr size_t USUAL_LINE_BYTES = 2048;
constexpr size_t USUAL_HELD_BYTES = 65536;

struct Output {
  int fd = -1;
  // Takes a whole write at once.
  bool isFile = false;
  std::string held;
  // Bytes of `held` that are already written.
  size_t written = 0;
};

size_t heldBytes(const Output& output) { return output.held.size() - output.written; }

bool accepts(int fd, int waitMs) {
  pollfd poll_ = {fd, POLLOUT, 0};
  int ready = 0;
  do {
    ready = poll(&poll_, 1, waitMs);
  } while (ready < 0 && errno == EINTR && waitMs == 0);
  return ready > 0 || (ready < 0 && errno == EINTR);
}

// Writes as much as the reader takes now; -1 with errno set when it takes nothing.
ssize_t writeNow(int fd, const char* data, size_t length) {
  iovec part = {const_cast<char*>(data), length};
  const ssize_t count = pwritev2(fd, &part, 1, -1, RWF_NOWAIT);
  if (count >= 0 || (errno != EOPNOTSUPP && errno != ENOSYS && errno != ESPIPE && errno != EINVAL)) {
    return count;
  }
  // Older kernels and terminals: a descriptor that poll reports ready takes this much.
  if (!accepts(fd, 0)) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd, data, length);
}

// Whole lines that a pipe takes in one piece; lines of other writers could tear a longer piece.
size_t pieceOf(const Output& output) {
  const size_t left = heldBytes(output);
  if (output.isFile || left <= PIPE_BUF) return left;
  const char* start = output.held.data() + output.written;
  const void* last = memrchr(start, '\n', PIPE_BUF);
  return last == nullptr ? PIPE_BUF : static_cast<const char*>(last) - start + 1;
}

// Writes until all is written or the descriptor takes no more. 0, or the errno.
int flush(Output& output) {
  int error = 0;
  while (output.written < output.held.size()) {
    const char* start = output.held.data() + output.written;
    const size_t length = pieceOf(output);
    const ssize_t count =
        output.isFile ? write(output.fd, start, length) : writeNow(output.fd, start, length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      error = errno;
      break;
    }
    output.written += static_cast<size_t>(count);
  }
  if (output.written == output.held.size()) {
    output.held.clear();
    output.written = 0;
    // Free the memory that a slow reader once required.
    if (output.held.capacity() > USUAL_HELD_BYTES) output.held.shrink_to_fit();
  } else if (output.written > output.held.size() / 2) {
    output.held.erase(0, output.written);
    output.written = 0;
  }
  return error;
}

// Runs when the thread ends, or when the handle is collected.
void dropOutput(napi_env, void* data, void*) {
  auto* output = static_cast<Output*>(data);
  using std::chrono::steady_clock;
  const auto end = steady_clock::now() + std::chrono::milliseconds(LAST_WAIT_MS);
  while (flush(*output) == EAGAIN) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - steady_clock::now());
    if (left.count() <= 0 || !accepts(output->fd, static_cast<int>(left.count()))) break;
  }
  close(output->fd);
  delete output;
}

// Throws and returns nullptr for anything but a handle.
Output* outputArgument(napi_env env, const Arguments& arguments) {
  void* data = nullptr;
  if (napi_get_value_external(env, arguments.value(0), &data) != napi_ok) {
    napi_throw_type_error(env, nullptr, "argument 0 must be an output");
    return nullptr;
  }
  return static_cast<Output*>(data);
}

// outputOpen(fd) → handle with a duplicate of the descriptor.
napi_value outputOpen(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return throwErrno(env, "fcntl", errno);
  struct stat status = {};
  auto* output = new Output();
  output->fd = own;
  output->isFile = fstat(own, &status) == 0 && S_ISREG(status.st_mode);
  napi_value result = nullptr;
  napi_create_external(env, output, dropOutput, nullptr, &result);
  return result;
}

// outputAppend(handle, text) → held bytes.
napi_value outputAppend(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  Output* output = outputArgument(env, arguments);
  if (output == nullptr) return nullptr;
  std::string& held = output->held;
  const size_t before = held.size();
  size_t length = 0;
  held.resize(before + USUAL_LINE_BYTES);
  if (napi_get_value_string_utf8(env, arguments.value(1), &held[before], USUAL_LINE_BYTES, &length) != napi_ok) {
    held.resize(before);
    napi_throw_type_error(env, nullptr, "argument 1 must be text");
    return nullptr;
  }
  // Leaves out the end of a longer text, at a character boundary.
  if (length + 4 >= USUAL_LINE_BYTES) {
    napi_get_value_string_utf8(env, arguments.value(1), nullptr, 0, &length);
    held.resize(before + length + 1);
    napi_get_value_string_utf8(env, arguments.value(1), &held[before], length + 1, &length);
  }
  held.resize(before + length);
  return makeInteger(env, static_cast<int64_t>(heldBytes(*output)));
}

// outputFlush(handle) → bytes that are still held.
napi_value outputFlush(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  Output* output = outputArgument(env, arguments);
  if (output == nullptr) return nullptr;
  flush(*output);
  return makeInteger(env, static_cast<int64_t>(heldBytes(*output)));
}

}  // namespace

void registerOutput(napi_env env, napi_value exports) {
  setFunction(env, exports, "outputOpen", outputOpen);
  setFunction(env, exports, "outputAppend", outputAppend);
  setFunction(env, exports, "outputFlush", outputFlush);
}

}  // namespace weft
