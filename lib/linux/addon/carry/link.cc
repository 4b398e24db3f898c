// The life of a link: its commands, its events and its end.
#include "link.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "pump.h"

namespace weft::carry {

StreamCounts::~StreamCounts() {
  if (unused >= 0) resetAndClose(unused);
}

LinkSetup::~LinkSetup() {
  OPENSSL_cleanse(readSecret, sizeof readSecret);
  OPENSSL_cleanse(writeSecret, sizeof writeSecret);
}

Link::Link(Pump* pump, uint32_t number, LinkSetup* setup)
    : Source(Kind::LINK),
      pump_(pump),
      number_(number),
      isServer_(setup->isServer),
      isPlain_(setup->isPlain),
      fd_(setup->fd),
      reader_(setup->isServer),
      cutter_(this, {setup->maxFrameSize, setup->maxBlockBytes}, setup->isServer),
      connectionWindow_(setup->connectionWindow),
      streamWindow_(setup->streamWindow),
      listener_(setup->listener),
      counts_(setup->counts) {
  writer_.rekeyAfter(setup->rekeyRecords);
  const int on = 1;
  // Fails on sockets that are not TCP, which need none.
  setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  pump_->counters.links += 1;
}

Link::~Link() { pump_->counters.links -= 1; }

bool Link::open(LinkSetup* setup) {
  if (isPlain_) return true;
  const bool done =
      reader_.keys().open(setup->suite, setup->readSecret, setup->secretBytes,
                          setup->readSequence) &&
      writer_.keys().open(setup->suite, setup->writeSecret, setup->secretBytes,
                          setup->writeSequence);
  if (!done) return false;
  std::string& received = setup->received;
  takePlain(reinterpret_cast<uint8_t*>(received.data()), received.size());
  flushStreams();
  std::string& unread = setup->unread;
  if (!dead_) takeCiphertext(reinterpret_cast<uint8_t*>(unread.data()), unread.size());
  return true;
}

void Link::notice(uint32_t events) {
  if (dead_) return;
  if ((events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP)) != 0) ending_ = true;
  if ((events & EPOLLIN) != 0 || ending_) readable_ = true;
  if ((events & EPOLLOUT) != 0 && sendError_ == 0) writable_ = true;
}

bool Link::serve() {
  if (dead_) return false;
  if (overflows_ && !deaf_) fail({"reads nothing of what it is told", ENHANCE_YOUR_CALM});
  read();
  write();
  if (dead_) return false;
  report();
  const bool reads = readable_ && !waits_;
  return reads || (writable_ && rest_.empty() && outputWaits() && !closeSent_);
}

void Link::obey(Command* command) {
  if (command->kind == Command::Kind::ABANDON) {
    abandon();
    return;
  }
  // A stream that only delivers may still be cut, or be joined with its socket.
  const bool isLate = command->kind == Command::Kind::RESET || command->kind == Command::Kind::ATTACH ||
                      command->kind == Command::Kind::JOIN;
  if (dead_ && !isLate) return;
  Stream* stream = command->stream == 0 ? nullptr : find(command->stream);
  switch (command->kind) {
    case Command::Kind::CONTROL:
      control(command->bytes.data(), command->bytes.size());
      // One turn of JavaScript may open thousands of streams.
      if (controlOut_.size() - controlSent_ > BATCH_BYTES) write();
      break;
    case Command::Kind::STREAM:
      if (!deaf_ && !finishing_) openStream(command->stream);
      break;
    case Command::Kind::ATTACH:
      attach(command);
      break;
    case Command::Kind::OFFER:
      if (stream != nullptr) stream->offer(std::exchange(command->fd, -1), command->counts);
      break;
    case Command::Kind::JOIN:
      join(command->stream);
      break;
    case Command::Kind::END:
      if (stream != nullptr) stream->localEnd();
      break;
    case Command::Kind::REMOTE_END:
      if (stream != nullptr) stream->remoteEnd();
      flushStreams();
      break;
    case Command::Kind::EXPECT:
      if (stream != nullptr) stream->expect(command->first);
      break;
    case Command::Kind::RESET:
      resetStream(command->stream, static_cast<uint32_t>(command->first));
      break;
    case Command::Kind::PEER_SETTINGS:
      peerSettings(command->first, static_cast<uint32_t>(command->second));
      break;
    case Command::Kind::WINDOWS:
      resizeWindows(command->first, command->second);
      break;
    case Command::Kind::PRESSURE:
      pressed_ = command->first != 0;
      releaseConnection();
      break;
    case Command::Kind::REKEY:
      (command->first != 0 ? askRekey_ : rekey_) = true;
      break;
    case Command::Kind::FINISH:
      finishing_ = true;
      endStreams();
      break;
    case Command::Kind::RESUME:
      // After the commands by which JavaScript answered, so that no window is given back before a smaller one counts.
      if (command->first != UNCHANGED) knownReceived_ = command->first;
      countUnknown();
      releaseConnection();
      break;
    case Command::Kind::DESTROY:
      destroy(LinkCause::DESTROYED);
      return;
    default:
      break;
  }
  pump_->activate(this);
}

void Link::attach(Command* command) {
  const auto found = streams_.find(command->stream);
  if (found == streams_.end()) return;
  Stream* stream = found->second.get();
  const int fd = command->fd;
  command->fd = -1;
  if (const int failed = stream->attach(fd, command)) {
    stream->reset(StreamCause::SOCKET, CONNECT_ERROR, failed);
  }
}

void Link::join(uint32_t id) {
  const auto found = streams_.find(id);
  if (found != streams_.end()) found->second->join();
}

int Link::recall(uint32_t id) {
  const auto found = streams_.find(id);
  return found == streams_.end() ? -1 : found->second->recall();
}

void Link::resetStream(uint32_t id, uint32_t code) {
  const auto found = streams_.find(id);
  if (found != streams_.end()) {
    found->second->reset(StreamCause::CUT, code);
    return;
  }
  // A closed stream gets no RST_STREAM (RFC 9113 §5.1).
  if (dead_ || finished_.has(id)) return;
  rememberReset(id);
  numberFrame(RST_STREAM, id, code);
}

// The open stream of this number, unless only its delivery is left.
Stream* Link::find(uint32_t id) {
  const auto found = streams_.find(id);
  if (found == streams_.end()) return nullptr;
  Stream* stream = found->second.get();
  return stream->isOver() || stream->delivers() ? nullptr : stream;
}

void Link::openStream(uint32_t id) {
  if (id % 2 == 0 || !isIdle(id)) return;
  lastOpened_ = id;
  streams_.emplace(id, std::make_unique<Stream>(this, id, peerWindow_, streamWindow_));
  pump_->counters.streams += 1;
}

void Link::forget(Stream* stream, Event&& end) {
  if (reading_ == stream) reading_ = nullptr;
  if (stream->inRow) {
    std::erase(quickRow_, stream);
    std::erase(row_, stream);
    std::erase(blocked_, stream);
  }
  if (end.cause == static_cast<uint32_t>(StreamCause::DONE)) finished_.add(stream->id);
  const auto found = streams_.find(stream->id);
  pump_->bury(std::move(found->second));
  streams_.erase(found);
  pump_->counters.streams -= 1;
  tell(EventKind::ENDED, std::move(end));
  if (closed_ && streams_.empty()) pump_->bury(this);
}

// Ends all streams, except those that only deliver.
void Link::endStreams() {
  quickRow_.clear();
  row_.clear();
  blocked_.clear();
  std::vector<Stream*> ends;
  for (const auto& [id, stream] : streams_) {
    stream->inRow = false;
    if (!stream->delivers()) ends.push_back(stream.get());
  }
  for (Stream* stream : ends) stream->finish(StreamCause::LINK, 0, 0, true);
}

void Link::peerSettings(int64_t window, uint32_t frameSize) {
  const int64_t by = window - peerWindow_;
  peerWindow_ = window;
  peerFrameSize_ = std::clamp(frameSize, DEFAULT_FRAME_SIZE, LARGEST_FRAME_SIZE);
  if (by == 0) return;
  bool fits = true;
  for (const auto& entry : streams_) fits = entry.second->grow(by) && fits;
  if (!fits && !deaf_) fail({"opened its window too far", FLOW_CONTROL_ERROR});
}

void Link::resizeWindows(int64_t stream, int64_t connection) {
  connectionWindow_.resize(connection);
  if (stream != streamWindow_) {
    streamWindow_ = stream;
    for (const auto& entry : streams_) entry.second->resizeWindow(stream);
  }
  releaseConnection();
}

void Link::hold(int64_t received, int64_t queued) {
  heldReceived_ += received;
  heldQueued_ += queued;
  countUnknown();
  if (closed_) report();
  if (dead_) return;
  if (received < 0) releaseConnection();
  // Its turn reports the change.
  pump_->activate(this);
}

void Link::report() {
  const int64_t change =
      std::abs(heldReceived_ - reportedReceived_) + std::abs(heldQueued_ - reportedQueued_);
  const bool isEmpty = heldReceived_ == 0 && heldQueued_ == 0;
  if (change == 0 || (change < REPORT_BYTES && !isEmpty && !mustReport_)) return;
  mustReport_ = false;
  reportedReceived_ = heldReceived_;
  reportedQueued_ = heldQueued_;
  counts_->received = heldReceived_;
  counts_->queued = heldQueued_;
  if (!counts_->heldTold.exchange(true)) tell(EventKind::HELD, Event());
}

void Link::tell(EventKind kind, Event&& event) {
  if (kind != EventKind::CONTROL) tellControl();
  event.kind = kind;
  event.link = number_;
  event.linkCounts = counts_;
  counts_->waitingEvents += 1;
  counts_->waitingBytes += static_cast<uint32_t>(event.bytes.size());
  listener_->tell(std::move(event));
}

void Link::tellOf(EventKind kind, uint32_t stream, int64_t code) {
  Event event;
  event.stream = stream;
  event.code = static_cast<uint64_t>(code);
  tell(kind, std::move(event));
}

void Link::tellControl() {
  if (controlIn_.empty()) return;
  Event event;
  event.bytes = std::move(controlIn_);
  controlIn_ = std::string();
  tell(EventKind::CONTROL, std::move(event));
}

// Whether so much waits for JavaScript that the link must not be read.
bool Link::waitsForReader() {
  const auto isFull = [this] {
    return counts_->waitingEvents >= MAX_WAITING_EVENTS || counts_->waitingBytes >= MAX_WAITING_BYTES;
  };
  if (!isFull()) return false;
  counts_->paused = true;
  // The reader may have caught up between the two; then nobody else would resume.
  if (isFull()) return true;
  counts_->paused = false;
  return false;
}

void Link::destroy(LinkCause cause, uint64_t detail, int error) {
  if (dead_) return;
  const bool isOrdinary = cause == LinkCause::DESTROYED || cause == LinkCause::CLOSED;
  if (isOrdinary && sendRest()) {
    // The peer still gets the queued control frames.
    uint8_t* plain = pump_->plainScratch();
    const size_t length = gatherControl(plain, batch());
    if (length == 0 || seal(plain, length)) {
      if (!dead_ && !closeSent_) close();
    }
  }
  if (dead_) return;
  dead_ = true;
  countUnknown();
  endStreams();
  if (cause == LinkCause::TLS_FAULT || cause == LinkCause::CLOSED) {
    // A close with unread bytes resets, and a reset discards the alert.
    size_t discarded = 0;
    ssize_t got = 0;
    while (discarded < DISCARD_BYTES &&
           (got = recv(fd_, pump_->readScratch(), READ_BYTES, MSG_DONTWAIT)) > 0) {
      discarded += static_cast<size_t>(got);
    }
  }
  pump_->unwatch(fd_);
  ::close(fd_);
  hold(0, -static_cast<int64_t>(rest_.size() - restSent_));
  // Streams that deliver keep the link, but neither its keys nor what waited for the peer.
  reader_.keys().clear();
  writer_.keys().clear();
  rest_ = partial_ = controlOut_ = std::string();
  mustReport_ = true;
  report();
  Event event;
  event.cause = static_cast<uint32_t>(cause);
  event.code = detail;
  event.error = error;
  tell(EventKind::GONE, std::move(event));
  closed_ = true;
  if (streams_.empty()) pump_->bury(this);
}

// Nobody listens any more: ends all that is left.
void Link::abandon() {
  destroy(LinkCause::DESTROYED);
  while (!streams_.empty()) streams_.begin()->second->finish(StreamCause::LINK, 0, 0, true);
}

}  // namespace weft::carry
