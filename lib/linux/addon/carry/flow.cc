#include "flow.h"

#include <algorithm>
#include <ctime>

namespace weft::carry {

uint64_t nowNs() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

bool Budget::spend() {
  if (tokens_ < 1) {
    const uint64_t now = nowNs();
    const double seconds = static_cast<double>(now - atNs_) / 1e9;
    tokens_ = std::min(IDLE_BURST, tokens_ + seconds * IDLE_PER_SECOND);
    atNs_ = now;
    if (tokens_ < 1) return false;
  }
  tokens_ -= 1;
  return true;
}

void Budget::earn(double tokens) { tokens_ = std::min(IDLE_BURST, tokens_ + tokens); }

bool ConnectionWindow::take(int64_t bytes) {
  if (bytes > left_) return false;
  left_ -= bytes;
  unreleased_ += bytes;
  return true;
}

int64_t ConnectionWindow::release(int64_t held, int64_t streamWindow, bool pressed) {
  if (unreleased_ == 0 || unreleased_ < size_ / RELEASE_SHARE) return 0;
  const bool isSmall = streamWindow <= PRESSED_WINDOW_BYTES;
  if (!isSmall && (pressed || held > MAX_HELD_BYTES)) return 0;
  const int64_t bytes = unreleased_;
  unreleased_ = 0;
  left_ += bytes;
  return bytes;
}

void ConnectionWindow::resize(int64_t size) {
  left_ += size - size_;
  size_ = size;
}

bool StreamWindow::take(int64_t bytes) {
  if (bytes > std::max<int64_t>(0, left_)) return false;
  left_ -= bytes;
  return true;
}

int64_t StreamWindow::consume(int64_t bytes) {
  unreleased_ += bytes;
  if (unreleased_ == 0 || unreleased_ < size_ / RELEASE_SHARE) return 0;
  const int64_t released = unreleased_;
  unreleased_ = 0;
  left_ += released;
  return released;
}

void StreamWindow::resize(int64_t size) {
  left_ += size - size_;
  size_ = size;
}

}  // namespace weft::carry
