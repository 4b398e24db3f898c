// From the application socket to DATA frames.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "link.h"
#include "pump.h"

namespace weft::carry {

bool Stream::sendable() const {
  if (fd_ < 0 || localEnded || dead_ || over_) return false;
  if (headSent_ < head_.size()) return sendWindow_ > 0;
  return readable_ && (sendWindow_ > 0 || probe_);
}

int64_t Stream::window() const { return std::min(sendWindow_, link_->sendWindow()); }

size_t Stream::fill(uint8_t* out, size_t space) {
  if (headSent_ < head_.size()) return window() > 0 ? fillHead(out, space) : 0;
  if (window() > 0) return fillSocket(out, space);
  if (!probe_) return 0;
  const Next next = look();
  if (next == Next::END) return ended(out);
  // Nothing is left that would have to be sent before.
  if (next == Next::FAILURE) reset(StreamCause::SOCKET, CONNECT_ERROR, failure_);
  return 0;
}

// Bytes that were read before the socket was attached.
size_t Stream::fillHead(uint8_t* out, size_t space) {
  const size_t length = std::min({head_.size() - headSent_, space - FRAME_HEADER_BYTES,
                                  static_cast<size_t>(window()),
                                  static_cast<size_t>(link_->peerFrameSize())});
  writeFrameHeader(out, static_cast<uint32_t>(length), DATA, 0, id);
  memcpy(out + FRAME_HEADER_BYTES, head_.data() + headSent_, length);
  headSent_ += length;
  sent(length);
  link_->hold(0, -static_cast<int64_t>(length));
  if (headSent_ == head_.size()) {
    head_ = std::string();
    headSent_ = 0;
  }
  return FRAME_HEADER_BYTES + length;
}

// One read fills several frames, each behind the room for its header.
size_t Stream::fillSocket(uint8_t* out, size_t space) {
  const size_t frameBytes = link_->peerFrameSize();
  iovec parts[FRAMES_PER_READ];
  size_t count = 0;
  size_t room = space;
  size_t left = static_cast<size_t>(window());
  size_t wanted = 0;
  uint8_t* at = out;
  while (count < FRAMES_PER_READ && left > 0 && room > FRAME_HEADER_BYTES) {
    const size_t length = std::min({frameBytes, left, room - FRAME_HEADER_BYTES});
    parts[count++] = {at + FRAME_HEADER_BYTES, length};
    at += FRAME_HEADER_BYTES + length;
    room -= FRAME_HEADER_BYTES + length;
    left -= length;
    wanted += length;
  }
  msghdr message = {};
  message.msg_iov = parts;
  message.msg_iovlen = count;
  const ssize_t got = recvmsg(fd_, &message, MSG_DONTWAIT);
  if (got < 0 && errno == EINTR) return 0;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    readable_ = probe_ = false;
    return 0;
  }
  if (got < 0 && failure_ == 0) failure_ = errno;
  // After a failure has been reported, the kernel reports an end. It must not be passed on as one.
  if (got <= 0 && failure_ != 0) {
    reset(StreamCause::SOCKET, CONNECT_ERROR, failure_);
    return 0;
  }
  if (got == 0) return ended(out);
  const size_t bytes = static_cast<size_t>(got);
  // One small read may be the last part of a bulk stream's write.
  const bool isSmall = bytes < SMALL_READ_BYTES;
  quick = isSmall && wasSmall_;
  wasSmall_ = isSmall;
  if (quick) link_->sawSmallRead();
  bool isLast = false;
  if (bytes < wanted) {
    readable_ = urgent_;
    // No further event tells the end.
    if (ending_) isLast = look() == Next::END;
  }
  size_t rest = bytes;
  size_t used = 0;
  for (size_t index = 0; rest > 0; index += 1) {
    const size_t length = std::min(rest, parts[index].iov_len);
    rest -= length;
    const uint8_t flags = isLast && rest == 0 ? FLAG_END_STREAM : 0;
    writeFrameHeader(static_cast<uint8_t*>(parts[index].iov_base) - FRAME_HEADER_BYTES,
                     static_cast<uint32_t>(length), DATA, flags, id);
    used += FRAME_HEADER_BYTES + length;
  }
  sent(bytes);
  if (isLast) endSent();
  // The end may be next, and needs no window.
  else if (ending_) probe_ = true;
  return used;
}

void Stream::sent(size_t bytes) {
  if (counts_->fromSocket.fetch_add(bytes, std::memory_order_relaxed) == 0) {
    counts_->firstFromSocketNs = nowNs();
  }
  sendWindow_ -= static_cast<int64_t>(bytes);
  link_->sentData(bytes);
}

// An empty frame with END_STREAM.
size_t Stream::ended(uint8_t* out) {
  writeFrameHeader(out, 0, DATA, FLAG_END_STREAM, id);
  endSent();
  return FRAME_HEADER_BYTES;
}

void Stream::endSent() {
  localEnded = true;
  if (tellsEnd_) link_->tellOf(EventKind::END_SENT, id);
  // No further event tells that the socket takes no more.
  if (hungUp_ && !unwritable_) writeFailed(EPIPE);
  else settle();
}

// Looks at the input without taking a byte.
Stream::Next Stream::look() {
  char next = 0;
  const ssize_t got = recv(fd_, &next, 1, MSG_PEEK | MSG_DONTWAIT);
  probe_ = false;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    readable_ = false;
    return Next::NOTHING;
  }
  readable_ = true;
  if (got > 0 || (got < 0 && errno == EINTR)) return Next::BYTES;
  // The look has cleared it; after a failure, the kernel reports an end.
  if (got < 0 && failure_ == 0) failure_ = errno;
  return failure_ == 0 ? Next::END : Next::FAILURE;
}

}  // namespace weft::carry
