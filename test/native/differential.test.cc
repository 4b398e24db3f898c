// The same records for OpenSSL's SSL and for the carry's record layer: both must read the same content, or both must refuse. The
// handshakes are real, and their secrets come from OpenSSL's key log.
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <map>
#include <memory>
#include <random>

#include "support/check.h"
#include "support/peer.h"

using namespace carried;

namespace {

struct Cipher {
  Suite suite;
  const char* name;
};
const Cipher CIPHERS[] = {
    {Suite::AES_128_GCM_SHA256, "TLS_AES_128_GCM_SHA256"},
    {Suite::AES_256_GCM_SHA384, "TLS_AES_256_GCM_SHA384"},
    {Suite::CHACHA20_POLY1305_SHA256, "TLS_CHACHA20_POLY1305_SHA256"},
};

using Secrets = std::map<std::string, std::string>;

void keepSecret(const SSL* ssl, const char* line) {
  auto* secrets = static_cast<Secrets*>(SSL_get_app_data(ssl));
  const std::string text = line;
  const size_t first = text.find(' ');
  const std::string hex = text.substr(text.rfind(' ') + 1);
  std::string bytes;
  for (size_t at = 0; at + 1 < hex.size(); at += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(at, 2), nullptr, 16));
  }
  (*secrets)[text.substr(0, first)] = bytes;
}

// A context with a certificate of its own; made once, since keys are costly.
SSL_CTX* context() {
  static SSL_CTX* const made = [] {
    EVP_PKEY* key = EVP_EC_gen("P-256");
    X509* certificate = X509_new();
    X509_gmtime_adj(X509_getm_notBefore(certificate), -60);
    X509_gmtime_adj(X509_getm_notAfter(certificate), 86'400);
    X509_set_pubkey(certificate, key);
    X509_sign(certificate, key, EVP_sha256());
    SSL_CTX* own = SSL_CTX_new(TLS_method());
    SSL_CTX_set_min_proto_version(own, TLS1_3_VERSION);
    SSL_CTX_use_certificate(own, certificate);
    SSL_CTX_use_PrivateKey(own, key);
    SSL_CTX_set_keylog_callback(own, keepSecret);
    SSL_CTX_set_num_tickets(own, 0);
    X509_free(certificate);
    EVP_PKEY_free(key);
    return own;
  }();
  return made;
}

std::string drain(BIO* bio) {
  std::string all;
  char bytes[65'536];
  for (int got = 0; (got = BIO_read(bio, bytes, sizeof bytes)) > 0;) all.append(bytes, static_cast<size_t>(got));
  return all;
}

// One end in OpenSSL; its socket is memory.
struct End {
  End(bool isServer, Secrets* secrets, const char* cipher) : ssl(SSL_new(context())) {
    SSL_set_app_data(ssl, secrets);
    SSL_set_ciphersuites(ssl, cipher);
    SSL_set_bio(ssl, BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
    if (isServer) SSL_set_accept_state(ssl);
    else SSL_set_connect_state(ssl);
  }
  ~End() { SSL_free(ssl); }
  void feed(const std::string& bytes) { BIO_write(SSL_get_rbio(ssl), bytes.data(), static_cast<int>(bytes.size())); }
  std::string sent() { return drain(SSL_get_wbio(ssl)); }
  SSL* ssl;
};

// A session of two OpenSSL ends whose handshake is over.
struct Handshake {
  explicit Handshake(const Cipher& cipher) : client(false, &secrets, cipher.name), server(true, &secrets, cipher.name) {
    for (int round = 0; round < 4; round += 1) {
      SSL_do_handshake(client.ssl);
      server.feed(client.sent());
      SSL_do_handshake(server.ssl);
      client.feed(server.sent());
    }
    CHECK(SSL_is_init_finished(client.ssl) && SSL_is_init_finished(server.ssl));
  }
  const std::string& secret(bool ofServer) { return secrets[ofServer ? "SERVER_TRAFFIC_SECRET_0" : "CLIENT_TRAFFIC_SECRET_0"]; }
  Secrets secrets;
  End client;
  End server;
};

void open(TrafficKeys* keys, Suite suite, const std::string& secret) {
  CHECK(keys->open(suite, reinterpret_cast<const uint8_t*>(secret.data()), secret.size(), 0));
}

// The outcome of a stream of records at a receiver.
struct Result {
  std::string content;
  // 'o' it waits for more, 'c' closed by the peer, 'x' refused or ended by an alert.
  char state = 'o';
};

Result readBySsl(End* end, const std::string& stream) {
  Result result;
  end->feed(stream);
  char bytes[RECORD_BYTES];
  for (;;) {
    ERR_clear_error();
    const int got = SSL_read(end->ssl, bytes, sizeof bytes);
    if (got > 0) {
      result.content.append(bytes, static_cast<size_t>(got));
      continue;
    }
    const int error = SSL_get_error(end->ssl, got);
    result.state = error == SSL_ERROR_WANT_READ ? 'o' : error == SSL_ERROR_ZERO_RETURN ? 'c' : 'x';
    return result;
  }
}

Result readByCarry(RecordReader* reader, std::string stream) {
  Result result;
  auto* bytes = reinterpret_cast<uint8_t*>(stream.data());
  for (size_t at = 0; at < stream.size();) {
    Opened opened;
    const size_t length = RecordReader::measure(bytes + at, stream.size() - at, &opened);
    if (opened.verdict != Verdict::FAULT) {
      if (length == 0 || length > stream.size() - at) return result;
      opened = reader->open(bytes + at, length);
      at += length;
    }
    switch (opened.verdict) {
      case Verdict::DATA:
        result.content.append(reinterpret_cast<char*>(opened.content), opened.length);
        break;
      case Verdict::QUIET:
        break;
      case Verdict::CLOSED:
        result.state = 'c';
        return result;
      default:
        result.state = 'x';
        return result;
    }
  }
  return result;
}

// Writes records of any inner text under the keys of a sender.
struct Forger {
  Forger(Suite suite, const std::string& secret) { open(&writer.keys(), suite, secret); }
  std::string record(const std::string& content, uint8_t type, size_t padding) {
    const std::string inner = content + static_cast<char>(type) + std::string(padding, 0);
    std::string out(RECORD_HEADER_BYTES + inner.size() + TAG_BYTES, 0);
    auto* bytes = reinterpret_cast<uint8_t*>(out.data());
    const size_t sealed = inner.size() + TAG_BYTES;
    bytes[0] = 23;
    bytes[1] = bytes[2] = 3;
    bytes[3] = static_cast<uint8_t>(sealed >> 8);
    bytes[4] = static_cast<uint8_t>(sealed);
    writer.keys().seal(bytes, reinterpret_cast<const uint8_t*>(inner.data()), inner.size() - 1,
                       static_cast<uint8_t>(inner.back()), bytes + RECORD_HEADER_BYTES);
    return out;
  }
  std::string keyUpdate(bool ask) {
    uint8_t bytes[KEY_UPDATE_BYTES];
    return std::string(reinterpret_cast<char*>(bytes), writer.keyUpdate(ask, bytes));
  }
  RecordWriter writer;
};

std::string ticket(std::mt19937* random) {
  const size_t length = 1 + (*random)() % 300;
  std::string body = std::string("\0\0\x1c\x20\1\2\3\4\1\7", 10);
  body += static_cast<char>(length >> 8);
  body += static_cast<char>(length);
  body += std::string(length, 't') + std::string("\0\0", 2);
  return std::string("\4\0", 2) + static_cast<char>(body.size() >> 8) + static_cast<char>(body.size()) + body;
}

// A stream of records, most of them in order; `toClient` chooses what its receiver is. Padding beyond 2^14 bytes is left out:
// OpenSSL 3.0 takes it, and RFC 8446 §5.4 does not.
std::vector<std::string> compose(Forger* forger, bool toClient, std::mt19937* random) {
  std::vector<std::string> records;
  const auto number = [&](unsigned below) { return (*random)() % below; };
  const unsigned count = 1 + number(12);
  for (unsigned index = 0; index < count; index += 1) {
    switch (number(18)) {
      case 0:
        records.push_back(forger->keyUpdate(number(2) == 0));
        break;
      case 1:
        if (toClient) records.push_back(forger->record(ticket(random) + (number(2) == 0 ? ticket(random) : ""), 22, number(3)));
        break;
      case 2:
        if (toClient) {
          // In two pieces.
          const std::string whole = ticket(random);
          const size_t cut = 1 + number(static_cast<unsigned>(whole.size() - 1));
          records.push_back(forger->record(whole.substr(0, cut), 22, 0));
          records.push_back(forger->record(whole.substr(cut), 22, 0));
        }
        break;
      case 3:
        if (number(4) == 0) records.push_back(forger->record(std::string("\1\0", 2), 21, number(3)));
        break;
      case 4:
        if (number(4) == 0) records.push_back(forger->record(std::string("\2\x28", 2), 21, 0));
        break;
      case 5:
        // Types that nobody knows, and messages that nobody may send now.
        if (number(4) == 0) records.push_back(forger->record("ab", static_cast<uint8_t>(24 + number(200)), 0));
        break;
      case 6:
        if (number(4) == 0) records.push_back(forger->record(std::string("\x08\0\0\2\0\0", 6), 22, 0));
        break;
      case 7:
        if (number(4) == 0) records.push_back(forger->record(std::string("\x18\0\0\1\2", 5), 22, 0));
        break;
      case 8:
        if (number(4) == 0) records.push_back(forger->record(std::string("\x18\0\0\1\0x", 6), 22, 0));
        break;
      case 9:
        if (number(4) == 0) records.push_back(forger->record(std::string(number(20), 0), 0, 0));
        break;
      default: {
        const size_t length = number(3) == 0 ? number(static_cast<unsigned>(RECORD_BYTES) + 1) : number(100);
        std::string content(length, 0);
        for (char& byte : content) byte = static_cast<char>((*random)());
        records.push_back(forger->record(content, 23, number(3) == 0 ? number(static_cast<unsigned>(RECORD_BYTES - length + 1)) : 0));
      }
    }
  }
  return records;
}

// Harms the stream in one way, or not at all.
std::string harm(std::vector<std::string> records, std::mt19937* random) {
  const auto number = [&](size_t below) { return (*random)() % static_cast<unsigned>(below); };
  std::string stream;
  const unsigned way = number(8);
  if (!records.empty()) {
    const size_t at = number(records.size());
    if (way == 0) records.erase(records.begin() + static_cast<long>(at));
    else if (way == 1) records.insert(records.begin() + static_cast<long>(at), records[at]);
    else if (way == 2) std::swap(records[at], records[number(records.size())]);
  }
  for (const std::string& record : records) stream += record;
  if (stream.empty()) return stream;
  if (way == 3 || way == 4) {
    const size_t bit = number(stream.size() * 8);
    stream[bit / 8] = static_cast<char>(stream[bit / 8] ^ 1 << bit % 8);
  } else if (way == 5) {
    stream.resize(number(stream.size()));
  } else if (way == 6) {
    stream.insert(number(stream.size()), 1, static_cast<char>((*random)()));
  }
  return stream;
}

}  // namespace

constexpr unsigned COUNT = 600;

TEST(sameStreams, "random, padded, cut, flipped, repeated and reordered records mean the same to OpenSSL") {
  size_t refused = 0;
  size_t whole = 0;
  for (unsigned seed = 0; seed < COUNT; seed += 1) {
    std::mt19937 random(seed);
    const Cipher& cipher = CIPHERS[seed % 3];
    const bool toClient = seed % 2 == 0;
    Handshake session(cipher);
    Forger forger(cipher.suite, session.secret(toClient));
    RecordReader reader(!toClient);
    open(&reader.keys(), cipher.suite, session.secret(toClient));
    const std::string stream = harm(compose(&forger, toClient, &random), &random);
    const Result theirs = readBySsl(toClient ? &session.client : &session.server, stream);
    const Result ours = readByCarry(&reader, stream);
    (theirs.state == 'x' ? refused : whole) += 1;
    if (theirs.content == ours.content && theirs.state == ours.state) continue;
    char why[256] = {};
    ERR_error_string_n(ERR_peek_last_error(), why, sizeof why);
    std::printf("  seed %u: OpenSSL %c with %zu bytes (%s), carry %c with %zu bytes\n", seed, theirs.state,
                theirs.content.size(), why, ours.state, ours.content.size());
    check::fail(__FILE__, __LINE__, "the two differ");
  }
  std::printf("  %zu streams were refused, %zu were not\n", refused, whole);
  CHECK(refused > 100 && whole > 100);
}

TEST(fromOpenSsl, "what OpenSSL writes, key updates and tickets included, is read") {
  for (unsigned seed = 0; seed < 60; seed += 1) {
    std::mt19937 random(seed);
    const Cipher& cipher = CIPHERS[seed % 3];
    const bool fromServer = seed % 2 == 0;
    Handshake session(cipher);
    End& sender = fromServer ? session.server : session.client;
    RecordReader reader(!fromServer);
    open(&reader.keys(), cipher.suite, session.secret(fromServer));
    std::string expected;
    std::string stream;
    for (int index = 0; index < 30; index += 1) {
      const unsigned choice = random() % 6;
      if (choice == 0) {
        CHECK(SSL_key_update(sender.ssl, random() % 2 == 0 ? SSL_KEY_UPDATE_REQUESTED : SSL_KEY_UPDATE_NOT_REQUESTED) == 1);
      } else if (choice == 1 && fromServer) {
        CHECK(SSL_new_session_ticket(sender.ssl) == 1);
      }
      const std::string content(1 + random() % 40'000, static_cast<char>('a' + index));
      CHECK(SSL_write(sender.ssl, content.data(), static_cast<int>(content.size())) > 0);
      expected += content;
      stream += sender.sent();
    }
    SSL_shutdown(sender.ssl);
    stream += sender.sent();
    const Result result = readByCarry(&reader, stream);
    CHECK(result.content == expected);
    CHECK(result.state == 'c');
  }
}

TEST(toOpenSsl, "what the carry writes is read by OpenSSL, whose answers are read in turn") {
  for (unsigned seed = 0; seed < 60; seed += 1) {
    std::mt19937 random(seed);
    const Cipher& cipher = CIPHERS[seed % 3];
    const bool isServer = seed % 2 == 0;
    Handshake session(cipher);
    End& other = isServer ? session.client : session.server;
    RecordWriter writer;
    writer.rekeyAfter(1 + random() % 9);
    RecordReader reader(isServer);
    open(&writer.keys(), cipher.suite, session.secret(isServer));
    open(&reader.keys(), cipher.suite, session.secret(!isServer));
    unsigned asked = 0;
    std::string answers;
    for (int index = 0; index < 60; index += 1) {
      uint8_t record[MAX_RECORD_BYTES];
      std::string stream;
      if (writer.rekeyDue() || random() % 8 == 0) {
        const bool asks = random() % 2 == 0;
        asked += asks ? 1 : 0;
        stream.append(reinterpret_cast<char*>(record), writer.keyUpdate(asks, record));
      }
      const std::string content(random() % (RECORD_BYTES + 1), static_cast<char>(index));
      stream.append(reinterpret_cast<char*>(record),
                    writer.seal(ContentType::APPLICATION_DATA, reinterpret_cast<const uint8_t*>(content.data()), content.size(), record));
      const Result result = readBySsl(&other, stream);
      CHECK(result.state == 'o');
      CHECK(result.content == content);
      CHECK(SSL_write(other.ssl, "answer", 6) == 6);
      const Result answer = readByCarry(&reader, other.sent());
      CHECK(answer.state == 'o');
      answers += answer.content;
    }
    EQUAL(answers.size(), 60u * 6);
    EQUAL(reader.updates(), static_cast<uint64_t>(asked));
    uint8_t record[ALERT_BYTES];
    const Result closed = readBySsl(&other, std::string(reinterpret_cast<char*>(record), writer.alert(Alert::CLOSE_NOTIFY, record)));
    CHECK(closed.state == 'c');
  }
}

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
