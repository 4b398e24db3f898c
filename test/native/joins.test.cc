// Streams joined with application sockets: bytes, ends and failures (docs/decisions/abnormal-ends.md).
#include "support/check.h"
#include "support/peer.h"
#include "support/tcp.h"

using namespace carried;

namespace {

const std::string OPEN_1 = frame(HEADERS, FLAG_END_HEADERS, 1, "\x82");
const std::string OPEN_3 = frame(HEADERS, FLAG_END_HEADERS, 3, "\x82");
const std::string END_1 = frame(DATA, FLAG_END_STREAM, 1, "");

std::string data(const std::string& content, uint32_t id = 1) { return frame(DATA, 0, id, content); }
std::string rst(uint32_t code, uint32_t id = 1) { return frame(RST_STREAM, 0, id, number(code)); }

// A rig with stream 1 joined with a TCP socket, of which the application holds the other end.
struct Joined : Rig {
  explicit Joined(Options options = {}, int buffer = 0) : Rig(options) {
    send(OPEN_1);
    int ends[2];
    tcpPair(ends, buffer);
    application = ends[0];
    attachFd(1, ends[1]);
  }
  ~Joined() { shut(); }
  void shut() {
    if (application >= 0) close(application);
    application = -1;
  }
  void resetApplication() {
    const linger none = {1, 0};
    setsockopt(application, SOL_SOCKET, SO_LINGER, &none, sizeof none);
    shut();
    settle();
  }
  void write(const std::string& bytes) {
    CHECK(::send(application, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    settle();
  }
  // The loopback device delivers at once unless the machine is busy.
  void settle() {
    for (int round = 0; round < 3; round += 1) {
      run();
      pump.round(10);
    }
    run();
  }
  // The end of the stream, as cause and code; 99 while it lives.
  uint32_t cause() const {
    const Event* end = listener->first(EventKind::ENDED);
    return end == nullptr ? 99 : end->cause;
  }
  int application = -1;
};

constexpr uint32_t DONE = 0, PEER_RESET = 1, SOCKET = 2, UNREAD = 3, CUT = 4, LINK = 6, LIVES = 99;

}  // namespace

TEST(halfClose, "each direction ends on its own, and both make the stream done") {
  for (const bool peerFirst : {true, false}) {
    Joined rig;
    rig.send(data("question"));
    rig.settle();
    CHECK(take(rig.application) == "question");
    bool ended = false;
    const auto peerEnds = [&] {
      rig.send(data("last", 1) + END_1);
      rig.settle();
      CHECK(take(rig.application, &ended) == "last");
      CHECK(ended);
    };
    if (peerFirst) peerEnds();
    rig.write("answer");
    shutdown(rig.application, SHUT_WR);
    rig.settle();
    CHECK(rig.plain.find("answer") != std::string::npos);
    CHECK(rig.sent(END_1) || rig.sent(frame(DATA, FLAG_END_STREAM, 1, "answer")));
    if (!peerFirst) {
      EQUAL(rig.cause(), LIVES);
      peerEnds();
    }
    EQUAL(rig.cause(), DONE);
    const Event* end = rig.listener->first(EventKind::ENDED);
    EQUAL(end->counts->fromSocket.load(), 6u);
    EQUAL(end->counts->fromStream.load(), 12u);
    CHECK(end->counts->firstFromSocketNs > 0 && end->counts->firstFromStreamNs > 0);
    EQUAL(end->flags, PEER_ENDED | WE_ENDED | WAS_ATTACHED);
    EQUAL(rig.pump.counters.streams.load(), 0u);
  }
}

TEST(firstBytes, "bytes read before go to the stream first, given ones to the socket, uncounted") {
  Rig rig;
  rig.send(OPEN_1 + data("early "));
  rig.run();
  EQUAL(rig.listener->count(EventKind::ENDED), 0u);
  const int application = rig.attach(1, "greeting ", "read before ");
  CHECK(::write(application, "more", 4) == 4);
  rig.send(data("late"));
  rig.run();
  CHECK(take(application) == "greeting early late");
  CHECK(rig.plain.find("read before ") < rig.plain.find("more"));
  shutdown(application, SHUT_WR);
  rig.send(END_1);
  rig.run();
  const Event* end = rig.listener->first(EventKind::ENDED);
  CHECK(end != nullptr);
  EQUAL(end->counts->fromSocket.load(), 16u);
  EQUAL(end->counts->fromStream.load(), 10u);
  close(application);
}

TEST(earlyData, "DATA before the join is held up to the window, charged and delivered in order") {
  Rig rig({.streamWindow = 100'000, .connectionWindow = 1 << 20});
  std::string all;
  rig.send(OPEN_1);
  for (int index = 0; index < 6; index += 1) {
    const std::string part(15'000, static_cast<char>('a' + index));
    all += part;
    rig.send(data(part));
  }
  rig.send(END_1);
  rig.run();
  EQUAL(rig.counts->received.load(), 90'000);
  EQUAL(rig.listener->count(EventKind::REMOTE_END), 1u);
  const int application = rig.attach(1);
  bool ended = false;
  CHECK(take(application, &ended) == all);
  CHECK(ended);
  EQUAL(rig.counts->received.load(), 0);
  close(application);
}

TEST(applicationResets, "a reset of the application before its end resets the stream, after the bytes before it") {
  Joined rig;
  rig.write("last words");
  CHECK(::send(rig.application, " and more", 9, MSG_NOSIGNAL) == 9);
  rig.resetApplication();
  CHECK(rig.plain.find(" and more") != std::string::npos);
  CHECK(rig.sent(rst(CONNECT_ERROR)));
  CHECK(!rig.sent(END_1));
  EQUAL(rig.cause(), SOCKET);
  EQUAL(rig.listener->first(EventKind::ENDED)->error, ECONNRESET);
}

TEST(resetWhileWriting, "a reset that a write meets is no clean end either") {
  Joined rig;
  // Unread bytes make the close a reset.
  rig.send(data("unread"));
  rig.settle();
  rig.shut();
  rig.send(data("more"));
  rig.settle();
  CHECK(rig.sent(rst(CONNECT_ERROR)));
  CHECK(!rig.sent(END_1));
  EQUAL(rig.cause(), SOCKET);
}

TEST(closedAfterEnd, "an application that ended and takes no more costs only the rest") {
  for (const bool isServer : {true, false}) {
    Rig rig({.isServer = isServer});
    if (isServer) rig.send(OPEN_1);
    else rig.command(Command::Kind::STREAM, 1);
    int ends[2];
    tcpPair(ends);
    rig.attachFd(1, ends[1]);
    CHECK(::send(ends[0], "all", 3, MSG_NOSIGNAL) == 3);
    close(ends[0]);
    rig.run();
    rig.pump.round(5);
    rig.run();
    CHECK(rig.sent(END_1) || rig.sent(frame(DATA, FLAG_END_STREAM, 1, "all")));
    for (int round = 0; round < 3; round += 1) {
      rig.send(data("nobody reads this"));
      rig.run();
      rig.pump.round(20);
      rig.run();
    }
    CHECK(rig.sent(rst(isServer ? NO_ERROR : CANCEL)));
    const Event* end = rig.listener->first(EventKind::ENDED);
    CHECK(end != nullptr && end->cause == UNREAD);
  }
}

TEST(peerResets, "a reset of the peer is a clean end only after END_STREAM and with a clean code") {
  for (const uint32_t code : {NO_ERROR, CANCEL, STREAM_CLOSED, CONNECT_ERROR, PROTOCOL_ERROR}) {
    for (const bool afterEnd : {true, false}) {
      Joined rig;
      rig.send(data("bytes ") + data("before") + (afterEnd ? END_1 : "") + rst(code));
      rig.settle();
      const bool clean = afterEnd && (code == NO_ERROR || code == CANCEL || code == STREAM_CLOSED);
      bool ended = false;
      int error = 0;
      const std::string got = take(rig.application, &ended, &error);
      EQUAL(rig.cause(), PEER_RESET);
      EQUAL(rig.listener->first(EventKind::ENDED)->code, code);
      EQUAL(ended, clean);
      if (clean) CHECK(got == "bytes before");
      else EQUAL(error, ECONNRESET);
      CHECK(!rig.sent(rst(code)));
    }
  }
}

TEST(slowAfterReset, "a slow application gets all of a stream that ended and was reset") {
  Joined rig({.streamWindow = 1 << 20, .connectionWindow = 4 << 20}, 8'192);
  const std::string body(300'000, 'z');
  for (size_t at = 0; at < body.size(); at += 30'000) rig.send(data(body.substr(at, 30'000)));
  rig.send(END_1 + rst(NO_ERROR));
  rig.settle();
  EQUAL(rig.cause(), LIVES);
  CHECK(rig.counts->received > 0);
  std::string got;
  bool ended = false;
  for (int round = 0; round < 10'000 && !ended; round += 1) {
    got += take(rig.application, &ended);
    rig.pump.round(1);
  }
  CHECK(got == body);
  EQUAL(rig.cause(), PEER_RESET);
  EQUAL(rig.counts->received.load(), 0);
}

TEST(cuts, "a cut resets both sides at once") {
  Joined rig;
  rig.send(data("bytes"));
  rig.settle();
  rig.command(Command::Kind::RESET, 1, 2);
  EQUAL(rig.cause(), CUT);
  CHECK(rig.sent(rst(2)));
  int error = 0;
  take(rig.application, nullptr, &error);
  EQUAL(error, ECONNRESET);
}

TEST(linkGone, "when the link ends its applications are reset") {
  Joined rig;
  close(rig.peerFd);
  rig.peerFd = -1;
  rig.settle();
  EQUAL(rig.cause(), LINK);
  CHECK(rig.gone() != nullptr);
  int error = 0;
  take(rig.application, nullptr, &error);
  EQUAL(error, ECONNRESET);
  EQUAL(rig.pump.counters.links.load(), 0u);
}

TEST(lateAttach, "a socket for a stream or link that has ended is reset") {
  Rig rig;
  rig.send(OPEN_1 + rst(CANCEL));
  rig.run();
  int ends[2];
  tcpPair(ends);
  rig.attachFd(1, ends[1]);
  int error = 0;
  take(ends[0], nullptr, &error);
  EQUAL(error, ECONNRESET);
  EQUAL(rig.listener->count(EventKind::ENDED), 1u);
  close(ends[0]);
}

TEST(stalledReader, "a reader that stalls holds its window and leaves the others theirs") {
  Rig rig({.streamWindow = 200'000, .connectionWindow = 1 << 20});
  rig.send(OPEN_1 + OPEN_3);
  int stalled[2];
  int other[2];
  tcpPair(stalled, 4'096);
  tcpPair(other);
  rig.attachFd(1, stalled[1]);
  rig.attachFd(3, other[1]);
  for (int index = 0; index < 10; index += 1) rig.send(data(std::string(20'000, 'x')));
  rig.run();
  CHECK(rig.counts->received > 100'000);
  CHECK(rig.counts->received <= 200'000);
  size_t got = 0;
  for (int index = 0; index < 200; index += 1) {
    rig.send(data(std::string(15'000, 'y'), 3));
    rig.run();
    got += take(other[0]).size();
  }
  EQUAL(got, 3'000'000u);
  EQUAL(rig.fault(), 1'000u);
  // Beyond its own window the stalled stream breaks the protocol.
  rig.send(data(std::string(20'000, 'x')) + data(std::string(60'000, 'x')));
  rig.run();
  CHECK(rig.sent(rst(FLOW_CONTROL_ERROR)));
  EQUAL(rig.counts->received.load(), 0);
  for (const int fd : {stalled[0], other[0]}) close(fd);
}

TEST(unknownBytes, "the connection window waits until the listener knows of the bytes that are held") {
  Rig rig({.streamWindow = 1 << 20, .connectionWindow = 200'000});
  rig.send(OPEN_1 + OPEN_3);
  rig.run();
  rig.listener->holdsBack = true;
  rig.send(data(std::string(60'000, 'x')) + data(std::string(60'000, 'x')) + data(std::string(60'000, 'x'), 3));
  rig.run();
  // The first quarter was given back when little was held; not the rest.
  const auto given = [&] {
    int64_t sum = 0;
    for (size_t at = 0; at + FRAME_HEADER_BYTES <= rig.plain.size();) {
      const auto* bytes = reinterpret_cast<const uint8_t*>(rig.plain.data()) + at;
      if (bytes[3] == WINDOW_UPDATE && readNumber(bytes + 5) == 0) sum += readNumber(bytes + FRAME_HEADER_BYTES);
      at += FRAME_HEADER_BYTES + (readNumber(bytes) >> 8);
    }
    return sum;
  };
  CHECK(given() <= 120'000);
  const Event* held = rig.listener->first(EventKind::HELD);
  CHECK(held != nullptr);
  // The listener learns of them, and the rest follows.
  rig.listener->holdsBack = false;
  rig.counts->heldTold = false;
  rig.counts->knownReceived = rig.counts->received.load();
  rig.pump.handled(1, rig.counts.get(), rig.counts->waitingEvents, rig.counts->waitingBytes);
  rig.run();
  EQUAL(given(), 180'000);
}

TEST(boundedOutput, "a peer that reads nothing bounds what is read from applications") {
  Rig rig;
  rig.send(OPEN_1 + frame(WINDOW_UPDATE, 0, 0, number(1 << 30)) + frame(WINDOW_UPDATE, 0, 1, number(1 << 30)));
  const int application = rig.attach(1);
  rig.stalls = true;
  size_t written = 0;
  const std::string part(65'536, 'x');
  for (int quiet = 0; quiet < 50;) {
    const ssize_t got = ::send(application, part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (got > 0) written += static_cast<size_t>(got);
    quiet = got > 0 ? 0 : quiet + 1;
    rig.run();
  }
  CHECK(rig.counts->queued <= static_cast<int64_t>(BATCH_BYTES + 65'536));
  CHECK(written < (24u << 20));
  rig.stalls = false;
  for (int round = 0; round < 500; round += 1) rig.run();
  EQUAL(rig.counts->queued.load(), 0);
  CHECK(rig.plain.size() > written);
  close(application);
}

TEST(pressure, "under pressure a link takes in little at a time") {
  Rig rig;
  rig.send(OPEN_1 + frame(WINDOW_UPDATE, 0, 0, number(1 << 30)) + frame(WINDOW_UPDATE, 0, 1, number(1 << 30)));
  const int application = rig.attach(1);
  rig.command(Command::Kind::PRESSURE, 0, 1);
  rig.stalls = true;
  const std::string part(65'536, 'x');
  for (int index = 0; index < 400; index += 1) {
    [[maybe_unused]] const ssize_t got = ::send(application, part.data(), part.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    rig.run();
  }
  CHECK(rig.counts->queued > 0);
  CHECK(rig.counts->queued <= static_cast<int64_t>(PRESSED_BATCH_BYTES + 1'024));
  close(application);
}

TEST(fairness, "small streams are not behind a bulk one") {
  Rig rig;
  std::string open;
  for (uint32_t id = 1; id < 20; id += 2) {
    open += frame(HEADERS, FLAG_END_HEADERS, id, "\x82") + frame(WINDOW_UPDATE, 0, id, number(1 << 30));
  }
  rig.send(open + frame(WINDOW_UPDATE, 0, 0, number(1 << 30)));
  rig.stalls = true;
  std::vector<int> applications;
  for (uint32_t id = 1; id < 20; id += 2) applications.push_back(rig.attach(id));
  // More than the socket of the link takes.
  const std::string bulk(1 << 20, 'b');
  for (int round = 0; round < 60; round += 1) {
    [[maybe_unused]] const ssize_t got = ::send(applications[0], bulk.data(), bulk.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    rig.run();
  }
  for (size_t index = 1; index < applications.size(); index += 1) CHECK(::write(applications[index], "small", 5) == 5);
  rig.pump.round(0);
  rig.stalls = false;
  for (int round = 0; round < 200; round += 1) rig.run();
  size_t last = rig.plain.rfind("small");
  CHECK(last != std::string::npos);
  // After what was encrypted before, the small ones come within one turn of the bulk stream each.
  const size_t first = rig.plain.find("small");
  CHECK(last - first <= TURN_BYTES + 4'096);
  for (const int fd : applications) close(fd);
}

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
