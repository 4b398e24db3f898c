// The way of events from other threads to the JavaScript of one environment.
#pragma once

#include <fcntl.h>
#include <node_api.h>
#include <sys/uio.h>
#include <unistd.h>
#include <uv.h>

#include <cerrno>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "common.h"

namespace weft {

// A longer list of items is not kept for the next ones.
constexpr size_t KEPT_ITEMS = 256;

// Other threads may still know it when the environment is gone: it then drops what they put in.
//
// It wakes the loop by a pipe and not by uv_async_t's eventfd. The kernel takes a write(2) to a pipe for the last act of a thread that is
// about to sleep, and runs the woken thread on the same processor (WF_SYNC, through epoll since Linux 6.12). To wake
// another processor takes some tens of microseconds on a virtual machine. A thread that goes on writes by vmsplice(2), which has no
// such meaning: the woken one would take turns from it.
template <typename Item>
class LoopMailbox {
 public:
  LoopMailbox(napi_env env, napi_value callback) : env_(env) {
    napi_create_reference(env, callback, 1, &callback_);
  }
  virtual ~LoopMailbox() = default;
  LoopMailbox(const LoopMailbox&) = delete;
  LoopMailbox& operator=(const LoopMailbox&) = delete;

  // 0, or an errno. `self` lives until the environment ends.
  int open(std::shared_ptr<LoopMailbox> self) {
    uv_loop_t* loop = nullptr;
    if (napi_get_uv_event_loop(env_, &loop) != napi_ok) return EINVAL;
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return errno;
    readEnd_ = ends[0];
    writeEnd_ = ends[1];
    auto* poll = new uv_poll_t();
    const int failed = uv_poll_init(loop, poll, readEnd_);
    if (failed != 0) {
      delete poll;
      closeEnds();
      return -failed;
    }
    poll->data = this;
    uv_poll_start(poll, UV_READABLE, onReadable);
    uv_unref(reinterpret_cast<uv_handle_t*>(poll));
    poll_ = poll;
    self_ = std::move(self);
    napi_add_async_cleanup_hook(env_, onThreadEnd, this, &cleanup_);
    return 0;
  }

  // Any thread. `goesOn` tells that the caller will not sleep soon.
  void put(Item&& item, bool goesOn = false) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (poll_ == nullptr) return;
    const bool isFirst = items_.empty();
    items_.push_back(std::move(item));
    if (isFirst) wake(goesOn);
  }

 protected:
  // Gives the items to JavaScript, in their order, by `call`.
  virtual void deliver(std::vector<Item>* items) = 0;
  // The environment ends; nothing is delivered any more.
  virtual void closing() = 0;

  // Whether the mailbox keeps the loop alive, as an open socket does.
  void keepLoop(bool keep) {
    auto* handle = reinterpret_cast<uv_handle_t*>(poll_);
    if (keep) uv_ref(handle);
    else uv_unref(handle);
  }

  void call(size_t count, const napi_value* arguments) {
    napi_value callback = nullptr;
    napi_get_reference_value(env_, callback_, &callback);
    napi_value receiver = nullptr;
    napi_get_global(env_, &receiver);
    const napi_status status =
        napi_make_callback(env_, nullptr, receiver, callback, count, arguments, nullptr);
    if (status != napi_pending_exception) return;
    napi_value error = nullptr;
    napi_get_and_clear_last_exception(env_, &error);
    napi_fatal_exception(env_, error);
  }

  napi_env env() const { return env_; }
  const std::shared_ptr<LoopMailbox>& self() const { return self_; }

 private:
  // The pipe has room: it holds a byte for each time that the list was empty since the loop last read.
  void wake(bool goesOn) {
    static char byte = 0;
    const iovec bytes = {&byte, 1};
    // A container may refuse the call.
    if (goesOn && vmsplice(writeEnd_, &bytes, 1, SPLICE_F_NONBLOCK) == 1) return;
    while (write(writeEnd_, &byte, 1) < 0 && errno == EINTR) {
    }
  }

  void closeEnds() {
    close(readEnd_);
    close(writeEnd_);
  }

  static void onReadable(uv_poll_t* poll, int, int) {
    auto* mailbox = static_cast<LoopMailbox*>(poll->data);
    // Before the list is taken: what comes later writes again.
    char bytes[64];
    while (read(mailbox->readEnd_, bytes, sizeof bytes) < 0 && errno == EINTR) {
    }
    // Both lists keep their memory for the next items.
    std::vector<Item>& items = mailbox->delivered_;
    {
      const std::lock_guard<std::mutex> guard(mailbox->mutex_);
      items.swap(mailbox->items_);
    }
    if (items.empty()) return;
    napi_handle_scope scope = nullptr;
    napi_open_handle_scope(mailbox->env_, &scope);
    mailbox->deliver(&items);
    napi_close_handle_scope(mailbox->env_, scope);
    items.clear();
    if (items.capacity() > KEPT_ITEMS) items.shrink_to_fit();
  }

  static void onThreadEnd(napi_async_cleanup_hook_handle, void* data) {
    static_cast<LoopMailbox*>(data)->closeDown();
  }

  void closeDown() {
    uv_poll_t* poll = nullptr;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      poll = poll_;
      poll_ = nullptr;
      items_.clear();
    }
    closing();
    napi_delete_reference(env_, callback_);
    uv_close(reinterpret_cast<uv_handle_t*>(poll), [](uv_handle_t* handle) {
      auto* mailbox = static_cast<LoopMailbox*>(handle->data);
      delete reinterpret_cast<uv_poll_t*>(handle);
      mailbox->closeEnds();
      napi_remove_async_cleanup_hook(mailbox->cleanup_);
      const std::shared_ptr<LoopMailbox> last = std::move(mailbox->self_);
    });
  }

  napi_env const env_;
  napi_ref callback_ = nullptr;
  napi_async_cleanup_hook_handle cleanup_ = nullptr;
  std::mutex mutex_;
  uv_poll_t* poll_ = nullptr;
  int readEnd_ = -1;
  int writeEnd_ = -1;
  std::vector<Item> items_;
  // Those that JavaScript is told just now.
  std::vector<Item> delivered_;
  std::shared_ptr<LoopMailbox> self_;
};

}  // namespace weft
