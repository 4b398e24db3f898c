// One JavaScript thread's side of the carry: its pump, its links' counts, and the events that wait for it.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "carry/pump.h"
#include "loop-mailbox.h"

namespace weft {

// The counts that a JavaScript thread reads of its links.
struct CarriedLink {
  std::shared_ptr<carry::LinkCounts> counts;
  std::unordered_map<uint32_t, std::shared_ptr<carry::StreamCounts>> streams;
};

// Numbers of one event.
constexpr size_t EVENT_NUMBERS = 12;

// The events of one environment's links.
class CarryMailbox : public LoopMailbox<carry::Event>, public carry::CarryListener {
 public:
  CarryMailbox(napi_env env, carry::Pump* pump, napi_value callback)
      : LoopMailbox(env, callback), pump_(pump) {}

  // The memory that events are told by; false for anything but a Float64Array with room for one. Before open().
  bool tellBy(napi_value numbers);
  void tell(carry::Event&& event) override { put(std::move(event), pump_->goesOn()); }
  // A link keeps the loop alive, as an open socket does.
  void linked(uint32_t link, std::shared_ptr<carry::LinkCounts> counts);
  // Null when the link has ended.
  CarriedLink* find(uint32_t link);

  carry::Pump* pump() const { return pump_; }

 private:
  void deliver(std::vector<carry::Event>* events) override;
  void closing() override;
  void forget(const std::vector<carry::Event>& events);
  void acknowledge(const std::vector<carry::Event>& events);
  void deliverPart(std::vector<carry::Event>* events, size_t from, size_t to);
  void write(carry::Event* event, double* numbers);

  carry::Pump* const pump_;
  std::unordered_map<uint32_t, CarriedLink> links_;
  napi_ref numbersRef_ = nullptr;
  double* numbers_ = nullptr;
  // Events that the memory has room for.
  size_t most_ = 0;
};

// The pump with the fewest environments, of at most `most`; null with `error` set.
carry::Pump* assignPump(size_t most, int* error);
void releasePump(carry::Pump* pump);

struct CarryTotals {
  uint64_t threads = 0;
  uint64_t links = 0;
  uint64_t streams = 0;
  uint64_t recordsRead = 0;
  uint64_t recordsWritten = 0;
  uint64_t updatesRead = 0;
  uint64_t updatesWritten = 0;
};
CarryTotals carryTotals();

}  // namespace weft
