// Which TCP ports a namespace listens on, asked of the kernel by sock_diag: unlike /proc/net/tcp its cost does
// not grow with the established connections of the namespace.
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "common.h"

namespace weft {
namespace {

constexpr uint32_t LISTEN_STATE = 10;  // TCP_LISTEN of net/tcp_states.h
constexpr time_t ANSWER_SECONDS = 2;

int netlinkIn(napi_env env, int netnsFd) {
  NetnsScope scope(env, netnsFd);
  if (scope.error() != 0) {
    errno = scope.error();
    return -1;
  }
  return socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, NETLINK_SOCK_DIAG);
}

bool askListeners(int fd, uint8_t family) {
  struct {
    nlmsghdr header;
    inet_diag_req_v2 request;
  } message = {};
  message.header.nlmsg_len = sizeof message;
  message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  message.header.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  message.request.sdiag_family = family;
  message.request.sdiag_protocol = IPPROTO_TCP;
  message.request.idiag_states = 1U << LISTEN_STATE;
  return send(fd, &message, sizeof message, 0) == static_cast<ssize_t>(sizeof message);
}

// 0 when the dump is complete, else an errno.
int readPorts(int fd, std::set<int>* ports) {
  alignas(nlmsghdr) char buffer[32768];
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
      const auto* found = static_cast<inet_diag_msg*>(NLMSG_DATA(header));
      ports->insert(ntohs(found->id.idiag_sport));
    }
  }
}

// listeningPorts(netnsFd) → sorted TCP ports with a listening socket of either family.
napi_value listeningPorts(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  std::set<int> ports;
  Descriptor fd(netlinkIn(env, netnsFd));
  if (fd.get() < 0) return throwErrno(env, "socket(NETLINK_SOCK_DIAG)", errno);
  // The kernel answers at once; the limit only guards the thread against a kernel that does not.
  timeval limit = {ANSWER_SECONDS, 0};
  if (setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) != 0) {
    return throwErrno(env, "setsockopt(SO_RCVTIMEO)", errno);
  }
  for (const int family : {AF_INET, AF_INET6}) {
    if (!askListeners(fd.get(), static_cast<uint8_t>(family))) {
      return throwErrno(env, "send(NETLINK_SOCK_DIAG)", errno);
    }
    const int failed = readPorts(fd.get(), &ports);
    if (failed != 0) return throwErrno(env, "recv(NETLINK_SOCK_DIAG)", failed);
  }
  napi_value result = nullptr;
  napi_create_array_with_length(env, ports.size(), &result);
  uint32_t index = 0;
  for (const int port : ports) {
    napi_set_element(env, result, index, makeInteger(env, port));
    index += 1;
  }
  return result;
}

}  // namespace

void registerDiagnostics(napi_env env, napi_value exports) {
  setFunction(env, exports, "listeningPorts", listeningPorts);
}

}  // namespace weft
