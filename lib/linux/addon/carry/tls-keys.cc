#include "tls-keys.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>

#include <cstring>

namespace weft::carry {

namespace {

const EVP_MD* digestOf(Suite suite) {
  return suite == Suite::AES_256_GCM_SHA384 ? EVP_sha384() : EVP_sha256();
}

const EVP_CIPHER* cipherOf(Suite suite) {
  switch (suite) {
    case Suite::AES_128_GCM_SHA256:
      return EVP_aes_128_gcm();
    case Suite::AES_256_GCM_SHA384:
      return EVP_aes_256_gcm();
    case Suite::CHACHA20_POLY1305_SHA256:
      return EVP_chacha20_poly1305();
  }
  return nullptr;
}

size_t keyBytes(Suite suite) { return suite == Suite::AES_128_GCM_SHA256 ? 16 : 32; }

// HKDF-Expand-Label with an empty context (RFC 8446 §7.1). `length` is at most one block of the digest.
bool expandLabel(Suite suite, const uint8_t* secret, const char* label, uint8_t* out,
                 size_t length) {
  uint8_t info[64];
  const size_t labelBytes = strlen(label);
  size_t at = 0;
  info[at++] = 0;
  info[at++] = static_cast<uint8_t>(length);
  info[at++] = static_cast<uint8_t>(6 + labelBytes);
  memcpy(info + at, "tls13 ", 6);
  at += 6;
  memcpy(info + at, label, labelBytes);
  at += labelBytes;
  info[at++] = 0;
  // The number of the block: HKDF-Expand of one block is one HMAC.
  info[at++] = 1;
  uint8_t block[EVP_MAX_MD_SIZE];
  unsigned int blockBytes = 0;
  const bool done = HMAC(digestOf(suite), secret, static_cast<int>(secretBytes(suite)), info, at,
                         block, &blockBytes) != nullptr &&
                    blockBytes >= length;
  if (done) memcpy(out, block, length);
  OPENSSL_cleanse(block, sizeof block);
  return done;
}

}  // namespace

size_t secretBytes(Suite suite) { return suite == Suite::AES_256_GCM_SHA384 ? 48 : 32; }

TrafficKeys::~TrafficKeys() { clear(); }

void TrafficKeys::clear() {
  usable_ = false;
  // OpenSSL zeroes the key schedule itself.
  EVP_CIPHER_CTX_free(cipher_);
  cipher_ = nullptr;
  OPENSSL_cleanse(secret_, sizeof secret_);
  OPENSSL_cleanse(iv_, sizeof iv_);
}

bool TrafficKeys::open(Suite suite, const uint8_t* secret, size_t length, uint64_t sequence) {
  if (length != secretBytes(suite)) return false;
  suite_ = suite;
  memcpy(secret_, secret, length);
  if (!derive()) return false;
  sequence_ = sequence;
  return true;
}

bool TrafficKeys::update() {
  uint8_t next[MAX_SECRET_BYTES];
  usable_ = false;
  const bool done = expandLabel(suite_, secret_, "traffic upd", next, secretBytes(suite_));
  if (done) memcpy(secret_, next, secretBytes(suite_));
  OPENSSL_cleanse(next, sizeof next);
  if (!done || !derive()) return false;
  generation_ += 1;
  return true;
}

bool TrafficKeys::derive() {
  usable_ = false;
  sequence_ = 0;
  if (cipher_ == nullptr) cipher_ = EVP_CIPHER_CTX_new();
  uint8_t key[MAX_KEY_BYTES];
  const int seals = direction_ == Direction::SEAL ? 1 : 0;
  usable_ = cipher_ != nullptr && expandLabel(suite_, secret_, "key", key, keyBytes(suite_)) &&
            expandLabel(suite_, secret_, "iv", iv_, NONCE_BYTES) &&
            EVP_CipherInit_ex(cipher_, cipherOf(suite_), nullptr, key, iv_, seals) == 1;
  OPENSSL_cleanse(key, sizeof key);
  return usable_;
}

// Sets the nonce of the next record and the header as additional data. The sequence moves on whether or not that succeeds.
bool TrafficKeys::begin(const uint8_t header[5]) {
  if (!usable_) return false;
  const bool isGcm = suite_ != Suite::CHACHA20_POLY1305_SHA256;
  const bool spent = sequence_ == UINT64_MAX ||
                     (direction_ == Direction::SEAL && isGcm && sequence_ >= AES_GCM_RECORDS);
  if (spent) return false;
  uint8_t nonce[NONCE_BYTES];
  memcpy(nonce, iv_, NONCE_BYTES);
  const uint64_t sequence = sequence_++;
  for (int index = 0; index < 8; index += 1) {
    nonce[NONCE_BYTES - 1 - index] ^= static_cast<uint8_t>(sequence >> (8 * index));
  }
  int written = 0;
  return EVP_CipherInit_ex(cipher_, nullptr, nullptr, nullptr, nonce, -1) == 1 &&
         EVP_CipherUpdate(cipher_, nullptr, &written, header, 5) == 1;
}

bool TrafficKeys::seal(const uint8_t header[5], const uint8_t* plain, size_t length, uint8_t type,
                       uint8_t* out) {
  if (direction_ != Direction::SEAL || !begin(header)) return false;
  int written = 0;
  if (length > 0 &&
      EVP_CipherUpdate(cipher_, out, &written, plain, static_cast<int>(length)) != 1) {
    return false;
  }
  return EVP_CipherUpdate(cipher_, out + length, &written, &type, 1) == 1 &&
         EVP_CipherFinal_ex(cipher_, out + length + 1, &written) == 1 &&
         EVP_CIPHER_CTX_ctrl(cipher_, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, out + length + 1) == 1;
}

bool TrafficKeys::unseal(const uint8_t header[5], uint8_t* bytes, size_t length) {
  if (direction_ != Direction::OPEN || length < TAG_BYTES || !begin(header)) return false;
  const size_t sealed = length - TAG_BYTES;
  int written = 0;
  if (sealed > 0 &&
      EVP_CipherUpdate(cipher_, bytes, &written, bytes, static_cast<int>(sealed)) != 1) {
    return false;
  }
  return EVP_CIPHER_CTX_ctrl(cipher_, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, bytes + sealed) == 1 &&
         EVP_CipherFinal_ex(cipher_, bytes + sealed, &written) == 1;
}

}  // namespace weft::carry
