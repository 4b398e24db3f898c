// Any bytes, cut in two ways: both give the same frames and the same fault.
#include "support/input.h"
#include "support/peer.h"

using namespace carried;

namespace {

// Writes down what it receives, and sums up contents as they are.
class Log : public FrameSink {
 public:
  Fault dataBegins(const FrameHeader& header) override {
    hold(header.id != 0 && header.length <= LIMITS.maxFrameSize, "a wrong DATA");
    note("begin", header.id, header.length);
    left = header.length;
    return {};
  }
  void data(uint8_t* bytes, size_t length) override {
    hold(length <= left, "more content than the frame");
    left -= static_cast<uint32_t>(length);
    text.append(reinterpret_cast<char*>(bytes), length);
  }
  Fault dataEnds(const FrameHeader& header, size_t content) override {
    hold(content <= header.length, "more content than the frame");
    note("end", header.id, static_cast<uint32_t>(content));
    return {};
  }
  Fault windowUpdate(uint32_t id, uint32_t increment) override {
    note("window", id, increment);
    return {};
  }
  Fault control(const FrameHeader& header, const uint8_t* frame) override {
    hold(header.type != DATA && header.type != WINDOW_UPDATE && header.type < KNOWN_FRAME_TYPES, "a wrong type");
    hold(header.length <= LIMITS.maxFrameSize, "a frame that is too long");
    text.append(reinterpret_cast<const char*>(frame), FRAME_HEADER_BYTES + header.length);
    return {};
  }
  Fault headersEnd(uint32_t id, bool endStream) override {
    note("headers", id, endStream ? 1 : 0);
    return {};
  }
  Fault unknown() override {
    note("unknown", 0, 0);
    return {};
  }
  std::string text;

  static constexpr FrameLimits LIMITS = {16'384, 8'192};

 private:
  void note(const char* what, uint32_t id, uint32_t value) {
    text += std::string(what) + " " + std::to_string(id) + " " + std::to_string(value) + "\n";
  }
  uint32_t left = 0;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  if (length == 0) return 0;
  const bool isServer = bytes[0] % 4 == 0;
  const size_t step = 1 + bytes[0] / 16;
  std::string whole(reinterpret_cast<const char*>(bytes) + 1, length - 1);
  // Most inputs begin as a peer does.
  if (bytes[0] % 2 == 0) whole = (isServer ? PREFACE : "") + frame(SETTINGS, 0, 0, "") + whole;
  std::string copy = whole;
  Log once;
  FrameCutter first(&once, Log::LIMITS, isServer);
  const Fault fault = first.push(reinterpret_cast<uint8_t*>(whole.data()), whole.size());
  Log pieces;
  FrameCutter second(&pieces, Log::LIMITS, isServer);
  Fault other;
  for (size_t at = 0; at < copy.size() && !other; at += step) {
    other = second.push(reinterpret_cast<uint8_t*>(copy.data()) + at, std::min(step, copy.size() - at));
  }
  hold(once.text == pieces.text, "frames depend on how they arrive");
  hold(fault.text == other.text && fault.code == other.code, "the fault depends on how it arrives");
  return 0;
}
