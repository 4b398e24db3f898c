#include "tls-records.h"

#include <algorithm>

namespace weft::carry {

namespace {

// Types of messages after the handshake.
constexpr uint8_t NEW_SESSION_TICKET = 4;
constexpr uint8_t KEY_UPDATE = 24;
constexpr size_t MESSAGE_HEADER_BYTES = 4;
constexpr uint8_t FATAL = 2;
constexpr uint8_t WARNING = 1;

Opened fault(Alert alert) {
  return {Verdict::FAULT, nullptr, 0, static_cast<uint8_t>(alert)};
}

void writeHeader(uint8_t* out, size_t sealed) {
  out[0] = static_cast<uint8_t>(ContentType::APPLICATION_DATA);
  out[1] = 3;
  out[2] = 3;
  out[3] = static_cast<uint8_t>(sealed >> 8);
  out[4] = static_cast<uint8_t>(sealed);
}

}  // namespace

size_t RecordReader::measure(const uint8_t* bytes, size_t available, Opened* broken) {
  if (available == 0) return 0;
  // Every record is protected now. An unprotected alert or change_cipher_spec is for the handshake only (RFC 8446 §5).
  if (bytes[0] != static_cast<uint8_t>(ContentType::APPLICATION_DATA)) {
    *broken = fault(Alert::UNEXPECTED_MESSAGE);
    return 0;
  }
  if (available < RECORD_HEADER_BYTES) return 0;
  // The one version of every record after the first hello. OpenSSL insists on it, too.
  if (bytes[1] != 3 || bytes[2] != 3) {
    *broken = fault(Alert::PROTOCOL_VERSION);
    return 0;
  }
  const size_t sealed = static_cast<size_t>(bytes[3]) << 8 | bytes[4];
  if (sealed > MAX_SEALED_BYTES) {
    *broken = fault(Alert::RECORD_OVERFLOW);
    return 0;
  }
  return RECORD_HEADER_BYTES + sealed;
}

Opened RecordReader::open(uint8_t* record, size_t length) {
  uint8_t* bytes = record + RECORD_HEADER_BYTES;
  const size_t sealed = length - RECORD_HEADER_BYTES;
  if (!keys_.unseal(record, bytes, sealed)) return fault(Alert::BAD_RECORD_MAC);
  size_t inner = sealed - TAG_BYTES;
  if (inner > RECORD_BYTES + 1) return fault(Alert::RECORD_OVERFLOW);
  // The type is the last byte that is not padding.
  while (inner > 0 && bytes[inner - 1] == 0) inner -= 1;
  if (inner == 0) return fault(Alert::UNEXPECTED_MESSAGE);
  const uint8_t type = bytes[inner - 1];
  const size_t content = inner - 1;
  // A message must not be interrupted (RFC 8446 §5.1).
  const bool isHandshake = type == static_cast<uint8_t>(ContentType::HANDSHAKE);
  if (headerBytes_ > 0 && !isHandshake) return fault(Alert::UNEXPECTED_MESSAGE);
  if (type == static_cast<uint8_t>(ContentType::APPLICATION_DATA)) {
    if (content > 0) idleRecords_ = 0;
    else if (!idle()) return fault(Alert::UNEXPECTED_MESSAGE);
    return {Verdict::DATA, bytes, content, 0};
  }
  if (content == 0) return fault(Alert::UNEXPECTED_MESSAGE);
  if (!idle()) return fault(Alert::UNEXPECTED_MESSAGE);
  if (isHandshake) return handshake(bytes, content);
  if (type != static_cast<uint8_t>(ContentType::ALERT)) return fault(Alert::UNEXPECTED_MESSAGE);
  if (content != 2) return fault(Alert::DECODE_ERROR);
  const uint8_t alert = bytes[1];
  // The level says nothing in TLS 1.3 (RFC 8446 §6), but there are only two.
  if (bytes[0] != WARNING && bytes[0] != FATAL) return fault(Alert::ILLEGAL_PARAMETER);
  if (alert == static_cast<uint8_t>(Alert::CLOSE_NOTIFY)) return {Verdict::CLOSED, nullptr, 0, 0};
  // A close_notify follows it.
  if (alert == static_cast<uint8_t>(Alert::USER_CANCELED)) return {};
  return {Verdict::PEER_ALERT, nullptr, 0, alert};
}

bool RecordReader::idle() {
  idleRecords_ += 1;
  return idleRecords_ <= MAX_IDLE_RECORDS;
}

Opened RecordReader::handshake(const uint8_t* bytes, size_t length) {
  size_t at = 0;
  while (at < length) {
    if (headerBytes_ < MESSAGE_HEADER_BYTES) {
      header_[headerBytes_++] = bytes[at++];
      if (headerBytes_ < MESSAGE_HEADER_BYTES) continue;
      bodyBytes_ = static_cast<size_t>(header_[1]) << 16 | static_cast<size_t>(header_[2]) << 8 | header_[3];
      bodyLeft_ = bodyBytes_;
      const bool isTicket = header_[0] == NEW_SESSION_TICKET && !isServer_;
      if (!isTicket && header_[0] != KEY_UPDATE) return fault(Alert::UNEXPECTED_MESSAGE);
      if (header_[0] == KEY_UPDATE && bodyBytes_ != 1) return fault(Alert::DECODE_ERROR);
      if (bodyBytes_ > MAX_POST_HANDSHAKE_BYTES) return fault(Alert::ILLEGAL_PARAMETER);
    }
    if (bodyLeft_ > 0 && at < length) {
      if (bodyLeft_ == bodyBytes_) firstByte_ = bytes[at];
      const size_t part = std::min(bodyLeft_, length - at);
      bodyLeft_ -= part;
      at += part;
    }
    if (bodyLeft_ > 0) continue;
    headerBytes_ = 0;
    const Opened result = message(length - at);
    if (result.verdict != Verdict::QUIET) return result;
  }
  return {};
}

// Handles a whole message; `after` counts the bytes of the record behind it.
Opened RecordReader::message(size_t after) {
  if (header_[0] != KEY_UPDATE) return {};
  if (firstByte_ > 1) return fault(Alert::ILLEGAL_PARAMETER);
  // The rest of the record would be under the former key (RFC 8446 §5.1).
  if (after > 0) return fault(Alert::UNEXPECTED_MESSAGE);
  if (!keys_.update()) return fault(Alert::INTERNAL_ERROR);
  updates_ += 1;
  if (firstByte_ == 1) updateRequested_ = true;
  return {};
}

bool RecordReader::takeUpdateRequest() {
  const bool requested = updateRequested_;
  updateRequested_ = false;
  return requested;
}

void RecordWriter::rekeyAfter(uint64_t records) {
  rekeyRecords_ = records == 0 ? REKEY_RECORDS : std::min(records, REKEY_RECORDS);
}

size_t RecordWriter::seal(ContentType type, const uint8_t* content, size_t length, uint8_t* out) {
  writeHeader(out, length + 1 + TAG_BYTES);
  const bool done = keys_.seal(out, content, length, static_cast<uint8_t>(type),
                               out + RECORD_HEADER_BYTES);
  return done ? length + RECORD_OVERHEAD : 0;
}

size_t RecordWriter::alert(Alert alert, uint8_t* out) {
  const bool warns = alert == Alert::CLOSE_NOTIFY || alert == Alert::USER_CANCELED;
  const uint8_t bytes[2] = {warns ? WARNING : FATAL, static_cast<uint8_t>(alert)};
  return seal(ContentType::ALERT, bytes, sizeof bytes, out);
}

size_t RecordWriter::keyUpdate(bool ask, uint8_t* out) {
  const uint8_t message[5] = {KEY_UPDATE, 0, 0, 1, static_cast<uint8_t>(ask ? 1 : 0)};
  const size_t written = seal(ContentType::HANDSHAKE, message, sizeof message, out);
  if (written == 0 || !keys_.update()) return 0;
  updates_ += 1;
  return written;
}

}  // namespace weft::carry
