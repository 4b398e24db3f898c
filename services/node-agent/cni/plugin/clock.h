#pragma once
#include <ctime>

namespace weft {

// A moment that does not move with the wall clock.
class Deadline {
 public:
  explicit Deadline(int afterMs) : endMs_(nowMs() + afterMs) {}
  // Milliseconds until the moment; 0 or less when it has passed.
  int leftMs() const { return static_cast<int>(endMs_ - nowMs()); }

 private:
  static long long nowMs() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<long long>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
  }

  long long endMs_;
};

}  // namespace weft
