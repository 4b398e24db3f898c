// UDP sockets that live in another network namespace, for node:dgram to serve by descriptor.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include "common.h"

namespace weft {
namespace {

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
  Address address;
  if (!parseAddress(text, port, &address)) {
    return throwErrno(env, "inet_pton", EINVAL, text.c_str());
  }
  const char* call = nullptr;
  Descriptor fd(socketIn(env, netnsFd, address.family, SOCK_DGRAM, &call));
  if (fd.get() < 0) return throwErrno(env, call, errno);
  if (mark != 0 && !setOption(fd.get(), SOL_SOCKET, SO_MARK, mark)) {
    return throwErrno(env, "setsockopt(SO_MARK)", errno);
  }
  if (reusePort && !setOption(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1)) {
    return throwErrno(env, "setsockopt(SO_REUSEPORT)", errno);
  }
  if (address.family == AF_INET6 && !setOption(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1)) {
    return throwErrno(env, "setsockopt(IPV6_V6ONLY)", errno);
  }
  // Best effort: a smaller buffer only loses more of a burst.
  if (receiveBuffer > 0) setOption(fd.get(), SOL_SOCKET, SO_RCVBUFFORCE, receiveBuffer);
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    return throwErrno(env, "bind", errno, text.c_str());
  }
  const int bound = boundPort(fd.get());
  if (bound < 0) return throwErrno(env, "getsockname", errno);
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "fd", makeInteger(env, fd.release()));
  setProperty(env, result, "port", makeInteger(env, bound));
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
