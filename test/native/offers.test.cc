// Sockets that are offered to the streams of a client before the peer has answered.
#include <fcntl.h>

#include "support/check.h"
#include "support/peer.h"

using namespace carried;

namespace {

std::string answer(const std::string& block, uint8_t flags = FLAG_END_HEADERS) {
  return frame(HEADERS, flags, 1, block);
}
std::string data(const std::string& content, uint8_t flags = 0) { return frame(DATA, flags, 1, content); }

bool isOpen(int fd) { return fcntl(fd, F_GETFD) != -1; }

// A client whose stream 1 has a socket offered; the application holds the other end.
struct Offered : Rig {
  Offered() : Rig({.isServer = false}) {
    command(Command::Kind::STREAM, 1);
    offer(1);
  }
  ~Offered() {
    close(application);
    if (back >= 0) close(back);
  }
  void offer(uint32_t stream) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) abort();
    application = ends[1];
    lent = ends[0];
    Command offered{};
    offered.kind = Command::Kind::OFFER;
    offered.link = 1;
    offered.stream = stream;
    offered.fd = lent;
    offered.counts = streamCounts = std::make_shared<StreamCounts>();
    pump.queue(std::move(offered));
    pump.drive();
    run();
  }
  // As JavaScript does: of the stream, or of one that has ended.
  int recall() {
    back = pump.recall(1, 1);
    if (back < 0) back = streamCounts->unused.exchange(-1);
    return back;
  }
  void say(const std::string& bytes) {
    CHECK(::send(application, bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size()));
    run();
  }
  int application = -1;
  int lent = -1;
  int back = -1;
  std::shared_ptr<StreamCounts> streamCounts;
};

}  // namespace

TEST(joinBehindContent, "an offered socket is not joined by an answer behind content") {
  Offered rig;
  rig.send(answer("\x48\x03" "103") + data("early") + answer("\x88") + data("late", FLAG_END_STREAM));
  rig.run();
  CHECK(rig.sent(frame(RST_STREAM, 0, 1, number(PROTOCOL_ERROR))));
  CHECK(rig.recall() >= 0);
}

TEST(twoSockets, "a stream with a socket takes no other") {
  Offered rig;
  const int second = rig.attach(1);
  bool isEnded = false;
  int error = 0;
  take(second, &isEnded, &error);
  CHECK(isEnded || error != 0);
  close(second);
}

TEST(plainAnswer, "a plain 200 joins the stream at once, and bytes flow both ways") {
  Offered rig;
  rig.say("early");
  CHECK(!rig.sent(data("early")));
  rig.send(answer("\x88") + data("hello"));
  rig.run();
  EQUAL(take(rig.application), "hello");
  CHECK(rig.sent(data("early")));
  // The listener still sees the answer, and its own join changes nothing.
  CHECK(rig.listener->first(EventKind::CONTROL) != nullptr);
  rig.command(Command::Kind::JOIN, 1);
  EQUAL(rig.recall(), -1);
  rig.say("more");
  CHECK(rig.sent(data("more")));
}

TEST(updatedAnswer, "a 200 behind a change of the table's size is plain, too") {
  Offered rig;
  rig.send(answer("\x20\x88") + data("hello"));
  rig.run();
  EQUAL(take(rig.application), "hello");
}

TEST(otherAnswers, "any other answer waits for the listener") {
  const std::string others[] = {
      answer("\x8d"),                                               // 404
      answer(std::string("\x08\x03", 2) + "200"),                   // 200 as a text
      answer(""),
      answer("\x20"),
      answer("\x88", FLAG_END_HEADERS | FLAG_END_STREAM),
      answer(std::string(1, 0) + "\x88", FLAG_END_HEADERS | FLAG_PADDED),
      answer("\x88", 0) + frame(CONTINUATION, FLAG_END_HEADERS, 1, "\x88"),
  };
  for (const std::string& other : others) {
    Offered rig;
    rig.send(other);
    rig.run();
    rig.say("bytes");
    CHECK(!rig.sent(data("bytes")));
    EQUAL(rig.recall(), rig.lent);
    CHECK(isOpen(rig.lent));
  }
}

TEST(joined, "the listener joins a stream whose answer it found good") {
  Offered rig;
  rig.send(answer(std::string("\x08\x03", 2) + "200") + data("hello"));
  rig.run();
  rig.command(Command::Kind::JOIN, 1);
  EQUAL(take(rig.application), "hello");
  EQUAL(rig.recall(), -1);
}

TEST(resetByPeer, "a stream that the peer resets before its answer gives the socket back") {
  Offered rig;
  rig.send(frame(RST_STREAM, 0, 1, number(7)));
  rig.run();
  EQUAL(rig.listener->count(EventKind::ENDED), 1u);
  EQUAL(rig.recall(), rig.lent);
  CHECK(isOpen(rig.lent));
  // Once.
  EQUAL(rig.recall(), -1);
  rig.back = rig.lent;
}

TEST(resetByUs, "a stream that the listener resets gives the socket back") {
  Offered rig;
  rig.command(Command::Kind::RESET, 1, CANCEL);
  EQUAL(rig.recall(), rig.lent);
  CHECK(isOpen(rig.lent));
}

TEST(linkEnds, "the end of the link gives the socket back") {
  Offered rig;
  rig.command(Command::Kind::DESTROY);
  EQUAL(rig.recall(), rig.lent);
  CHECK(isOpen(rig.lent));
}

TEST(tooLate, "a socket for a stream that has ended comes back") {
  Offered rig;
  const int first = rig.recall();
  close(first);
  close(rig.application);
  rig.command(Command::Kind::RESET, 1, CANCEL);
  rig.offer(1);
  EQUAL(rig.recall(), rig.lent);
  CHECK(isOpen(rig.lent));
}

TEST(abandoned, "a socket that nobody takes back is reset") {
  int lent = -1;
  {
    Offered rig;
    lent = rig.lent;
    rig.command(Command::Kind::RESET, 1, CANCEL);
    rig.listener->events.clear();
    rig.streamCounts = nullptr;
    rig.pump.round(0);
    bool ended = false;
    take(rig.application, &ended);
    CHECK(ended);
  }
  CHECK(!isOpen(lent));
}

TEST(wrongAnswer, "a stream whose other headers the listener refuses is reset, and its socket with it") {
  Offered rig;
  rig.send(answer(std::string("\x88\x00", 2)));
  rig.run();
  rig.command(Command::Kind::RESET, 1, PROTOCOL_ERROR);
  EQUAL(rig.recall(), -1);
  bool ended = false;
  take(rig.application, &ended);
  CHECK(ended);
}

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
