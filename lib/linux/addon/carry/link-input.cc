// The input of a link: the records, the frames and the use of the windows.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "link.h"
#include "pump.h"

namespace weft::carry {

namespace {

// Whether HEADERS plainly begin with `:status: 200` (RFC 7541 §6.1). JavaScript reads all of them, and ends a stream whose other
// headers are wrong; an answer in another form waits for it.
bool isOk(const FrameHeader& header, const uint8_t* block) {
  constexpr uint8_t STATUS_200 = 0x88;
  constexpr uint8_t SIZE_UPDATE = 0x20;
  if (header.flags != FLAG_END_HEADERS || header.length == 0) return false;
  const bool isUpdated = (block[0] & 0xe0) == SIZE_UPDATE && header.length > 1;
  return block[isUpdated ? 1 : 0] == STATUS_200;
}

}  // namespace

void Link::read() {
  if (!readable_ || dead_) return;
  uint8_t* scratch = pump_->readScratch();
  waits_ = !deaf_ && (waitsForReader() || isUnheard());
  if (waits_) return;
  const size_t kept = deaf_ ? 0 : partial_.size();
  memcpy(scratch, partial_.data(), kept);
  // While a small stream waits, one read must not take long.
  const size_t wanted = std::min(READ_BYTES, batch() + 2 * MAX_RECORD_BYTES);
  const ssize_t got = recv(fd_, scratch + kept, wanted, MSG_DONTWAIT);
  if (got < 0 && errno == EINTR) return;
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
    readable_ = false;
    if (sendError_ != 0) destroy(LinkCause::SOCKET, 0, sendError_);
    return;
  }
  if (got <= 0) {
    const int error = sendError_ != 0 ? sendError_ : got < 0 ? errno : 0;
    destroy(error != 0 ? LinkCause::SOCKET : LinkCause::TRUNCATED, 0, error);
    return;
  }
  counts_->bytesRead += static_cast<uint64_t>(got);
  pump_->moved += static_cast<size_t>(got);
  if (static_cast<size_t>(got) < wanted && !ending_) readable_ = false;
  if (deaf_) return;
  takeCiphertext(scratch, kept + static_cast<size_t>(got));
}

// Takes whole records in place, and keeps the beginning of the next.
void Link::takeCiphertext(uint8_t* bytes, size_t length) {
  size_t at = 0;
  if (isPlain_) {
    takePlain(bytes, length);
    at = length;
  }
  while (at < length && !dead_ && !deaf_) {
    Opened opened;
    const size_t record = RecordReader::measure(bytes + at, length - at, &opened);
    if (opened.verdict == Verdict::FAULT) {
      refuseRecord(opened.alert);
      return;
    }
    if (record == 0 || record > length - at) break;
    opened = reader_.open(bytes + at, record);
    pump_->counters.recordsRead += 1;
    at += record;
    if (!takeRecord(opened)) return;
  }
  if (dead_) return;
  flushStreams();
  if (dead_) return;
  // Now it is known how much of what came is held.
  releaseConnection();
  tellControl();
  // Idle links keep no memory for it.
  if (at == length || deaf_) partial_ = std::string();
  else partial_.assign(reinterpret_cast<const char*>(bytes + at), length - at);
}

bool Link::takeRecord(const Opened& opened) {
  switch (opened.verdict) {
    case Verdict::DATA:
      if (opened.length > 0) takePlain(opened.content, opened.length);
      return !dead_;
    case Verdict::QUIET:
      pump_->counters.updatesRead += reader_.updates() - readUpdates_;
      readUpdates_ = reader_.updates();
      if (reader_.takeUpdateRequest()) rekey_ = true;
      return true;
    case Verdict::CLOSED:
      flushStreams();
      destroy(LinkCause::CLOSED);
      return false;
    case Verdict::PEER_ALERT:
      flushStreams();
      destroy(LinkCause::PEER_ALERT, opened.alert);
      return false;
    case Verdict::FAULT:
      refuseRecord(opened.alert);
      return false;
  }
  return false;
}

void Link::takePlain(uint8_t* bytes, size_t length) {
  if (deaf_) return;
  if (const Fault fault = cutter_.push(bytes, length)) fail(fault);
}

// A breach of TLS: the keys protect nothing more than the alert.
void Link::refuseRecord(uint8_t alert) {
  if (dead_) return;
  flushStreams();
  if (sendRest()) {
    uint8_t record[ALERT_BYTES];
    const size_t bytes = writer_.alert(static_cast<Alert>(alert), record);
    if (bytes > 0) send(record, bytes);
  }
  const LinkCause cause = alert == static_cast<uint8_t>(Alert::INTERNAL_ERROR)
                              ? LinkCause::INTERNAL
                              : LinkCause::TLS_FAULT;
  destroy(cause, alert);
}

// A breach of HTTP/2: JavaScript sends the GOAWAY.
void Link::fail(Fault fault) {
  flushStreams();
  if (dead_) return;
  deaf_ = true;
  reading_ = nullptr;
  Event event;
  event.code = fault.code;
  event.bytes = fault.text;
  tell(EventKind::FAULT, std::move(event));
  endStreams();
}

Fault Link::dataBegins(const FrameHeader& header) {
  reading_ = nullptr;
  if (!connectionWindow_.take(header.length)) {
    return {"sent more than the connection window", FLOW_CONTROL_ERROR};
  }
  Stream* stream = find(header.id);
  if (stream == nullptr) return stray(header.id);
  if (stream->remoteEnded) {
    stream->reset(StreamCause::BROKE, STREAM_CLOSED);
  } else if (!stream->headed) {
    stream->reset(StreamCause::BROKE, PROTOCOL_ERROR);
  } else if (!stream->receiveWindow.take(header.length)) {
    stream->reset(StreamCause::BROKE, FLOW_CONTROL_ERROR);
  } else {
    reading_ = stream;
  }
  return {};
}

void Link::data(uint8_t* bytes, size_t length) {
  if (reading_ != nullptr) reading_->take(bytes, length);
}

Fault Link::dataEnds(const FrameHeader& header, size_t content) {
  Stream* stream = reading_;
  reading_ = nullptr;
  const bool endsStream = (header.flags & FLAG_END_STREAM) != 0;
  if (content == 0 && !endsStream) {
    if (const Fault fault = idle()) return fault;
  }
  if (stream == nullptr) return {};
  stream->discard(header.length - content);
  if (!endsStream) return {};
  const bool isAttached = stream->attached();
  stream->remoteEnded = true;
  stream->remoteEnd();
  if (!isAttached && !stream->dead()) tellOf(EventKind::REMOTE_END, stream->id);
  return {};
}

Fault Link::windowUpdate(uint32_t id, uint32_t increment) {
  if (!windowUpdates_.spend()) {
    return {"floods the tunnel with WINDOW_UPDATEs", ENHANCE_YOUR_CALM};
  }
  if (id == 0) {
    if (increment == 0) return {"sent a WINDOW_UPDATE of nothing", PROTOCOL_ERROR};
    sendWindow_ += increment;
    if (sendWindow_ > MAX_WINDOW) return {"opened its window too far", FLOW_CONTROL_ERROR};
    unblock();
    return {};
  }
  Stream* stream = find(id);
  if (stream == nullptr) {
    if (isIdle(id)) {
      return {"sent a WINDOW_UPDATE on a stream that was never opened", PROTOCOL_ERROR};
    }
    return {};
  }
  if (increment == 0) stream->reset(StreamCause::BROKE, PROTOCOL_ERROR);
  else if (!stream->grow(increment)) stream->reset(StreamCause::BROKE, FLOW_CONTROL_ERROR);
  return {};
}

Fault Link::control(const FrameHeader& header, const uint8_t* frame) {
  controlIn_.append(reinterpret_cast<const char*>(frame), FRAME_HEADER_BYTES + header.length);
  if (header.type == HEADERS && isServer_ && isIdle(header.id) && header.id % 2 == 1) {
    openStream(header.id);
  }
  Stream* stream = find(header.id);
  if (stream == nullptr) return {};
  const bool isFirst = stream->content == 0;
  if (header.type == HEADERS && isFirst && stream->offered() && isOk(header, frame + FRAME_HEADER_BYTES)) {
    stream->join();
    return {};
  }
  if (header.type == RST_STREAM) stream->peerReset(readNumber(frame + FRAME_HEADER_BYTES));
  if (header.type == HEADERS && stream->remoteEnded) {
    stream->reset(StreamCause::BROKE, STREAM_CLOSED);
  }
  return {};
}

Fault Link::headersEnd(uint32_t id, bool endStream) {
  Stream* stream = find(id);
  if (stream == nullptr) return {};
  // Content is followed by trailers only (RFC 9113 §8.1).
  if (stream->content > 0 && !endStream) {
    stream->reset(StreamCause::BROKE, PROTOCOL_ERROR);
    return {};
  }
  stream->headed = true;
  if (endStream) stream->remoteEnded = true;
  return {};
}

Fault Link::unknown() { return idle(); }

Fault Link::idle() {
  if (idle_.spend()) return {};
  return {"sends frames to no end", ENHANCE_YOUR_CALM};
}

// DATA on a stream that is not open (RFC 9113 §5.1).
Fault Link::stray(uint32_t id) {
  if (isIdle(id)) return {"sent DATA on a stream that was never opened", PROTOCOL_ERROR};
  // The peer sent it before it knew.
  if (resets_.has(id)) return {};
  if (const Fault fault = idle()) return fault;
  resets_.add(id);
  numberFrame(RST_STREAM, id, STREAM_CLOSED);
  return {};
}

// Only clients open streams, in the order of their odd numbers.
bool Link::isIdle(uint32_t id) const { return id % 2 == 0 || id > lastOpened_; }

void Link::rememberReset(uint32_t id) { resets_.add(id); }

void RecentStreams::add(uint32_t id) {
  if (ids_.size() < MAX_REMEMBERED_STREAMS) {
    ids_.push_back(id);
    return;
  }
  ids_[next_] = id;
  next_ = (next_ + 1) % MAX_REMEMBERED_STREAMS;
}

bool RecentStreams::has(uint32_t id) const { return std::find(ids_.begin(), ids_.end(), id) != ids_.end(); }

void Link::releaseConnection() {
  if (deaf_ || isWithheld()) return;
  const int64_t bytes = connectionWindow_.release(heldReceived_, streamWindow_, pressed_);
  if (bytes > 0) numberFrame(WINDOW_UPDATE, 0, static_cast<uint32_t>(bytes));
}

// JavaScript must know of held bytes before their window is given back: only it can tell the peer of smaller windows.
bool Link::isWithheld() { return isUnknown(connectionWindow_.size() / RELEASE_SHARE); }

// Whether more is held than JavaScript knows of, by more than `limit`. It is told then, and resumes the link.
bool Link::isUnknown(int64_t limit) {
  if (heldReceived_ - knownReceived_ <= limit) return false;
  mustReport_ = true;
  return true;
}

// Whether JavaScript must know of more before this link is read. One slow reader does not stop the other streams of its tunnel.
bool Link::isUnheard() {
  return isUnknown(MAX_UNKNOWN_BYTES) && (isWithheld() || pump_->unknownBytes > MAX_UNKNOWN_BYTES_OF_ALL);
}

void Link::countUnknown() {
  const int64_t unknown = dead_ ? 0 : std::max<int64_t>(heldReceived_ - knownReceived_, 0);
  pump_->unknownBytes += unknown - countedUnknown_;
  countedUnknown_ = unknown;
}

void Link::flushLater(Stream* stream) {
  if (stream->inFlush) return;
  stream->inFlush = true;
  toFlush_.push_back(stream);
}

void Link::flushStreams() {
  for (size_t index = 0; index < toFlush_.size(); index += 1) toFlush_[index]->flush();
  toFlush_.clear();
}

}  // namespace weft::carry
