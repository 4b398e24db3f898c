// The process: file limit, capabilities, and locks of files that end with it.
#include <fcntl.h>
#include <linux/capability.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "common.h"

namespace weft {
namespace {

napi_value raiseFileLimit(napi_env env, napi_callback_info) {
  struct rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return throwErrno(env, "getrlimit", errno);
  if (limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return throwErrno(env, "setrlimit", errno);
  }
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "soft", makeInteger(env, static_cast<int64_t>(limit.rlim_cur)));
  setProperty(env, result, "hard", makeInteger(env, static_cast<int64_t>(limit.rlim_max)));
  return result;
}

bool holds(const __user_cap_data_struct* data, unsigned capability) {
  return (data[capability / 32].effective & (1U << (capability % 32))) != 0;
}

napi_value capabilities(napi_env env, napi_callback_info) {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return throwErrno(env, "capget", errno);
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "netAdmin", makeBoolean(env, holds(data, CAP_NET_ADMIN)));
  setProperty(env, result, "netRaw", makeBoolean(env, holds(data, CAP_NET_RAW)));
  setProperty(env, result, "sysAdmin", makeBoolean(env, holds(data, CAP_SYS_ADMIN)));
  return result;
}

// lockFile(path) → fd that holds the lock; null while another descriptor holds it, in this process too.
napi_value lockFile(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const std::string path = arguments.text(0);
  if (arguments.failed()) return nullptr;
  // O_NONBLOCK: a FIFO in the place of the file must not block the thread.
  const int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK;
  Descriptor fd(open(path.c_str(), flags, S_IRUSR | S_IWUSR));
  if (fd.get() < 0) return throwErrno(env, "open", errno, path.c_str());
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return makeInteger(env, fd.release());
  if (errno == EWOULDBLOCK) return makeNull(env);
  return throwErrno(env, "flock", errno, path.c_str());
}

}  // namespace

void registerProcess(napi_env env, napi_value exports) {
  setFunction(env, exports, "raiseFileLimit", raiseFileLimit);
  setFunction(env, exports, "capabilities", capabilities);
  setFunction(env, exports, "lockFile", lockFile);
}

}  // namespace weft
