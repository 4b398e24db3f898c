// A stream joined with an application socket; ends follow docs/decisions/abnormal-ends.md.
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "link.h"
#include "pump.h"

namespace weft::carry {

namespace {

bool again(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

// Codes that, after END_STREAM, only mean that the peer wants no more.
bool isClean(uint32_t code) {
  return code == NO_ERROR || code == CANCEL || code == STREAM_CLOSED;
}

}  // namespace

Stream::Stream(Link* link, uint32_t number, int64_t sendWindow, int64_t receive)
    : Source(Kind::STREAM),
      id(number),
      receiveWindow(receive),
      link_(link),
      sendWindow_(sendWindow) {}

Stream::~Stream() { closeSocket(true); }

void Stream::offer(int fd, std::shared_ptr<StreamCounts> counts) {
  if (fd_ >= 0 || offered_ >= 0) {
    resetAndClose(fd);
    return;
  }
  offered_ = fd;
  counts_ = std::move(counts);
}

void Stream::join() {
  if (offered_ < 0 || dead_) return;
  Command joined{};
  joined.counts = counts_;
  if (const int failed = attach(recall(), &joined)) reset(StreamCause::SOCKET, CONNECT_ERROR, failed);
}

int Stream::recall() { return std::exchange(offered_, -1); }

int Stream::attach(int fd, Command* command) {
  if (fd_ >= 0 || offered_ >= 0 || localEnded) {
    resetAndClose(fd);
    return EALREADY;
  }
  fd_ = fd;
  counts_ = command->counts;
  tellsEnd_ = command->first != 0;
  head_ = std::move(command->read);
  link_->hold(0, static_cast<int64_t>(head_.size()));
  foreign_ = command->bytes.size();
  link_->hold(static_cast<int64_t>(foreign_), 0);
  // DATA that came before follows.
  pending_.insert(0, command->bytes);
  link_->pump()->watchLater(this);
  readable_ = writable_ = true;
  if (!writePending()) return 0;
  settle();
  link_->ready(this);
  return 0;
}

void Stream::watch() {
  if (fd_ < 0 || link_->pump()->watch(fd_, this, reportsRoom_)) return;
  reset(StreamCause::SOCKET, CONNECT_ERROR, errno);
}

// The socket takes nothing now. Most never come to this.
void Stream::full() {
  writable_ = false;
  if (reportsRoom_) return;
  reportsRoom_ = true;
  link_->pump()->rewatch(fd_, this, true);
}

void Stream::notice(uint32_t events) {
  if (dead_) return;
  const bool hungUp = (events & (EPOLLHUP | EPOLLERR)) != 0;
  if ((events & EPOLLRDHUP) != 0 || hungUp) {
    ending_ = probe_ = readable_ = true;
  }
  if (hungUp && !shut_) hungUp_ = true;
  if ((events & EPOLLIN) != 0) readable_ = true;
  // Each event tells it until the mark is passed.
  urgent_ = (events & EPOLLPRI) != 0;
  if ((events & EPOLLOUT) != 0) {
    writable_ = true;
    if (!writePending()) return;
  }
  if (hungUp && localEnded && !unwritable_) {
    // The socket is not read any more; only this event shows its reset.
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(fd_, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0 || ((events & EPOLLHUP) != 0 && !shut_)) {
      writeFailed(error == 0 ? EPIPE : error);
      return;
    }
  }
  settle();
  link_->ready(this);
}

bool Stream::grow(int64_t by) {
  sendWindow_ += by;
  if (sendWindow_ > MAX_WINDOW) return false;
  link_->ready(this);
  return true;
}

void Stream::resizeWindow(int64_t size) {
  receiveWindow.resize(size);
  // The peer may now wait for window that was too little to give back before.
  consumed(0);
}

void Stream::take(uint8_t* bytes, size_t length) {
  if (dead_ || length == 0) return;
  content += static_cast<int64_t>(length);
  if (pieces_ == nullptr) pieces_ = link_->pump()->lend();
  if (!pieces_->empty()) {
    iovec& last = pieces_->back();
    if (static_cast<uint8_t*>(last.iov_base) + last.iov_len == bytes) {
      last.iov_len += length;
      return;
    }
  }
  pieces_->push_back({bytes, length});
  link_->flushLater(this);
}

void Stream::flush() {
  inFlush = false;
  flushPieces();
  settle();
}

void Stream::flushPieces() {
  if (dead_ || pieces_ == nullptr) return;
  if (unwritable_) {
    size_t total = 0;
    for (const iovec& piece : *pieces_) total += piece.iov_len;
    dropPieces();
    consumed(total);
  } else if (fd_ >= 0 && writable_ && pending_.empty()) {
    writePieces();
  } else {
    keepPieces(0);
    if (fd_ >= 0 && writable_) writePending();
  }
}

void Stream::writePieces() {
  size_t total = 0;
  for (const iovec& piece : *pieces_) total += piece.iov_len;
  msghdr message = {};
  message.msg_iov = pieces_->data();
  message.msg_iovlen = std::min<size_t>(pieces_->size(), IOV_MAX_COUNT);
  const ssize_t sent = sendmsg(fd_, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0 && !again(errno)) {
    const int error = errno;
    dropPieces();
    consumed(total);
    writeFailed(error);
    return;
  }
  const size_t taken = sent < 0 ? 0 : static_cast<size_t>(sent);
  if (taken < total) {
    // EPOLLOUT follows only a full socket; an interrupted or a capped call is repeated.
    const bool isCut = (sent < 0 && errno == EINTR) || pieces_->size() > IOV_MAX_COUNT;
    if (!isCut) full();
    keepPieces(taken);
  } else {
    dropPieces();
  }
  wrote(taken);
  if (writable_ && !pending_.empty()) writePending();
}

// Copies the pieces from `from` on behind what waits.
void Stream::keepPieces(size_t from) {
  dropSent();
  size_t skip = from;
  size_t kept = 0;
  for (const iovec& piece : *pieces_) {
    const size_t part = std::min(skip, piece.iov_len);
    skip -= part;
    pending_.append(static_cast<const char*>(piece.iov_base) + part, piece.iov_len - part);
    kept += piece.iov_len - part;
  }
  dropPieces();
  link_->hold(static_cast<int64_t>(kept), 0);
}

// Gives back what is sent once it is half of the buffer. A reader that never quite catches up would else have all its bytes kept.
void Stream::dropSent() {
  if (pendingSent_ < pending_.size() - pendingSent_) return;
  pending_.erase(0, pendingSent_);
  foreign_ -= std::min(foreign_, pendingSent_);
  pendingSent_ = 0;
}

void Stream::dropPieces() {
  if (pieces_ == nullptr) return;
  link_->pump()->giveBack(pieces_);
  pieces_ = nullptr;
}

// Writes what waits; false when the stream has ended meanwhile.
bool Stream::writePending() {
  while (pendingSent_ < pending_.size() && writable_) {
    const ssize_t sent = send(fd_, pending_.data() + pendingSent_, pending_.size() - pendingSent_,
                              MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (again(errno)) {
        full();
        return true;
      }
      writeFailed(errno);
      return !dead_;
    }
    const size_t taken = static_cast<size_t>(sent);
    const size_t before = std::max(pendingSent_, foreign_);
    pendingSent_ += taken;
    link_->hold(-static_cast<int64_t>(taken), 0);
    if (pendingSent_ > before) wrote(pendingSent_ - before);
  }
  if (pendingSent_ == pending_.size()) {
    pending_ = std::string();
    pendingSent_ = foreign_ = 0;
  }
  return !dead_;
}

void Stream::dropPending() {
  const size_t left = pending_.size() - pendingSent_;
  const size_t foreign = foreign_ > pendingSent_ ? foreign_ - pendingSent_ : 0;
  pending_ = std::string();
  pendingSent_ = foreign_ = 0;
  link_->hold(-static_cast<int64_t>(left), 0);
  consumed(left - foreign);
}

void Stream::wrote(size_t bytes) {
  if (bytes == 0) return;
  if (counts_->fromStream.fetch_add(bytes, std::memory_order_relaxed) == 0) {
    counts_->firstFromStreamNs = nowNs();
  }
  consumed(bytes);
}

// The application has the bytes, or nobody wants them.
void Stream::consumed(size_t bytes) {
  if (dead_ || remoteEnded) return;
  const int64_t back = receiveWindow.consume(static_cast<int64_t>(bytes));
  if (back > 0) link_->numberFrame(WINDOW_UPDATE, id, static_cast<uint32_t>(back));
}

void Stream::expect(int64_t bytes) {
  announced_ = bytes;
  if (endKnown_ && content != bytes) reset(StreamCause::BROKE, PROTOCOL_ERROR);
}

void Stream::remoteEnd() {
  remoteEnded = true;
  if (dead_ || endKnown_) return;
  if (announced_ >= 0 && content != announced_) {
    reset(StreamCause::BROKE, PROTOCOL_ERROR);
    return;
  }
  endKnown_ = true;
  // A reset that follows at once may say that it was no clean end.
  link_->flushLater(this);
}

void Stream::peerReset(uint32_t code) {
  flushPieces();
  if (dead_) return;
  if (!endKnown_ || !isClean(code)) {
    finish(StreamCause::PEER_RESET, code, 0, true);
    return;
  }
  over_ = true;
  overCode_ = code;
  settle();
}

void Stream::localEnd() {
  localEnded = true;
  settle();
}

void Stream::reset(StreamCause cause, uint32_t code, int error) {
  if (dead_) return;
  if (over_ || delivers_) {
    finish(over_ ? StreamCause::PEER_RESET : cause, over_ ? overCode_ : code, error, true);
    return;
  }
  link_->rememberReset(id);
  link_->numberFrame(RST_STREAM, id, code);
  finish(cause, code, error, true);
}

void Stream::finish(StreamCause cause, uint32_t code, int error, bool cut) {
  if (dead_) return;
  dead_ = true;
  dropPieces();
  link_->hold(-static_cast<int64_t>(pending_.size() - pendingSent_),
              -static_cast<int64_t>(head_.size() - headSent_));
  Event event;
  event.stream = id;
  event.cause = static_cast<uint32_t>(cause);
  event.code = code;
  event.error = error;
  event.counts = counts_;
  event.flags = (endKnown_ ? PEER_ENDED : 0) | (localEnded ? WE_ENDED : 0) |
                (fd_ >= 0 ? WAS_ATTACHED : 0);
  if (counts_ != nullptr && cause != StreamCause::DONE) counts_->broken = true;
  if (offered_ >= 0) counts_->unused = recall();
  closeSocket(cut);
  link_->forget(this, std::move(event));
}

// Ends what has come to its end.
void Stream::settle() {
  if (dead_) return;
  const bool isJoined = fd_ >= 0;
  // Bytes wait for the socket, perhaps for one that is not joined yet.
  const bool isWaiting = isJoined ? !pending_.empty() && !unwritable_ : over_ && !localEnded;
  if (endKnown_ && (over_ || localEnded) && isWaiting) {
    if (!delivers_) link_->tellOf(EventKind::OVER, id, over_ ? static_cast<int64_t>(overCode_) : -1);
    delivers_ = true;
  } else if (endKnown_ && !isWaiting) {
    if (over_) {
      finish(StreamCause::PEER_RESET, overCode_, 0, false);
    } else if (localEnded) {
      finish(StreamCause::DONE, 0, 0, false);
    } else if (fd_ >= 0 && !shut_ && !unwritable_) {
      shut_ = true;
      shutdown(fd_, SHUT_WR);
    }
  } else if (localEnded && unwritable_) {
    reset(StreamCause::UNREAD, link_->isServer() ? NO_ERROR : CANCEL);
  }
}

// The socket takes no more. Its earlier bytes, and the way it ended, are still read.
void Stream::writeFailed(int error) {
  // The kernel reports EPIPE for a reset after the end of input, whether or not that was read.
  if (failure_ == 0 && error != EPIPE) failure_ = error;
  unwritable_ = true;
  writable_ = false;
  dropPending();
  if (dead_) return;
  readable_ = ending_ = probe_ = true;
  settle();
  link_->ready(this);
}

void Stream::closeSocket(bool reset) {
  if (fd_ < 0) return;
  link_->pump()->unwatch(fd_);
  if (reset) {
    resetAndClose(fd_);
  } else {
    // A close with unread bytes resets, and a reset discards bytes that the application has not read yet.
    char discard[16'384];
    size_t discarded = 0;
    ssize_t got = 0;
    while (!localEnded && discarded < DISCARD_BYTES &&
           (got = recv(fd_, discard, sizeof discard, MSG_DONTWAIT)) > 0) {
      discarded += static_cast<size_t>(got);
    }
    close(fd_);
  }
  fd_ = -1;
}

}  // namespace weft::carry
