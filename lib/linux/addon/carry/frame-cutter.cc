#include "frame-cutter.h"

#include <algorithm>
#include <cstring>

namespace weft::carry {

namespace {
const char PREFACE[] = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
}  // namespace

FrameCutter::FrameCutter(FrameSink* sink, FrameLimits limits, bool awaitsPreface)
    : sink_(sink), limits_(limits), stage_(awaitsPreface ? Stage::PREFACE : Stage::HEADER) {}

Fault FrameCutter::push(uint8_t* bytes, size_t length) {
  size_t at = 0;
  while (at < length) {
    Fault fault;
    switch (stage_) {
      case Stage::HEADER:
        fault = header(bytes, length, &at);
        break;
      case Stage::CONTENT:
        fault = content(bytes, length, &at);
        break;
      case Stage::PAYLOAD:
        fault = payload(bytes, length, &at);
        break;
      case Stage::PAD_LENGTH:
        fault = padLength(bytes[at++]);
        break;
      case Stage::SKIP:
        fault = skip(length, &at);
        break;
      case Stage::PREFACE:
        fault = preface(bytes, length, &at);
        break;
    }
    if (fault) return fault;
  }
  return {};
}

Fault FrameCutter::preface(const uint8_t* bytes, size_t length, size_t* at) {
  const size_t part = std::min(PREFACE_BYTES - filled_, length - *at);
  if (memcmp(PREFACE + filled_, bytes + *at, part) != 0) {
    return {"does not speak HTTP/2", PROTOCOL_ERROR};
  }
  filled_ += part;
  *at += part;
  if (filled_ == PREFACE_BYTES) {
    filled_ = 0;
    stage_ = Stage::HEADER;
  }
  return {};
}

Fault FrameCutter::header(uint8_t* bytes, size_t length, size_t* at) {
  const size_t part = std::min(FRAME_HEADER_BYTES - filled_, length - *at);
  const uint8_t* whole = part == FRAME_HEADER_BYTES ? bytes + *at : nullptr;
  memcpy(raw_ + filled_, bytes + *at, part);
  filled_ += part;
  *at += part;
  if (filled_ < FRAME_HEADER_BYTES) return {};
  filled_ = 0;
  header_.length = readNumber(raw_) >> 8;
  header_.type = raw_[3];
  header_.flags = raw_[4];
  header_.id = readNumber(raw_ + 5) & MAX_STREAM_ID;
  if (const Fault fault = begin()) return fault;
  // A frame that lies whole in memory is passed on from there.
  if (stage_ != Stage::PAYLOAD) return {};
  if (whole != nullptr && length - *at >= header_.length) {
    *at += header_.length;
    stage_ = Stage::HEADER;
    return complete(whole);
  }
  partial_.assign(reinterpret_cast<const char*>(raw_), sizeof raw_);
  return header_.length == 0 ? payload(bytes, *at, at) : Fault{};
}

Fault FrameCutter::begin() {
  if (const Fault fault = checkLength()) return fault;
  if (const Fault fault = checkOrder()) return fault;
  left_ = header_.length;
  padding_ = 0;
  content_ = 0;
  if (header_.type >= KNOWN_FRAME_TYPES) {
    if (left_ > 0) stage_ = Stage::SKIP;
    return sink_->unknown();
  }
  if (header_.type != DATA) {
    stage_ = Stage::PAYLOAD;
    return {};
  }
  if (header_.id == 0) return {"sent DATA without a stream", PROTOCOL_ERROR};
  const bool isPadded = (header_.flags & FLAG_PADDED) != 0;
  if (isPadded && left_ == 0) return {"sent padded DATA without a pad length", FRAME_SIZE_ERROR};
  if (const Fault fault = sink_->dataBegins(header_)) return fault;
  stage_ = isPadded ? Stage::PAD_LENGTH : Stage::CONTENT;
  return left_ == 0 ? dataDone() : Fault{};
}

Fault FrameCutter::checkLength() const {
  const uint32_t length = header_.length;
  if (length > limits_.maxFrameSize) return {"sent a frame larger than agreed", FRAME_SIZE_ERROR};
  switch (header_.type) {
    case HEADERS:
    case CONTINUATION:
      if (length > limits_.maxBlockBytes) {
        return {"sent too many bytes of headers in one frame", ENHANCE_YOUR_CALM};
      }
      break;
    case PRIORITY:
      if (length > MAX_GOAWAY_BYTES) return {"sent a PRIORITY of a wrong length", FRAME_SIZE_ERROR};
      break;
    case RST_STREAM:
      if (length != 4) return {"sent a RST_STREAM of a wrong length", FRAME_SIZE_ERROR};
      break;
    case WINDOW_UPDATE:
      if (length != 4) return {"sent a WINDOW_UPDATE of a wrong length", FRAME_SIZE_ERROR};
      break;
    case PING:
      if (length != 8) return {"sent a PING of a wrong length", FRAME_SIZE_ERROR};
      break;
    case SETTINGS:
      if (length % 6 != 0) return {"sent SETTINGS of a wrong length", FRAME_SIZE_ERROR};
      if (length > 6 * MAX_SETTINGS_PER_FRAME) {
        return {"sent too many settings at once", ENHANCE_YOUR_CALM};
      }
      break;
    case GOAWAY:
      if (length < 8) return {"sent a GOAWAY of a wrong length", FRAME_SIZE_ERROR};
      if (length > MAX_GOAWAY_BYTES) return {"sent a GOAWAY that is too long", ENHANCE_YOUR_CALM};
      break;
    default:
      break;
  }
  return {};
}

Fault FrameCutter::checkOrder() const {
  const bool continues = header_.type == CONTINUATION;
  if (blockOf_ != 0 && (!continues || header_.id != blockOf_)) {
    return {"sent a frame inside a header block", PROTOCOL_ERROR};
  }
  if (blockOf_ == 0 && continues) {
    return {"sent a CONTINUATION without HEADERS", PROTOCOL_ERROR};
  }
  const bool greets = header_.type == SETTINGS && (header_.flags & FLAG_ACK) == 0;
  if (!greeted_ && !greets) return {"sent a frame before its SETTINGS", PROTOCOL_ERROR};
  // No side accepts it. Its bytes, up to the size of a frame, must not be gathered first.
  if (header_.type == PUSH_PROMISE) return {"sent a PUSH_PROMISE", PROTOCOL_ERROR};
  return {};
}

Fault FrameCutter::payload(const uint8_t* bytes, size_t length, size_t* at) {
  const size_t wanted = FRAME_HEADER_BYTES + header_.length - partial_.size();
  const size_t part = std::min(wanted, length - *at);
  partial_.append(reinterpret_cast<const char*>(bytes + *at), part);
  *at += part;
  if (part < wanted) return {};
  stage_ = Stage::HEADER;
  const Fault fault = complete(reinterpret_cast<const uint8_t*>(partial_.data()));
  // Idle connections keep no memory for it.
  partial_ = std::string();
  return fault;
}

Fault FrameCutter::complete(const uint8_t* frame) {
  const uint8_t* body = frame + FRAME_HEADER_BYTES;
  if (header_.type == WINDOW_UPDATE) {
    return sink_->windowUpdate(header_.id, readNumber(body) & MAX_STREAM_ID);
  }
  if (header_.type == SETTINGS) greeted_ = true;
  if (const Fault fault = sink_->control(header_, frame)) return fault;
  if (header_.type != HEADERS && header_.type != CONTINUATION) return {};
  if (header_.type == HEADERS) {
    if (header_.id == 0) return {"sent HEADERS without a stream", PROTOCOL_ERROR};
    blockOf_ = header_.id;
    blockEndsStream_ = (header_.flags & FLAG_END_STREAM) != 0;
  }
  if ((header_.flags & FLAG_END_HEADERS) == 0) return {};
  blockOf_ = 0;
  return sink_->headersEnd(header_.id, blockEndsStream_);
}

Fault FrameCutter::padLength(uint8_t count) {
  padding_ = count;
  left_ -= 1;
  if (padding_ > left_) return {"sent more padding than DATA", PROTOCOL_ERROR};
  left_ -= padding_;
  stage_ = Stage::CONTENT;
  return left_ == 0 ? contentDone() : Fault{};
}

Fault FrameCutter::content(uint8_t* bytes, size_t length, size_t* at) {
  const size_t part = std::min<size_t>(left_, length - *at);
  left_ -= static_cast<uint32_t>(part);
  content_ += static_cast<uint32_t>(part);
  sink_->data(bytes + *at, part);
  *at += part;
  return left_ == 0 ? contentDone() : Fault{};
}

Fault FrameCutter::contentDone() {
  if (padding_ == 0) return dataDone();
  left_ = padding_;
  stage_ = Stage::SKIP;
  return {};
}

// The rest of a frame of an unknown type, or padding.
Fault FrameCutter::skip(size_t length, size_t* at) {
  const size_t part = std::min<size_t>(left_, length - *at);
  left_ -= static_cast<uint32_t>(part);
  *at += part;
  if (left_ > 0) return {};
  stage_ = Stage::HEADER;
  return header_.type == DATA ? dataDone() : Fault{};
}

Fault FrameCutter::dataDone() {
  stage_ = Stage::HEADER;
  return sink_->dataEnds(header_, content_);
}

}  // namespace weft::carry
