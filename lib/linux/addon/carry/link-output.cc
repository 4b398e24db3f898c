// The output of a link, in batches of records: frames other than DATA first, then the streams by turns.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "link.h"
#include "pump.h"

namespace weft::carry {

void Link::control(const char* frames, size_t length) {
  if (dead_ || closeSent_) return;
  controlOut_.append(frames, length);
  // Streams may be in use by the caller, so the link fails at its next turn.
  if (controlOut_.size() - controlSent_ > MAX_CONTROL_BYTES) overflows_ = true;
  pump_->activate(this);
}

void Link::numberFrame(uint8_t type, uint32_t id, uint32_t number) {
  std::string frame;
  appendNumberFrame(&frame, type, id, number);
  control(frame.data(), frame.size());
}

void Link::ready(Stream* stream) {
  if (dead_ || !stream->sendable()) return;
  // An end needs no window, so that it does not wait for the connection's.
  if (stream->inRow && !(stream->probes() && std::erase(blocked_, stream) > 0)) return;
  stream->inRow = true;
  enqueue(stream);
  pump_->activate(this);
}

void Link::enqueue(Stream* stream) { (stream->quick ? quickRow_ : row_).push_back(stream); }

// The connection has window again.
void Link::unblock() {
  if (sendWindow_ <= 0) return;
  for (Stream* stream : blocked_) enqueue(stream);
  blocked_.clear();
  pump_->activate(this);
}

void Link::sawSmallRead() { smallReadNs_ = nowNs(); }

void Link::sentData(size_t bytes) {
  sendWindow_ -= static_cast<int64_t>(bytes);
  windowUpdates_.earn(1 + static_cast<double>(bytes) * WINDOW_UPDATES_PER_KIB / 1'024);
}

size_t Link::batch() const {
  if (pressed_) return PRESSED_BATCH_BYTES;
  const bool isSmall = smallReadNs_ != 0 && nowNs() - smallReadNs_ < SMALL_BATCH_NS;
  return isSmall ? SMALL_BATCH_BYTES : BATCH_BYTES;
}

bool Link::outputWaits() const {
  return controlSent_ < controlOut_.size() || !rowsEmpty() || rekey_ || askRekey_ ||
         (finishing_ && !closeSent_);
}

void Link::write() {
  if (dead_ || !sendRest()) return;
  if (!outputWaits() || closeSent_) return;
  uint8_t* plain = pump_->plainScratch();
  const size_t length = gather(plain);
  if (dead_) return;
  if (length > 0 || rekey_ || askRekey_) seal(plain, length);
  else if (finishing_) close();
}

size_t Link::gather(uint8_t* plain) {
  // Quick streams alone delay nobody by a full batch.
  const size_t space = pressed_ || !row_.empty() ? batch() : BATCH_BYTES;
  // When frames are left, no room is: DATA does not cut a frame in two.
  const size_t control = gatherControl(plain, space);
  return control + gatherData(plain + control, space - control);
}

size_t Link::gatherControl(uint8_t* plain, size_t space) {
  const size_t length = std::min(space, controlOut_.size() - controlSent_);
  memcpy(plain, controlOut_.data() + controlSent_, length);
  controlSent_ += length;
  if (controlSent_ == controlOut_.size()) {
    controlOut_ = std::string();
    controlSent_ = 0;
  }
  return length;
}

size_t Link::gatherData(uint8_t* plain, size_t space) {
  size_t at = 0;
  while (!rowsEmpty() && space - at >= MIN_FRAME_ROOM) {
    // Quick streams go first, and leave the other half of a batch to the others.
    const size_t share = row_.empty() ? space : space / 2;
    const bool isQuick = !quickRow_.empty() && at + MIN_FRAME_ROOM <= share;
    std::deque<Stream*>& row = isQuick ? quickRow_ : row_;
    Stream* stream = row.front();
    row.pop_front();
    if (sendWindow_ <= 0 && !stream->probes()) {
      blocked_.push_back(stream);
      continue;
    }
    stream->inRow = false;
    const bool alone = rowsEmpty();
    const size_t left = (isQuick ? share : space) - at;
    const size_t room = alone ? left : std::min(left, TURN_BYTES);
    at += stream->fill(plain + at, room);
    if (dead_) return 0;
    if (!stream->dead()) ready(stream);
  }
  return at;
}

// Encrypts and sends. The key changes where it must or was asked to.
bool Link::seal(const uint8_t* plain, size_t length) {
  if (isPlain_) {
    rekey_ = askRekey_ = false;
    return send(plain, length);
  }
  uint8_t* out = pump_->sealedScratch();
  size_t at = 0;
  size_t from = 0;
  do {
    if (rekey_ || askRekey_ || writer_.rekeyDue()) {
      const size_t update = writer_.keyUpdate(askRekey_, out + at);
      rekey_ = askRekey_ = false;
      if (update == 0) {
        destroy(LinkCause::INTERNAL);
        return false;
      }
      at += update;
      pump_->counters.updatesWritten += 1;
    }
    const size_t part = std::min(RECORD_BYTES, length - from);
    if (part == 0) break;
    const size_t record = writer_.seal(ContentType::APPLICATION_DATA, plain + from, part, out + at);
    if (record == 0) {
      destroy(LinkCause::INTERNAL);
      return false;
    }
    pump_->counters.recordsWritten += 1;
    at += record;
    from += part;
  } while (from < length);
  return send(out, at);
}

// Sends bytes when none wait; keeps what the socket does not take. False when it takes no more now.
bool Link::send(const uint8_t* bytes, size_t length) {
  size_t sent = 0;
  while (sent < length) {
    const ssize_t got = ::send(fd_, bytes + sent, length - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        sendFailed(errno);
        return false;
      }
      writable_ = false;
      rest_.assign(reinterpret_cast<const char*>(bytes + sent), length - sent);
      restSent_ = 0;
      hold(0, static_cast<int64_t>(rest_.size()));
      return false;
    }
    pump_->moved += static_cast<size_t>(got);
    sent += static_cast<size_t>(got);
  }
  return true;
}

bool Link::sendRest() {
  if (!writable_) return false;
  while (restSent_ < rest_.size()) {
    const ssize_t got = ::send(fd_, rest_.data() + restSent_, rest_.size() - restSent_,
                               MSG_DONTWAIT | MSG_NOSIGNAL);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      if (errno == EAGAIN || errno == EWOULDBLOCK) writable_ = false;
      else sendFailed(errno);
      return false;
    }
    pump_->moved += static_cast<size_t>(got);
    restSent_ += static_cast<size_t>(got);
    hold(0, -static_cast<int64_t>(got));
  }
  if (rest_.empty()) return true;
  rest_ = std::string();
  restSent_ = 0;
  if (closeSent_) shutdown(fd_, SHUT_WR);
  return true;
}

// The peer's last records, perhaps an alert, say why: they are read before the link ends.
void Link::sendFailed(int error) {
  sendError_ = error;
  writable_ = false;
  readable_ = true;
  pump_->activate(this);
}

void Link::close() {
  closeSent_ = true;
  uint8_t record[ALERT_BYTES];
  const size_t bytes = isPlain_ ? 0 : writer_.alert(Alert::CLOSE_NOTIFY, record);
  if ((bytes > 0 || isPlain_) && send(record, bytes)) shutdown(fd_, SHUT_WR);
}

}  // namespace weft::carry
