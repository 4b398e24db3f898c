// Connections that wait at a listener, and descriptors of connections that no other part of the process closes yet.
#include <arpa/inet.h>
#include <linux/netfilter_ipv4.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "common.h"

// linux/netfilter_ipv6/ip6_tables.h clashes with the C++ headers over a keyword.
constexpr int IP6T_ORIGINAL_DST = 80;

namespace weft {
namespace {

// The kernel's name; an IPv4 address of a dual-stack socket becomes plain IPv4.
struct Name {
  char text[INET6_ADDRSTRLEN] = {};
  int port = 0;
  bool v4 = false;
};

Name nameOf(const sockaddr_storage& storage) {
  Name name;
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    inet_ntop(AF_INET, &v4->sin_addr, name.text, sizeof name.text);
    name.port = ntohs(v4->sin_port);
    name.v4 = true;
    return name;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
  name.port = ntohs(v6->sin6_port);
  name.v4 = IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr);
  if (name.v4) {
    inet_ntop(AF_INET, &v6->sin6_addr.s6_addr[12], name.text, sizeof name.text);
  } else {
    inet_ntop(AF_INET6, &v6->sin6_addr, name.text, sizeof name.text);
  }
  return name;
}

enum Answer { ANSWERED, UNANSWERED, FAILED };

// The original destination of a redirected connection from conntrack; FAILED with errno set.
Answer askOriginal(int fd, bool v6First, sockaddr_storage* storage) {
  for (int attempt = 0; attempt < 2; attempt += 1) {
    const bool v6 = (attempt == 0) == v6First;
    socklen_t length = sizeof *storage;
    const int failed = v6 ? getsockopt(fd, IPPROTO_IPV6, IP6T_ORIGINAL_DST, storage, &length)
                          : getsockopt(fd, IPPROTO_IP, SO_ORIGINAL_DST, storage, &length);
    if (failed == 0) return ANSWERED;
    // No conntrack entry, wrong family for this socket, or netfilter not loaded for the family: no answer.
    const bool unanswered = errno == ENOENT || errno == ENOPROTOOPT || errno == EOPNOTSUPP ||
                            errno == EAFNOSUPPORT || errno == EINVAL;
    if (!unanswered) return FAILED;
  }
  return UNANSWERED;
}

void setName(napi_env env, napi_value array, uint32_t index, const Name& name) {
  napi_value text = nullptr;
  napi_create_string_latin1(env, name.text, NAPI_AUTO_LENGTH, &text);
  napi_set_element(env, array, index, text);
  napi_set_element(env, array, index + 1, makeInteger(env, name.port));
}

using GetName = int (*)(int, sockaddr*, socklen_t*);

// False with errno set.
bool readName(GetName get, int fd, Name* name) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (get(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return false;
  if (storage.ss_family != AF_INET && storage.ss_family != AF_INET6) {
    errno = EAFNOSUPPORT;
    return false;
  }
  *name = nameOf(storage);
  return true;
}

// Both ends of an accepted socket.
struct Names {
  Name remote;
  Name local;
  Name original;
  Answer answer = UNANSWERED;
};

// Null, or the call that failed with errno set.
const char* readNames(int fd, bool redirected, Names* names) {
  if (!readName(getpeername, fd, &names->remote)) return "getpeername";
  if (!readName(getsockname, fd, &names->local)) return "getsockname";
  if (!redirected) return nullptr;
  sockaddr_storage original = {};
  names->answer = askOriginal(fd, !names->local.v4, &original);
  if (names->answer == FAILED) return "getsockopt(SO_ORIGINAL_DST)";
  if (names->answer == ANSWERED) names->original = nameOf(original);
  return nullptr;
}

napi_value namesArray(napi_env env, const Names& names) {
  napi_value result = nullptr;
  napi_create_array_with_length(env, names.answer == ANSWERED ? 6 : 4, &result);
  setName(env, result, 0, names.remote);
  setName(env, result, 2, names.local);
  if (names.answer == ANSWERED) setName(env, result, 4, names.original);
  return result;
}

// acceptedNames(fd, redirected) → [remoteIp, remotePort, localIp, localPort, originalIp?, originalPort?], null when the
// peer is gone. The original destination is read if `redirected`, and left out if conntrack does not know it.
napi_value acceptedNames(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  const bool redirected = arguments.boolean(1);
  if (arguments.failed()) return nullptr;
  Names names;
  const char* failed = readNames(fd, redirected, &names);
  if (failed == nullptr) return namesArray(env, names);
  return errno == ENOTCONN ? makeNull(env) : throwErrno(env, failed, errno);
}

// The next connection that waits; -1 with errno set.
int acceptNext(int listener) {
  for (;;) {
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    // The client gave up while it waited; try the next one.
    if (fd >= 0 || (errno != ECONNABORTED && errno != EINTR && errno != EPROTO)) return fd;
  }
}

// Calls back with (fd, null, remoteIp, remotePort, localIp, localPort, originalIp?, originalPort?), (fd, call) when a call failed, or
// (fd, null) when the peer is gone. False with an exception pending.
bool tellAccepted(napi_env env, napi_value callback, int fd, bool redirected) {
  napi_handle_scope scope = nullptr;
  napi_open_handle_scope(env, &scope);
  Names names;
  const char* failed = readNames(fd, redirected, &names);
  const bool isGone = failed != nullptr && errno == ENOTCONN;
  napi_value arguments[8];
  size_t count = 0;
  arguments[count++] = makeInteger(env, fd);
  arguments[count++] = failed == nullptr || isGone ? makeNull(env) : makeText(env, failed);
  const auto add = [&](const Name& name) {
    napi_create_string_latin1(env, name.text, NAPI_AUTO_LENGTH, &arguments[count++]);
    arguments[count++] = makeInteger(env, name.port);
  };
  if (failed == nullptr) {
    add(names.remote);
    add(names.local);
    if (names.answer == ANSWERED) add(names.original);
  }
  napi_value receiver = nullptr;
  napi_get_global(env, &receiver);
  const bool done =
      napi_call_function(env, receiver, callback, count, arguments, nullptr) == napi_ok;
  napi_close_handle_scope(env, scope);
  return done;
}

// acceptQueued(listenerFd, redirected, most, onAccepted) → the number of connections that waited and were accepted. The thread holds
// their descriptors; each is told by a call, which is cheaper than an array. A failure to accept is thrown when no connection was
// accepted before it.
napi_value acceptQueued(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int listener = arguments.integer(0);
  const bool redirected = arguments.boolean(1);
  const int most = arguments.integer(2);
  if (arguments.failed()) return nullptr;
  napi_valuetype type = napi_undefined;
  if (arguments.value(3) != nullptr) napi_typeof(env, arguments.value(3), &type);
  if (type != napi_function) {
    napi_throw_type_error(env, nullptr, "argument 3 must be a function");
    return nullptr;
  }
  int count = 0;
  for (; count < most; count += 1) {
    const int fd = acceptNext(listener);
    if (fd < 0) {
      const bool isEmpty = errno == EAGAIN || errno == EWOULDBLOCK;
      if (!isEmpty && count == 0) return throwErrno(env, "accept4", errno);
      break;
    }
    envData(env)->held.insert(fd);
    if (!tellAccepted(env, arguments.value(3), fd, redirected)) return nullptr;
  }
  return makeInteger(env, count);
}

// holdFd(fd): the descriptor is closed by a reset when the thread ends.
napi_value holdFd(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  if (!arguments.failed()) envData(env)->held.insert(fd);
  return nullptr;
}

// releaseFd(fd): another owner closes it from now on.
napi_value releaseFd(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  if (!arguments.failed()) envData(env)->held.erase(fd);
  return nullptr;
}

// closeHeld(fd, reset): closes a held descriptor, by a reset where asked. Does nothing when the thread does not hold it.
napi_value closeHeld(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  const bool reset = arguments.boolean(1);
  if (arguments.failed() || envData(env)->held.erase(fd) == 0) return nullptr;
  if (reset) setResetOnClose(fd);
  close(fd);
  return nullptr;
}

}  // namespace

void closeAllHeld(EnvData* data) {
  for (const int fd : data->held) {
    setResetOnClose(fd);
    close(fd);
  }
  data->held.clear();
}

void registerAccepting(napi_env env, napi_value exports) {
  setFunction(env, exports, "acceptQueued", acceptQueued);
  setFunction(env, exports, "acceptedNames", acceptedNames);
  setFunction(env, exports, "holdFd", holdFd);
  setFunction(env, exports, "releaseFd", releaseFd);
  setFunction(env, exports, "closeHeld", closeHeld);
}

}  // namespace weft
