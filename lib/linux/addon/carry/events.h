// The border between the pump threads and their users: commands in, events out. Nothing here knows JavaScript.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "tls-keys.h"

namespace weft::carry {

enum class EventKind : uint8_t { CONTROL, ENDED, FAULT, GONE, HELD, OVER, REMOTE_END, END_SENT };

// The way a stream ended.
enum class StreamCause : uint8_t { DONE, PEER_RESET, SOCKET, UNREAD, CUT, BROKE, LINK };

// The way a link ended.
enum class LinkCause : uint8_t { CLOSED, TRUNCATED, SOCKET, PEER_ALERT, TLS_FAULT, DESTROYED, INTERNAL };

// Flags of an ended stream.
constexpr uint32_t PEER_ENDED = 1;
constexpr uint32_t WE_ENDED = 2;
constexpr uint32_t WAS_ATTACHED = 4;

// Bytes and times of one stream; any thread reads them.
struct StreamCounts {
  std::atomic<uint64_t> fromSocket{0};
  std::atomic<uint64_t> fromStream{0};
  // By CLOCK_MONOTONIC; 0 before the first byte.
  std::atomic<uint64_t> firstFromSocketNs{0};
  std::atomic<uint64_t> firstFromStreamNs{0};
  // Set before the socket ends in any way but a clean one.
  std::atomic<bool> broken{false};
  // The socket that was offered to a stream which ended without it; -1 without one.
  std::atomic<int> unused{-1};

  StreamCounts() = default;
  StreamCounts(const StreamCounts&) = delete;
  StreamCounts& operator=(const StreamCounts&) = delete;
  // Resets the unused socket if nobody took it back.
  ~StreamCounts();
};

// The part of a link that other threads read.
struct LinkCounts {
  std::atomic<uint64_t> bytesRead{0};
  // Bytes held now: to be sent, and received but not taken by sockets.
  std::atomic<int64_t> queued{0};
  std::atomic<int64_t> received{0};
  // A HELD event waits to be delivered; it reads the two numbers then.
  std::atomic<bool> heldTold{false};
  // Events that wait to be delivered, and their bytes. At a limit the link is not read.
  std::atomic<uint32_t> waitingEvents{0};
  std::atomic<uint32_t> waitingBytes{0};
  std::atomic<bool> paused{false};
};

// What 500 new streams a second tell while their thread is busy for two seconds.
constexpr uint32_t MAX_WAITING_EVENTS = 4'096;
constexpr uint32_t MAX_WAITING_BYTES = 256 * 1'024;

struct Event {
  EventKind kind;
  uint32_t link = 0;
  uint32_t stream = 0;
  // A StreamCause, LinkCause or type of a frame.
  uint32_t cause = 0;
  // An error code or alert; of OVER, the code of the peer's RST_STREAM or -1.
  uint64_t code = 0;
  int error = 0;
  uint32_t flags = 0;
  // Frames of a CONTROL, the text of a FAULT.
  std::string bytes;
  std::shared_ptr<StreamCounts> counts;
  std::shared_ptr<LinkCounts> linkCounts;
};

// Receives events, on a pump's thread, in the order in which they happen.
class CarryListener {
 public:
  virtual ~CarryListener() = default;
  virtual void tell(Event&& event) = 0;
};

struct LinkSetup {
  int fd = -1;
  bool isServer = false;
  Suite suite = Suite::AES_128_GCM_SHA256;
  // No records: the other end of a local socket encrypts. Secrets, sequences, `unread` and `received` are unused then.
  bool isPlain = false;
  uint8_t readSecret[MAX_SECRET_BYTES] = {};
  uint8_t writeSecret[MAX_SECRET_BYTES] = {};
  size_t secretBytes = 0;
  uint64_t readSequence = 0;
  uint64_t writeSequence = 0;
  // Ciphertext that was read already, and content that was decrypted already.
  std::string unread;
  std::string received;
  uint32_t maxFrameSize = 16'384;
  uint32_t maxBlockBytes = 65'536;
  int64_t streamWindow = 65'535;
  int64_t connectionWindow = 65'535;
  uint64_t rekeyRecords = 0;
  std::shared_ptr<CarryListener> listener;
  std::shared_ptr<LinkCounts> counts;

  LinkSetup() = default;
  LinkSetup(const LinkSetup&) = delete;
  LinkSetup& operator=(const LinkSetup&) = delete;
  // Zeroes the secrets; closes nothing.
  ~LinkSetup();
};

// A number that stays as it was.
constexpr int64_t UNCHANGED = -1;

struct Command {
  enum class Kind : uint8_t {
    LINK, CONTROL, STREAM, ATTACH, OFFER, JOIN, END, REMOTE_END, EXPECT, RESET, PEER_SETTINGS, WINDOWS, PRESSURE,
    REKEY, FINISH, DESTROY, RESUME, ABANDON, STOP,
  };
  Kind kind;
  uint32_t link = 0;
  uint32_t stream = 0;
  // Window sizes, an error code, a length or a flag; of ATTACH, whether END_SENT is to be told; of RESUME, the
  // received bytes that JavaScript knows of, or UNCHANGED.
  int64_t first = 0;
  int64_t second = 0;
  int fd = -1;
  // Frames, or the bytes that go to the socket first.
  std::string bytes;
  // The bytes that were read from the socket.
  std::string read;
  std::shared_ptr<StreamCounts> counts;
  std::unique_ptr<LinkSetup> setup;
  std::shared_ptr<CarryListener> listener;
};

}  // namespace weft::carry
