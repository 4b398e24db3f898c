// The JavaScript interface of the pump. Ends arrive on the loop of the environment that started the join.
#include <fcntl.h>
#include <uv.h>

#include <cerrno>
#include <vector>

#include "common.h"
#include "loop-mailbox.h"
#include "splice-pump.h"

namespace weft {
namespace {

// The ends of one environment's joins.
class Mailbox : public LoopMailbox<PumpEnd>, public PumpListener {
 public:
  using LoopMailbox::LoopMailbox;

  void ended(const PumpEnd& end) override { put(PumpEnd(end)); }

  // A join keeps the loop alive, as an open socket does.
  void started() {
    active_ += 1;
    if (active_ == 1) keepLoop(true);
  }

 private:
  void deliver(std::vector<PumpEnd>* ends) override {
    active_ -= ends->size();
    if (active_ == 0) keepLoop(false);
    for (const PumpEnd& end : *ends) tell(end);
  }

  void tell(const PumpEnd& end) {
    napi_handle_scope scope = nullptr;
    napi_open_handle_scope(env(), &scope);
    const napi_value arguments[] = {
        makeInteger(env(), static_cast<int64_t>(end.id)),
        makeInteger(env(), static_cast<int64_t>(end.fromA)),
        makeInteger(env(), static_cast<int64_t>(end.fromB)),
        end.error == 0 ? makeNull(env()) : makeText(env(), uv_err_name(-end.error)),
        millisecondsSince(env(), end.firstFromBNs),
    };
    call(5, arguments);
    napi_close_handle_scope(env(), scope);
  }

  // The pump's thread drops its references with the joins.
  void closing() override { SplicePump::instance().abandon(this); }

  size_t active_ = 0;
};

// The mailbox behind a JavaScript handle.
using Handle = std::shared_ptr<Mailbox>;

Handle* handleArgument(napi_env env, const Arguments& arguments) {
  void* data = nullptr;
  if (napi_get_value_external(env, arguments.value(0), &data) == napi_ok) {
    return static_cast<Handle*>(data);
  }
  napi_throw_type_error(env, nullptr, "argument 0 must be a pump handle");
  return nullptr;
}

void dropHandle(napi_env, void* data, void*) { delete static_cast<Handle*>(data); }

// pumpOpen(onEnd(id, fromA, fromB, errno | null, firstFromBAgoMs | null)) → handle. Once per environment.
napi_value pumpOpen(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  napi_valuetype type = napi_undefined;
  napi_typeof(env, arguments.value(0), &type);
  if (type != napi_function) {
    napi_throw_type_error(env, nullptr, "argument 0 must be a function");
    return nullptr;
  }
  auto mailbox = std::make_shared<Mailbox>(env, arguments.value(0));
  if (const int failed = mailbox->open(mailbox)) return throwErrno(env, "pipe2", failed);
  napi_value result = nullptr;
  napi_create_external(env, new Handle(mailbox), dropHandle, nullptr, &result);
  return result;
}

// pumpStart(handle, a, b, firstToA, firstToB, readFromA, readFromB) → id. Takes both descriptors unless it throws.
napi_value pumpStart(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  Handle* handle = handleArgument(env, arguments);
  if (handle == nullptr) return nullptr;
  PumpSocket a;
  PumpSocket b;
  a.fd = arguments.integer(1);
  b.fd = arguments.integer(2);
  if (arguments.failed()) return nullptr;
  size_t index = 3;
  for (std::string* bytes : {&a.first, &b.first, &a.read, &b.read}) {
    if (!readBytes(env, arguments.value(index), "the bytes of a join", bytes)) return nullptr;
    index += 1;
  }
  for (const int fd : {a.fd, b.fd}) {
    if (const int failed = checkStream(fd)) return throwErrno(env, "getsockopt(SO_TYPE)", failed);
    // splice(2) would wait for one that blocks, whatever its flags say.
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0) {
      return throwErrno(env, "fcntl(F_SETFL)", errno);
    }
  }
  uint64_t id = 0;
  const int failed = SplicePump::instance().start(a, b, *handle, &id);
  if (failed != 0) return throwErrno(env, "pthread_create", failed);
  (*handle)->started();
  return makeInteger(env, static_cast<int64_t>(id));
}

bool idArgument(napi_env env, const Arguments& arguments, uint64_t* id) {
  int64_t value = 0;
  if (napi_get_value_int64(env, arguments.value(0), &value) != napi_ok) {
    napi_throw_type_error(env, nullptr, "argument 0 must be an id");
    return false;
  }
  *id = static_cast<uint64_t>(value);
  return true;
}

// pumpAbort(id): closes both sockets soon. Any environment may call it; it ignores an id that has ended.
napi_value pumpAbort(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  uint64_t id = 0;
  if (idArgument(env, arguments, &id)) SplicePump::instance().abort(id);
  return nullptr;
}

// pumpCounts(id) → {fromA, fromB, firstFromBAgoMs | null}, null after the end. Any environment may call it.
napi_value pumpCounts(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  uint64_t id = 0;
  if (!idArgument(env, arguments, &id)) return nullptr;
  PumpCounts counts;
  if (!SplicePump::instance().counts(id, &counts)) return makeNull(env);
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "fromA", makeInteger(env, static_cast<int64_t>(counts.fromA)));
  setProperty(env, result, "fromB", makeInteger(env, static_cast<int64_t>(counts.fromB)));
  setProperty(env, result, "firstFromBAgoMs", millisecondsSince(env, counts.firstFromBNs));
  return result;
}

// pumpStats() → counters of the whole process.
napi_value pumpStats(napi_env env, napi_callback_info) {
  const PumpStats stats = SplicePump::instance().stats();
  napi_value result = nullptr;
  napi_create_object(env, &result);
  setProperty(env, result, "joins", makeInteger(env, static_cast<int64_t>(stats.joins)));
  setProperty(env, result, "pipesOpen", makeInteger(env, static_cast<int64_t>(stats.pipesOpen)));
  setProperty(env, result, "pipesHeld", makeInteger(env, static_cast<int64_t>(stats.pipesHeld)));
  setProperty(env, result, "copiedBytes",
              makeInteger(env, static_cast<int64_t>(stats.copiedBytes)));
  return result;
}

// pumpLimit(maxPipes, pipeBytes) sets the bounds of the whole process; open pipes keep their capacity.
napi_value pumpLimit(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int maxPipes = arguments.integer(0);
  const int pipeBytes = arguments.integer(1);
  if (arguments.failed()) return nullptr;
  if (maxPipes < 0 || pipeBytes < 0) return throwErrno(env, "pumpLimit", EINVAL);
  SplicePump::instance().limit({static_cast<size_t>(maxPipes), static_cast<size_t>(pipeBytes)});
  return nullptr;
}

// duplicateFd(fd) → another descriptor of the same open file.
napi_value duplicateFd(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  if (arguments.failed()) return nullptr;
  const int duplicate = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  if (duplicate < 0) return throwErrno(env, "fcntl(F_DUPFD_CLOEXEC)", errno);
  return makeInteger(env, duplicate);
}

}  // namespace

void registerSplice(napi_env env, napi_value exports) {
  setFunction(env, exports, "pumpOpen", pumpOpen);
  setFunction(env, exports, "pumpStart", pumpStart);
  setFunction(env, exports, "pumpAbort", pumpAbort);
  setFunction(env, exports, "pumpCounts", pumpCounts);
  setFunction(env, exports, "pumpStats", pumpStats);
  setFunction(env, exports, "pumpLimit", pumpLimit);
  setFunction(env, exports, "duplicateFd", duplicateFd);
}

}  // namespace weft
