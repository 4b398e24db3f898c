// Any commands beside any frames: every stream ends once, every descriptor is closed, nothing stays held.
#include <vector>

#include "support/input.h"
#include "support/peer.h"

using namespace carried;

namespace {

std::string anyFrames(Input* input, uint32_t id) {
  const uint8_t flags = input->byte();
  switch (input->byte() % 8) {
    case 0:
      return frame(HEADERS, flags | FLAG_END_HEADERS, id, "\x82");
    case 1:
    case 2:
      return frame(DATA, flags & ~FLAG_PADDED, id, input->text(input->byte()));
    case 3:
      return frame(RST_STREAM, 0, id, number(input->byte() % 14));
    case 4:
      return frame(WINDOW_UPDATE, 0, flags % 2 == 0 ? 0 : id, number(1 + input->byte()));
    case 5:
      return frame(PING, 0, 0, "12345678");
    default:
      return frame(static_cast<uint8_t>(input->byte() % 12), flags, id, input->text(input->byte() % 16));
  }
}

// Offers one end of a pair to a stream, and returns the other.
int offer(Rig* rig, uint32_t id) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) abort();
  Command command{};
  command.kind = Command::Kind::OFFER;
  command.link = 1;
  command.stream = id;
  command.fd = ends[0];
  command.counts = std::make_shared<StreamCounts>();
  rig->pump.post(std::move(command));
  rig->run();
  return ends[1];
}

// As if JavaScript took all events that wait.
void catchUp(Rig* rig) {
  LinkCounts* counts = rig->counts.get();
  counts->heldTold = false;
  rig->pump.handled(1, counts, counts->waitingEvents, counts->waitingBytes, counts->received);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  Input input(bytes, length);
  std::shared_ptr<Recorder> listener;
  std::shared_ptr<LinkCounts> counts;
  std::vector<int> applications;
  {
    Options options;
    options.isServer = input.byte() % 2 == 0;
    options.rekeyRecords = input.byte() % 8;
    Rig rig(options);
    listener = rig.listener;
    counts = rig.counts;
    while (!input.ended() && applications.size() < 40) {
      const uint32_t id = 1 + input.byte() % 9;
      const uint8_t choice = input.byte();
      if (choice < 90) rig.send(anyFrames(&input, id));
      else if (choice < 120) applications.push_back(rig.attach(id, input.text(input.byte() % 8), input.text(input.byte() % 8)));
      else if (choice < 150 && !applications.empty()) {
        const int fd = applications[input.byte() % applications.size()];
        const std::string content = input.text(input.byte());
        if (choice < 140) [[maybe_unused]] const ssize_t got = ::send(fd, content.data(), content.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        else shutdown(fd, choice % 2 == 0 ? SHUT_WR : SHUT_RDWR);
      } else if (choice < 160) rig.control(anyFrames(&input, id));
      else if (choice < 165) rig.stalls = !rig.stalls;
      else if (choice < 180) applications.push_back(offer(&rig, id));
      else if (choice < 185) {
        // As its thread of JavaScript does with what it takes back.
        if (const int fd = rig.pump.recall(1, id); fd >= 0) resetAndClose(fd);
      } else if (choice < 190) {
        if (rig.listener->holdsBack) catchUp(&rig);
        rig.listener->holdsBack = !rig.listener->holdsBack;
      }
      else {
        static constexpr Command::Kind KINDS[] = {
            Command::Kind::STREAM, Command::Kind::END, Command::Kind::REMOTE_END, Command::Kind::EXPECT,
            Command::Kind::RESET, Command::Kind::PEER_SETTINGS, Command::Kind::WINDOWS, Command::Kind::PRESSURE,
            Command::Kind::REKEY, Command::Kind::RESUME, Command::Kind::STREAM, Command::Kind::JOIN,
            Command::Kind::FINISH};
        // A link that is told to finish takes part in little that follows.
        const size_t kinds = choice == 255 ? std::size(KINDS) : std::size(KINDS) - 1;
        const Command::Kind kind = KINDS[choice % kinds];
        int64_t first = input.byte();
        int64_t second = input.byte();
        if (kind == Command::Kind::PEER_SETTINGS) second = DEFAULT_FRAME_SIZE + second;
        if (kind == Command::Kind::WINDOWS) {
          first *= 1'000;
          second = DEFAULT_WINDOW + second * 1'000;
        }
        rig.command(kind, id, first, second);
      }
      rig.run();
    }
    if (rig.listener->holdsBack) catchUp(&rig);
    rig.listener->holdsBack = false;
    rig.command(Command::Kind::DESTROY);
    hold(rig.gone() != nullptr, "the link did not end");
    // Streams that only deliver outlive it, until nobody listens.
    Command abandon{};
    abandon.kind = Command::Kind::ABANDON;
    abandon.listener = rig.listener;
    rig.pump.post(std::move(abandon));
    rig.run();
    hold(rig.pump.counters.streams == 0 && rig.pump.counters.links == 0, "something is left");
  }
  hold(counts->received == 0 && counts->queued == 0, "something stays held");
  std::vector<uint32_t> ended;
  for (const Event& event : listener->events) {
    if (event.kind != EventKind::ENDED) continue;
    hold(std::find(ended.begin(), ended.end(), event.stream) == ended.end(), "a stream ended twice");
    ended.push_back(event.stream);
    // As JavaScript does with an offered socket that comes back.
    if (event.counts == nullptr) continue;
    if (const int fd = event.counts->unused.exchange(-1); fd >= 0) resetAndClose(fd);
  }
  hold(listener->count(EventKind::GONE) == 1, "the link did not end once");
  for (const int fd : applications) {
    // The other end is closed in every case.
    bool isEnded = false;
    int error = 0;
    take(fd, &isEnded, &error);
    hold(isEnded || error != 0, "a descriptor is left open");
    close(fd);
  }
  return 0;
}
