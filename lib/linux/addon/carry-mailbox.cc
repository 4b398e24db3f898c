#include "carry-mailbox.h"

#include <cerrno>

#include "common.h"

namespace weft {

using carry::Event;
using carry::EventKind;

napi_value millisecondsSince(napi_env env, uint64_t momentNs) {
  if (momentNs == 0) return makeNull(env);
  const uint64_t now = uv_hrtime();
  napi_value result = nullptr;
  napi_create_double(env, now > momentNs ? static_cast<double>(now - momentNs) / 1e6 : 0, &result);
  return result;
}

CarryMailbox::CarryMailbox(napi_env env, carry::Pump* pump, napi_value callback)
    : env_(env), pump_(pump) {
  napi_create_reference(env, callback, 1, &callback_);
}

int CarryMailbox::open(std::shared_ptr<CarryMailbox> self) {
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

void CarryMailbox::tell(Event&& event) {
  const std::lock_guard<std::mutex> guard(mutex_);
  if (async_ == nullptr) return;
  const bool isFirst = events_.empty();
  events_.push_back(std::move(event));
  if (isFirst) uv_async_send(async_);
}

void CarryMailbox::linked(uint32_t link, std::shared_ptr<carry::LinkCounts> counts) {
  links_[link].counts = std::move(counts);
  if (links_.size() == 1) uv_ref(reinterpret_cast<uv_handle_t*>(async_));
}

CarriedLink* CarryMailbox::find(uint32_t link) {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : &found->second;
}

void CarryMailbox::onAsync(uv_async_t* async) {
  static_cast<CarryMailbox*>(async->data)->deliver();
}

void CarryMailbox::onThreadEnd(napi_async_cleanup_hook_handle, void* data) {
  static_cast<CarryMailbox*>(data)->closeDown();
}

void CarryMailbox::deliver() {
  std::vector<Event> events;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    events.swap(events_);
  }
  if (events.empty()) return;
  napi_handle_scope scope = nullptr;
  napi_open_handle_scope(env_, &scope);
  napi_value batch = nullptr;
  napi_create_array_with_length(env_, events.size(), &batch);
  for (size_t index = 0; index < events.size(); index += 1) {
    napi_set_element(env_, batch, static_cast<uint32_t>(index), toTuple(&events[index]));
  }
  forget(events);
  napi_value callback = nullptr;
  napi_get_reference_value(env_, callback_, &callback);
  napi_value receiver = nullptr;
  napi_get_global(env_, &receiver);
  if (napi_make_callback(env_, nullptr, receiver, callback, 1, &batch, nullptr) ==
      napi_pending_exception) {
    napi_value error = nullptr;
    napi_get_and_clear_last_exception(env_, &error);
    napi_fatal_exception(env_, error);
  }
  acknowledge(events);
  napi_close_handle_scope(env_, scope);
}

// JavaScript has answered the events; its commands go before what the links do now.
void CarryMailbox::acknowledge(const std::vector<Event>& events) {
  for (const Event& event : events) {
    carry::LinkCounts* counts = event.linkCounts.get();
    if (event.kind == EventKind::HELD) counts->knownReceived = static_cast<int64_t>(event.code);
    pump_->handled(event.link, counts, 1, static_cast<uint32_t>(event.bytes.size()));
  }
}

// Drops the counts of streams that have ended.
void CarryMailbox::forget(const std::vector<Event>& events) {
  for (const Event& event : events) {
    if (event.kind == EventKind::ENDED) {
      CarriedLink* link = find(event.link);
      if (link != nullptr) link->streams.erase(event.stream);
    }
    if (event.kind == EventKind::GONE && links_.erase(event.link) == 1 && links_.empty()) {
      uv_unref(reinterpret_cast<uv_handle_t*>(async_));
    }
  }
}

napi_value CarryMailbox::toTuple(Event* told) {
  Event& event = *told;
  napi_value parts[11];
  uint32_t count = 0;
  const auto add = [&](napi_value value) { parts[count++] = value; };
  const auto number = [&](uint64_t value) { add(makeInteger(env_, static_cast<int64_t>(value))); };
  number(static_cast<uint64_t>(event.kind));
  number(event.link);
  switch (event.kind) {
    case EventKind::CONTROL: {
      napi_value buffer = nullptr;
      napi_create_buffer_copy(env_, event.bytes.size(), event.bytes.data(), nullptr, &buffer);
      add(buffer);
      break;
    }
    case EventKind::ENDED: {
      const carry::StreamCounts* counts = event.counts.get();
      number(event.stream);
      number(event.cause);
      number(event.code);
      add(event.error == 0 ? makeNull(env_) : makeText(env_, uv_err_name(-event.error)));
      number(counts == nullptr ? 0 : counts->fromSocket.load());
      number(counts == nullptr ? 0 : counts->fromStream.load());
      add(millisecondsSince(env_, counts == nullptr ? 0 : counts->firstFromSocketNs.load()));
      add(millisecondsSince(env_, counts == nullptr ? 0 : counts->firstFromStreamNs.load()));
      number(event.flags);
      break;
    }
    case EventKind::FAULT:
      number(event.code);
      add(makeText(env_, event.bytes));
      break;
    case EventKind::GONE:
      number(event.cause);
      number(event.code);
      add(event.error == 0 ? makeNull(env_) : makeText(env_, uv_err_name(-event.error)));
      number(event.linkCounts->bytesRead);
      number(event.linkCounts->bytesWritten);
      break;
    case EventKind::HELD:
      // A later change is told again.
      event.linkCounts->heldTold = false;
      number(static_cast<uint64_t>(event.linkCounts->queued.load()));
      event.code = static_cast<uint64_t>(event.linkCounts->received.load());
      number(event.code);
      break;
    case EventKind::REKEYED:
      number(event.cause);
      number(event.code);
      break;
    case EventKind::REMOTE_END:
      number(event.stream);
      break;
  }
  napi_value tuple = nullptr;
  napi_create_array_with_length(env_, count, &tuple);
  for (uint32_t index = 0; index < count; index += 1) {
    napi_set_element(env_, tuple, index, parts[index]);
  }
  return tuple;
}

void CarryMailbox::closeDown() {
  uv_async_t* async = nullptr;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    async = async_;
    async_ = nullptr;
    events_.clear();
  }
  // From here on the pump only finds a closed mailbox; it drops its references with the links.
  carry::Command abandon{};
  abandon.kind = carry::Command::Kind::ABANDON;
  abandon.listener = self_;
  pump_->post(std::move(abandon));
  releasePump(pump_);
  napi_delete_reference(env_, callback_);
  uv_close(reinterpret_cast<uv_handle_t*>(async), [](uv_handle_t* handle) {
    auto* mailbox = static_cast<CarryMailbox*>(handle->data);
    delete reinterpret_cast<uv_async_t*>(handle);
    napi_remove_async_cleanup_hook(mailbox->cleanup_);
    const std::shared_ptr<CarryMailbox> last = std::move(mailbox->self_);
  });
}

namespace {

// The pumps of the process; they outlive every environment, and so does their lock.
struct Pumps {
  std::mutex mutex;
  std::vector<std::unique_ptr<carry::Pump>> all;
};

Pumps& pumps() {
  static auto* const instance = new Pumps();
  return *instance;
}

}  // namespace

carry::Pump* assignPump(size_t most, int* error) {
  Pumps& own = pumps();
  const std::lock_guard<std::mutex> guard(own.mutex);
  carry::Pump* chosen = nullptr;
  for (const auto& pump : own.all) {
    if (chosen == nullptr || pump->users < chosen->users) chosen = pump.get();
  }
  if (chosen == nullptr || (chosen->users > 0 && own.all.size() < most)) {
    auto made = std::make_unique<carry::Pump>();
    *error = made->open(true);
    if (*error != 0) return nullptr;
    own.all.push_back(std::move(made));
    chosen = own.all.back().get();
  }
  chosen->users += 1;
  return chosen;
}

void releasePump(carry::Pump* pump) {
  const std::lock_guard<std::mutex> guard(pumps().mutex);
  pump->users -= 1;
}

CarryTotals carryTotals() {
  Pumps& own = pumps();
  const std::lock_guard<std::mutex> guard(own.mutex);
  CarryTotals totals;
  totals.threads = own.all.size();
  for (const auto& pump : own.all) {
    totals.links += pump->counters.links;
    totals.streams += pump->counters.streams;
    totals.recordsRead += pump->counters.recordsRead;
    totals.recordsWritten += pump->counters.recordsWritten;
  }
  return totals;
}

}  // namespace weft
