// AF_UNIX SOCK_SEQPACKET with descriptor passing: plain non-blocking calls; poll.cc brings the events.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "common.h"

namespace weft {
namespace {

// Room for more descriptors than any packet may carry, so that surplus ones are seen and closed.
constexpr size_t MAX_RECEIVED_FDS = 32;
constexpr size_t MAX_RECEIVE_BYTES = 65536;

bool unixAddress(const std::string& path, sockaddr_un* address) {
  if (path.empty() || path.size() >= sizeof address->sun_path) return false;
  address->sun_family = AF_UNIX;
  std::memcpy(address->sun_path, path.c_str(), path.size() + 1);
  return true;
}

int seqpacketSocket() { return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0); }

// seqpacketListen(path, mode, backlog) → fd. The path must not exist.
napi_value seqpacketListen(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const std::string path = arguments.text(0);
  const int mode = arguments.integer(1);
  const int backlog = arguments.integer(2);
  if (arguments.failed()) return nullptr;
  sockaddr_un address = {};
  if (!unixAddress(path, &address)) return throwErrno(env, "bind", ENAMETOOLONG, path.c_str());
  Descriptor fd(seqpacketSocket());
  if (fd.get() < 0) return throwErrno(env, "socket", errno);
  // bind() makes the file with the mode of the socket's inode: never wider than asked, not even for a moment.
  if (fchmod(fd.get(), static_cast<mode_t>(mode)) != 0) return throwErrno(env, "fchmod", errno);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return throwErrno(env, "bind", errno, path.c_str());
  }
  if (chmod(path.c_str(), static_cast<mode_t>(mode)) != 0) {
    return throwErrno(env, "chmod", errno, path.c_str());
  }
  if (listen(fd.get(), backlog) != 0) return throwErrno(env, "listen", errno, path.c_str());
  return makeInteger(env, fd.release());
}

napi_value seqpacketConnect(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const std::string path = arguments.text(0);
  if (arguments.failed()) return nullptr;
  sockaddr_un address = {};
  if (!unixAddress(path, &address)) return throwErrno(env, "connect", ENAMETOOLONG, path.c_str());
  Descriptor fd(seqpacketSocket());
  if (fd.get() < 0) return throwErrno(env, "socket", errno);
  // A unix connect never waits: it succeeds, or fails with EAGAIN when the backlog is full.
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return throwErrno(env, "connect", errno, path.c_str());
  }
  return makeInteger(env, fd.release());
}

// seqpacketAccept(fd) → {fd, pid, uid} | null when nobody waits.
napi_value seqpacketAccept(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int listener = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  Descriptor fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (fd.get() < 0) {
    if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR) return makeNull(env);
    return throwErrno(env, "accept4", errno);
  }
  struct ucred peer = {};
  socklen_t length = sizeof peer;
  if (getsockopt(fd.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return throwErrno(env, "getsockopt(SO_PEERCRED)", errno);
  }
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "fd", makeInteger(env, fd.release()));
  setProperty(env, result, "pid", makeInteger(env, peer.pid));
  setProperty(env, result, "uid", makeInteger(env, peer.uid));
  return result;
}

// seqpacketSend(fd, bytes, passedFd | -1) → false when the socket takes nothing now.
napi_value seqpacketSend(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  const int passed = arguments.integer(2);
  if (arguments.failed()) return nullptr;
  void* bytes = nullptr;
  size_t length = 0;
  if (napi_get_buffer_info(env, arguments.value(1), &bytes, &length) != napi_ok) {
    napi_throw_type_error(env, nullptr, "argument 1 must be a Uint8Array");
    return nullptr;
  }
  iovec vector = {bytes, length};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  if (passed >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &passed, sizeof passed);
  }
  const ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent >= 0) return makeBoolean(env, true);
  if (errno == EAGAIN || errno == EINTR) return makeBoolean(env, false);
  return throwErrno(env, "sendmsg", errno);
}

std::vector<int> receivedFds(msghdr* message) {
  std::vector<int> fds;
  for (cmsghdr* header = CMSG_FIRSTHDR(message); header != nullptr;
       header = CMSG_NXTHDR(message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t index = 0; index < count; index += 1) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + index * sizeof(int), sizeof fd);
      fds.push_back(fd);
    }
  }
  return fds;
}

// seqpacketReceive(fd, maxBytes) → {data, fds, truncated} | null when nothing waits. No data = end of stream.
napi_value seqpacketReceive(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  const int32_t asked = arguments.integer(1);
  if (arguments.failed()) return nullptr;
  if (asked <= 0 || static_cast<size_t>(asked) > MAX_RECEIVE_BYTES) {
    napi_throw_range_error(env, nullptr, "argument 1 must be a size from 1 to 65536");
    return nullptr;
  }
  std::vector<char> buffer(static_cast<size_t>(asked));
  alignas(cmsghdr) char control[CMSG_SPACE(MAX_RECEIVED_FDS * sizeof(int))] = {};
  iovec vector = {buffer.data(), buffer.size()};
  msghdr message = {};
  message.msg_iov = &vector;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (length < 0) {
    if (errno == EAGAIN || errno == EINTR) return makeNull(env);
    return throwErrno(env, "recvmsg", errno);
  }
  napi_value fds = nullptr;
  napi_create_array(env, &fds);
  uint32_t index = 0;
  for (const int received : receivedFds(&message)) {
    napi_set_element(env, fds, index, makeInteger(env, received));
    index += 1;
  }
  napi_value data = nullptr;
  napi_create_buffer_copy(env, static_cast<size_t>(length), buffer.data(), nullptr, &data);
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "data", data);
  setProperty(env, result, "fds", fds);
  const bool truncated = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  setProperty(env, result, "truncated", makeBoolean(env, truncated));
  return result;
}

}  // namespace

void registerSeqpacket(napi_env env, napi_value exports) {
  setFunction(env, exports, "seqpacketListen", seqpacketListen);
  setFunction(env, exports, "seqpacketConnect", seqpacketConnect);
  setFunction(env, exports, "seqpacketAccept", seqpacketAccept);
  setFunction(env, exports, "seqpacketSend", seqpacketSend);
  setFunction(env, exports, "seqpacketReceive", seqpacketReceive);
}

}  // namespace weft
