// One JavaScript thread's side of the carry: its pump, its links' counts, and the events that wait for it.
#pragma once

#include <node_api.h>
#include <uv.h>

#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "carry/pump.h"

namespace weft {

// Milliseconds since a time of CLOCK_MONOTONIC, null for 0. JavaScript threads have different time origins.
napi_value millisecondsSince(napi_env env, uint64_t momentNs);

// The counts that a JavaScript thread reads of its links.
struct CarriedLink {
  std::shared_ptr<carry::LinkCounts> counts;
  std::unordered_map<uint32_t, std::shared_ptr<carry::StreamCounts>> streams;
};

// The pump's thread may still know it when the environment is gone: `async` is null then.
class CarryMailbox : public carry::CarryListener {
 public:
  CarryMailbox(napi_env env, carry::Pump* pump, napi_value callback);

  // 0, or an errno.
  int open(std::shared_ptr<CarryMailbox> self);
  void tell(carry::Event&& event) override;
  // A link keeps the loop alive, as an open socket does.
  void linked(uint32_t link, std::shared_ptr<carry::LinkCounts> counts);
  // Null when the link has ended.
  CarriedLink* find(uint32_t link);

  carry::Pump* pump() const { return pump_; }

 private:
  static void onAsync(uv_async_t* async);
  static void onThreadEnd(napi_async_cleanup_hook_handle, void* data);
  void deliver();
  void forget(const std::vector<carry::Event>& events);
  void acknowledge(const std::vector<carry::Event>& events);
  void closeDown();
  napi_value toTuple(carry::Event* event);

  napi_env env_;
  carry::Pump* const pump_;
  napi_ref callback_ = nullptr;
  napi_async_cleanup_hook_handle cleanup_ = nullptr;
  std::mutex mutex_;
  uv_async_t* async_ = nullptr;
  std::vector<carry::Event> events_;
  std::unordered_map<uint32_t, CarriedLink> links_;
  std::shared_ptr<CarryMailbox> self_;
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
};
CarryTotals carryTotals();

}  // namespace weft
