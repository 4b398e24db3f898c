// Network namespaces: open, identify, enter for one call, sysctls.
#include <fcntl.h>
#include <linux/nsfs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "common.h"

namespace weft {

NetnsScope::NetnsScope(napi_env env, int netnsFd) {
  if (netnsFd < 0) return;
  const int home = envData(env)->homeNetnsFd;
  if (setns(netnsFd, CLONE_NEWNET) != 0) {
    error_ = errno;
    return;
  }
  home_ = home;
}

NetnsScope::~NetnsScope() {
  if (home_ < 0) return;
  const int saved = errno;
  if (setns(home_, CLONE_NEWNET) != 0) {
    std::fprintf(stderr, "weft: cannot return to the thread's own network namespace: %s\n",
                 strerror(errno));
    std::abort();
  }
  errno = saved;
}

namespace {

// True when `fd` is a handle of a network namespace, whatever path it was opened by.
bool isNetns(int fd) { return ioctl(fd, NS_GET_NSTYPE) == CLONE_NEWNET; }

napi_value openNetns(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const std::string path = arguments.text(0);
  if (arguments.failed()) return nullptr;
  // O_NONBLOCK: a FIFO in the place of a namespace must not block the thread.
  Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (fd.get() < 0) return throwErrno(env, "open", errno, path.c_str());
  if (!isNetns(fd.get())) return throwErrno(env, "ioctl(NS_GET_NSTYPE)", EINVAL, path.c_str());
  return makeInteger(env, fd.release());
}

napi_value netnsIdentity(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  struct stat status = {};
  if (fstat(fd, &status) != 0) return throwErrno(env, "fstat", errno);
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "inode", makeText(env, std::to_string(status.st_ino)));
  setProperty(env, result, "device", makeText(env, std::to_string(status.st_dev)));
  setProperty(env, result, "isNetns", makeBoolean(env, isNetns(fd)));
  return result;
}

napi_value closeFd(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  // EINTR leaves the descriptor closed on Linux: never repeat.
  if (close(fd) != 0 && errno != EINTR) return throwErrno(env, "close", errno);
  return nullptr;
}

// /proc/sys/net shows the namespace of the thread that opens the file; reading and writing happen at home.
int openSysctl(napi_env env, int netnsFd, const std::string& path, int flags) {
  NetnsScope scope(env, netnsFd);
  if (scope.error() != 0) {
    errno = scope.error();
    return -1;
  }
  return open(path.c_str(), flags | O_CLOEXEC);
}

napi_value readSysctl(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  const std::string path = arguments.text(1);
  if (arguments.failed()) return nullptr;
  Descriptor fd(openSysctl(env, netnsFd, path, O_RDONLY));
  if (fd.get() < 0) return throwErrno(env, "open", errno, path.c_str());
  char text[4096];
  const ssize_t length = read(fd.get(), text, sizeof text);
  if (length < 0) return throwErrno(env, "read", errno, path.c_str());
  return makeText(env, std::string(text, static_cast<size_t>(length)));
}

napi_value writeSysctl(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  const std::string path = arguments.text(1);
  const std::string text = arguments.text(2);
  if (arguments.failed()) return nullptr;
  Descriptor fd(openSysctl(env, netnsFd, path, O_WRONLY));
  if (fd.get() < 0) return throwErrno(env, "open", errno, path.c_str());
  if (write(fd.get(), text.data(), text.size()) < 0) {
    return throwErrno(env, "write", errno, path.c_str());
  }
  return nullptr;
}

}  // namespace

void registerNetns(napi_env env, napi_value exports) {
  setFunction(env, exports, "openNetns", openNetns);
  setFunction(env, exports, "netnsIdentity", netnsIdentity);
  setFunction(env, exports, "closeFd", closeFd);
  setFunction(env, exports, "readSysctl", readSysctl);
  setFunction(env, exports, "writeSysctl", writeSysctl);
}

}  // namespace weft
