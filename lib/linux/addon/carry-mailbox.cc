#include "carry-mailbox.h"

#include "common.h"

namespace weft {

using carry::Event;
using carry::EventKind;

void CarryMailbox::linked(uint32_t link, std::shared_ptr<carry::LinkCounts> counts) {
  links_[link].counts = std::move(counts);
  if (links_.size() == 1) keepLoop(true);
}

CarriedLink* CarryMailbox::find(uint32_t link) {
  const auto found = links_.find(link);
  return found == links_.end() ? nullptr : &found->second;
}

void CarryMailbox::deliver(std::vector<Event>* events) {
  napi_value batch = nullptr;
  napi_create_array_with_length(env(), events->size(), &batch);
  for (size_t index = 0; index < events->size(); index += 1) {
    napi_set_element(env(), batch, static_cast<uint32_t>(index), toTuple(&(*events)[index]));
  }
  call(1, &batch);
  forget(*events);
  acknowledge(*events);
}

// JavaScript has answered the events; its commands go before what the links do now.
void CarryMailbox::acknowledge(const std::vector<Event>& events) {
  for (const Event& event : events) {
    const bool isHeld = event.kind == EventKind::HELD;
    const int64_t received = isHeld ? static_cast<int64_t>(event.code) : carry::UNCHANGED;
    const auto bytes = static_cast<uint32_t>(event.bytes.size());
    pump_->handled(event.link, event.linkCounts.get(), 1, bytes, received);
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
      keepLoop(false);
    }
  }
}

napi_value CarryMailbox::toTuple(Event* told) {
  Event& event = *told;
  napi_value parts[11];
  uint32_t count = 0;
  const auto add = [&](napi_value value) { parts[count++] = value; };
  const auto number = [&](uint64_t value) { add(makeInteger(env(), static_cast<int64_t>(value))); };
  number(static_cast<uint64_t>(event.kind));
  number(event.link);
  switch (event.kind) {
    case EventKind::CONTROL: {
      napi_value buffer = nullptr;
      napi_create_buffer_copy(env(), event.bytes.size(), event.bytes.data(), nullptr, &buffer);
      add(buffer);
      break;
    }
    case EventKind::ENDED: {
      const carry::StreamCounts* counts = event.counts.get();
      number(event.stream);
      number(event.cause);
      number(event.code);
      add(event.error == 0 ? makeNull(env()) : makeText(env(), uv_err_name(-event.error)));
      number(counts == nullptr ? 0 : counts->fromSocket.load());
      number(counts == nullptr ? 0 : counts->fromStream.load());
      add(millisecondsSince(env(), counts == nullptr ? 0 : counts->firstFromSocketNs.load()));
      add(millisecondsSince(env(), counts == nullptr ? 0 : counts->firstFromStreamNs.load()));
      number(event.flags);
      break;
    }
    case EventKind::FAULT:
      number(event.code);
      add(makeText(env(), event.bytes));
      break;
    case EventKind::GONE:
      number(event.cause);
      number(event.code);
      add(event.error == 0 ? makeNull(env()) : makeText(env(), uv_err_name(-event.error)));
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
    case EventKind::REMOTE_END:
    case EventKind::END_SENT:
      number(event.stream);
      break;
    case EventKind::OVER:
      number(event.stream);
      add(makeInteger(env(), static_cast<int64_t>(event.code)));
      break;
  }
  napi_value tuple = nullptr;
  napi_create_array_with_length(env(), count, &tuple);
  for (uint32_t index = 0; index < count; index += 1) {
    napi_set_element(env(), tuple, index, parts[index]);
  }
  return tuple;
}

void CarryMailbox::closing() {
  // The pump drops its references with the links.
  carry::Command abandon{};
  abandon.kind = carry::Command::Kind::ABANDON;
  abandon.listener = std::static_pointer_cast<CarryMailbox>(self());
  pump_->post(std::move(abandon));
  releasePump(pump_);
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
    totals.updatesRead += pump->counters.updatesRead;
    totals.updatesWritten += pump->counters.updatesWritten;
  }
  return totals;
}

}  // namespace weft
