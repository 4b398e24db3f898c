// UDP sockets that live in another network namespace, for node:dgram to serve by descriptor.
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "common.h"

namespace weft {
namespace {

// An address in text and a port; no names are looked up.
bool parseNumeric(const std::string& text, int port, sockaddr_storage* address, socklen_t* length) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return false;
  std::memcpy(address, found->ai_addr, found->ai_addrlen);
  *length = found->ai_addrlen;
  freeaddrinfo(found);
  return true;
}

// listenUdp(netnsFd, address, port, mark, reusePort, receiveBuffer) → {fd, port}
napi_value listenUdp(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  const std::string text = arguments.text(1);
  const int port = arguments.integer(2);
  const int mark = arguments.integer(3);
  const bool reusePort = arguments.boolean(4);
  const int receiveBuffer = arguments.integer(5);
  if (arguments.failed()) return nullptr;
  sockaddr_storage address = {};
  socklen_t length = 0;
  if (!parseNumeric(text, port, &address, &length)) {
    return throwErrno(env, "getaddrinfo", EINVAL, text.c_str());
  }
  const char* call = nullptr;
  Descriptor fd(socketIn(env, netnsFd, address.ss_family, SOCK_DGRAM, &call));
  if (fd.get() < 0) return throwErrno(env, call, errno);
  if (mark != 0 && !setOption(fd.get(), SOL_SOCKET, SO_MARK, mark)) {
    return throwErrno(env, "setsockopt(SO_MARK)", errno);
  }
  if (reusePort && !setOption(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1)) {
    return throwErrno(env, "setsockopt(SO_REUSEPORT)", errno);
  }
  if (address.ss_family == AF_INET6 && !setOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1)) {
    return throwErrno(env, "setsockopt(IPV6_V6ONLY)", errno);
  }
  // A wish: a smaller buffer loses more of a burst and nothing else.
  if (receiveBuffer > 0) setOption(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, receiveBuffer);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    return throwErrno(env, "bind", errno, text.c_str());
  }
  sockaddr_storage bound = {};
  socklen_t boundLength = sizeof bound;
  if (getsockname(fd.get(), reinterpret_cast<sockaddr*>(&bound), &boundLength) != 0) {
    return throwErrno(env, "getsockname", errno);
  }
  const in_port_t boundPort = bound.ss_family == AF_INET
                                  ? reinterpret_cast<sockaddr_in*>(&bound)->sin_port
                                  : reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port;
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "fd", makeInteger(env, fd.release()));
  setProperty(env, result, "port", makeInteger(env, ntohs(boundPort)));
  return result;
}

// openUdp(netnsFd, family, mark) → fd, neither bound nor connected
napi_value openUdp(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  const int family = arguments.integer(1) == 4 ? AF_INET : AF_INET6;
  const int mark = arguments.integer(2);
  if (arguments.failed()) return nullptr;
  const char* call = nullptr;
  Descriptor fd(socketIn(env, netnsFd, family, SOCK_DGRAM, &call));
  if (fd.get() < 0) return throwErrno(env, call, errno);
  if (mark != 0 && !setOption(fd.get(), SOL_SOCKET, SO_MARK, mark)) {
    return throwErrno(env, "setsockopt(SO_MARK)", errno);
  }
  return makeInteger(env, fd.release());
}

}  // namespace

void registerUdp(napi_env env, napi_value exports) {
  setFunction(env, exports, "listenUdp", listenUdp);
  setFunction(env, exports, "openUdp", openUdp);
}

}  // namespace weft
