// Readiness events of a descriptor on the libuv loop of the calling thread (uv_poll).
#include <unistd.h>
#include <uv.h>

#include "common.h"

namespace weft {
namespace {

// Freed when libuv has closed the handle; until then the loop may still touch it.
struct Poll {
  uv_poll_t handle = {};
  napi_env env = nullptr;
  napi_ref callback = nullptr;
  napi_async_cleanup_hook_handle cleanup = nullptr;
  bool closing = false;
  // Closed with the thread, unless the poll was closed before; else -1.
  int owned = -1;
};

void onClosed(uv_handle_t* handle) {
  auto* poll = static_cast<Poll*>(handle->data);
  // Tells a thread that is ending that this handle no longer keeps its loop open.
  if (poll->cleanup != nullptr) napi_remove_async_cleanup_hook(poll->cleanup);
  delete poll;
}

void closePoll(Poll* poll) {
  if (poll->closing) return;
  poll->closing = true;
  napi_delete_reference(poll->env, poll->callback);
  uv_close(reinterpret_cast<uv_handle_t*>(&poll->handle), onClosed);
}

// The thread ends with the poll still open.
void onThreadEnd(napi_async_cleanup_hook_handle, void* data) {
  auto* poll = static_cast<Poll*>(data);
  if (poll->closing) return;
  closePoll(poll);
  if (poll->owned >= 0) close(poll->owned);
}

void onEvent(uv_poll_t* handle, int status, int events) {
  auto* poll = static_cast<Poll*>(handle->data);
  napi_env env = poll->env;
  napi_handle_scope scope = nullptr;
  napi_open_handle_scope(env, &scope);
  napi_value callback = nullptr;
  napi_get_reference_value(env, poll->callback, &callback);
  // An error of the poll itself is shown as readable: the read that follows reports the cause.
  const bool readable = status < 0 || (events & (UV_READABLE | UV_DISCONNECT)) != 0;
  napi_value arguments[] = {
      makeBoolean(env, readable),
      makeBoolean(env, status >= 0 && (events & UV_WRITABLE) != 0),
  };
  napi_value receiver = nullptr;
  napi_get_global(env, &receiver);
  if (napi_make_callback(env, nullptr, receiver, callback, 2, arguments, nullptr) ==
      napi_pending_exception) {
    napi_value error = nullptr;
    napi_get_and_clear_last_exception(env, &error);
    napi_fatal_exception(env, error);
  }
  napi_close_handle_scope(env, scope);
}

// The cell behind the JavaScript handle, emptied by pollClose. Throws and returns nullptr without an open poll.
Poll** pollArgument(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  void* data = nullptr;
  if (napi_get_value_external(env, arguments.value(0), &data) != napi_ok ||
      *static_cast<Poll**>(data) == nullptr) {
    napi_throw_type_error(env, nullptr, "argument 0 must be an open poll handle");
    return nullptr;
  }
  return static_cast<Poll**>(data);
}

void dropPointer(napi_env, void* data, void*) { delete static_cast<Poll**>(data); }

napi_value createHandle(napi_env env, Poll* poll) {
  napi_value result = nullptr;
  napi_create_external(env, new Poll*(poll), dropPointer, nullptr, &result);
  return result;
}

// pollOpen(fd, callback(readable, writable), owned) → handle that waits for nothing yet. An owned descriptor does not
// outlive a thread that ends meanwhile.
napi_value pollOpen(napi_env env, napi_callback_info info) {
  Arguments arguments(env, info);
  const int fd = arguments.integer(0);
  const bool owned = arguments.boolean(2);
  if (arguments.failed()) return nullptr;
  uv_loop_t* loop = nullptr;
  if (napi_get_uv_event_loop(env, &loop) != napi_ok) {
    return throwErrno(env, "napi_get_uv_event_loop", EINVAL);
  }
  auto* poll = new Poll();
  const int failed = uv_poll_init(loop, &poll->handle, fd);
  if (failed != 0) {
    delete poll;
    return throwErrno(env, "uv_poll_init", -failed);
  }
  poll->handle.data = poll;
  poll->env = env;
  if (owned) poll->owned = fd;
  napi_create_reference(env, arguments.value(1), 1, &poll->callback);
  napi_add_async_cleanup_hook(env, onThreadEnd, poll, &poll->cleanup);
  return createHandle(env, poll);
}

// pollWatch(handle, readable, writable)
napi_value pollWatch(napi_env env, napi_callback_info info) {
  Poll** cell = pollArgument(env, info);
  if (cell == nullptr) return nullptr;
  Poll* poll = *cell;
  Arguments arguments(env, info);
  const int events = (arguments.boolean(1) ? UV_READABLE | UV_DISCONNECT : 0) |
                     (arguments.boolean(2) ? UV_WRITABLE : 0);
  if (arguments.failed()) return nullptr;
  const int failed =
      events == 0 ? uv_poll_stop(&poll->handle) : uv_poll_start(&poll->handle, events, onEvent);
  if (failed != 0) return throwErrno(env, "uv_poll_start", -failed);
  return nullptr;
}

// pollClose(handle): the descriptor may be closed right after; the handle must not be used again.
napi_value pollClose(napi_env env, napi_callback_info info) {
  Poll** cell = pollArgument(env, info);
  if (cell == nullptr) return nullptr;
  closePoll(*cell);
  *cell = nullptr;
  return nullptr;
}

}  // namespace

void registerPoll(napi_env env, napi_value exports) {
  setFunction(env, exports, "pollOpen", pollOpen);
  setFunction(env, exports, "pollWatch", pollWatch);
  setFunction(env, exports, "pollClose", pollClose);
}

}  // namespace weft
