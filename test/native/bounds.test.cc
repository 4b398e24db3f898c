// The memory that a link holds, and the turns of its streams.
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

// The largest allocation since it was set to 0.
size_t largest = 0;
// The memory of the last link.
const uint8_t* lastLink = nullptr;

// Whether that link keeps a secret of the rig, which repeats one byte.
bool keepsSecret(char byte) {
  const std::string secret(secretBytes(Suite::AES_128_GCM_SHA256), byte);
  const std::string link(reinterpret_cast<const char*>(lastLink), sizeof(Link));
  return link.find(secret) != std::string::npos;
}

}  // namespace

void* operator new(size_t size) {
  largest = std::max(largest, size);
  void* memory = malloc(size);
  if (memory == nullptr) abort();
  if (size == sizeof(Link)) lastLink = static_cast<const uint8_t*>(memory);
  return memory;
}
void operator delete(void* memory) noexcept { free(memory); }
void operator delete(void* memory, size_t) noexcept { free(memory); }

TEST(windows, "windows are used up by bytes, given back by reading, and follow their sizes") {
  ConnectionWindow connection(100);
  CHECK(connection.take(60));
  CHECK(!connection.take(41));
  // Not while much is held under large windows, which the peer could fill again.
  EQUAL(connection.release(MAX_HELD_BYTES + 1, 1 << 20, false), 0);
  EQUAL(connection.release(0, 1 << 20, true), 0);
  EQUAL(connection.release(MAX_HELD_BYTES + 1, PRESSED_WINDOW_BYTES, true), 60);
  CHECK(connection.take(100));
  CHECK(!connection.take(1));
  StreamWindow stream(100);
  stream.resize(40);
  CHECK(!stream.take(41));
  CHECK(stream.take(40));
  stream.resize(10);
  CHECK(stream.take(0));
  CHECK(!stream.take(1));
  EQUAL(stream.consume(40), 40);
  CHECK(stream.take(10));
  CHECK(!stream.take(1));
}

TEST(resizedWindows, "streams and the connection follow new sizes of their windows at once") {
  const auto wide = [] { return Options{.streamWindow = 100'000, .connectionWindow = 200'000}; };
  {
    Rig rig(wide());
    rig.send(OPEN_1 + OPEN_3);
    const int application = rig.attach(3);
    rig.send(data(std::string(10'000, 'x'), 3));
    rig.run();
    EQUAL(take(application).size(), 10'000u);
    const std::string back = frame(WINDOW_UPDATE, 0, 3, number(10'000));
    CHECK(!rig.sent(back));
    rig.command(Command::Kind::WINDOWS, 0, 20'000, 200'000);
    // The bytes taken were too little to give back of the larger window.
    CHECK(rig.sent(back));
    rig.send(data(std::string(15'000, 'x')));
    rig.run();
    CHECK(!rig.sent(rst(FLOW_CONTROL_ERROR)));
    rig.send(data(std::string(15'000, 'x')));
    rig.run();
    CHECK(rig.sent(rst(FLOW_CONTROL_ERROR)));
    EQUAL(rig.fault(), 1'000u);
    close(application);
  }
  {
    Rig rig(wide());
    rig.send(OPEN_1);
    rig.command(Command::Kind::WINDOWS, 0, 100'000, 10'000);
    rig.send(data(std::string(15'000, 'x')));
    rig.run();
    EQUAL(rig.fault(), static_cast<uint64_t>(FLOW_CONTROL_ERROR));
  }
  Rig rig({.streamWindow = 10'000, .connectionWindow = 10'000});
  rig.send(OPEN_1);
  rig.command(Command::Kind::WINDOWS, 0, 100'000, 200'000);
  rig.send(data(std::string(15'000, 'x')));
  rig.run();
  CHECK(!rig.sent(rst(FLOW_CONTROL_ERROR)));
  EQUAL(rig.fault(), 1'000u);
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

TEST(slowReader, "a reader that never catches up holds its window, whatever it has read") {
  constexpr size_t WINDOW = 1 << 20;
  constexpr size_t PART = 10'000;
  Rig rig({.streamWindow = WINDOW, .connectionWindow = 4 << 20});
  rig.send(OPEN_1);
  int sockets[2];
  tcpPair(sockets, 65'536);
  rig.attachFd(1, sockets[1]);
  size_t sent = 0;
  size_t got = 0;
  largest = 0;
  while (got < 20 * WINDOW) {
    for (; sent - got + PART <= WINDOW * 3 / 4; sent += PART) rig.send(data(std::string(PART, 'x')));
    rig.run();
    char bytes[2 * PART];
    const ssize_t count = recv(sockets[0], bytes, sizeof bytes, MSG_DONTWAIT);
    if (count > 0) got += static_cast<size_t>(count);
    rig.plain.clear();
    rig.listener->events.clear();
    if (rig.fault() != 1'000u) break;
  }
  EQUAL(rig.fault(), 1'000u);
  CHECK(largest <= 4 * WINDOW);
  close(sockets[0]);
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
  rig.pump.handled(1, rig.counts.get(), rig.counts->waitingEvents, rig.counts->waitingBytes, rig.counts->received);
  rig.run();
  EQUAL(given(), 180'000);
}

TEST(halfOpen, "ten thousand streams that nobody answers hold no more than the window, and another goes on") {
  constexpr int64_t WINDOW = 1 << 20;
  Rig rig({.streamWindow = WINDOW, .connectionWindow = WINDOW});
  rig.send(OPEN_1);
  const int application = rig.attach(1);
  for (uint32_t id = 3; id < 20'003; id += 2) {
    rig.send(frame(HEADERS, FLAG_END_HEADERS, id, "\x82") + data(std::string(100, 'x'), id));
    if (id % 200 == 1) rig.run();
  }
  rig.run();
  EQUAL(rig.pump.counters.streams.load(), 10'001u);
  EQUAL(rig.counts->received.load(), 1'000'000);
  EQUAL(rig.fault(), 1'000u);
  // One that is joined carries both ways.
  rig.send(data(std::string(40'000, 'y')));
  rig.run();
  EQUAL(take(application).size(), 40'000u);
  CHECK(::send(application, "answer", 6, MSG_NOSIGNAL) == 6);
  rig.run();
  CHECK(rig.sent(data("answer")));
  // Their end gives everything back.
  for (uint32_t id = 3; id < 20'003; id += 2) {
    rig.send(frame(RST_STREAM, 0, id, number(CANCEL)));
    if (id % 200 == 1) rig.run();
  }
  rig.run();
  EQUAL(rig.pump.counters.streams.load(), 1u);
  EQUAL(rig.counts->received.load(), 0);
  close(application);
}

TEST(endedLink, "a link that has ended and only delivers keeps no secret") {
  Rig rig({.streamWindow = 1 << 20, .connectionWindow = 1 << 20});
  int ends[2];
  tcpPair(ends, 4'096);
  rig.send(OPEN_1);
  rig.attachFd(1, ends[1]);
  shutdown(ends[0], SHUT_WR);
  for (int index = 0; index < 20; index += 1) rig.send(data(std::string(15'000, 'x')));
  rig.send(END_1);
  rig.run();
  CHECK(keepsSecret(1) && keepsSecret(2));
  close(rig.peerFd);
  rig.peerFd = -1;
  rig.run();
  CHECK(rig.gone() != nullptr);
  EQUAL(rig.pump.counters.links.load(), 1u);
  CHECK(!keepsSecret(1) && !keepsSecret(2));
  close(ends[0]);
}

TEST(unknownShare, "a link is not read while the listener does not know of a quarter of its window") {
  Rig rig({.streamWindow = 2 << 20, .connectionWindow = 2 << 20});
  int ends[2];
  tcpPair(ends, 4'096);
  rig.send(OPEN_1);
  rig.attachFd(1, ends[1]);
  rig.listener->holdsBack = true;
  for (int index = 0; index < 60; index += 1) {
    rig.send(data(std::string(15'000, 'x')));
    rig.run();
  }
  CHECK(rig.counts->received > 512 * 1'024);
  CHECK(rig.counts->received < 512 * 1'024 + 40'000);
  close(ends[0]);
}

TEST(unknownUnread, "links are not read while the listener does not know of much that is held, and one slow reader stops no link") {
  Rig rig({.streamWindow = 16 << 20, .connectionWindow = 64 << 20});
  int ends[2];
  tcpPair(ends, 4'096);
  rig.send(OPEN_1 + OPEN_3);
  rig.attachFd(1, ends[1]);
  const int other = rig.attach(3);
  rig.listener->holdsBack = true;
  constexpr size_t PIECE = 15'000;
  size_t sent = 0;
  const auto sendMore = [&](int64_t until) {
    for (; rig.counts->received <= until && sent < (12u << 20); sent += PIECE) {
      rig.send(data(std::string(PIECE, 'x')));
      rig.run();
    }
  };
  sendMore(4 << 20);
  rig.send(data("beside", 3));
  rig.run();
  EQUAL(take(other), std::string("beside"));
  sendMore(MAX_UNKNOWN_BYTES_OF_ALL);
  // The rest waits in the kernel.
  for (int index = 0; index < 8; index += 1, sent += PIECE) {
    rig.send(data(std::string(PIECE, 'x')));
    rig.run();
  }
  CHECK(rig.counts->received > MAX_UNKNOWN_BYTES_OF_ALL);
  CHECK(rig.counts->received < MAX_UNKNOWN_BYTES_OF_ALL + 40'000);
  // It goes on when the socket has taken bytes.
  size_t got = 0;
  for (int round = 0; round < 40'000 && got < sent; round += 1) {
    got += take(ends[0]).size();
    rig.run();
  }
  EQUAL(got, sent);
  close(ends[0]);
  close(other);
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

TEST(turns, "bulk streams share a batch by turns") {
  Rig rig;
  const std::string window = number(1 << 30);
  rig.send(OPEN_1 + OPEN_3 + frame(WINDOW_UPDATE, 0, 1, window) + frame(WINDOW_UPDATE, 0, 3, window) +
           frame(WINDOW_UPDATE, 0, 0, window));
  rig.run();
  const std::string body(180'000, 'b');
  int ends[4];
  for (const int pair : {0, 2}) {
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends + pair) != 0) abort();
    const int bytes = 1 << 20;
    setsockopt(ends[pair], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    CHECK(::write(ends[pair], body.data(), body.size()) == static_cast<ssize_t>(body.size()));
  }
  // Both are joined before the next turn of the link.
  rig.attachAll({{1, ends[1]}, {3, ends[3]}});
  // Frame by frame: no stream sends more than its turn before the other one has had one.
  size_t inTurn = 0;
  uint32_t last = 0;
  size_t others = 0;
  for (size_t at = 0; at + FRAME_HEADER_BYTES <= rig.plain.size() && others == 0;) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(rig.plain.data()) + at;
    const size_t length = readNumber(bytes) >> 8;
    if (bytes[3] == DATA) {
      const uint32_t id = readNumber(bytes + 5);
      if (last != 0 && id != last) others += 1;
      else inTurn += FRAME_HEADER_BYTES + length;
      last = id;
    }
    at += FRAME_HEADER_BYTES + length;
  }
  EQUAL(others, 1u);
  CHECK(inTurn <= TURN_BYTES);
  for (const int fd : {ends[0], ends[2]}) close(fd);
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

// A link with a bulk stream, which has read much already, and quick ones. Returns their applications, the bulk one first.
std::vector<int> bulkAndQuick(Rig* rig, size_t quick) {
  std::string open;
  for (uint32_t id = 1; id <= 1 + 2 * quick; id += 2) {
    open += frame(HEADERS, FLAG_END_HEADERS, id, "\x82") + frame(WINDOW_UPDATE, 0, id, number(1 << 30));
  }
  rig->send(open + frame(WINDOW_UPDATE, 0, 0, number(1 << 30)));
  std::vector<int> applications;
  for (uint32_t id = 1; id <= 1 + 2 * quick; id += 2) applications.push_back(rig->attach(id));
  const std::string body(100'000, 'b');
  CHECK(::write(applications[0], body.data(), body.size()) == static_cast<ssize_t>(body.size()));
  rig->run();
  // The end of what a bulk application writes at a time may be small.
  CHECK(::write(applications[0], "b", 1) == 1);
  rig->run();
  CHECK(rig->plain.size() > body.size());
  rig->plain.clear();
  // Waits for the next round.
  CHECK(::write(applications[0], body.data(), body.size()) == static_cast<ssize_t>(body.size()));
  return applications;
}

TEST(quickFirst, "a stream that waits for answers goes before the next bytes of a bulk one") {
  Rig rig;
  const std::vector<int> applications = bulkAndQuick(&rig, 1);
  CHECK(::write(applications[1], "small", 5) == 5);
  rig.run();
  EQUAL(rig.plain.find("small"), FRAME_HEADER_BYTES);
  CHECK(rig.plain.size() > 100'000);
  for (const int fd : applications) close(fd);
}

TEST(quickShare, "many streams that wait for answers leave half of each batch to a bulk one") {
  Rig rig;
  const std::vector<int> applications = bulkAndQuick(&rig, 40);
  const std::string answer(SMALL_READ_BYTES - 1, 'q');
  for (size_t index = 1; index < applications.size(); index += 1) {
    CHECK(::write(applications[index], answer.data(), answer.size()) == static_cast<ssize_t>(answer.size()));
  }
  rig.run();
  // In full batches and in small ones.
  CHECK(rig.plain.find('b') <= BATCH_BYTES / 2 + FRAME_HEADER_BYTES);
  CHECK(rig.plain.size() > 40 * answer.size() + 100'000);
  for (const int fd : applications) close(fd);
}

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
