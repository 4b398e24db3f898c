// The way of events from other threads to the JavaScript of one environment.
#pragma once

#include <node_api.h>
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
    auto* async = new uv_async_t();
    const int failed = uv_async_init(loop, async, onAsync);
    if (failed != 0) {
      delete async;
      return -failed;
    }
    async->data = this;
    uv_unref(reinterpret_cast<uv_handle_t*>(async));
    async_ = async;
    self_ = std::move(self);
    napi_add_async_cleanup_hook(env_, onThreadEnd, this, &cleanup_);
    return 0;
  }

  // Any thread.
  void put(Item&& item) {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (async_ == nullptr) return;
    const bool isFirst = items_.empty();
    items_.push_back(std::move(item));
    if (isFirst) uv_async_send(async_);
  }

 protected:
  // Gives the items to JavaScript, in their order, by `call`.
  virtual void deliver(std::vector<Item>* items) = 0;
  // The environment ends; nothing is delivered any more.
  virtual void closing() = 0;

  // Whether the mailbox keeps the loop alive, as an open socket does.
  void keepLoop(bool keep) {
    auto* handle = reinterpret_cast<uv_handle_t*>(async_);
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
  static void onAsync(uv_async_t* async) {
    auto* mailbox = static_cast<LoopMailbox*>(async->data);
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
    uv_async_t* async = nullptr;
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      async = async_;
      async_ = nullptr;
      items_.clear();
    }
    closing();
    napi_delete_reference(env_, callback_);
    uv_close(reinterpret_cast<uv_handle_t*>(async), [](uv_handle_t* handle) {
      auto* mailbox = static_cast<LoopMailbox*>(handle->data);
      delete reinterpret_cast<uv_async_t*>(handle);
      napi_remove_async_cleanup_hook(mailbox->cleanup_);
      const std::shared_ptr<LoopMailbox> last = std::move(mailbox->self_);
    });
  }

  napi_env const env_;
  napi_ref callback_ = nullptr;
  napi_async_cleanup_hook_handle cleanup_ = nullptr;
  std::mutex mutex_;
  uv_async_t* async_ = nullptr;
  std::vector<Item> items_;
  // Those that JavaScript is told just now.
  std::vector<Item> delivered_;
  std::shared_ptr<LoopMailbox> self_;
};

}  // namespace weft
