// Joins pairs of TCP sockets and moves their bytes in the kernel, on one thread of the process.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace weft {

// How a join ended. `error` is an errno, 0 for an ordinary end, ECANCELED for an abort.
struct PumpEnd {
  uint64_t id = 0;
  uint64_t fromA = 0;
  uint64_t fromB = 0;
  int error = 0;
  uint64_t firstFromBNs = 0;
};

// The bytes that a join has moved so far.
struct PumpCounts {
  uint64_t fromA = 0;
  uint64_t fromB = 0;
  // When the first byte went from b to a, by CLOCK_MONOTONIC; 0 before that.
  uint64_t firstFromBNs = 0;
};

// Receives ends, on the pump's thread.
class PumpListener {
 public:
  virtual ~PumpListener() = default;
  virtual void ended(const PumpEnd& end) = 0;
};

struct PumpLimits {
  // Pipes that may hold bytes at once; each takes two descriptors.
  size_t maxPipes;
  // Requested capacity of each.
  size_t pipeBytes;
};

struct PumpStats {
  uint64_t joins = 0;
  uint64_t pipesOpen = 0;
  uint64_t pipesHeld = 0;
  // Moved through user space because no pipe was free.
  uint64_t copiedBytes = 0;
};

// One of the two sockets. `first` is sent on it before any bytes of the other one, and is not counted. `read` was read
// from it before; it goes to the other one first and is counted.
struct PumpSocket {
  int fd = -1;
  std::string first;
  std::string read;
};

class SplicePump {
 public:
  // One for the process; made at the first use and never destroyed, because its thread outlives every environment.
  static SplicePump& instance();

  // Takes both sockets, which are non-blocking, unless it fails: 0, or an errno.
  int start(const PumpSocket& a, const PumpSocket& b, std::shared_ptr<PumpListener> listener,
            uint64_t* id);
  // Resets both sockets soon and notifies the listener. Ignores unknown ids, which have ended.
  void abort(uint64_t id);
  // Resets all joins of a listener that goes away, without notice to it.
  void abandon(const PumpListener* listener);
  // False when the id has ended.
  bool counts(uint64_t id, PumpCounts* counts);
  PumpStats stats();
  void limit(PumpLimits limits);

 private:
  struct Pipe;
  struct Side;
  struct Flow;
  struct Join;
  enum class Turn { WAIT, MORE, DONE };
  enum class Step { MOVED, SOURCE_EMPTY, SINK_FULL, FAILED };

  struct Command {
    enum class Kind { START, ABORT, ABANDON } kind;
    uint64_t id;
    const PumpListener* listener;
  };

  SplicePump();
  int launch();
  void post(Command command);
  static void* run(void* self);
  void loop();
  void obey();
  void notice(Side* side, uint32_t events);
  void begin(Join* join);
  void serve(Flow* flow);
  Turn turn(Flow* flow);
  Step sendHead(Flow* flow);
  Step drain(Flow* flow);
  Step fill(Flow* flow);
  Step copy(Flow* flow);
  void moved(Flow* flow, size_t bytes);
  Step readFailed(Flow* flow, ssize_t got);
  Step writeFailed(Flow* flow);
  void broken(Side* side, int error);
  void settle(Join* join);
  void passOnLast(Flow* flow);
  void finish(Join* join, bool tell, bool reset);
  void enqueue(Flow* flow);
  void unqueue(Flow* flow);
  Pipe* borrow();
  void giveBack(Flow* flow);
  void closePipe(Pipe* pipe);

  // Guards the data that JavaScript threads and the pump's thread share.
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::unique_ptr<Join>> joins_;
  std::vector<Command> commands_;
  uint64_t nextId_ = 1;
  bool launched_ = false;
  int wakeFd_ = -1;
  std::atomic<bool> commanded_{false};
  std::atomic<size_t> maxPipes_;
  std::atomic<size_t> pipeBytes_;
  std::atomic<uint64_t> pipesOpen_{0};
  std::atomic<uint64_t> pipesHeld_{0};
  std::atomic<uint64_t> copiedBytes_{0};

  // Used only by the pump's thread.
  int epollFd_ = -1;
  std::vector<Pipe*> idlePipes_;
  Flow* firstReady_ = nullptr;
  Flow* lastReady_ = nullptr;
  size_t ready_ = 0;
  std::vector<char> scratch_;
};

}  // namespace weft
