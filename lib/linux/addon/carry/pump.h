// One thread that carries links: its epoll, its mailbox of commands, and the memory that its links share.
#pragma once

#include <pthread.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "link.h"

namespace weft::carry {

// Bytes that one read of a link takes.
constexpr size_t READ_BYTES = 512 * 1024;
constexpr int MAX_EVENTS = 256;
// A thread that moves more in two rounds is in the midst of a bulk stream.
constexpr size_t BULK_BYTES = 64 * 1024;

struct PumpCounters {
  std::atomic<uint64_t> links{0};
  std::atomic<uint64_t> streams{0};
  std::atomic<uint64_t> recordsRead{0};
  std::atomic<uint64_t> recordsWritten{0};
  // KeyUpdates of peers, and our own.
  std::atomic<uint64_t> updatesRead{0};
  std::atomic<uint64_t> updatesWritten{0};
};

class Pump {
 public:
  Pump();
  // Ends the thread and destroys its links; for programs that end, not for the addon.
  ~Pump();
  Pump(const Pump&) = delete;
  Pump& operator=(const Pump&) = delete;

  // Makes the epoll and, if asked, the thread. 0, or an errno.
  int open(bool withThread);
  // Any thread. The descriptors of the command belong to the pump.
  void post(Command&& command);
  // The same, but the thread may obey only after the next drive() or wake().
  void queue(Command&& command);
  // Any thread: obeys the queued commands. If the pump's thread only waits, the caller does it, and serves the links of the
  // commands once: that spares a change of threads.
  void drive();
  void wake();
  // Any thread: takes back the socket that was offered to a stream; -1 when the stream has taken it or has ended.
  int recall(uint32_t link, uint32_t stream);
  // One round without a thread, for tests. Waits up to `timeoutMs` for an event.
  void round(int timeoutMs);
  // Any thread: a listener has handled events of this link. After a HELD it knows of `received` bytes.
  void handled(uint32_t link, LinkCounts* counts, uint32_t events, uint32_t bytes,
               int64_t received = UNCHANGED);

  PumpCounters counters;
  // Environments that use it; guarded by their own lock.
  size_t users = 0;

  // The rest is for its links, by the thread that works on them.
  // Bytes of all links that their listeners do not know of.
  int64_t unknownBytes = 0;
  // Bytes that its links read and wrote in this round.
  size_t moved = 0;
  // Whether it will hardly sleep after this round.
  bool goesOn() const { return moved + movedBefore_ > BULK_BYTES; }
  void activate(Link* link);
  // Reports what may be read and, if asked, when more may be written. A change of the report tells of all that is possible now.
  bool watch(int fd, Source* source, bool output);
  void rewatch(int fd, Source* source, bool output);
  // Watches the stream's socket at the end of this turn, in which it is read: what is read then wakes nobody.
  void watchLater(Stream* stream);
  void unwatch(int fd);
  void bury(std::unique_ptr<Stream> stream);
  void bury(Link* link);
  Pieces* lend();
  void giveBack(Pieces* pieces);
  uint8_t* readScratch() { return readScratch_.get(); }
  uint8_t* plainScratch() { return plainScratch_.get(); }
  uint8_t* sealedScratch() { return sealedScratch_.get(); }

 private:
  static void* run(void* self);
  void obeyAll();
  void serveActive();
  void obey(Command* command);
  void begin(Command* command);

  // Held by the thread that works on the links.
  std::mutex work_;
  std::mutex mutex_;
  std::vector<Command> commands_;
  // Those that are obeyed just now; for the thread that works on the links.
  std::vector<Command> obeyed_;
  std::atomic<bool> commanded_{false};
  int wakeFd_ = -1;
  int epollFd_ = -1;
  pthread_t thread_ = {};
  bool threaded_ = false;
  bool stopped_ = false;
  // Links were left to serve; for the pump's thread alone.
  bool hasMore_ = false;
  size_t movedBefore_ = 0;

  Source wake_{Source::Kind::WAKE};
  std::unordered_map<uint32_t, std::unique_ptr<Link>> links_;
  std::vector<Link*> active_;
  std::vector<Link*> serving_;
  std::vector<Stream*> unwatched_;
  std::vector<std::unique_ptr<Stream>> deadStreams_;
  std::vector<std::unique_ptr<Link>> deadLinks_;
  std::vector<std::unique_ptr<Pieces>> pieces_;
  std::vector<Pieces*> freePieces_;
  std::unique_ptr<uint8_t[]> readScratch_;
  std::unique_ptr<uint8_t[]> plainScratch_;
  std::unique_ptr<uint8_t[]> sealedScratch_;
};

}  // namespace weft::carry
