// Argument access, errors, values and sockets for all groups.
#include "common.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

#include <cerrno>
#include <cstring>

namespace weft {

EnvData* envData(napi_env env) {
  void* data = nullptr;
  napi_get_instance_data(env, &data);
  return static_cast<EnvData*>(data);
}

Arguments::Arguments(napi_env env, napi_callback_info info) : env_(env) {
  napi_get_cb_info(env, info, &count_, values_, nullptr, nullptr);
  if (count_ > MAX_ARGUMENTS) count_ = MAX_ARGUMENTS;
}

void Arguments::fail(size_t index, const char* expected) {
  if (failed_) return;
  failed_ = true;
  const std::string message = "argument " + std::to_string(index) + " must be " + expected;
  napi_throw_type_error(env_, nullptr, message.c_str());
}

int32_t Arguments::integer(size_t index) {
  int32_t result = 0;
  if (index >= count_ || napi_get_value_int32(env_, values_[index], &result) != napi_ok) {
    fail(index, "a number");
  }
  return result;
}

bool Arguments::boolean(size_t index) {
  bool result = false;
  if (index >= count_ || napi_get_value_bool(env_, values_[index], &result) != napi_ok) {
    fail(index, "a boolean");
  }
  return result;
}

bool Arguments::absent(size_t index) {
  if (index >= count_) return true;
  napi_valuetype type = napi_undefined;
  napi_typeof(env_, values_[index], &type);
  return type == napi_null || type == napi_undefined;
}

std::string Arguments::text(size_t index) {
  if (absent(index)) return {};
  size_t length = 0;
  if (napi_get_value_string_utf8(env_, values_[index], nullptr, 0, &length) != napi_ok) {
    fail(index, "a string");
    return {};
  }
  std::string result(length + 1, '\0');
  napi_get_value_string_utf8(env_, values_[index], result.data(), length + 1, &length);
  result.resize(length);
  return result;
}

napi_value makeErrno(napi_env env, const char* call, int error, const char* path) {
  std::string message = std::string(call) + ": " + strerror(error);
  if (path != nullptr) message += std::string(" (") + path + ")";
  napi_value value = nullptr;
  napi_create_error(env, nullptr, makeText(env, message), &value);
  setProperty(env, value, "call", makeText(env, call));
  setProperty(env, value, "errno", makeText(env, uv_err_name(-error)));
  if (path != nullptr) setProperty(env, value, "path", makeText(env, path));
  return value;
}

napi_value throwErrno(napi_env env, const char* call, int error, const char* path) {
  napi_throw(env, makeErrno(env, call, error, path));
  return nullptr;
}

napi_value makeInteger(napi_env env, int64_t value) {
  napi_value result = nullptr;
  napi_create_int64(env, value, &result);
  return result;
}

napi_value makeText(napi_env env, const std::string& value) {
  napi_value result = nullptr;
  napi_create_string_utf8(env, value.c_str(), value.size(), &result);
  return result;
}

napi_value makeBoolean(napi_env env, bool value) {
  napi_value result = nullptr;
  napi_get_boolean(env, value, &result);
  return result;
}

napi_value makeNull(napi_env env) {
  napi_value result = nullptr;
  napi_get_null(env, &result);
  return result;
}

napi_value millisecondsSince(napi_env env, uint64_t momentNs) {
  if (momentNs == 0) return makeNull(env);
  const uint64_t now = uv_hrtime();
  napi_value result = nullptr;
  napi_create_double(env, now > momentNs ? static_cast<double>(now - momentNs) / 1e6 : 0, &result);
  return result;
}

void setProperty(napi_env env, napi_value object, const char* name, napi_value value) {
  napi_set_named_property(env, object, name, value);
}

void setFunction(napi_env env, napi_value exports, const char* name, napi_callback callback) {
  napi_value function = nullptr;
  napi_create_function(env, name, NAPI_AUTO_LENGTH, callback, nullptr, &function);
  setProperty(env, exports, name, function);
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

int Descriptor::release() {
  const int fd = fd_;
  fd_ = -1;
  return fd;
}

int socketIn(napi_env env, int netnsFd, int family, int type, const char** call) {
  NetnsScope scope(env, netnsFd);
  if (scope.error() != 0) {
    *call = "setns";
    errno = scope.error();
    return -1;
  }
  *call = "socket";
  return socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

bool setOption(int fd, int level, int name, int value) {
  return setsockopt(fd, level, name, &value, sizeof value) == 0;
}

bool parseAddress(const std::string& text, int port, Address* address) {
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address->storage);
  if (inet_pton(AF_INET, text.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(static_cast<uint16_t>(port));
    address->length = sizeof *v4;
    address->family = AF_INET;
    return true;
  }
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address->storage);
  if (inet_pton(AF_INET6, text.c_str(), &v6->sin6_addr) != 1) return false;
  v6->sin6_family = AF_INET6;
  v6->sin6_port = htons(static_cast<uint16_t>(port));
  address->length = sizeof *v6;
  address->family = AF_INET6;
  return true;
}

int boundPort(int fd) {
  sockaddr_storage storage = {};
  socklen_t length = sizeof storage;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &length) != 0) return -1;
  return storage.ss_family == AF_INET
             ? ntohs(reinterpret_cast<sockaddr_in*>(&storage)->sin_port)
             : ntohs(reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port);
}

bool readBytes(napi_env env, napi_value value, const char* name, std::string* bytes) {
  napi_valuetype type = napi_undefined;
  if (value != nullptr) napi_typeof(env, value, &type);
  if (type == napi_null || type == napi_undefined) return true;
  bool isArray = false;
  napi_typedarray_type element = napi_int8_array;
  size_t length = 0;
  void* data = nullptr;
  if (napi_is_typedarray(env, value, &isArray) != napi_ok || !isArray ||
      napi_get_typedarray_info(env, value, &element, &length, &data, nullptr, nullptr) != napi_ok ||
      element != napi_uint8_array) {
    const std::string message = std::string(name) + " must be a Uint8Array";
    napi_throw_type_error(env, nullptr, message.c_str());
    return false;
  }
  bytes->assign(static_cast<const char*>(data), length);
  return true;
}

int checkStream(int fd) {
  int type = 0;
  socklen_t length = sizeof type;
  if (getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0) return errno;
  return type == SOCK_STREAM ? 0 : EPROTOTYPE;
}

}  // namespace weft
