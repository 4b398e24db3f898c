// TCP sockets that live in another network namespace. Only socket() runs inside it: the socket keeps its
// namespace, so options, bind and listen work from the thread's own one.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "common.h"

#ifndef IPV6_TRANSPARENT
#define IPV6_TRANSPARENT 75
#endif
#ifndef IPV6_FREEBIND
#define IPV6_FREEBIND 78
#endif
#ifndef IP_BIND_ADDRESS_NO_PORT
#define IP_BIND_ADDRESS_NO_PORT 24
#endif

namespace weft {
namespace {

// A failed step of a socket under construction: which call, with errno still set.
using Failure = const char*;

Failure setTransparent(int fd, int family) {
  if (family == AF_INET) {
    return setOption(fd, IPPROTO_IP, IP_TRANSPARENT, 1) ? nullptr : "setsockopt(IP_TRANSPARENT)";
  }
  return setOption(fd, IPPROTO_IPV6, IPV6_TRANSPARENT, 1) ? nullptr
                                                          : "setsockopt(IPV6_TRANSPARENT)";
}

Failure bindSpoofed(int fd, const Address& source) {
  if (Failure failure = setTransparent(fd, source.family)) return failure;
  const bool free = source.family == AF_INET ? setOption(fd, IPPROTO_IP, IP_FREEBIND, 1)
                                             : setOption(fd, IPPROTO_IPV6, IPV6_FREEBIND, 1);
  if (!free) return "setsockopt(IP_FREEBIND)";
  // Without it bind() takes one of the address's ports for all destinations. Works at this level for IPv6 too.
  if (!setOption(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)) {
    return "setsockopt(IP_BIND_ADDRESS_NO_PORT)";
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&source.storage);
  return bind(fd, address, source.length) == 0 ? nullptr : "bind";
}

Failure bindLocal(int fd, const Address& local) {
  if (!setOption(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, 1)) {
    return "setsockopt(IP_BIND_ADDRESS_NO_PORT)";
  }
  const auto* address = reinterpret_cast<const sockaddr*>(&local.storage);
  return bind(fd, address, local.length) == 0 ? nullptr : "bind";
}

struct TcpOptions {
  bool noDelay;
  int keepIdleSeconds;  // 0: no keepalive
  int keepIntervalSeconds;
  int keepRetries;
  int userTimeoutMs;  // 0: the kernel's own
  bool local;
};

Failure setTcp(int fd, const TcpOptions& options) {
  if (!setOption(fd, IPPROTO_TCP, TCP_NODELAY, options.noDelay ? 1 : 0)) {
    return "setsockopt(TCP_NODELAY)";
  }
  if (options.keepIdleSeconds > 0) {
    if (!setOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1)) return "setsockopt(SO_KEEPALIVE)";
    if (!setOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, options.keepIdleSeconds)) {
      return "setsockopt(TCP_KEEPIDLE)";
    }
    if (!setOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, options.keepIntervalSeconds)) {
      return "setsockopt(TCP_KEEPINTVL)";
    }
    if (!setOption(fd, IPPROTO_TCP, TCP_KEEPCNT, options.keepRetries)) {
      return "setsockopt(TCP_KEEPCNT)";
    }
  }
  if (options.userTimeoutMs > 0 &&
      !setOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, options.userTimeoutMs)) {
    return "setsockopt(TCP_USER_TIMEOUT)";
  }
  // Within a machine there is no network to spare, and BBR, the default of some, paces by timers even there. Every kernel
  // has Reno; an administrator may forbid it to processes without CAP_NET_ADMIN.
  constexpr char RENO[] = "reno";
  if (options.local && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, RENO, sizeof RENO - 1) != 0 &&
      errno != EPERM) {
    return "setsockopt(TCP_CONGESTION)";
  }
  return nullptr;
}

TcpOptions readTcpOptions(Arguments& arguments, size_t first) {
  TcpOptions options = {};
  options.noDelay = arguments.boolean(first);
  options.keepIdleSeconds = arguments.integer(first + 1);
  options.keepIntervalSeconds = arguments.integer(first + 2);
  options.keepRetries = arguments.integer(first + 3);
  options.userTimeoutMs = arguments.integer(first + 4);
  options.local = arguments.boolean(first + 5);
  return options;
}

struct ListenerOptions {
  int mark;
  bool reusePort;
  int backlog;
  TcpOptions tcp;
};

Failure prepareListener(int fd, const Address& address, const ListenerOptions& options) {
  const int mark = options.mark;
  if (mark != 0 && !setOption(fd, SOL_SOCKET, SO_MARK, mark)) return "setsockopt(SO_MARK)";
  // A restart must not wait for connections of the predecessor in TIME_WAIT.
  if (!setOption(fd, SOL_SOCKET, SO_REUSEADDR, 1)) return "setsockopt(SO_REUSEADDR)";
  if (options.reusePort && !setOption(fd, SOL_SOCKET, SO_REUSEPORT, 1)) {
    return "setsockopt(SO_REUSEPORT)";
  }
  if (address.family == AF_INET6 && !setOption(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0)) {
    return "setsockopt(IPV6_V6ONLY)";
  }
  // Before the first connection can come: what is accepted inherits them.
  if (Failure failure = setTcp(fd, options.tcp)) return failure;
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.length) != 0) {
    return "bind";
  }
  return listen(fd, options.backlog) == 0 ? nullptr : "listen";
}

enum Transparency { TRANSPARENT_OFF = 0, TRANSPARENT_AUTO = 1, TRANSPARENT_ON = 2 };

// listenTcp(netnsFd, address, port, mark, reusePort, transparency, backlog, noDelay, idle, interval, retries,
//   userTimeout, local) → {fd, port, transparent}
napi_value listenTcp(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  const std::string text = arguments.text(1);
  const int port = arguments.integer(2);
  ListenerOptions options = {};
  options.mark = arguments.integer(3);
  options.reusePort = arguments.boolean(4);
  const int transparency = arguments.integer(5);
  options.backlog = arguments.integer(6);
  options.tcp = readTcpOptions(arguments, 7);
  if (arguments.failed()) return nullptr;
  Address address;
  if (!parseAddress(text, port, &address)) {
    return throwErrno(env, "inet_pton", EINVAL, text.c_str());
  }
  const char* call = nullptr;
  Descriptor fd(socketIn(env, netnsFd, address.family, SOCK_STREAM, &call));
  if (fd.get() < 0) return throwErrno(env, call, errno);
  if (Failure failure = prepareListener(fd.get(), address, options)) {
    return throwErrno(env, failure, errno);
  }
  bool transparent = false;
  if (transparency != TRANSPARENT_OFF) {
    Failure failure = setTransparent(fd.get(), address.family);
    // A dual-stack listener carries IPv4 connections too.
    if (failure == nullptr && address.family == AF_INET6) failure = setTransparent(fd.get(), AF_INET);
    if (failure != nullptr && transparency == TRANSPARENT_ON) {
      return throwErrno(env, failure, errno);
    }
    transparent = failure == nullptr;
  }
  const int bound = boundPort(fd.get());
  if (bound < 0) return throwErrno(env, "getsockname", errno);
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "fd", makeInteger(env, fd.release()));
  setProperty(env, result, "port", makeInteger(env, bound));
  setProperty(env, result, "transparent", makeBoolean(env, transparent));
  return result;
}

// openTcp(netnsFd, family, mark, spoofedSource, localSource, noDelay, idle, interval, retries, userTimeout,
//   local) → fd
napi_value openTcp(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int netnsFd = arguments.integer(0);
  const int family = arguments.integer(1) == 4 ? AF_INET : AF_INET6;
  const int mark = arguments.integer(2);
  const std::string spoofed = arguments.text(3);
  const std::string local = arguments.text(4);
  const TcpOptions options = readTcpOptions(arguments, 5);
  if (arguments.failed()) return nullptr;
  Address source;
  const std::string& sourceText = spoofed.empty() ? local : spoofed;
  if (!sourceText.empty() &&
      (!parseAddress(sourceText, 0, &source) || source.family != family)) {
    return throwErrno(env, "inet_pton", EINVAL, sourceText.c_str());
  }
  const char* call = nullptr;
  Descriptor fd(socketIn(env, netnsFd, family, SOCK_STREAM, &call));
  if (fd.get() < 0) return throwErrno(env, call, errno);
  if (Failure failure = setTcp(fd.get(), options)) return throwErrno(env, failure, errno);
  if (mark != 0 && !setOption(fd.get(), SOL_SOCKET, SO_MARK, mark)) {
    return throwErrno(env, "setsockopt(SO_MARK)", errno);
  }
  Failure failure = nullptr;
  if (!spoofed.empty()) {
    failure = bindSpoofed(fd.get(), source);
  } else if (!local.empty()) {
    failure = bindLocal(fd.get(), source);
  }
  if (failure != nullptr) return throwErrno(env, failure, errno, sourceText.c_str());
  return makeInteger(env, fd.release());
}

enum Connecting { CONNECT_DONE = 0, CONNECT_PENDING = 1, CONNECT_RESET = 2 };

// One connect(2), where `begun` says that it is not the first.
int connectOnce(int fd, const Address& to, bool begun) {
  int failed;
  do {
    failed = connect(fd, reinterpret_cast<const sockaddr*>(&to.storage), to.length);
  } while (failed != 0 && errno == EINTR);
  if (failed == 0 || (begun && errno == EISCONN)) return CONNECT_DONE;
  if (errno == EINPROGRESS || errno == EALREADY) return CONNECT_PENDING;
  // A pending connect is refused; only a connection that was made is reset, with EPIPE if its peer had ended it first.
  return errno == ECONNRESET || errno == EPIPE ? CONNECT_RESET : -1;
}

// connectTcp(fd, ip, port) → the state of the connect. A further call while it is pending returns the new state and
// sends no second SYN. Do not call it again after a failure.
napi_value connectTcp(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  const std::string text = arguments.text(1);
  const int port = arguments.integer(2);
  if (arguments.failed()) return nullptr;
  Address to;
  if (!parseAddress(text, port, &to)) return throwErrno(env, "inet_pton", EINVAL, text.c_str());
  // The handshake with a peer of this machine is over when connect(2) returns, but a non-blocking socket still reports
  // EINPROGRESS. A second call returns the result without a turn of the event loop.
  int state = connectOnce(fd, to, false);
  if (state == CONNECT_PENDING) state = connectOnce(fd, to, true);
  return state < 0 ? throwErrno(env, "connect", errno) : makeInteger(env, state);
}

// resetOnClose(fd) makes the close of the connection a reset (RST), even if data waits to be sent or read.
napi_value resetOnClose(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  if (!setResetOnClose(fd)) return throwErrno(env, "setsockopt(SO_LINGER)", errno);
  return nullptr;
}

}  // namespace

bool setResetOnClose(int fd) {
  const linger none = {1, 0};
  return setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none) == 0;
}

void registerSockets(napi_env env, napi_value exports) {
  setFunction(env, exports, "listenTcp", listenTcp);
  setFunction(env, exports, "openTcp", openTcp);
  setFunction(env, exports, "connectTcp", connectTcp);
  setFunction(env, exports, "resetOnClose", resetOnClose);
}

}  // namespace weft
