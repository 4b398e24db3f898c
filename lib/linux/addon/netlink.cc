// See netlink.h.
#include "netlink.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>

namespace weft {

// The kernel answers at once; the limit guards the thread against a kernel that does not.
constexpr time_t ANSWER_SECONDS = 2;
constexpr size_t RECEIVE_BYTES = 32768;  // what the kernel's own dumps use at most

int openNetlink(napi_env env, int netnsFd, int protocol) {
  int fd = -1;
  {
    NetnsScope scope(env, netnsFd);
    if (scope.error() != 0) {
      errno = scope.error();
      return -1;
    }
    fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, protocol);
  }
  if (fd < 0) return -1;
  const timeval limit = {ANSWER_SECONDS, 0};
  if (setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0) {
    const int error = errno;
    close(fd);
    errno = error;
    return -1;
  }
  return fd;
}

int askNetlink(int fd, const nlmsghdr* request,
               const std::function<void(const nlmsghdr*)>& onMessage) {
  const bool dump = (request->nlmsg_flags & NLM_F_DUMP) == NLM_F_DUMP;
  if (send(fd, request, request->nlmsg_len, 0) != static_cast<ssize_t>(request->nlmsg_len)) {
    return errno;
  }
  alignas(nlmsghdr) char buffer[RECEIVE_BYTES];
  for (;;) {
    const ssize_t received = recv(fd, buffer, sizeof buffer, 0);
    if (received < 0) return errno == EAGAIN ? ETIMEDOUT : errno;
    auto left = static_cast<uint32_t>(received);
    for (auto* header = reinterpret_cast<nlmsghdr*>(buffer); NLMSG_OK(header, left);
         header = NLMSG_NEXT(header, left)) {
      if (header->nlmsg_type == NLMSG_DONE) return 0;
      if (header->nlmsg_type == NLMSG_ERROR) {
        return -static_cast<nlmsgerr*>(NLMSG_DATA(header))->error;
      }
      onMessage(header);
      if (!dump) return 0;
    }
  }
}

}  // namespace weft
