// Shared by the syscall groups: argument access, errors with errno, and per-environment data.
#pragma once

#include <node_api.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_set>

namespace weft {

// One instance per JavaScript environment, that is per thread; nothing here is shared between threads.
struct EnvData {
  // The network namespace of the thread at load time, to which every call returns.
  int homeNetnsFd = -1;
  // Descriptors of connections that no other part of the process closes yet.
  std::unordered_set<int> held;
};

// Resets the connections that a thread still holds when it ends.
void closeAllHeld(EnvData* data);

EnvData* envData(napi_env env);

constexpr size_t MAX_ARGUMENTS = 13;

// The arguments of one call. An accessor that meets the wrong type throws a TypeError and sets failed().
class Arguments {
 public:
  Arguments(napi_env env, napi_callback_info info);
  bool failed() const { return failed_; }
  int32_t integer(size_t index);
  bool boolean(size_t index);
  // Empty for null and undefined.
  std::string text(size_t index);
  bool absent(size_t index);
  napi_value value(size_t index) const { return index < count_ ? values_[index] : nullptr; }

 private:
  void fail(size_t index, const char* expected);
  napi_env env_;
  size_t count_ = MAX_ARGUMENTS;
  napi_value values_[MAX_ARGUMENTS] = {};
  bool failed_ = false;
};

// An Error with `call`, `errno` (the symbolic name) and, when given, `path`.
napi_value makeErrno(napi_env env, const char* call, int error, const char* path = nullptr);
// Throws it. Returns nullptr for `return`.
napi_value throwErrno(napi_env env, const char* call, int error, const char* path = nullptr);

napi_value makeInteger(napi_env env, int64_t value);
napi_value makeText(napi_env env, const std::string& value);
napi_value makeBoolean(napi_env env, bool value);
napi_value makeNull(napi_env env);
// Milliseconds since a time of CLOCK_MONOTONIC, null for 0. JavaScript threads have different time origins.
napi_value millisecondsSince(napi_env env, uint64_t momentNs);
void setProperty(napi_env env, napi_value object, const char* name, napi_value value);
void setFunction(napi_env env, napi_value exports, const char* name, napi_callback callback);

// A descriptor closed at the end of the scope unless released.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor();
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }
  int release();

 private:
  int fd_;
};

// Puts the calling thread into a network namespace for the life of the object. Leaving cannot fail: the
// process aborts, because a thread that cannot return would make every later socket in the wrong pod.
// `netnsFd` < 0 keeps the thread's namespace. Inside, nothing may block or call JavaScript.
class NetnsScope {
 public:
  NetnsScope(napi_env env, int netnsFd);
  ~NetnsScope();
  NetnsScope(const NetnsScope&) = delete;
  NetnsScope& operator=(const NetnsScope&) = delete;
  // 0, or the errno of the failed entry; the thread is then still at home.
  int error() const { return error_; }

 private:
  int home_ = -1;
  int error_ = 0;
};

// Makes a non-blocking socket in a network namespace; -1 with errno set and `call` naming what failed.
int socketIn(napi_env env, int netnsFd, int family, int type, const char** call);

// Sets an integer option; false with errno set.
bool setOption(int fd, int level, int name, int value);

// Makes the close of the TCP socket a reset (RST), even if data waits to be sent or read; false with errno set.
bool setResetOnClose(int fd);

// A socket address of either family.
struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;
  int family = AF_UNSPEC;
};

// An address in text and a port; no names are looked up. False for anything else.
bool parseAddress(const std::string& text, int port, Address* address);

// The port a socket is bound to; -1 with errno set.
int boundPort(int fd);

// Copies the bytes of a Uint8Array, none of null or undefined. False with an exception pending for anything else.
bool readBytes(napi_env env, napi_value value, const char* name, std::string* bytes);

// 0, or an errno for anything but a stream socket.
int checkStream(int fd);

// Each group adds its functions to the module.
void registerNetns(napi_env env, napi_value exports);
void registerSockets(napi_env env, napi_value exports);
void registerAccepting(napi_env env, napi_value exports);
void registerUdp(napi_env env, napi_value exports);
void registerSeqpacket(napi_env env, napi_value exports);
void registerPoll(napi_env env, napi_value exports);
void registerDiagnostics(napi_env env, napi_value exports);
void registerRulesDigest(napi_env env, napi_value exports);
void registerProcess(napi_env env, napi_value exports);
void registerMemory(napi_env env, napi_value exports);
void registerSplice(napi_env env, napi_value exports);
void registerOutput(napi_env env, napi_value exports);
void registerCarry(napi_env env, napi_value exports);

}  // namespace weft
