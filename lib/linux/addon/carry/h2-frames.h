// Numbers of HTTP/2 and the frames that native code writes (RFC 9113 §4, §6, §7).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace weft::carry {

constexpr size_t FRAME_HEADER_BYTES = 9;
constexpr size_t PREFACE_BYTES = 24;
constexpr int64_t MAX_WINDOW = 0x7fff'ffff;
constexpr int64_t DEFAULT_WINDOW = 65'535;
constexpr uint32_t DEFAULT_FRAME_SIZE = 16'384;
constexpr uint32_t LARGEST_FRAME_SIZE = 16'777'215;
constexpr uint32_t MAX_STREAM_ID = 0x7fff'ffff;

// Settings in one frame. Six exist; peers may send unknown ones.
constexpr uint32_t MAX_SETTINGS_PER_FRAME = 64;
// Largest GOAWAY with its debug data, and largest PRIORITY that is read at all.
constexpr uint32_t MAX_GOAWAY_BYTES = 16'384;

enum FrameType : uint8_t {
  DATA = 0,
  HEADERS = 1,
  PRIORITY = 2,
  RST_STREAM = 3,
  SETTINGS = 4,
  PUSH_PROMISE = 5,
  PING = 6,
  GOAWAY = 7,
  WINDOW_UPDATE = 8,
  CONTINUATION = 9,
  KNOWN_FRAME_TYPES = 10,
};

enum FrameFlag : uint8_t {
  FLAG_ACK = 0x01,
  FLAG_END_STREAM = 0x01,
  FLAG_END_HEADERS = 0x04,
  FLAG_PADDED = 0x08,
};

enum ErrorCode : uint32_t {
  NO_ERROR = 0,
  PROTOCOL_ERROR = 1,
  FLOW_CONTROL_ERROR = 3,
  STREAM_CLOSED = 5,
  FRAME_SIZE_ERROR = 6,
  CANCEL = 8,
  CONNECT_ERROR = 10,
  ENHANCE_YOUR_CALM = 11,
};

struct FrameHeader {
  uint32_t length = 0;
  uint8_t type = 0;
  uint8_t flags = 0;
  uint32_t id = 0;
};

// A breach of the protocol that ends the connection; `text` continues "the peer …". Without a text there is none.
struct Fault {
  const char* text = nullptr;
  uint32_t code = 0;
  explicit operator bool() const { return text != nullptr; }
};

inline void writeFrameHeader(uint8_t* out, uint32_t length, uint8_t type, uint8_t flags,
                             uint32_t id) {
  out[0] = static_cast<uint8_t>(length >> 16);
  out[1] = static_cast<uint8_t>(length >> 8);
  out[2] = static_cast<uint8_t>(length);
  out[3] = type;
  out[4] = flags;
  for (int index = 0; index < 4; index += 1) {
    out[5 + index] = static_cast<uint8_t>(id >> (24 - 8 * index));
  }
}

inline uint32_t readNumber(const uint8_t* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | bytes[3];
}

// A RST_STREAM or WINDOW_UPDATE with its number.
inline void appendNumberFrame(std::string* out, uint8_t type, uint32_t id, uint32_t number) {
  uint8_t frame[FRAME_HEADER_BYTES + 4];
  writeFrameHeader(frame, 4, type, 0, id);
  for (int index = 0; index < 4; index += 1) {
    frame[FRAME_HEADER_BYTES + index] = static_cast<uint8_t>(number >> (24 - 8 * index));
  }
  out->append(reinterpret_cast<const char*>(frame), sizeof frame);
}

}  // namespace weft::carry
