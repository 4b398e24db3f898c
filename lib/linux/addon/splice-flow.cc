// One turn of one direction: moves bytes source → pipe → sink and passes on the end of the source.
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "splice-parts.h"

namespace weft {

namespace {
bool again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }
}  // namespace

SplicePump::Turn SplicePump::turn(Flow* flow) {
  const uint64_t start = flow->count;
  for (;;) {
    if (flow->headSent < flow->head.size()) {
      if (!flow->to->writable || sendHead(flow) != Step::MOVED) return Turn::WAIT;
      continue;
    }
    if (flow->held > 0) {
      // Keeps the pipe until the sink takes the rest.
      if (!flow->to->writable || drain(flow) != Step::MOVED) return Turn::WAIT;
      continue;
    }
    if (flow->sourceEnded) {
      giveBack(flow);
      shutdown(flow->to->fd, SHUT_WR);
      flow->done = true;
      return Turn::DONE;
    }
    const bool spent = flow->count - start >= TURN_BYTES;
    // Reads nothing that the sink may not take, so an idle or stalled direction holds no pipe.
    if (spent || !flow->from->readable || !flow->to->writable) {
      giveBack(flow);
      return spent ? Turn::MORE : Turn::WAIT;
    }
    if (flow->pipe == nullptr && !flow->from->urgent) flow->pipe = borrow();
    const bool copies = flow->pipe == nullptr || flow->from->urgent;
    const Step step = copies ? copy(flow) : fill(flow);
    if (step == Step::FAILED) return Turn::WAIT;
  }
}

// Bytes that go before everything else.
SplicePump::Step SplicePump::sendHead(Flow* flow) {
  const ssize_t sent = send(flow->to->fd, flow->head.data() + flow->headSent,
                            flow->head.size() - flow->headSent, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return writeFailed(flow);
  const size_t before = std::max(flow->headSent, flow->headUncounted);
  flow->headSent += static_cast<size_t>(sent);
  if (flow->headSent > before) moved(flow, flow->headSent - before);
  if (flow->headSent == flow->head.size()) {
    flow->head = std::string();
    flow->headSent = 0;
  }
  return Step::MOVED;
}

// Pipe to sink.
SplicePump::Step SplicePump::drain(Flow* flow) {
  const ssize_t moved = splice(flow->pipe->readEnd, nullptr, flow->to->fd, nullptr, flow->held,
                               SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  if (moved == 0) errno = EPIPE;
  if (moved <= 0) return writeFailed(flow);
  flow->held -= static_cast<size_t>(moved);
  this->moved(flow, static_cast<size_t>(moved));
  return Step::MOVED;
}

// Source to pipe, which is empty.
SplicePump::Step SplicePump::fill(Flow* flow) {
  const ssize_t got = splice(flow->from->fd, nullptr, flow->pipe->writeEnd, nullptr,
                             flow->pipe->capacity, SPLICE_F_NONBLOCK | SPLICE_F_MOVE);
  // With urgent data before the end, the call reports the end and leaves what is behind the mark.
  if (got == 0) return copy(flow);
  if (got < 0) return readFailed(flow, got);
  flow->held = static_cast<size_t>(got);
  return Step::MOVED;
}

// Source to sink without a pipe. Bytes leave the source only after the sink has taken them, so nothing is held in
// between and a direction without a pipe never waits for one.
SplicePump::Step SplicePump::copy(Flow* flow) {
  char* bytes = scratch_.data();
  const ssize_t seen = recv(flow->from->fd, bytes, scratch_.size(), MSG_PEEK | MSG_DONTWAIT);
  if (seen <= 0) return readFailed(flow, seen);
  const ssize_t sent =
      send(flow->to->fd, bytes, static_cast<size_t>(seen), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return writeFailed(flow);
  const auto count = static_cast<size_t>(sent);
  // Without a buffer the call discards.
  if (recv(flow->from->fd, bytes, count, MSG_TRUNC | MSG_DONTWAIT) != sent) {
    // A reset between the two calls emptied the queue; the next call reports it.
    flow->from->readable = true;
  }
  moved(flow, count);
  copiedBytes_ += count;
  return Step::MOVED;
}

void SplicePump::moved(Flow* flow, size_t bytes) {
  if (flow->count.fetch_add(bytes, std::memory_order_relaxed) != 0) return;
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  flow->firstNs = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 +
                  static_cast<uint64_t>(now.tv_nsec);
}

SplicePump::Step SplicePump::readFailed(Flow* flow, ssize_t got) {
  if (got < 0 && again(errno)) {
    flow->from->readable = errno == EINTR;
    return Step::SOURCE_EMPTY;
  }
  if (got < 0) broken(flow->from, errno);
  // After a reset has been reported, the kernel reports an end. It must not be passed on as one.
  if (flow->join->reset) return Step::FAILED;
  flow->sourceEnded = true;
  return Step::SOURCE_EMPTY;
}

SplicePump::Step SplicePump::writeFailed(Flow* flow) {
  if (again(errno)) {
    flow->to->writable = errno == EINTR;
    return flow->to->writable ? Step::MOVED : Step::SINK_FULL;
  }
  broken(flow->to, errno);
  return Step::FAILED;
}

// Handles a failed socket. The kernel reports EPIPE for a reset after the end of input, whether or not that was read.
void SplicePump::broken(Side* side, int error) {
  side->dead = true;
  if (error != EPIPE && !side->outgoing->sourceEnded) side->join->reset = true;
  side->join->fail(error);
}

}  // namespace weft
