// The record layer of TLS 1.3 after the handshake (RFC 8446 §4.6, §5, §6): application data, alerts, KeyUpdate, and tickets, which
// nobody keeps.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tls-keys.h"

namespace weft::carry {

constexpr size_t RECORD_HEADER_BYTES = 5;
// Largest content of a record.
constexpr size_t RECORD_BYTES = 16'384;
// Largest protected part of a record (RFC 8446 §5.2).
constexpr size_t MAX_SEALED_BYTES = RECORD_BYTES + 256;
constexpr size_t MAX_RECORD_BYTES = RECORD_HEADER_BYTES + MAX_SEALED_BYTES;
// Bytes that a record adds to its content.
constexpr size_t RECORD_OVERHEAD = RECORD_HEADER_BYTES + 1 + TAG_BYTES;
constexpr size_t KEY_UPDATE_BYTES = RECORD_OVERHEAD + 5;
constexpr size_t ALERT_BYTES = RECORD_OVERHEAD + 2;

// Records in a row without application data that a peer may send. An honest one sends a few tickets or one KeyUpdate.
constexpr unsigned MAX_IDLE_RECORDS = 32;
// Largest message after the handshake: a ticket of 64 KiB with its fields.
constexpr size_t MAX_POST_HANDSHAKE_BYTES = 131'072;
// Records under one key before this side changes it: far below the limit of AES-GCM, 128 GiB of full records.
constexpr uint64_t REKEY_RECORDS = 1 << 23;

enum class ContentType : uint8_t { ALERT = 21, HANDSHAKE = 22, APPLICATION_DATA = 23 };

enum class Alert : uint8_t {
  CLOSE_NOTIFY = 0,
  UNEXPECTED_MESSAGE = 10,
  BAD_RECORD_MAC = 20,
  RECORD_OVERFLOW = 22,
  ILLEGAL_PARAMETER = 47,
  DECODE_ERROR = 50,
  PROTOCOL_VERSION = 70,
  INTERNAL_ERROR = 80,
  USER_CANCELED = 90,
};

// The meaning of one record.
enum class Verdict {
  // `content` holds application data, perhaps none.
  DATA,
  // Nothing for the application.
  QUIET,
  // The peer sends nothing more.
  CLOSED,
  // The peer ended the connection by `alert`.
  PEER_ALERT,
  // The peer broke the protocol; `alert` tells it so.
  FAULT,
};

struct Opened {
  Verdict verdict = Verdict::QUIET;
  uint8_t* content = nullptr;
  size_t length = 0;
  uint8_t alert = 0;
};

// Records of the peer. After a FAULT, CLOSED or PEER_ALERT no further record may be given.
class RecordReader {
 public:
  explicit RecordReader(bool isServer) : isServer_(isServer), keys_(Direction::OPEN) {}

  TrafficKeys& keys() { return keys_; }

  // The length of the record that begins at `bytes`, 0 while its header is incomplete. A header that no record of this
  // connection can have sets `fault`.
  static size_t measure(const uint8_t* bytes, size_t available, Opened* fault);

  // Opens one whole record in place.
  Opened open(uint8_t* record, size_t length);

  // Whether the peer has asked for a KeyUpdate since the last call.
  bool takeUpdateRequest();
  uint64_t updates() const { return updates_; }

 private:
  Opened handshake(const uint8_t* bytes, size_t length);
  Opened message(size_t after);
  bool idle();

  const bool isServer_;
  TrafficKeys keys_;
  bool updateRequested_ = false;
  uint64_t updates_ = 0;
  unsigned idleRecords_ = 0;
  // A message after the handshake: its header, the first byte of its body, and the bytes of the body still to come.
  uint8_t header_[4] = {};
  size_t headerBytes_ = 0;
  size_t bodyBytes_ = 0;
  size_t bodyLeft_ = 0;
  uint8_t firstByte_ = 0;
};

// Records to the peer.
class RecordWriter {
 public:
  RecordWriter() : keys_(Direction::SEAL) {}

  TrafficKeys& keys() { return keys_; }
  void rekeyAfter(uint64_t records);

  // Writes a record with up to RECORD_BYTES of content to `out`; its bytes, or 0 at the key's limit.
  size_t seal(ContentType type, const uint8_t* content, size_t length, uint8_t* out);
  // Writes an alert; its bytes, or 0.
  size_t alert(Alert alert, uint8_t* out);
  // Writes a KeyUpdate and changes the key; the bytes of the record, or 0 when OpenSSL fails.
  size_t keyUpdate(bool ask, uint8_t* out);
  // Whether the key has protected as many records as it should.
  bool rekeyDue() const { return keys_.sequence() >= rekeyRecords_; }
  uint64_t updates() const { return updates_; }

 private:
  TrafficKeys keys_;
  uint64_t rekeyRecords_ = REKEY_RECORDS;
  uint64_t updates_ = 0;
};

}  // namespace weft::carry
