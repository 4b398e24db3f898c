// What the two halves of the pump share: its parts and its bounds.
#pragma once

#include <cerrno>

#include "splice-pump.h"

namespace weft {

// What one direction may move before the next has its turn: some hundred microseconds of the kernel's time.
constexpr size_t TURN_BYTES = 1 << 20;
// Pipes in use at once. A direction whose sink has stalled keeps one; beyond these, bytes take the way through user space.
constexpr size_t MAX_PIPES = 256;
// Descriptors of the process, or an eighth of all where that is less, that no pipe takes: bytes find a way without one, and what
// needs a descriptor does not.
constexpr size_t SPARED_DESCRIPTORS = 128;
// Asked for of each pipe. Against the default of 64 KiB a third less processor time for a byte, measured in bulk.
constexpr size_t PIPE_BYTES = 1 << 20;
// The kernel's own pipe, and the least one.
constexpr size_t DEFAULT_PIPE_BYTES = 65'536;
// Empty pipes kept for the next direction that needs one. Each direction that is busy at the same moment takes one.
constexpr size_t KEPT_PIPES = 8;
// One read of the way through user space.
constexpr size_t COPY_BYTES = 65'536;
// Unread bytes thrown away before a socket is closed whose peer is to see all of what was sent to it.
constexpr size_t DISCARD_BYTES = 1 << 20;
constexpr int MAX_EVENTS = 256;

struct SplicePump::Pipe {
  int readEnd;
  int writeEnd;
  size_t capacity;
};

// One socket. `readable` and `writable` are hopes: they stay until the kernel says EAGAIN.
struct SplicePump::Side {
  int fd = -1;
  Join* join = nullptr;
  // The direction that reads from here and the one that writes to here.
  Flow* outgoing = nullptr;
  Flow* incoming = nullptr;
  bool readable = true;
  bool writable = true;
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
  // What goes before the source's own bytes, its first part not counted.
  std::string head;
  size_t headUncounted = 0;
  size_t headSent = 0;
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> firstNs{0};
  // The source has said its last; what is held is still to be written.
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

  // A socket has failed before its last word: the other one must not take that for an end.
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
