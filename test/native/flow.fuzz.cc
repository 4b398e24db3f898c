// A peer that obeys the windows or not: the link never sends beyond its own, never holds more than it granted, and notices every breach.
#include <map>
#include <vector>

#include "support/input.h"
#include "support/peer.h"

using namespace carried;

namespace {

constexpr int64_t STREAM_WINDOW = 3'000;
constexpr int64_t CONNECTION_WINDOW = 70'000;

// The peer's view of the link's frames.
struct Ledger {
  int64_t connection = DEFAULT_WINDOW;
  int64_t initial = DEFAULT_WINDOW;
  std::map<uint32_t, int64_t> streams;
  std::map<uint32_t, int64_t> granted;
  int64_t grantedConnection = CONNECTION_WINDOW;
  size_t read = 0;

  // Takes the frames that the link has sent since.
  void take(const std::string& plain) {
    while (read + FRAME_HEADER_BYTES <= plain.size()) {
      const auto* header = reinterpret_cast<const uint8_t*>(plain.data()) + read;
      const uint32_t length = readNumber(header) >> 8;
      const uint32_t id = readNumber(header + 5);
      if (header[3] == DATA) {
        connection -= length;
        streams[id] -= length;
        hold(connection >= 0, "more than the connection's window");
        hold(length == 0 || streams[id] >= 0, "more than the stream's window");
      } else if (header[3] == WINDOW_UPDATE) {
        (id == 0 ? grantedConnection : granted[id]) += readNumber(header + FRAME_HEADER_BYTES);
        hold(granted[id] <= STREAM_WINDOW && grantedConnection <= CONNECTION_WINDOW, "more window than there is");
      }
      read += FRAME_HEADER_BYTES + length;
    }
  }
};

bool isEnded(const Rig& rig, uint32_t id) {
  return std::any_of(rig.listener->events.begin(), rig.listener->events.end(),
                     [id](const Event& event) { return event.kind == EventKind::ENDED && event.stream == id; });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  Input input(bytes, length);
  Rig rig({.streamWindow = STREAM_WINDOW, .connectionWindow = CONNECTION_WINDOW});
  Ledger ledger;
  std::vector<int> applications;
  uint32_t last = 0;
  while (!input.ended() && rig.gone() == nullptr && rig.fault() == 1'000 && applications.size() < 40) {
    const uint8_t choice = input.byte();
    const uint32_t id = last == 0 ? 1 : 1 + 2 * (input.byte() % ((last + 1) / 2));
    switch (choice % 8) {
      case 0:
      case 1:
        last = last == 0 ? 1 : last + 2;
        ledger.streams[last] = ledger.initial;
        ledger.granted[last] = STREAM_WINDOW;
        rig.send(frame(HEADERS, FLAG_END_HEADERS, last, "\x82"));
        applications.push_back(rig.attach(last));
        break;
      case 2: {
        if (last == 0) break;
        const std::string content(1 + (input.number() >> 20) % 4'000, 'x');
        const bool fits = static_cast<int64_t>(content.size()) <= ledger.granted[id] &&
                          static_cast<int64_t>(content.size()) <= ledger.grantedConnection;
        ledger.granted[id] -= static_cast<int64_t>(content.size());
        ledger.grantedConnection -= static_cast<int64_t>(content.size());
        rig.send(frame(DATA, 0, id, content));
        rig.run();
        hold(fits || isEnded(rig, id) || rig.fault() != 1'000, "a breach of a window went unnoticed");
        break;
      }
      case 3: {
        const uint32_t by = input.number() >> (input.byte() % 32);
        const bool isStream = choice % 16 >= 8 && last != 0;
        (isStream ? ledger.streams[id] : ledger.connection) += by & MAX_STREAM_ID;
        rig.send(frame(WINDOW_UPDATE, 0, isStream ? id : 0, number(by)));
        break;
      }
      case 4:
      case 5:
        if (!applications.empty()) {
          const std::string content(1 + (input.number() >> 18), 'y');
          [[maybe_unused]] const ssize_t got = ::send(applications[input.byte() % applications.size()], content.data(), content.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        break;
      case 6: {
        const auto window = static_cast<int64_t>(input.number() >> (8 + input.byte() % 23));
        for (auto& [stream, left] : ledger.streams) left += window - ledger.initial;
        ledger.initial = window;
        rig.run();
        ledger.take(rig.plain);
        rig.command(Command::Kind::PEER_SETTINGS, 0, window, DEFAULT_FRAME_SIZE);
        break;
      }
      default:
        if (!applications.empty()) takeCome(applications[input.byte() % applications.size()]);
    }
    rig.run();
    if (choice % 8 != 6) ledger.take(rig.plain);
    else ledger.read = rig.plain.size();
    hold(rig.counts->received <= STREAM_WINDOW * static_cast<int64_t>(applications.size()), "more held than granted");
  }
  for (const int fd : applications) close(fd);
  return 0;
}
