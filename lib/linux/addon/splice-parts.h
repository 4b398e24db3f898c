// The parts and bounds that the two halves of the pump share.
#pragma once

#include <cerrno>

#include "splice-pump.h"

namespace weft {

// Bytes that one direction may move in a turn: some hundred microseconds of the kernel's time.
constexpr size_t TURN_BYTES = 1 << 20;
// Pipes in use at once. A direction with a stalled sink keeps one; without a free pipe, bytes go through user space.
constexpr size_t MAX_PIPES = 256;
// Descriptors of the process, or an eighth of all where that is less, that no pipe takes: bytes can
// move without a pipe, other work needs the descriptors.
constexpr size_t SPARED_DESCRIPTORS = 128;
// Requested capacity of a pipe. Needs a third less processor time per byte than the default of 64 KiB, measured in bulk.
constexpr size_t PIPE_BYTES = 1 << 20;
// The kernel's default capacity and the smallest one.
constexpr size_t DEFAULT_PIPE_BYTES = 65'536;
// Empty pipes that are kept for the next direction. Each direction that is busy at the same time takes one.
constexpr size_t KEPT_PIPES = 8;
// One read through user space.
constexpr size_t COPY_BYTES = 65'536;
// Unread bytes that are discarded before the close of a socket, so that its peer gets all bytes sent to it.
constexpr size_t DISCARD_BYTES = 1 << 20;
constexpr int MAX_EVENTS = 256;

struct SplicePump::Pipe {
  int readEnd;
  int writeEnd;
  size_t capacity;
};

// One socket. `readable` and `writable` stay set until the kernel returns EAGAIN.
struct SplicePump::Side {
  int fd = -1;
  Join* join = nullptr;
  // The direction that reads from here and the one that writes to here.
  Flow* outgoing = nullptr;
  Flow* incoming = nullptr;
  bool readable = true;
  bool writable = true;
  // Urgent data waits: splice(2) goes no further than its mark.
  bool urgent = false;
  bool watched = false;
  // It failed: nothing can be written to it any more.
  bool dead = false;
};

// One direction. Holds a pipe exactly while there are bytes in it, or during its turn.
struct SplicePump::Flow {
  Join* join = nullptr;
  Side* from = nullptr;
  Side* to = nullptr;
  Pipe* pipe = nullptr;
  size_t held = 0;
  // Bytes before the source's own; the first part is not counted.
  std::string head;
  size_t headUncounted = 0;
  size_t headSent = 0;
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> firstNs{0};
  // The source's input has ended; held bytes are still to be written.
  bool sourceEnded = false;
  // Nothing more will be moved this way.
  bool done = false;
  bool queued = false;
  Flow* next = nullptr;
  Flow* previous = nullptr;
};

struct SplicePump::Join {
  Join() {
    up.join = down.join = a.join = b.join = this;
    up.from = down.to = &a;
    up.to = down.from = &b;
    a.outgoing = b.incoming = &up;
    b.outgoing = a.incoming = &down;
  }
  Join(const Join&) = delete;
  Join& operator=(const Join&) = delete;

  // A socket has failed before the end of its input; the other one must not see a clean end.
  bool reset = false;

  // Keeps the first failure that says more than that the other side is gone (docs/spec/dataplane.md §10).
  void fail(int failure) {
    const bool ordinary = failure == 0 || failure == ECONNRESET || failure == EPIPE ||
                          failure == ENOTCONN || failure == ECONNABORTED;
    if (!ordinary && error == 0) error = failure;
  }

  uint64_t id = 0;
  Side a;
  Side b;
  Flow up;    // from a to b
  Flow down;  // from b to a
  std::shared_ptr<PumpListener> listener;
  int error = 0;
};

}  // namespace weft
