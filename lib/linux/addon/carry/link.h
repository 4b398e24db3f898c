// A tunnel's connection and its streams, on the thread of its pump. Nothing here is used by another thread, except the counts.
#pragma once

#include <sys/uio.h>

#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "events.h"
#include "flow.h"
#include "frame-cutter.h"
#include "tls-records.h"

namespace weft::carry {

class Pump;
class Link;

// Bytes of frames other than DATA that may wait for a peer that does not read.
constexpr size_t MAX_CONTROL_BYTES = 1 << 20;
// Plaintext that one turn of a link gathers, and its size while a small stream waits or the pod is pressed.
constexpr size_t BATCH_BYTES = 512 * 1024;
constexpr size_t SMALL_BATCH_BYTES = 16 * 1024;
constexpr size_t PRESSED_BATCH_BYTES = 16 * 1024;
// Two reads smaller than this mark a stream that waits for answers rather than for throughput.
constexpr size_t SMALL_READ_BYTES = 8'192;
constexpr uint64_t SMALL_BATCH_NS = 5'000'000;
// A stream's part of a batch while others wait.
constexpr size_t TURN_BYTES = 128 * 1024;
// Room below which a batch takes no further frame.
constexpr size_t MIN_FRAME_ROOM = 256;
// Frames that one read of a socket fills.
constexpr size_t FRAMES_PER_READ = 16;
// Streams that are remembered: reset ones, to tell late frames from wrong ones, and ended ones, which must not be reset.
constexpr size_t MAX_REMEMBERED_STREAMS = 1'000;
// Change of held bytes that is reported.
constexpr int64_t REPORT_BYTES = 16'384;
// Bytes held for slow readers that JavaScript does not know of: those of one link, and of all links of a pump. A link above the
// first is not read while the second is exceeded, or while a quarter of its own window is unknown.
constexpr int64_t MAX_UNKNOWN_BYTES = 256 * 1024;
constexpr int64_t MAX_UNKNOWN_BYTES_OF_ALL = 8 << 20;
// Unread bytes that are discarded before the close of a socket, so that its peer gets all bytes sent to it.
constexpr size_t DISCARD_BYTES = 1 << 20;

// Pieces that one call writes.
constexpr size_t IOV_MAX_COUNT = 1'024;

// Closes a socket so that its peer sees a reset.
void resetAndClose(int fd);

// Something that epoll reports.
struct Source {
  enum class Kind : uint8_t { WAKE, LINK, STREAM } kind;
  explicit Source(Kind sourceKind) : kind(sourceKind) {}
};

// The pieces of one batch that wait to be written to a stream's socket. Lent by the pump for the batch only.
using Pieces = std::vector<iovec>;

// One stream, with its application socket once it is attached.
class Stream : public Source {
 public:
  Stream(Link* link, uint32_t id, int64_t sendWindow, int64_t receiveWindow);
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  // Joins the stream with this socket once the peer has answered 200, or join() is called. Until then the stream only keeps it.
  void offer(int fd, std::shared_ptr<StreamCounts> counts);
  void join();
  bool offered() const { return offered_ >= 0; }
  // Gives the offered socket back; -1 when it has none, or is joined.
  int recall();
  // Takes the socket, on which nothing is delayed, and the bytes of the command; 0, or an errno with the socket reset.
  int attach(int fd, Command* command);
  // Has the pump report its socket from now on.
  void watch();
  void notice(uint32_t events);

  // A piece of DATA that lies in the pump's scratch until `flush`.
  void take(uint8_t* bytes, size_t length);
  // Writes the pieces of this batch to the socket; keeps what it does not take.
  void flush();
  // The peer's END_STREAM has come, and counts.
  void remoteEnd();
  // The peer's RST_STREAM has come.
  void peerReset(uint32_t code);
  // Ends the stream, with a RST_STREAM of `code`.
  void reset(StreamCause cause, uint32_t code, int error = 0);
  // Ends the stream without a frame. `cut`: the application must not see a clean end.
  void finish(StreamCause cause, uint32_t code, int error, bool cut);
  // Content-length: announced bytes that are still to come.
  void expect(int64_t bytes);
  // Ends our direction, whose END_STREAM is in other frames.
  void localEnd();
  // Changes the send window; false beyond its maximum.
  bool grow(int64_t by);

  // Counts padding as read.
  void discard(size_t bytes) { consumed(bytes); }
  void resizeWindow(int64_t size);

  // Moves bytes of the socket as DATA frames to `out`, which has room for `space`; the bytes written.
  size_t fill(uint8_t* out, size_t space);
  // Whether a turn may send something.
  bool sendable() const;
  // Whether a turn is of use without the connection's window.
  bool probes() const { return probe_ && headSent_ == head_.size(); }
  bool dead() const { return dead_; }
  bool isOver() const { return over_; }
  // Both directions have ended, and the listener knows it; only bytes for the socket are left.
  bool delivers() const { return delivers_ && !dead_; }
  bool attached() const { return fd_ >= 0; }

  const uint32_t id;
  StreamWindow receiveWindow;
  // A header list of the peer has come; DATA may follow only then (RFC 9113 §8.1).
  bool headed = false;
  // END_STREAM has come; JavaScript decides whether one on HEADERS counts.
  bool remoteEnded = false;
  bool localEnded = false;
  // The last reads were small: it waits for answers rather than for throughput, and goes first.
  bool quick = true;
  // In one of the link's rows of streams to serve, or in the pump's list of streams to flush.
  bool inRow = false;
  bool inFlush = false;
  // Content that has come.
  int64_t content = 0;

 private:
  int64_t window() const;
  size_t fillHead(uint8_t* out, size_t space);
  size_t fillSocket(uint8_t* out, size_t space);
  size_t ended(uint8_t* out);
  void sent(size_t bytes);
  void endSent();
  void writeFailed(int error);
  // The next of the application's input.
  enum class Next { BYTES, NOTHING, END, FAILURE };
  Next look();
  bool writePending();
  void full();
  void flushPieces();
  void writePieces();
  void keepPieces(size_t from);
  void dropSent();
  void dropPieces();
  void dropPending();
  void consumed(size_t bytes);
  void settle();
  void closeSocket(bool reset);
  void wrote(size_t bytes);

  Link* const link_;
  int fd_ = -1;
  int offered_ = -1;
  int64_t sendWindow_;
  bool readable_ = false;
  // Whether the last read was small, as that of a new stream probably is.
  bool wasSmall_ = true;
  // Urgent data waits: a read ends at its mark, although more may be behind it.
  bool urgent_ = false;
  bool writable_ = false;
  // Whether the pump reports that the socket takes more.
  bool reportsRoom_ = false;
  // The kernel has announced the end of the input, or a failure.
  bool ending_ = false;
  // The socket takes no more bytes.
  bool unwritable_ = false;
  bool shut_ = false;
  bool dead_ = false;
  // The end of the peer's direction is to be delivered.
  bool endKnown_ = false;
  // Whether only the end may be left to read; looked at even without a window.
  bool probe_ = false;
  // The first failure of the socket; its input does not end cleanly then.
  int failure_ = 0;
  // The peer has reset the stream after its END_STREAM; what waits is still delivered.
  bool over_ = false;
  bool delivers_ = false;
  // The kernel has announced a reset, once and for all.
  bool hungUp_ = false;
  // The listener waits for our END_STREAM.
  bool tellsEnd_ = false;
  uint32_t overCode_ = 0;
  // Content that the peer has announced, -1 without.
  int64_t announced_ = -1;
  // Bytes read from the socket before it was attached.
  std::string head_;
  size_t headSent_ = 0;
  // Bytes that wait for the socket. The first part is not the stream's and is not counted.
  std::string pending_;
  size_t pendingSent_ = 0;
  size_t foreign_ = 0;
  Pieces* pieces_ = nullptr;
  std::shared_ptr<StreamCounts> counts_;
};

// The last streams of some kind, up to MAX_REMEMBERED_STREAMS.
class RecentStreams {
 public:
  void add(uint32_t id);
  bool has(uint32_t id) const;

 private:
  std::vector<uint32_t> ids_;
  size_t next_ = 0;
};

// One connection.
class Link : public Source, private FrameSink {
 public:
  Link(Pump* pump, uint32_t number, LinkSetup* setup);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  // Takes the keys of the setup and its bytes; false when OpenSSL refuses.
  bool open(LinkSetup* setup);
  void notice(uint32_t events);
  // One turn: reads, writes, reports. True when there is more to do at once.
  bool serve();
  void obey(Command* command);
  // Ends the link and its streams. Streams that only deliver bytes go on without it.
  void destroy(LinkCause cause, uint64_t detail = 0, int error = 0);
  void abandon();

  // Puts frames into the row of frames other than DATA.
  void control(const char* frames, size_t length);
  void numberFrame(uint8_t type, uint32_t id, uint32_t number);
  void ready(Stream* stream);
  void forget(Stream* stream, Event&& end);
  // OVER: no further frame concerns the stream, but bytes for its socket are left. END_SENT: our END_STREAM is on its way.
  void tellOf(EventKind kind, uint32_t stream, int64_t code = 0);
  // Late frames of the stream are in order.
  void rememberReset(uint32_t id);
  // A DATA frame was sent.
  void sentData(size_t bytes);
  void hold(int64_t received, int64_t queued);
  void flushLater(Stream* stream);

  // Takes back the socket that was offered to a stream; -1 when it is joined, or was given back.
  int recall(uint32_t id);

  bool dead() const { return dead_; }
  bool isServer() const { return isServer_; }
  Pump* pump() const { return pump_; }
  uint32_t number() const { return number_; }
  uint32_t peerFrameSize() const { return peerFrameSize_; }
  int64_t sendWindow() const { return sendWindow_; }
  void sawSmallRead();
  const std::shared_ptr<CarryListener>& listener() const { return listener_; }
  size_t streams() const { return streams_.size(); }
  // In the pump's list of links to serve.
  bool queued = false;

 private:
  Fault dataBegins(const FrameHeader& header) override;
  void data(uint8_t* bytes, size_t length) override;
  Fault dataEnds(const FrameHeader& header, size_t content) override;
  Fault windowUpdate(uint32_t id, uint32_t increment) override;
  Fault control(const FrameHeader& header, const uint8_t* frame) override;
  Fault headersEnd(uint32_t id, bool endStream) override;
  Fault unknown() override;

  void read();
  void takeCiphertext(uint8_t* bytes, size_t length);
  void takePlain(uint8_t* bytes, size_t length);
  bool takeRecord(const Opened& opened);
  void fail(Fault fault);
  void refuseRecord(uint8_t alert);
  void flushStreams();
  void releaseConnection();
  bool isUnknown(int64_t limit);
  bool isUnheard();
  void countUnknown();
  bool isWithheld();
  void unblock();
  Fault idle();
  Fault stray(uint32_t id);
  bool isIdle(uint32_t id) const;
  Stream* find(uint32_t id);
  void openStream(uint32_t id);
  void resetStream(uint32_t id, uint32_t code);
  void join(uint32_t id);
  void endStreams();
  void attach(Command* command);
  void peerSettings(int64_t window, uint32_t frameSize);
  void resizeWindows(int64_t stream, int64_t connection);

  void write();
  size_t gather(uint8_t* plain);
  size_t gatherControl(uint8_t* plain, size_t space);
  size_t gatherData(uint8_t* plain, size_t space);
  bool rowsEmpty() const { return quickRow_.empty() && row_.empty(); }
  void enqueue(Stream* stream);
  bool seal(const uint8_t* plain, size_t length);
  bool send(const uint8_t* bytes, size_t length);
  bool sendRest();
  void sendFailed(int error);
  bool outputWaits() const;
  void close();
  size_t batch() const;

  void tell(EventKind kind, Event&& event);
  void tellControl();
  bool waitsForReader();
  void report();

  Pump* const pump_;
  const uint32_t number_;
  const bool isServer_;
  const bool isPlain_;
  const int fd_;
  RecordReader reader_;
  RecordWriter writer_;
  FrameCutter cutter_;
  ConnectionWindow connectionWindow_;
  int64_t streamWindow_;
  int64_t sendWindow_ = DEFAULT_WINDOW;
  int64_t peerWindow_ = DEFAULT_WINDOW;
  uint32_t peerFrameSize_ = DEFAULT_FRAME_SIZE;
  Budget idle_;
  Budget windowUpdates_;
  std::unordered_map<uint32_t, std::unique_ptr<Stream>> streams_;
  // The highest stream that a client has opened.
  uint32_t lastOpened_ = 0;
  // Streams that this side has reset.
  RecentStreams resets_;
  // Streams that have ended in both directions; JavaScript may reset them before it knows.
  RecentStreams finished_;
  // The stream of the DATA frame that is arriving, null when nobody takes it.
  Stream* reading_ = nullptr;
  // Streams with something to send, the quick ones apart, and those that wait for the connection's window.
  std::deque<Stream*> quickRow_;
  std::deque<Stream*> row_;
  std::deque<Stream*> blocked_;
  std::vector<Stream*> toFlush_;
  // Frames other than DATA that wait to be sent.
  std::string controlOut_;
  size_t controlSent_ = 0;
  // Ciphertext that the socket did not take.
  std::string rest_;
  size_t restSent_ = 0;
  // The beginning of a record whose end has not come.
  std::string partial_;
  // Frames for the listener.
  std::string controlIn_;
  int64_t heldReceived_ = 0;
  int64_t heldQueued_ = 0;
  int64_t reportedReceived_ = 0;
  int64_t reportedQueued_ = 0;
  // The received bytes that JavaScript knows of.
  int64_t knownReceived_ = 0;
  // This link's part of the pump's unknown bytes.
  int64_t countedUnknown_ = 0;
  bool mustReport_ = false;
  uint64_t smallReadNs_ = 0;
  bool readable_ = true;
  // The peer has ended its output, or the socket has failed; no further event tells of it.
  bool ending_ = false;
  bool writable_ = true;
  bool pressed_ = false;
  // Not read until JavaScript knows of more, or sockets have taken more.
  bool waits_ = false;
  // A breach has ended the input; what comes is discarded.
  bool deaf_ = false;
  bool finishing_ = false;
  bool closeSent_ = false;
  bool rekey_ = false;
  bool askRekey_ = false;
  bool dead_ = false;
  // The listener knows of the end.
  bool closed_ = false;
  // Too much waits for a peer that does not read.
  bool overflows_ = false;
  int sendError_ = 0;
  uint64_t readUpdates_ = 0;
  std::shared_ptr<CarryListener> listener_;
  std::shared_ptr<LinkCounts> counts_;
};

}  // namespace weft::carry
