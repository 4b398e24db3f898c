// Two pumps with threads, joined by TCP: bytes with checksums, every command from several threads at once. For the thread sanitizer, and
// with `bench` as its argument the throughput of one session.
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <random>
#include <thread>

#include "support/check.h"
#include "support/peer.h"
#include "support/tcp.h"

using namespace carried;

namespace {

// One side of a session: takes its events on a thread of its own, as JavaScript does, and answers them.
class Side : public CarryListener, public std::enable_shared_from_this<Side> {
 public:
  Side(Pump* pump, uint32_t link, bool isServer) : pump_(pump), link_(link), isServer_(isServer) {}

  void begin(int fd, uint64_t rekeyRecords, Suite suite) {
    auto setup = std::make_unique<LinkSetup>();
    setup->fd = fd;
    setup->isServer = isServer_;
    fillSecrets(setup.get(), suite);
    setup->maxFrameSize = 1 << 20;
    setup->streamWindow = 4 << 20;
    setup->connectionWindow = 16 << 20;
    setup->rekeyRecords = rekeyRecords;
    setup->listener = shared_from_this();
    setup->counts = counts_ = std::make_shared<LinkCounts>();
    Command command{};
    command.kind = Command::Kind::LINK;
    command.link = link_;
    command.setup = std::move(setup);
    pump_->post(std::move(command));
    const std::string settings = frame(SETTINGS, 0, 0, std::string("\0\4\0\x40\0\0\0\5\0\x10\0\0", 12));
    control((isServer_ ? "" : PREFACE) + settings +
            frame(WINDOW_UPDATE, 0, 0, number((16 << 20) - DEFAULT_WINDOW)));
    pump_->wake();
    thread_ = std::thread([this] { loop(); });
  }
  void tell(Event&& event) override {
    const std::lock_guard<std::mutex> guard(mutex_);
    events_.push_back(std::move(event));
    wake_.notify_one();
  }
  void join() { thread_.join(); }

  void post(Command::Kind kind, uint32_t stream = 0, int64_t first = 0, int64_t second = 0) {
    Command command{};
    command.kind = kind;
    command.link = link_;
    command.stream = stream;
    command.first = first;
    command.second = second;
    pump_->post(std::move(command));
  }
  void control(const std::string& frames) {
    Command command{};
    command.kind = Command::Kind::CONTROL;
    command.link = link_;
    command.bytes = frames;
    pump_->queue(std::move(command));
  }
  void attach(uint32_t stream, int fd, Command::Kind kind = Command::Kind::ATTACH) {
    Command command{};
    command.kind = kind;
    command.link = link_;
    command.stream = stream;
    command.fd = fd;
    command.counts = std::make_shared<StreamCounts>();
    pump_->queue(std::move(command));
  }
  // Opens a stream for a socket, as a client: the answer joins them.
  void open(uint32_t stream, int fd) {
    post(Command::Kind::STREAM, stream);
    control(frame(HEADERS, FLAG_END_HEADERS, stream, "\x82"));
    attach(stream, fd, Command::Kind::OFFER);
    pump_->drive();
  }

  // Makes the socket of a stream that the peer opens.
  std::function<int(uint32_t)> dial;
  std::atomic<uint64_t> done{0}, ended{0}, faults{0}, held{0};
  std::atomic<bool> settled{false};

 private:
  void loop() {
    for (bool gone = false; !gone;) {
      std::deque<Event> events;
      {
        std::unique_lock<std::mutex> guard(mutex_);
        wake_.wait(guard, [this] { return !events_.empty(); });
        events.swap(events_);
      }
      for (Event& event : events) {
        const int64_t known = take(event);
        gone = gone || event.kind == EventKind::GONE;
        pump_->handled(link_, event.linkCounts.get(), 1, static_cast<uint32_t>(event.bytes.size()), known);
      }
      // Once for all commands of the turn, as JavaScript does.
      pump_->drive();
    }
  }
  // The received bytes that are known now.
  int64_t take(Event& event) {
    switch (event.kind) {
      case EventKind::CONTROL:
        for (size_t at = 0; at < event.bytes.size();) at += frameOf(event.bytes, at);
        break;
      case EventKind::ENDED:
        ended += 1;
        if (event.cause == static_cast<uint32_t>(StreamCause::DONE)) done += 1;
        break;
      case EventKind::FAULT:
        faults += 1;
        std::printf("  fault: %s\n", event.bytes.c_str());
        post(Command::Kind::DESTROY);
        break;
      case EventKind::HELD:
        event.linkCounts->heldTold = false;
        held += 1;
        return event.linkCounts->received;
      default:
        break;
    }
    return UNCHANGED;
  }
  size_t frameOf(const std::string& bytes, size_t at) {
    const auto* header = reinterpret_cast<const uint8_t*>(bytes.data()) + at;
    const uint32_t id = readNumber(header + 5);
    if (header[3] == SETTINGS && header[4] == 0) {
      post(Command::Kind::PEER_SETTINGS, 0, 4 << 20, 1 << 20);
      control(frame(SETTINGS, FLAG_ACK, 0, ""));
      settled = true;
    } else if (header[3] == HEADERS && isServer_) {
      control(frame(HEADERS, FLAG_END_HEADERS, id, "\x88"));
      attach(id, dial(id));
    } else if (header[3] == PING && header[4] == 0) {
      control(frame(PING, FLAG_ACK, 0, "12345678"));
    }
    return FRAME_HEADER_BYTES + (readNumber(header) >> 8);
  }

  Pump* const pump_;
  const uint32_t link_;
  const bool isServer_;
  std::shared_ptr<LinkCounts> counts_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Event> events_;
  std::thread thread_;
};

// Two pumps and a session between them.
struct Session {
  explicit Session(uint64_t rekeyRecords = 0, Suite suite = Suite::AES_128_GCM_SHA256)
      : client(std::make_shared<Side>(&near, 1, false)), server(std::make_shared<Side>(&far, 2, true)) {
    near.open(true);
    far.open(true);
    int ends[2];
    tcpPair(ends);
    server->dial = [](uint32_t) { return -1; };
    server->begin(ends[1], rekeyRecords, suite);
    client->begin(ends[0], rekeyRecords, suite);
  }
  void end() {
    client->post(Command::Kind::DESTROY);
    server->post(Command::Kind::DESTROY);
    client->join();
    server->join();
  }
  Pump near;
  Pump far;
  std::shared_ptr<Side> client;
  std::shared_ptr<Side> server;
};

void blocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK); }

// Numbers that tell a lost, repeated or moved byte.
uint8_t byteAt(uint64_t seed, uint64_t at) {
  return static_cast<uint8_t>((at * 2'654'435'761u + seed * 40'503u) >> 13);
}

void produce(int fd, uint64_t seed, uint64_t length, unsigned largest) {
  std::mt19937 random(static_cast<unsigned>(seed));
  std::vector<char> bytes(largest);
  for (uint64_t at = 0; at < length;) {
    const uint64_t part = std::min<uint64_t>(1 + random() % largest, length - at);
    for (uint64_t index = 0; index < part; index += 1) bytes[index] = static_cast<char>(byteAt(seed, at + index));
    for (uint64_t sent = 0; sent < part;) {
      const ssize_t got = ::send(fd, bytes.data() + sent, part - sent, MSG_NOSIGNAL);
      if (got <= 0) return;
      sent += static_cast<uint64_t>(got);
    }
    at += part;
  }
  shutdown(fd, SHUT_WR);
}

// Reads to the end; whether every byte was right.
bool consume(int fd, uint64_t seed, uint64_t length) {
  std::vector<char> bytes(65'536);
  uint64_t at = 0;
  for (;;) {
    const ssize_t got = recv(fd, bytes.data(), bytes.size(), 0);
    if (got <= 0) return got == 0 && at == length;
    for (ssize_t index = 0; index < got; index += 1, at += 1) {
      if (static_cast<uint8_t>(bytes[static_cast<size_t>(index)]) != byteAt(seed, at)) return false;
    }
  }
}

void until(const std::function<bool()>& condition) {
  for (int round = 0; round < 20'000 && !condition(); round += 1) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(condition());
}

}  // namespace

TEST(carries, "many streams carry both ways with every byte in its place, while keys change") {
  Session session(7, Suite::CHACHA20_POLY1305_SHA256);
  constexpr int STREAMS = 12;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  std::mutex mutex;
  std::map<uint32_t, int> farEnds;
  // Closed at the end: the thread that sends may not be done when the one that receives is.
  std::vector<int> nearEnds;
  session.server->dial = [&](uint32_t id) {
    int ends[2];
    tcpPair(ends);
    blocking(ends[0]);
    const std::lock_guard<std::mutex> guard(mutex);
    farEnds[id] = ends[0];
    const uint64_t length = 20'000 * (id % 7) * (id % 7) + 1;
    threads.emplace_back([fd = ends[0], id, length] { produce(fd, id + 100, length, 90'000); });
    threads.emplace_back([fd = ends[0], id, length, &right] { right += consume(fd, id, length) ? 1 : 0; });
    return ends[1];
  };
  for (uint32_t id = 1; id < 2 * STREAMS; id += 2) {
    int ends[2];
    tcpPair(ends);
    blocking(ends[0]);
    session.client->open(id, ends[1]);
    const uint64_t length = 20'000 * (id % 7) * (id % 7) + 1;
    const std::lock_guard<std::mutex> guard(mutex);
    threads.emplace_back([fd = ends[0], id, length] { produce(fd, id, length, id % 3 == 0 ? 100 : 50'000); });
    threads.emplace_back([fd = ends[0], id, length, &right] { right += consume(fd, id + 100, length) ? 1 : 0; });
    nearEnds.push_back(ends[0]);
  }
  until([&] { return session.client->done == STREAMS && session.server->done == STREAMS; });
  for (std::thread& thread : threads) thread.join();
  EQUAL(right.load(), 2 * STREAMS);
  for (const auto& [id, fd] : farEnds) close(fd);
  for (const int fd : nearEnds) close(fd);
  for (const Pump* pump : {&session.near, &session.far}) {
    CHECK(pump->counters.updatesRead > 5 && pump->counters.updatesWritten > 5);
  }
  EQUAL(session.client->faults + session.server->faults, 0u);
  session.end();
}

TEST(commands, "commands of several threads race with bytes, ends and the end of the link") {
  for (int round = 0; round < 3; round += 1) {
    Session session(50);
    session.server->dial = [](uint32_t id) {
      int ends[2];
      tcpPair(ends);
      // An application that answers and closes, cleanly or not.
      std::thread([fd = ends[0], id] {
        char bytes[4'096];
        for (int left = 20; left > 0 && recv(fd, bytes, sizeof bytes, MSG_DONTWAIT) != 0; left -= 1) {
          [[maybe_unused]] const ssize_t got = ::send(fd, bytes, sizeof bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
          std::this_thread::yield();
        }
        if (id % 3 == 0) resetAndClose(fd);
        else close(fd);
      }).detach();
      return ends[1];
    };
    std::vector<std::thread> threads;
    std::atomic<uint32_t> next{1};
    std::mutex order;
    for (int worker = 0; worker < 3; worker += 1) {
      threads.emplace_back([&, worker] {
        std::mt19937 random(static_cast<unsigned>(worker + 10 * round));
        for (int index = 0; index < 60; index += 1) {
          int ends[2];
          tcpPair(ends);
          uint32_t id = 0;
          {
            // Streams open in the order of their numbers.
            const std::lock_guard<std::mutex> guard(order);
            id = next.fetch_add(2);
            session.client->open(id, ends[1]);
          }
          [[maybe_unused]] const ssize_t got = ::send(ends[0], "question", 8, MSG_NOSIGNAL | MSG_DONTWAIT);
          switch (random() % 8) {
            case 0:
              session.client->post(Command::Kind::RESET, id, 8);
              break;
            case 1:
              session.server->post(Command::Kind::RESET, id, 2);
              break;
            case 2:
              session.client->post(Command::Kind::PRESSURE, 0, random() % 2);
              break;
            case 3:
              session.server->post(Command::Kind::REKEY, 0, random() % 2);
              break;
            case 4:
              session.client->control(frame(PING, 0, 0, "12345678"));
              break;
            case 5:
              if (const int fd = session.near.recall(1, id); fd >= 0) {
                resetAndClose(fd);
                session.client->post(Command::Kind::RESET, id, 8);
              }
              break;
            case 6:
              session.client->post(Command::Kind::JOIN, id);
              break;
            default:
              break;
          }
          if (random() % 2 == 0) resetAndClose(ends[0]);
          else close(ends[0]);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    if (round < 2) {
      until([&] { return session.client->ended == 180; });
      EQUAL(session.client->faults + session.server->faults, 0u);
    }
    session.end();
  }
}

namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Gbit/s of one session in one direction, streams in parallel.
void bench(int streams, Suite suite, const char* name) {
  Session session(0, suite);
  std::atomic<uint64_t> got{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::mutex mutex;
  session.server->dial = [&](uint32_t) {
    int ends[2];
    tcpPair(ends);
    blocking(ends[0]);
    const std::lock_guard<std::mutex> guard(mutex);
    threads.emplace_back([&, fd = ends[0]] {
      std::vector<char> bytes(1 << 20);
      for (ssize_t part = 0; (part = recv(fd, bytes.data(), bytes.size(), MSG_TRUNC)) > 0;) got += static_cast<uint64_t>(part);
      close(fd);
    });
    return ends[1];
  };
  until([&] { return session.client->settled && session.server->settled; });
  for (int index = 0; index < streams; index += 1) {
    int ends[2];
    tcpPair(ends);
    blocking(ends[0]);
    session.client->open(static_cast<uint32_t>(2 * index + 1), ends[1]);
    const std::lock_guard<std::mutex> guard(mutex);
    threads.emplace_back([&, fd = ends[0]] {
      const std::vector<char> bytes(1 << 20);
      while (!stop && ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) continue;
      close(fd);
    });
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double from = seconds();
  const uint64_t before = got;
  std::this_thread::sleep_for(std::chrono::seconds(3));
  const double rate = static_cast<double>(got - before) * 8 / (seconds() - from) / 1e9;
  std::printf("%s, %d streams: %.2f Gbit/s\n", name, streams, rate);
  stop = true;
  until([&] { return session.server->ended == static_cast<uint64_t>(streams); });
  for (std::thread& thread : threads) thread.join();
  session.end();
}

}  // namespace

int main(int count, char** values) {
  if (count > 1 && std::string(values[1]) == "bench") {
    bench(1, Suite::AES_128_GCM_SHA256, "AES-128-GCM");
    bench(8, Suite::AES_128_GCM_SHA256, "AES-128-GCM");
    bench(1, Suite::AES_256_GCM_SHA384, "AES-256-GCM");
    bench(1, Suite::CHACHA20_POLY1305_SHA256, "ChaCha20-Poly1305");
    return 0;
  }
  return check::main(count > 1 ? values[1] : nullptr);
}
