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

TEST(contentAfterInterim, "content between an interim answer and the final one resets the stream") {
  Rig rig({.isServer = false});
  rig.command(Command::Kind::STREAM, 1);
  const int application = rig.attach(1);
  rig.send(frame(HEADERS, FLAG_END_HEADERS, 1, "\x48\x03" "103"));
  rig.send(frame(DATA, 0, 1, "early") + frame(HEADERS, FLAG_END_HEADERS, 1, "\x88") + frame(DATA, FLAG_END_STREAM, 1, "late"));
  rig.run();
  CHECK(rig.sent(frame(RST_STREAM, 0, 1, number(PROTOCOL_ERROR))));
  const Event* ended = rig.listener->first(EventKind::ENDED);
  CHECK(ended != nullptr && ended->cause == static_cast<uint32_t>(StreamCause::BROKE));
  close(application);
}

TEST(resetOfClosed, "a stream that has ended in both directions is not reset") {
  Rig rig;
  rig.send(OPEN_1);
  const int application = rig.attach(1);
  rig.send(END_1);
  shutdown(application, SHUT_WR);
  rig.run();
  const Event* ended = rig.listener->first(EventKind::ENDED);
  CHECK(ended != nullptr && ended->cause == static_cast<uint32_t>(StreamCause::DONE));
  rig.command(Command::Kind::RESET, 1, CANCEL);
  CHECK(!rig.sent(frame(RST_STREAM, 0, 1, number(CANCEL))));
  close(application);
}

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

TEST(urgent, "the bytes behind urgent data follow without another event") {
  Joined rig;
  // All of it before the next look at the socket, and once more when it is watched.
  for (const char* round : {"one", "two"}) {
    for (const auto& [bytes, flags] : {std::pair{"before ", 0}, std::pair{"!", static_cast<int>(MSG_OOB)}, std::pair{"behind ", 0}}) {
      CHECK(::send(rig.application, bytes, strlen(bytes), MSG_NOSIGNAL | flags) > 0);
    }
    rig.settle();
    CHECK(rig.sent(data("before ")) && rig.sent(data("behind ")));
    rig.plain.clear();
    rig.write(round);
    CHECK(rig.sent(data(round)));
  }
  EQUAL(rig.cause(), LIVES);
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

TEST(overBeforeJoin, "DATA, its end and a clean reset before the join reach the socket that is joined") {
  for (const uint32_t code : {NO_ERROR, CANCEL, STREAM_CLOSED}) {
    Rig rig;
    rig.send(OPEN_1 + data("all of it") + END_1 + rst(code));
    rig.run();
    const Event* over = rig.listener->first(EventKind::OVER);
    CHECK(over != nullptr && over->code == code);
    EQUAL(rig.listener->count(EventKind::ENDED), 0u);
    const int application = rig.attach(1);
    bool ended = false;
    CHECK(take(application, &ended) == "all of it");
    CHECK(ended);
    const Event* end = rig.listener->first(EventKind::ENDED);
    CHECK(end != nullptr);
    EQUAL(end->cause, PEER_RESET);
    EQUAL(end->code, code);
    EQUAL(rig.counts->received.load(), 0);
    close(application);
  }
}

TEST(overAndUnwanted, "a stream that the peer has reset cleanly before a join is dropped without a frame") {
  Rig rig;
  rig.send(OPEN_1 + data("nobody reads it") + END_1 + rst(CANCEL));
  rig.run();
  rig.command(Command::Kind::RESET, 1, CANCEL);
  rig.run();
  EQUAL(rig.listener->count(EventKind::ENDED), 1u);
  EQUAL(rig.listener->first(EventKind::ENDED)->cause, PEER_RESET);
  CHECK(!rig.sent(rst(CANCEL)));
  EQUAL(rig.pump.counters.streams.load(), 0u);
  EQUAL(rig.counts->received.load(), 0);
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
    if (!isServer) rig.send(frame(HEADERS, FLAG_END_HEADERS, 1, "\x88"));
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

TEST(endOfRequest, "a request that is its own end ends the input of its application") {
  Rig rig;
  rig.send(frame(HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, 1, "\x82"));
  const int application = rig.attach(1);
  bool ended = false;
  take(application, &ended);
  CHECK(!ended);
  rig.command(Command::Kind::REMOTE_END, 1);
  take(application, &ended);
  CHECK(ended);
  CHECK(::send(application, "answer", 6, MSG_NOSIGNAL) == 6);
  rig.run();
  CHECK(rig.sent(frame(DATA, 0, 1, "answer")));
  close(application);
}

TEST(abandoned, "links whose listener has gone end with their streams, and no others") {
  Joined rig;
  Command command{};
  command.kind = Command::Kind::ABANDON;
  command.listener = std::make_shared<Recorder>();
  rig.pump.post(std::move(command));
  rig.settle();
  EQUAL(rig.pump.counters.links.load(), 1u);
  Command own{};
  own.kind = Command::Kind::ABANDON;
  own.listener = rig.listener;
  rig.pump.post(std::move(own));
  rig.settle();
  EQUAL(rig.pump.counters.links.load(), 0u);
  EQUAL(rig.pump.counters.streams.load(), 0u);
  int error = 0;
  take(rig.application, nullptr, &error);
  EQUAL(error, ECONNRESET);
}

TEST(deliversOn, "a stream that has ended both ways gives its socket the rest after its link has ended") {
  for (const bool isCut : {false, true}) {
    Rig rig({.streamWindow = 1 << 20, .connectionWindow = 1 << 20});
    int ends[2];
    tcpPair(ends, 4'096);
    rig.send(OPEN_1);
    rig.attachFd(1, ends[1]);
    shutdown(ends[0], SHUT_WR);
    const std::string page(15'000, 'p');
    for (int index = 0; index < 20; index += 1) rig.send(data(page));
    rig.send(END_1);
    rig.run();
    rig.pump.round(50);
    rig.run();
    const Event* over = rig.listener->first(EventKind::OVER);
    CHECK(over != nullptr && static_cast<int64_t>(over->code) == -1);
    rig.command(Command::Kind::FINISH);
    close(rig.peerFd);
    rig.peerFd = -1;
    rig.run();
    CHECK(rig.gone() != nullptr);
    EQUAL(rig.listener->count(EventKind::ENDED), 0u);
    CHECK(rig.counts->received > 100'000);
    if (isCut) rig.command(Command::Kind::RESET, 1, 2);
    bool ended = false;
    int error = 0;
    size_t got = 0;
    for (int round = 0; round < 2'000 && !ended && error == 0; round += 1) {
      got += take(ends[0], &ended, &error).size();
      rig.run();
    }
    EQUAL(ended, !isCut);
    EQUAL(got == 300'000, !isCut);
    EQUAL(rig.listener->first(EventKind::ENDED)->cause, isCut ? CUT : DONE);
    EQUAL(rig.counts->received.load(), 0);
    EQUAL(rig.pump.counters.links.load(), 0u);
    close(ends[0]);
  }
}

TEST(closedBeforeRead, "an application that was gone before its last bytes were read costs only the rest") {
  Rig rig;
  rig.send(OPEN_1);
  rig.command(Command::Kind::PEER_SETTINGS, 0, 0, 16'384);
  int ends[2];
  tcpPair(ends);
  rig.attachFd(1, ends[1]);
  CHECK(::send(ends[0], "all", 3, MSG_NOSIGNAL) == 3);
  close(ends[0]);
  rig.send(data("nobody reads this"));
  // The kernel answers by a reset.
  for (int round = 0; round < 3; round += 1) {
    rig.run();
    rig.pump.round(20);
  }
  EQUAL(rig.listener->count(EventKind::ENDED), 0u);
  // As much as is left: the end needs no window.
  rig.send(frame(WINDOW_UPDATE, 0, 1, number(3)));
  rig.run();
  CHECK(rig.sent(frame(DATA, 0, 1, "all")));
  const size_t last = rig.plain.find(END_1);
  CHECK(last != std::string::npos);
  CHECK(rig.plain.find(rst(NO_ERROR)) > last && rig.sent(rst(NO_ERROR)));
  const Event* end = rig.listener->first(EventKind::ENDED);
  CHECK(end != nullptr && end->cause == UNREAD);
}

TEST(endsWithoutWindow, "an application's end and its reset need no window, of the stream or of the connection") {
  for (const bool ofConnection : {true, false}) {
    for (const bool isReset : {true, false}) {
      Joined rig;
      if (ofConnection) rig.send(frame(WINDOW_UPDATE, 0, 1, number(1 << 20)));
      else rig.send(frame(WINDOW_UPDATE, 0, 0, number(1 << 20)));
      rig.run();
      rig.write(std::string(DEFAULT_WINDOW, 'x'));
      if (isReset) rig.resetApplication();
      else shutdown(rig.application, SHUT_WR);
      rig.settle();
      EQUAL(rig.sent(END_1), !isReset);
      EQUAL(rig.sent(rst(CONNECT_ERROR)), isReset);
      EQUAL(rig.cause(), isReset ? SOCKET : LIVES);
    }
  }
}

TEST(refused, "a socket for a stream that was answered with its end is reset") {
  Rig rig;
  rig.send(OPEN_1);
  rig.run();
  rig.command(Command::Kind::END, 1);
  int ends[2];
  tcpPair(ends);
  rig.attachFd(1, ends[1]);
  int error = 0;
  take(ends[0], nullptr, &error);
  EQUAL(error, ECONNRESET);
  CHECK(rig.sent(rst(CONNECT_ERROR)));
  close(ends[0]);
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


int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
