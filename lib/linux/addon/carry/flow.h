// Flow control (RFC 9113 §5.2, §6.9) and the budget of frames without progress.
#pragma once

#include <cstdint>

#include "h2-frames.h"

namespace weft::carry {

// A window is given back when one part in this many is used up: few frames, and the sender never has to wait.
constexpr int64_t RELEASE_SHARE = 4;
// Unread bytes of all streams of a link up to which the connection window is given back on arrival.
constexpr int64_t MAX_HELD_BYTES = 64 * 1'048'576;
// Window of a stream while its pod is pressed.
constexpr int64_t PRESSED_WINDOW_BYTES = 16'384;

// Frames without progress that a peer may send in one burst, and per second.
constexpr double IDLE_BURST = 10'000;
constexpr double IDLE_PER_SECOND = 1'000;
// WINDOW_UPDATEs that a peer may send for each KiB it received, besides.
constexpr double WINDOW_UPDATES_PER_KIB = 2;

// CLOCK_MONOTONIC in nanoseconds.
uint64_t nowNs();

class Budget {
 public:
  Budget() : tokens_(IDLE_BURST), atNs_(nowNs()) {}
  // False when nothing is left.
  bool spend();
  void earn(double tokens);

 private:
  double tokens_;
  uint64_t atNs_;
};

// The connection's receive window. It is given back as bytes arrive, so that a stalled reader does not take it from other streams.
class ConnectionWindow {
 public:
  ConnectionWindow(int64_t size) : size_(size), left_(size) {}
  // False when the peer had less.
  bool take(int64_t bytes);
  // The bytes to give back now, 0 for none. `held` waits for readers; `streamWindow` is in force for them.
  int64_t release(int64_t held, int64_t streamWindow, bool pressed);
  void resize(int64_t size);
  int64_t size() const { return size_; }

 private:
  int64_t size_;
  int64_t left_;
  int64_t unreleased_ = 0;
};

// The receive window of one stream. It is given back as bytes reach the application.
class StreamWindow {
 public:
  explicit StreamWindow(int64_t size) : size_(size), left_(size) {}
  bool take(int64_t bytes);
  // Counts bytes as read; the bytes to give back now, 0 for none.
  int64_t consume(int64_t bytes);
  // Changes the size, and the bytes that the peer may send, perhaps below 0.
  void resize(int64_t size);

 private:
  int64_t size_;
  int64_t left_;
  int64_t unreleased_ = 0;
};

}  // namespace weft::carry
