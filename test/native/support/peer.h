// A link on a pump without a thread, and the peer at the other end of its socket, which sends any bytes it likes.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <string>

#include "../../../lib/linux/addon/carry/pump.h"

namespace carried {

using namespace weft::carry;

inline std::string frame(uint8_t type, uint8_t flags, uint32_t id, const std::string& payload) {
  uint8_t header[FRAME_HEADER_BYTES];
  writeFrameHeader(header, static_cast<uint32_t>(payload.size()), type, flags, id);
  return std::string(reinterpret_cast<char*>(header), sizeof header) + payload;
}

inline std::string number(uint32_t value) {
  return {static_cast<char>(value >> 24), static_cast<char>(value >> 16),
          static_cast<char>(value >> 8), static_cast<char>(value)};
}

inline const std::string PREFACE = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Keeps events; `on` may answer them at once.
class Recorder : public CarryListener {
 public:
  void tell(Event&& event) override {
    if (event.kind == EventKind::HELD && !holdsBack) {
      event.linkCounts->heldTold = false;
      known = event.linkCounts->received.load();
    }
    event.linkCounts->waitingEvents -= holdsBack ? 0 : 1;
    event.linkCounts->waitingBytes -= holdsBack ? 0 : static_cast<uint32_t>(event.bytes.size());
    events.push_back(std::move(event));
  }
  // The first event of a kind, null without one.
  const Event* first(EventKind kind) const {
    for (const Event& event : events) {
      if (event.kind == kind) return &event;
    }
    return nullptr;
  }
  size_t count(EventKind kind) const {
    size_t found = 0;
    for (const Event& event : events) found += event.kind == kind ? 1 : 0;
    return found;
  }
  std::deque<Event> events;
  // The received bytes of the last HELD, until the link is told that they are known.
  int64_t known = UNCHANGED;
  // As if JavaScript took no event.
  bool holdsBack = false;
};

inline void fillSecrets(LinkSetup* setup, Suite suite, uint8_t salt = 0) {
  setup->suite = suite;
  setup->secretBytes = secretBytes(suite);
  const uint8_t own = setup->isServer ? 2 : 1;
  memset(setup->writeSecret, own + salt, MAX_SECRET_BYTES);
  memset(setup->readSecret, 3 - own + salt, MAX_SECRET_BYTES);
}

struct Options {
  bool isServer = true;
  bool greets = true;
  Suite suite = Suite::AES_128_GCM_SHA256;
  int64_t streamWindow = DEFAULT_WINDOW;
  int64_t connectionWindow = DEFAULT_WINDOW;
  uint64_t rekeyRecords = 0;
};

// The link under test and its peer.
class Rig {
 public:
  explicit Rig(Options options = {}) : listener(std::make_shared<Recorder>()), reader(!options.isServer) {
    pump.open(false);
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) abort();
    const int bytes = 4 << 20;
    for (const int fd : ends) {
      setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    }
    peerFd = ends[1];
    auto setup = std::make_unique<LinkSetup>();
    setup->fd = ends[0];
    setup->isServer = options.isServer;
    fillSecrets(setup.get(), options.suite);
    reader.keys().open(options.suite, setup->writeSecret, setup->secretBytes, 0);
    writer.keys().open(options.suite, setup->readSecret, setup->secretBytes, 0);
    setup->streamWindow = options.streamWindow;
    setup->connectionWindow = options.connectionWindow;
    setup->rekeyRecords = options.rekeyRecords;
    setup->maxFrameSize = 65'536;
    setup->maxBlockBytes = 32'768;
    setup->listener = listener;
    setup->counts = counts = std::make_shared<LinkCounts>();
    Command command{};
    command.kind = Command::Kind::LINK;
    command.link = 1;
    command.setup = std::move(setup);
    pump.post(std::move(command));
    if (options.greets) {
      send((options.isServer ? PREFACE : "") + frame(SETTINGS, 0, 0, ""));
    }
    run();
  }
  ~Rig() {
    if (peerFd >= 0) close(peerFd);
  }

  // Encrypts and sends application data.
  void send(const std::string& plain) {
    for (size_t at = 0; at < plain.size(); at += RECORD_BYTES) {
      const size_t part = std::min(RECORD_BYTES, plain.size() - at);
      uint8_t record[MAX_RECORD_BYTES];
      const size_t length = writer.seal(ContentType::APPLICATION_DATA,
                                        reinterpret_cast<const uint8_t*>(plain.data()) + at, part, record);
      sendRaw(std::string(reinterpret_cast<char*>(record), length));
    }
  }
  void sendRecord(ContentType type, const std::string& content) {
    uint8_t record[MAX_RECORD_BYTES];
    const size_t length = writer.seal(type, reinterpret_cast<const uint8_t*>(content.data()), content.size(), record);
    sendRaw(std::string(reinterpret_cast<char*>(record), length));
  }
  void sendRaw(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t got = ::send(peerFd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (got < 0) {
        if (errno != EAGAIN) return;
        run();
        continue;
      }
      sent += static_cast<size_t>(got);
    }
  }

  // Serves the link until it is idle, and reads what it sends.
  void run() {
    for (int quiet = 0; quiet < 4; quiet += 1) {
      pump.round(0);
      if (receive()) quiet = 0;
      if (listener->known == UNCHANGED) continue;
      pump.handled(1, counts.get(), 0, 0, listener->known);
      listener->known = UNCHANGED;
    }
  }

  void command(Command::Kind kind, uint32_t stream = 0, int64_t first = 0, int64_t second = 0) {
    run();
    Command command{};
    command.kind = kind;
    command.link = 1;
    command.stream = stream;
    command.first = first;
    command.second = second;
    pump.post(std::move(command));
    run();
  }
  void control(const std::string& frames) {
    run();
    Command command{};
    command.kind = Command::Kind::CONTROL;
    command.link = 1;
    command.bytes = frames;
    pump.post(std::move(command));
    run();
  }
  // Attaches one end of a pair; the application holds the returned one.
  int attach(uint32_t stream, const std::string& first = "", const std::string& read = "", int buffer = 0) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) abort();
    if (buffer > 0) setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    attachFd(stream, ends[0], first, read);
    return ends[1];
  }
  // Attaches several in one turn.
  void attachAll(const std::vector<std::pair<uint32_t, int>>& joins) {
    for (const auto& [stream, fd] : joins) {
      Command command{};
      command.kind = Command::Kind::ATTACH;
      command.link = 1;
      command.stream = stream;
      command.fd = fd;
      command.counts = std::make_shared<StreamCounts>();
      pump.post(std::move(command));
    }
    run();
  }
  void attachFd(uint32_t stream, int fd, const std::string& first = "", const std::string& read = "") {
    run();
    Command command{};
    command.kind = Command::Kind::ATTACH;
    command.link = 1;
    command.stream = stream;
    command.fd = fd;
    command.bytes = first;
    command.read = read;
    command.counts = std::make_shared<StreamCounts>();
    pump.post(std::move(command));
    run();
  }

  // The error code of the fault, or 1,000 without one.
  uint64_t fault() const {
    const Event* event = listener->first(EventKind::FAULT);
    return event == nullptr ? 1'000 : event->code;
  }
  const Event* gone() const { return listener->first(EventKind::GONE); }
  // Whether the link has sent this frame.
  bool sent(const std::string& frame) const { return plain.find(frame) != std::string::npos; }

  Pump pump;
  std::shared_ptr<Recorder> listener;
  std::shared_ptr<LinkCounts> counts;
  RecordReader reader;
  RecordWriter writer;
  int peerFd = -1;
  // Everything the link has sent, decrypted; and the alert, if it sent one.
  std::string plain;
  int alert = -1;
  bool closed = false;
  bool broken = false;
  // The peer takes nothing from its socket.
  bool stalls = false;

 private:
  bool receive() {
    if (stalls || closed) return false;
    char bytes[65'536];
    const ssize_t got = recv(peerFd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got == 0) closed = true;
    if (got <= 0) return false;
    raw_.append(bytes, static_cast<size_t>(got));
    for (;;) {
      Opened opened;
      auto* data = reinterpret_cast<uint8_t*>(raw_.data());
      const size_t length = RecordReader::measure(data, raw_.size(), &opened);
      if (length == 0 || length > raw_.size()) break;
      opened = reader.open(data, length);
      if (opened.verdict == Verdict::DATA) {
        plain.append(reinterpret_cast<char*>(opened.content), opened.length);
      } else if (opened.verdict == Verdict::PEER_ALERT) {
        alert = opened.alert;
      } else if (opened.verdict == Verdict::CLOSED) {
        alert = 0;
      } else if (opened.verdict == Verdict::FAULT) {
        broken = true;
      }
      raw_.erase(0, length);
    }
    return true;
  }
  std::string raw_;
};

// Returns the bytes that have come to an application.
inline std::string takeCome(int fd) {
  std::string all;
  char bytes[65'536];
  for (ssize_t got = 0; (got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT)) > 0;) all.append(bytes, static_cast<size_t>(got));
  return all;
}

// Returns the bytes that an application receives; `*ended` tells its end of input, `*error` a failure. Waits a little, since a
// busy kernel delivers late.
inline std::string take(int fd, bool* ended = nullptr, int* error = nullptr) {
  std::string all;
  char bytes[65'536];
  const bool seeksEnd = ended != nullptr || error != nullptr;
  for (bool waited = false;;) {
    const ssize_t got = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (got > 0) {
      all.append(bytes, static_cast<size_t>(got));
      continue;
    }
    if (got < 0 && errno == EAGAIN && !waited && (seeksEnd || all.empty())) {
      pollfd look = {fd, POLLIN | POLLRDHUP, 0};
      poll(&look, 1, 50);
      waited = true;
      continue;
    }
    if (ended != nullptr) *ended = got == 0;
    if (error != nullptr) *error = got < 0 && errno != EAGAIN ? errno : 0;
    return all;
  }
}

}  // namespace carried
