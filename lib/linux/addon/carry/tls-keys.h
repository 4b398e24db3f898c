// The keys of one direction of a TLS 1.3 connection: their schedule, the sequence of nonces and the AEAD (RFC 8446 §5.3, §7.2, §7.3).
#pragma once

#include <openssl/evp.h>

#include <cstddef>
#include <cstdint>

namespace weft::carry {

enum class Suite { AES_128_GCM_SHA256, AES_256_GCM_SHA384, CHACHA20_POLY1305_SHA256 };

constexpr size_t MAX_SECRET_BYTES = 48;
constexpr size_t MAX_KEY_BYTES = 32;
constexpr size_t NONCE_BYTES = 12;
constexpr size_t TAG_BYTES = 16;

// Records that AES-GCM may protect under one key: 2^24.5 (RFC 8446 §5.5), rounded down.
constexpr uint64_t AES_GCM_RECORDS = 23'726'566;

// Bytes of a traffic secret of the suite.
size_t secretBytes(Suite suite);

enum class Direction { SEAL, OPEN };

// Each nonce is used once: the sequence only grows, and an update that resets it changes the key. Every copy is zeroed at the end.
class TrafficKeys {
 public:
  explicit TrafficKeys(Direction direction) : direction_(direction) {}
  ~TrafficKeys();
  TrafficKeys(const TrafficKeys&) = delete;
  TrafficKeys& operator=(const TrafficKeys&) = delete;

  // `sequence` counts the records already protected under this secret. False when the secret is not of the suite's
  // length, or OpenSSL fails.
  bool open(Suite suite, const uint8_t* secret, size_t length, uint64_t sequence);

  // Zeroes every copy. Nothing is sealed or unsealed afterwards.
  void clear();

  // Changes to the next generation (KeyUpdate). False when OpenSSL fails.
  bool update();

  // Encrypts `plain` and the byte `type` to `out`, with the tag behind: `length` + 1 + TAG_BYTES. False at a limit of the key.
  bool seal(const uint8_t header[5], const uint8_t* plain, size_t length, uint8_t type, uint8_t* out);

  // Decrypts in place `length` bytes, which include the tag. False when they are not authentic, or at the end of the sequence.
  bool unseal(const uint8_t header[5], uint8_t* bytes, size_t length);

  // Records protected under the present key.
  uint64_t sequence() const { return sequence_; }
  uint64_t generation() const { return generation_; }

 private:
  bool derive();
  bool begin(const uint8_t header[5]);

  const Direction direction_;
  Suite suite_ = Suite::AES_128_GCM_SHA256;
  uint8_t secret_[MAX_SECRET_BYTES] = {};
  uint8_t iv_[NONCE_BYTES] = {};
  EVP_CIPHER_CTX* cipher_ = nullptr;
  uint64_t sequence_ = 0;
  uint64_t generation_ = 0;
  bool usable_ = false;
};

}  // namespace weft::carry
