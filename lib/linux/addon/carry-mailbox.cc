#include "carry-mailbox.h"

#include <algorithm>

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

bool CarryMailbox::tellBy(napi_value numbers) {
  napi_typedarray_type type = napi_int8_array;
  size_t length = 0;
  void* data = nullptr;
  bool isArray = false;
  if (numbers == nullptr || napi_is_typedarray(env(), numbers, &isArray) != napi_ok || !isArray ||
      napi_get_typedarray_info(env(), numbers, &type, &length, &data, nullptr, nullptr) != napi_ok ||
      type != napi_float64_array || length < EVENT_NUMBERS) {
    return false;
  }
  // The memory lives as long as the array, which is never let go.
  napi_create_reference(env(), numbers, 1, &numbersRef_);
  numbers_ = static_cast<double*>(data);
  most_ = length / EVENT_NUMBERS;
  return true;
}

void CarryMailbox::deliver(std::vector<Event>* events) {
  for (size_t from = 0; from < events->size(); from += most_) {
    deliverPart(events, from, std::min(events->size(), from + most_));
  }
  forget(*events);
  acknowledge(*events);
}

// Tells the events by numbers in the memory of JavaScript, and by one buffer with the bytes of all.
void CarryMailbox::deliverPart(std::vector<Event>* events, size_t from, size_t to) {
  std::string bytes;
  double* numbers = numbers_;
  for (size_t index = from; index < to; index += 1) {
    write(&(*events)[index], numbers);
    bytes += (*events)[index].bytes;
    numbers += EVENT_NUMBERS;
  }
  napi_value arguments[] = {makeInteger(env(), static_cast<int64_t>(to - from)), makeNull(env())};
  if (!bytes.empty()) {
    napi_create_buffer_copy(env(), bytes.size(), bytes.data(), nullptr, &arguments[1]);
  }
  call(2, arguments);
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

namespace {

// Milliseconds since a time of CLOCK_MONOTONIC, -1 for none.
double agoMs(uint64_t momentNs, uint64_t nowNs) {
  if (momentNs == 0) return -1;
  return nowNs > momentNs ? static_cast<double>(nowNs - momentNs) / 1e6 : 0;
}

}  // namespace

// The order is that of EVENT in lib/linux/carry.ts.
void CarryMailbox::write(Event* told, double* numbers) {
  Event& event = *told;
  if (event.kind == EventKind::HELD) {
    // A later change is told again.
    event.linkCounts->heldTold = false;
    event.code = static_cast<uint64_t>(event.linkCounts->received.load());
  }
  numbers[0] = static_cast<double>(event.kind);
  numbers[1] = event.link;
  numbers[2] = event.stream;
  numbers[3] = event.cause;
  numbers[4] = static_cast<double>(static_cast<int64_t>(event.code));
  numbers[5] = event.error;
  numbers[6] = event.flags;
  numbers[7] = static_cast<double>(event.bytes.size());
  if (event.kind == EventKind::HELD) numbers[8] = static_cast<double>(event.linkCounts->queued.load());
  if (event.kind != EventKind::ENDED) return;
  const carry::StreamCounts* counts = event.counts.get();
  const uint64_t now = uv_hrtime();
  numbers[8] = counts == nullptr ? 0 : static_cast<double>(counts->fromSocket.load());
  numbers[9] = counts == nullptr ? 0 : static_cast<double>(counts->fromStream.load());
  numbers[10] = counts == nullptr ? -1 : agoMs(counts->firstFromSocketNs.load(), now);
  numbers[11] = counts == nullptr ? -1 : agoMs(counts->firstFromStreamNs.load(), now);
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
