// Cuts the bytes of a connection into frames (RFC 9113 §4), however they arrive.
#pragma once

#include <string>

#include "h2-frames.h"

namespace weft::carry {

// Receives the frames. A fault that it returns ends the cutting.
class FrameSink {
 public:
  virtual ~FrameSink() = default;
  // A DATA frame begins; its length counts the padding.
  virtual Fault dataBegins(const FrameHeader& header) = 0;
  // A piece of its content. It is valid until the caller of `push` returns.
  virtual void data(uint8_t* bytes, size_t length) = 0;
  // It is over; `content` is its length without padding.
  virtual Fault dataEnds(const FrameHeader& header, size_t content) = 0;
  virtual Fault windowUpdate(uint32_t id, uint32_t increment) = 0;
  // A whole frame of another known type with its header; valid during the call.
  virtual Fault control(const FrameHeader& header, const uint8_t* frame) = 0;
  // A header block is complete.
  virtual Fault headersEnd(uint32_t id, bool endStream) = 0;
  // A frame of an unknown type begins, which is skipped.
  virtual Fault unknown() = 0;
};

struct FrameLimits {
  uint32_t maxFrameSize;
  // Limit of one HEADERS or CONTINUATION frame.
  uint32_t maxBlockBytes;
};

class FrameCutter {
 public:
  // A server's input begins with the preface.
  FrameCutter(FrameSink* sink, FrameLimits limits, bool awaitsPreface);

  // Takes the next bytes. After a fault none may follow.
  Fault push(uint8_t* bytes, size_t length);

 private:
  enum class Stage { PREFACE, HEADER, PAYLOAD, PAD_LENGTH, CONTENT, SKIP };

  Fault preface(const uint8_t* bytes, size_t length, size_t* at);
  Fault header(uint8_t* bytes, size_t length, size_t* at);
  Fault payload(const uint8_t* bytes, size_t length, size_t* at);
  Fault content(uint8_t* bytes, size_t length, size_t* at);
  Fault skip(size_t length, size_t* at);
  Fault padLength(uint8_t count);
  Fault begin();
  Fault checkLength() const;
  Fault checkOrder() const;
  Fault complete(const uint8_t* frame);
  Fault contentDone();
  Fault dataDone();

  FrameSink* const sink_;
  const FrameLimits limits_;
  Stage stage_;
  FrameHeader header_;
  uint8_t raw_[FRAME_HEADER_BYTES] = {};
  size_t filled_ = 0;
  // Bytes of content, padding or a skipped frame still to come.
  uint32_t left_ = 0;
  uint32_t padding_ = 0;
  uint32_t content_ = 0;
  // A frame that arrives in pieces, with its header.
  std::string partial_;
  // Whether the peer's SETTINGS have come.
  bool greeted_ = false;
  // The stream of an unfinished header block, 0 without one.
  uint32_t blockOf_ = 0;
  bool blockEndsStream_ = false;
};

}  // namespace weft::carry
