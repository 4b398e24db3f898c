// Every rule of RFC 9113 that the carry checks itself, against a peer that breaks it.
#include <array>

#include "support/check.h"
#include "support/peer.h"

using namespace carried;

namespace {

const std::string OPEN_1 = frame(HEADERS, FLAG_END_HEADERS, 1, "\x82");
const std::string OPEN_3 = frame(HEADERS, FLAG_END_HEADERS, 3, "\x82");

std::string data(uint32_t id, const std::string& content, uint8_t flags = 0) {
  return frame(DATA, flags, id, content);
}

struct Case {
  const char* what;
  std::string frames;
  uint64_t code;
};

const Case FAULTS[] = {
    {"a frame larger than agreed", std::string("\x01\x00\x01\x00\x00\x00\x00\x00\x01", 9), FRAME_SIZE_ERROR},
    {"a RST_STREAM of 3 bytes", frame(RST_STREAM, 0, 1, "abc"), FRAME_SIZE_ERROR},
    {"a PING of 7 bytes", frame(PING, 0, 0, "1234567"), FRAME_SIZE_ERROR},
    {"a WINDOW_UPDATE of 5 bytes", frame(WINDOW_UPDATE, 0, 0, "12345"), FRAME_SIZE_ERROR},
    {"SETTINGS of 7 bytes", frame(SETTINGS, 0, 0, "1234567"), FRAME_SIZE_ERROR},
    {"65 settings", frame(SETTINGS, 0, 0, std::string(65 * 6, 0)), ENHANCE_YOUR_CALM},
    {"a GOAWAY of 7 bytes", frame(GOAWAY, 0, 0, "1234567"), FRAME_SIZE_ERROR},
    {"a GOAWAY of 20,000 bytes", frame(GOAWAY, 0, 0, std::string(20'000, 0)), ENHANCE_YOUR_CALM},
    {"a PRIORITY of 20,000 bytes", frame(PRIORITY, 0, 1, std::string(20'000, 0)), FRAME_SIZE_ERROR},
    {"a CONTINUATION without HEADERS", frame(CONTINUATION, FLAG_END_HEADERS, 1, "a"), PROTOCOL_ERROR},
    {"DATA inside a header block", frame(HEADERS, 0, 1, "\x82") + data(1, "a"), PROTOCOL_ERROR},
    {"a CONTINUATION of another stream", frame(HEADERS, 0, 1, "\x82") + frame(CONTINUATION, FLAG_END_HEADERS, 3, "a"), PROTOCOL_ERROR},
    {"HEADERS of 40,000 bytes", frame(HEADERS, FLAG_END_HEADERS, 1, std::string(40'000, 'h')), ENHANCE_YOUR_CALM},
    {"a CONTINUATION of 40,000 bytes", frame(HEADERS, 0, 1, "h") + frame(CONTINUATION, 0, 1, std::string(40'000, 'h')), ENHANCE_YOUR_CALM},
    {"the beginning of a PUSH_PROMISE", frame(PUSH_PROMISE, FLAG_END_HEADERS, 1, std::string(65'536, 'p')).substr(0, 9), PROTOCOL_ERROR},
    {"HEADERS without a stream", frame(HEADERS, FLAG_END_HEADERS, 0, "\x82"), PROTOCOL_ERROR},
    {"DATA without a stream", data(0, "a"), PROTOCOL_ERROR},
    {"DATA on an idle stream", data(1, "a"), PROTOCOL_ERROR},
    {"DATA on a stream of the server", OPEN_3 + data(2, "a"), PROTOCOL_ERROR},
    {"padding without its length", OPEN_1 + data(1, "", FLAG_PADDED), FRAME_SIZE_ERROR},
    {"more padding than DATA", OPEN_1 + data(1, "\x03xx", FLAG_PADDED), PROTOCOL_ERROR},
    {"more than the connection window", OPEN_1 + data(1, std::string(65'536, 'x')), FLOW_CONTROL_ERROR},
    {"a WINDOW_UPDATE of nothing", frame(WINDOW_UPDATE, 0, 0, number(0)), PROTOCOL_ERROR},
    {"a connection window beyond its maximum", frame(WINDOW_UPDATE, 0, 0, number(MAX_WINDOW)), FLOW_CONTROL_ERROR},
    {"a WINDOW_UPDATE on an idle stream", frame(WINDOW_UPDATE, 0, 5, number(1)), PROTOCOL_ERROR},
};

std::string repeat(const std::string& text, int count) {
  std::string all;
  for (int index = 0; index < count; index += 1) all += text;
  return all;
}

std::string rst(uint32_t id, uint32_t code) { return frame(RST_STREAM, 0, id, number(code)); }

}  // namespace

TEST(connectionFaults, "a breach ends the connection with its code, whole or byte by byte") {
  for (const Case& each : FAULTS) {
    for (const bool whole : {true, false}) {
      // One stream window larger than the connection's, so that the latter is what is exceeded.
      Rig rig({.streamWindow = 1 << 20, .connectionWindow = DEFAULT_WINDOW});
      if (whole) rig.send(each.frames);
      else for (const char byte : each.frames.substr(0, 64)) rig.send(std::string(1, byte));
      if (!whole) rig.send(each.frames.substr(std::min<size_t>(64, each.frames.size())));
      rig.run();
      if (rig.fault() != each.code) std::printf("  case: %s\n", each.what);
      EQUAL(rig.fault(), each.code);
      EQUAL(rig.listener->count(EventKind::FAULT), 1u);
    }
  }
}

TEST(givenBack, "the connection window is given back as bytes arrive, unread ones too") {
  // Sixteen times the part that is given back at a time.
  Rig rig({.streamWindow = 1 << 20, .connectionWindow = 1 << 20});
  rig.send(OPEN_1 + repeat(data(1, std::string(65'536, 'x')), 15));
  EQUAL(rig.fault(), 1'000u);
}

TEST(preface, "a server refuses a peer that does not speak HTTP/2") {
  Rig rig({.greets = false});
  rig.send("GET / HTTP/1.1\r\n\r\n");
  rig.run();
  EQUAL(rig.fault(), static_cast<uint64_t>(PROTOCOL_ERROR));
}

TEST(greeting, "the first frame is SETTINGS, and no acknowledgement") {
  for (const std::string& first : {frame(PING, 0, 0, "12345678"), frame(SETTINGS, FLAG_ACK, 0, ""),
                                   frame(WINDOW_UPDATE, 0, 0, number(1))}) {
    Rig rig({.greets = false});
    rig.send(PREFACE + first);
    rig.run();
    EQUAL(rig.fault(), static_cast<uint64_t>(PROTOCOL_ERROR));
  }
}

TEST(controlFrames, "other frames reach the listener whole and in order, however they are cut") {
  const std::string frames = frame(SETTINGS, 0, 0, std::string("\0\4\0\0\1\0", 6)) + OPEN_1 + frame(PRIORITY, 0, 1, "12345") +
                             frame(PING, 0, 0, "12345678") + frame(GOAWAY, 0, 0, "12345678debug");
  for (const size_t size : {1ul, 2ul, 7ul, 9ul, 10ul, 1000ul}) {
    Rig rig;
    rig.listener->events.clear();
    for (size_t at = 0; at < frames.size(); at += size) {
      rig.send(frames.substr(at, size));
      rig.run();
    }
    std::string got;
    for (const Event& event : rig.listener->events) {
      if (event.kind == EventKind::CONTROL) got += event.bytes;
    }
    CHECK(got == frames);
  }
}

TEST(streamFaults, "a breach on a stream resets the stream only") {
  struct StreamCase {
    const char* what;
    std::string frames;
    uint32_t code;
  };
  const StreamCase cases[] = {
      {"more than the stream window", data(1, std::string(20'001, 'x')), FLOW_CONTROL_ERROR},
      {"DATA after END_STREAM", data(1, "a", FLAG_END_STREAM) + data(1, "b"), STREAM_CLOSED},
      {"HEADERS after END_STREAM", data(1, "a", FLAG_END_STREAM) + frame(HEADERS, FLAG_END_HEADERS | FLAG_END_STREAM, 1, "\x82"), STREAM_CLOSED},
      {"a WINDOW_UPDATE of nothing", frame(WINDOW_UPDATE, 0, 1, number(0)), PROTOCOL_ERROR},
      {"a window beyond its maximum", frame(WINDOW_UPDATE, 0, 1, number(MAX_WINDOW)), FLOW_CONTROL_ERROR},
  };
  for (const StreamCase& each : cases) {
    Rig rig({.streamWindow = 20'000, .connectionWindow = 1 << 20});
    rig.send(OPEN_1 + OPEN_3);
    const int other = rig.attach(3);
    rig.send(each.frames);
    rig.run();
    if (!rig.sent(rst(1, each.code))) std::printf("  case: %s\n", each.what);
    CHECK(rig.sent(rst(1, each.code)));
    const Event* end = rig.listener->first(EventKind::ENDED);
    CHECK(end != nullptr && end->stream == 1 && end->cause == static_cast<uint32_t>(StreamCause::BROKE));
    // Late frames are in order, and the other stream goes on.
    rig.send(data(1, "late") + data(3, "through"));
    rig.run();
    CHECK(take(other) == "through");
    EQUAL(rig.fault(), 1'000u);
    close(other);
  }
}

TEST(dataFirst, "DATA before an answer resets the stream, and its bytes reach nobody") {
  for (const bool isAnswered : {false, true}) {
    Rig rig({.isServer = false});
    rig.command(Command::Kind::STREAM, 1);
    if (isAnswered) rig.send(frame(HEADERS, FLAG_END_HEADERS, 1, "\x88"));
    rig.send(data(1, "early"));
    const int application = rig.attach(1);
    rig.run();
    EQUAL(rig.sent(rst(1, PROTOCOL_ERROR)), !isAnswered);
    EQUAL(take(application), isAnswered ? "early" : "");
    EQUAL(rig.fault(), 1'000u);
    close(application);
  }
}

TEST(contentLength, "announced content must come in full, and no more") {
  for (const bool before : {true, false}) {
    for (const int64_t announced : {3, 4, 5}) {
      Rig rig;
      rig.send(OPEN_1);
      const auto body = [&] {
        rig.send(data(1, "1234", FLAG_END_STREAM));
        rig.run();
      };
      if (!before) body();
      rig.command(Command::Kind::EXPECT, 1, announced);
      if (before) body();
      EQUAL(rig.sent(rst(1, PROTOCOL_ERROR)), announced != 4);
    }
  }
}

TEST(padding, "padding is not content, and its window is given back") {
  Rig rig({.streamWindow = 1'000, .connectionWindow = 1 << 20});
  rig.send(OPEN_1);
  const int application = rig.attach(1);
  // A frame with a body of 5 bytes and padding of 200, nine times: more than the window if padding kept it.
  for (int round = 0; round < 9; round += 1) {
    rig.send(data(1, std::string("\xc8") + "hello" + std::string(200, 0), FLAG_PADDED));
    rig.run();
  }
  CHECK(take(application) == repeat("hello", 9));
  CHECK(rig.plain.find(frame(WINDOW_UPDATE, 0, 1, "").substr(3)) != std::string::npos);
  EQUAL(rig.listener->count(EventKind::ENDED), 0u);
  close(application);
}

TEST(lateData, "DATA on a stream that ended is refused, unless this side reset it") {
  Rig rig;
  rig.send(OPEN_1 + OPEN_3);
  rig.command(Command::Kind::RESET, 1, CANCEL);
  rig.send(rst(3, CANCEL) + data(1, "late") + data(3, "late"));
  rig.run();
  CHECK(!rig.sent(rst(1, STREAM_CLOSED)));
  CHECK(rig.sent(rst(3, STREAM_CLOSED)));
  EQUAL(rig.fault(), 1'000u);
}

TEST(manyResets, "the streams that this side has reset last are known, and their number is bounded") {
  Rig rig;
  const uint32_t last = 2 * MAX_REMEMBERED_STREAMS + 1;
  for (uint32_t id = 1; id <= last; id += 2) {
    rig.send(frame(HEADERS, FLAG_END_HEADERS, id, "\x82"));
    rig.command(Command::Kind::RESET, id, CANCEL);
  }
  rig.send(data(1, "late") + data(3, "late") + data(last, "late"));
  rig.run();
  CHECK(rig.sent(rst(1, STREAM_CLOSED)));
  CHECK(!rig.sent(rst(last, STREAM_CLOSED)));
  EQUAL(rig.fault(), 1'000u);
}

TEST(floods, "frames to no end and WINDOW_UPDATEs are limited") {
  const std::string idle[] = {frame(99, 0, 0, ""), data(1, ""), frame(WINDOW_UPDATE, 0, 1, number(1))};
  for (const std::string& each : idle) {
    Rig rig;
    rig.send(OPEN_1 + repeat(each, 9'000));
    rig.run();
    EQUAL(rig.fault(), 1'000u);
    for (int round = 0; round < 30 && rig.fault() == 1'000; round += 1) {
      rig.send(repeat(each, 9'000));
      rig.run();
    }
    EQUAL(rig.fault(), static_cast<uint64_t>(ENHANCE_YOUR_CALM));
  }
}

TEST(unreadAnswers, "a peer that reads nothing loses the link, not the memory") {
  Rig rig;
  rig.stalls = true;
  for (int round = 0; round < 20 && rig.fault() == 1'000; round += 1) {
    rig.control(repeat(frame(PING, 0, 0, "12345678"), 60'000));
  }
  EQUAL(rig.fault(), static_cast<uint64_t>(ENHANCE_YOUR_CALM));
}

TEST(deafReader, "without a reader of control frames the link is not read") {
  Rig rig;
  rig.listener->holdsBack = true;
  const std::string pings = repeat(frame(PING, 0, 0, "12345678"), 8'000);
  rig.send(pings);
  rig.send(pings);
  rig.run();
  rig.send(pings + pings);
  rig.run();
  const uint64_t read = rig.counts->bytesRead;
  rig.send(pings);
  rig.run();
  EQUAL(rig.counts->bytesRead.load(), read);
  CHECK(rig.counts->paused);
  // The reader catches up.
  rig.pump.handled(1, rig.counts.get(), rig.counts->waitingEvents, rig.counts->waitingBytes);
  rig.listener->holdsBack = false;
  rig.run();
  CHECK(rig.counts->bytesRead > read);
}

TEST(sendWindows, "no byte goes beyond the peer's windows, and SETTINGS change them") {
  Rig rig;
  rig.send(OPEN_1);
  rig.command(Command::Kind::PEER_SETTINGS, 0, 100, 16'384);
  const int application = rig.attach(1);
  CHECK(write(application, std::string(500, 'x').data(), 500) == 500);
  rig.run();
  CHECK(rig.plain.size() > 100 && rig.plain.size() < 200);
  const size_t before = rig.plain.size();
  rig.send(frame(WINDOW_UPDATE, 0, 1, number(50)));
  rig.run();
  EQUAL(rig.plain.size(), before + 59);
  // A smaller window makes the stream's negative.
  rig.command(Command::Kind::PEER_SETTINGS, 0, 20, 16'384);
  rig.send(frame(WINDOW_UPDATE, 0, 1, number(80)));
  rig.run();
  EQUAL(rig.plain.size(), before + 59);
  rig.send(frame(WINDOW_UPDATE, 0, 1, number(10)));
  rig.run();
  EQUAL(rig.plain.size(), before + 59 + 19);
  close(application);
}

TEST(connectionSendWindow, "a stream waits for the window of the connection, and goes on with it") {
  Rig rig;
  rig.send(OPEN_1 + frame(WINDOW_UPDATE, 0, 1, number(1 << 20)));
  const int application = rig.attach(1);
  const std::string body(100'000, 'y');
  CHECK(write(application, body.data(), body.size()) == static_cast<ssize_t>(body.size()));
  rig.run();
  const auto sent = [&rig] { return std::count(rig.plain.begin(), rig.plain.end(), 'y'); };
  EQUAL(sent(), DEFAULT_WINDOW);
  rig.send(frame(WINDOW_UPDATE, 0, 0, number(10'000)));
  rig.run();
  EQUAL(sent(), DEFAULT_WINDOW + 10'000);
  close(application);
}

TEST(frameSizes, "frames are as large as the peer takes, and end with the input") {
  Rig rig;
  rig.send(OPEN_1 + frame(WINDOW_UPDATE, 0, 0, number(1 << 20)) + frame(WINDOW_UPDATE, 0, 1, number(1 << 20)));
  rig.command(Command::Kind::PEER_SETTINGS, 0, DEFAULT_WINDOW, 20'000);
  const int application = rig.attach(1, "", "before ");
  const std::string body(50'000, 'y');
  CHECK(write(application, body.data(), body.size()) == static_cast<ssize_t>(body.size()));
  shutdown(application, SHUT_WR);
  rig.run();
  std::string got;
  bool ended = false;
  for (size_t at = 0; at + FRAME_HEADER_BYTES <= rig.plain.size();) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(rig.plain.data()) + at;
    const size_t length = readNumber(bytes) >> 8;
    if (bytes[3] == DATA) {
      CHECK(length <= 20'000);
      CHECK(!ended);
      ended = (bytes[4] & FLAG_END_STREAM) != 0;
      got.append(rig.plain, at + FRAME_HEADER_BYTES, length);
    }
    at += FRAME_HEADER_BYTES + length;
  }
  CHECK(got == "before " + body);
  CHECK(ended);
  close(application);
}

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
