// The JavaScript interface of the carry. Every call but the first two only queues a command, which is obeyed after carryDrive; events
// come to the environment that made the link.
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "carry-mailbox.h"
#include "common.h"

namespace weft {
namespace {

using carry::Command;
using carry::Suite;

using Handle = std::shared_ptr<CarryMailbox>;

// Largest ciphertext that may be handed over with a link.
constexpr size_t MAX_HANDED_BYTES = 1 << 20;

std::atomic<uint32_t> nextLink{1};

CarryMailbox* mailboxArgument(napi_env env, const Arguments& arguments) {
  void* data = nullptr;
  if (napi_get_value_external(env, arguments.value(0), &data) == napi_ok) {
    return static_cast<Handle*>(data)->get();
  }
  napi_throw_type_error(env, nullptr, "argument 0 must be a carry handle");
  return nullptr;
}

// The fields of the options of a link. The first wrong one throws.
class Options {
 public:
  Options(napi_env env, napi_value object) : env_(env), object_(object) {}
  bool failed() const { return failed_; }

  int64_t number(const char* name, int64_t least, int64_t most) {
    int64_t value = 0;
    const bool isNumber = napi_get_value_int64(env_, get(name), &value) == napi_ok;
    if (!isNumber || value < least || value > most) {
      fail(std::string(name) + " must be a number from " + std::to_string(least) + " to " +
           std::to_string(most));
    }
    return value;
  }

  bool boolean(const char* name) {
    bool value = false;
    if (napi_get_value_bool(env_, get(name), &value) != napi_ok) {
      fail(std::string(name) + " must be a boolean");
    }
    return value;
  }

  std::string text(const char* name) {
    char value[64] = {};
    size_t length = 0;
    if (napi_get_value_string_utf8(env_, get(name), value, sizeof value, &length) != napi_ok) {
      fail(std::string(name) + " must be a string");
    }
    return std::string(value, length);
  }

  std::string bytes(const char* name) {
    std::string value;
    if (!failed_ && !readBytes(env_, get(name), name, &value)) failed_ = true;
    return value;
  }

  // Copies a secret without leaving another copy.
  void secret(const char* name, size_t wanted, uint8_t* out) {
    size_t length = 0;
    void* data = nullptr;
    napi_typedarray_type element = napi_int8_array;
    if (napi_get_typedarray_info(env_, get(name), &element, &length, &data, nullptr, nullptr) !=
            napi_ok ||
        element != napi_uint8_array || length != wanted) {
      fail(std::string(name) + " must be a Uint8Array of " + std::to_string(wanted) + " bytes");
      return;
    }
    memcpy(out, data, wanted);
  }

  void fail(const std::string& message) {
    if (!failed_) napi_throw_type_error(env_, nullptr, message.c_str());
    failed_ = true;
  }

 private:
  napi_value get(const char* name) {
    napi_value value = nullptr;
    if (!failed_) napi_get_named_property(env_, object_, name, &value);
    return value;
  }

  napi_env env_;
  napi_value object_;
  bool failed_ = false;
};

bool readSuite(const std::string& name, Suite* suite) {
  if (name == "TLS_AES_128_GCM_SHA256") *suite = Suite::AES_128_GCM_SHA256;
  else if (name == "TLS_AES_256_GCM_SHA384") *suite = Suite::AES_256_GCM_SHA384;
  else if (name == "TLS_CHACHA20_POLY1305_SHA256") *suite = Suite::CHACHA20_POLY1305_SHA256;
  else return false;
  return true;
}

bool isLocal(int fd) {
  int domain = 0;
  socklen_t length = sizeof domain;
  return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0 && domain == AF_UNIX;
}

void dropHandle(napi_env, void* data, void*) { delete static_cast<Handle*>(data); }

// carryOpen(threads, onEvents(count, bytes | null), numbers) → handle. Once per environment. Before each call of onEvents the
// numbers of `count` events are written into the Float64Array, and `bytes` holds the bytes of all.
napi_value carryOpen(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int threads = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  napi_valuetype type = napi_undefined;
  if (arguments.value(1) != nullptr) napi_typeof(env, arguments.value(1), &type);
  if (type != napi_function) {
    napi_throw_type_error(env, nullptr, "argument 1 must be a function");
    return nullptr;
  }
  if (threads < 1) return throwErrno(env, "carryOpen", EINVAL);
  int error = 0;
  carry::Pump* pump = assignPump(static_cast<size_t>(threads), &error);
  if (pump == nullptr) return throwErrno(env, "pthread_create", error);
  auto mailbox = std::make_shared<CarryMailbox>(env, pump, arguments.value(1));
  if (!mailbox->tellBy(arguments.value(2))) {
    releasePump(pump);
    napi_throw_type_error(env, nullptr, "argument 2 must be a Float64Array with room for an event");
    return nullptr;
  }
  if (const int failed = mailbox->open(mailbox)) {
    releasePump(pump);
    return throwErrno(env, "pipe2", failed);
  }
  napi_value result = nullptr;
  napi_create_external(env, new Handle(mailbox), dropHandle, nullptr, &result);
  return result;
}

// carryLink(handle, options) → number. Takes the descriptor unless it throws.
napi_value carryLink(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  CarryMailbox* mailbox = mailboxArgument(env, arguments);
  if (mailbox == nullptr) return nullptr;
  auto setup = std::make_unique<carry::LinkSetup>();
  Options options(env, arguments.value(1));
  const auto fd = static_cast<int>(options.number("fd", 0, INT32_MAX));
  setup->isServer = options.boolean("isServer");
  const std::string cipher = options.text("cipher");
  setup->isPlain = cipher == "none";
  if (setup->isPlain) {
    // Plain bytes must not leave the machine, whatever the caller believes of its descriptor.
    if (!isLocal(fd)) options.fail("cipher none is for local sockets");
  } else if (readSuite(cipher, &setup->suite)) {
    setup->secretBytes = carry::secretBytes(setup->suite);
    options.secret("readSecret", setup->secretBytes, setup->readSecret);
    options.secret("writeSecret", setup->secretBytes, setup->writeSecret);
  } else {
    options.fail("cipher must be a cipher suite of TLS 1.3, or none");
  }
  setup->readSequence = static_cast<uint64_t>(options.number("readSequence", 0, 1 << 20));
  setup->writeSequence = static_cast<uint64_t>(options.number("writeSequence", 0, 1 << 20));
  setup->unread = options.bytes("unread");
  setup->received = options.bytes("received");
  setup->maxFrameSize = static_cast<uint32_t>(
      options.number("maxFrameSize", carry::DEFAULT_FRAME_SIZE, carry::LARGEST_FRAME_SIZE));
  setup->maxBlockBytes =
      static_cast<uint32_t>(options.number("maxBlockBytes", 1, carry::LARGEST_FRAME_SIZE));
  setup->streamWindow = options.number("streamWindow", 0, carry::MAX_WINDOW);
  setup->connectionWindow =
      options.number("connectionWindow", carry::DEFAULT_WINDOW, carry::MAX_WINDOW);
  setup->rekeyRecords = static_cast<uint64_t>(options.number("rekeyRecords", 0, INT32_MAX));
  if (setup->unread.size() + setup->received.size() > MAX_HANDED_BYTES) {
    options.fail("too many bytes are handed over");
  }
  if (options.failed()) return nullptr;
  if (const int failed = checkStream(fd)) return throwErrno(env, "getsockopt(SO_TYPE)", failed);
  setup->fd = fd;
  setup->counts = std::make_shared<carry::LinkCounts>();
  const uint32_t link = nextLink++;
  void* handle = nullptr;
  napi_get_value_external(env, arguments.value(0), &handle);
  setup->listener = *static_cast<Handle*>(handle);
  mailbox->linked(link, setup->counts);
  Command command{};
  command.kind = Command::Kind::LINK;
  command.link = link;
  command.setup = std::move(setup);
  mailbox->pump()->post(std::move(command));
  return makeInteger(env, link);
}

// Reads (handle, link, ...) and posts a command with up to three further numbers or flags: `stream`, `first` and `second`.
napi_value postNumbers(napi_env env, napi_callback_info info, Command::Kind kind, bool hasStream,
                       int numbers) {
  Arguments arguments(env, info);
  CarryMailbox* mailbox = mailboxArgument(env, arguments);
  if (mailbox == nullptr) return nullptr;
  Command command{};
  command.kind = kind;
  size_t index = 1;
  const auto next = [&](int64_t* into) {
    napi_value value = arguments.value(index);
    bool flag = false;
    const bool isFlag = value != nullptr && napi_get_value_bool(env, value, &flag) == napi_ok;
    if (isFlag) *into = flag ? 1 : 0;
    const bool isNumber =
        isFlag || (value != nullptr && napi_get_value_int64(env, value, into) == napi_ok &&
                   *into >= 0 && *into <= UINT32_MAX);
    if (!isNumber) {
      const std::string message =
          "argument " + std::to_string(index) + " must be a number from 0 to 4294967295";
      napi_throw_type_error(env, nullptr, message.c_str());
    }
    index += 1;
    return isNumber;
  };
  int64_t link = 0;
  int64_t stream = 0;
  if (!next(&link) || (hasStream && !next(&stream))) return nullptr;
  if (numbers > 0 && !next(&command.first)) return nullptr;
  if (numbers > 1 && !next(&command.second)) return nullptr;
  command.link = static_cast<uint32_t>(link);
  command.stream = static_cast<uint32_t>(stream);
  mailbox->pump()->queue(std::move(command));
  return nullptr;
}

template <Command::Kind KIND, bool HAS_STREAM, int NUMBERS>
napi_value post(napi_env env, napi_callback_info info) {
  return postNumbers(env, info, KIND, HAS_STREAM, NUMBERS);
}

// carryControl(handle, link, frames): sends whole frames.
napi_value carryControl(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  CarryMailbox* mailbox = mailboxArgument(env, arguments);
  if (mailbox == nullptr) return nullptr;
  Command command{};
  command.kind = Command::Kind::CONTROL;
  command.link = static_cast<uint32_t>(arguments.integer(1));
  if (arguments.failed() || !readBytes(env, arguments.value(2), "frames", &command.bytes)) {
    return nullptr;
  }
  mailbox->pump()->queue(std::move(command));
  return nullptr;
}

// carryAttach(handle, link, stream, fd, first | null, read | null, tellEnd). Takes the descriptor, and ends the thread's hold, unless it throws.
// carryOffer takes the same, without bytes: it attaches when the peer has answered 200, or carryJoin is called.
template <Command::Kind KIND>
napi_value attach(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  CarryMailbox* mailbox = mailboxArgument(env, arguments);
  if (mailbox == nullptr) return nullptr;
  Command command{};
  command.kind = KIND;
  command.link = static_cast<uint32_t>(arguments.integer(1));
  command.stream = static_cast<uint32_t>(arguments.integer(2));
  const int fd = arguments.integer(3);
  command.first = arguments.boolean(6) ? 1 : 0;
  if (arguments.failed()) return nullptr;
  if (!readBytes(env, arguments.value(4), "first", &command.bytes)) return nullptr;
  if (!readBytes(env, arguments.value(5), "read", &command.read)) return nullptr;
  if (const int failed = checkStream(fd)) return throwErrno(env, "getsockopt(SO_TYPE)", failed);
  // The carry closes it from now on.
  envData(env)->held.erase(fd);
  command.fd = fd;
  command.counts = std::make_shared<carry::StreamCounts>();
  CarriedLink* link = mailbox->find(command.link);
  // Without a link the pump resets the socket.
  if (link != nullptr) link->streams[command.stream] = command.counts;
  mailbox->pump()->queue(std::move(command));
  return nullptr;
}

// carryRecall(handle, link, stream) → whether the caller owns the offered descriptor again. False: the stream was joined with it.
napi_value carryRecall(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  CarryMailbox* mailbox = mailboxArgument(env, arguments);
  if (mailbox == nullptr) return nullptr;
  const auto number = static_cast<uint32_t>(arguments.integer(1));
  const auto stream = static_cast<uint32_t>(arguments.integer(2));
  if (arguments.failed()) return nullptr;
  if (mailbox->pump()->recall(number, stream) >= 0) return makeBoolean(env, true);
  CarriedLink* link = mailbox->find(number);
  if (link == nullptr) return makeBoolean(env, false);
  const auto found = link->streams.find(stream);
  const bool isBack = found != link->streams.end() && found->second->unused.exchange(-1) >= 0;
  return makeBoolean(env, isBack);
}

// carryDrive(handle): the commands that were queued before are obeyed now.
napi_value carryDrive(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  CarryMailbox* mailbox = mailboxArgument(env, arguments);
  if (mailbox != nullptr) mailbox->pump()->drive();
  return nullptr;
}

// carryCounts(handle, link, stream) → [fromSocket, fromStream, ago | null, ago | null], null when it is not attached or has ended.
napi_value carryCounts(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  CarryMailbox* mailbox = mailboxArgument(env, arguments);
  if (mailbox == nullptr) return nullptr;
  const int link = arguments.integer(1);
  const int stream = arguments.integer(2);
  if (arguments.failed()) return nullptr;
  CarriedLink* carried = mailbox->find(static_cast<uint32_t>(link));
  if (carried == nullptr) return makeNull(env);
  const auto found = carried->streams.find(static_cast<uint32_t>(stream));
  if (found == carried->streams.end() || found->second->broken) return makeNull(env);
  const carry::StreamCounts& counts = *found->second;
  napi_value result = nullptr;
  napi_create_array_with_length(env, 4, &result);
  napi_set_element(env, result, 0, makeInteger(env, static_cast<int64_t>(counts.fromSocket)));
  napi_set_element(env, result, 1, makeInteger(env, static_cast<int64_t>(counts.fromStream)));
  napi_set_element(env, result, 2, millisecondsSince(env, counts.firstFromSocketNs));
  napi_set_element(env, result, 3, millisecondsSince(env, counts.firstFromStreamNs));
  return result;
}

// carryHeard(handle, link) → bytes of the peer, null when it has ended.
napi_value carryHeard(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  CarryMailbox* mailbox = mailboxArgument(env, arguments);
  if (mailbox == nullptr) return nullptr;
  const int link = arguments.integer(1);
  if (arguments.failed()) return nullptr;
  CarriedLink* carried = mailbox->find(static_cast<uint32_t>(link));
  if (carried == nullptr) return makeNull(env);
  return makeInteger(env, static_cast<int64_t>(carried->counts->bytesRead));
}

// carryStats() → counters of the whole process.
napi_value carryStats(napi_env env, napi_callback_info) {
  const CarryTotals totals = carryTotals();
  napi_value result = nullptr;
  napi_create_object(env, &result);
  const auto add = [&](const char* name, uint64_t value) {
    setProperty(env, result, name, makeInteger(env, static_cast<int64_t>(value)));
  };
  add("threads", totals.threads);
  add("links", totals.links);
  add("streams", totals.streams);
  add("recordsRead", totals.recordsRead);
  add("recordsWritten", totals.recordsWritten);
  add("updatesRead", totals.updatesRead);
  add("updatesWritten", totals.updatesWritten);
  return result;
}

// socketPair() → two ends of a local stream, non-blocking.
napi_value socketPair(napi_env env, napi_callback_info) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) {
    return throwErrno(env, "socketpair", errno);
  }
  napi_value result = nullptr;
  napi_create_array_with_length(env, 2, &result);
  napi_set_element(env, result, 0, makeInteger(env, ends[0]));
  napi_set_element(env, result, 1, makeInteger(env, ends[1]));
  return result;
}

}  // namespace

void registerCarry(napi_env env, napi_value exports) {
  using Kind = Command::Kind;
  setFunction(env, exports, "carryOpen", carryOpen);
  setFunction(env, exports, "carryLink", carryLink);
  setFunction(env, exports, "carryControl", carryControl);
  setFunction(env, exports, "carryAttach", attach<Kind::ATTACH>);
  setFunction(env, exports, "carryOffer", attach<Kind::OFFER>);
  setFunction(env, exports, "carryRecall", carryRecall);
  setFunction(env, exports, "carryJoin", post<Kind::JOIN, true, 0>);
  setFunction(env, exports, "carryStream", post<Kind::STREAM, true, 0>);
  setFunction(env, exports, "carryEnd", post<Kind::END, true, 0>);
  setFunction(env, exports, "carryRemoteEnd", post<Kind::REMOTE_END, true, 0>);
  setFunction(env, exports, "carryExpect", post<Kind::EXPECT, true, 1>);
  setFunction(env, exports, "carryReset", post<Kind::RESET, true, 1>);
  setFunction(env, exports, "carryPeerSettings", post<Kind::PEER_SETTINGS, false, 2>);
  setFunction(env, exports, "carryWindows", post<Kind::WINDOWS, false, 2>);
  setFunction(env, exports, "carryPressure", post<Kind::PRESSURE, false, 1>);
  setFunction(env, exports, "carryFinish", post<Kind::FINISH, false, 0>);
  setFunction(env, exports, "carryDestroy", post<Kind::DESTROY, false, 0>);
  setFunction(env, exports, "carryDrive", carryDrive);
  setFunction(env, exports, "carryCounts", carryCounts);
  setFunction(env, exports, "carryHeard", carryHeard);
  setFunction(env, exports, "carryStats", carryStats);
  setFunction(env, exports, "socketPair", socketPair);
}

}  // namespace weft
