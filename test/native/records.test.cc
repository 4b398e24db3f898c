// The record layer: what each record means, and what none may be.
#include "support/check.h"
#include "support/peer.h"

using namespace carried;

namespace {

const Suite SUITES[] = {Suite::AES_128_GCM_SHA256, Suite::AES_256_GCM_SHA384, Suite::CHACHA20_POLY1305_SHA256};

// A writer and the reader of the same direction.
struct Pair {
  explicit Pair(Suite suite = Suite::AES_128_GCM_SHA256, bool readerIsServer = true, uint64_t sequence = 0)
      : reader(readerIsServer) {
    uint8_t secret[MAX_SECRET_BYTES];
    memset(secret, 7, sizeof secret);
    writer.keys().open(suite, secret, secretBytes(suite), sequence);
    reader.keys().open(suite, secret, secretBytes(suite), sequence);
  }
  // Seals content of any type, with padding.
  std::string seal(uint8_t type, std::string content, size_t padding = 0) {
    const std::string inner = content + static_cast<char>(type) + std::string(padding, 0);
    std::string record(RECORD_HEADER_BYTES + inner.size() + TAG_BYTES, 0);
    auto* out = reinterpret_cast<uint8_t*>(record.data());
    const size_t sealed = inner.size() + TAG_BYTES;
    out[0] = 23;
    out[1] = out[2] = 3;
    out[3] = static_cast<uint8_t>(sealed >> 8);
    out[4] = static_cast<uint8_t>(sealed);
    // The last byte of the inner text is given apart.
    writer.keys().seal(out, reinterpret_cast<const uint8_t*>(inner.data()), inner.size() - 1,
                       static_cast<uint8_t>(inner.back()), out + RECORD_HEADER_BYTES);
    return record;
  }
  Opened open(std::string* record) {
    auto* bytes = reinterpret_cast<uint8_t*>(record->data());
    Opened opened;
    const size_t length = RecordReader::measure(bytes, record->size(), &opened);
    if (opened.verdict == Verdict::FAULT) return opened;
    CHECK(length == record->size());
    return reader.open(bytes, length);
  }
  Opened open(std::string record) { return open(&record); }
  int alert(std::string record) {
    const Opened opened = open(&record);
    return opened.verdict == Verdict::FAULT ? opened.alert : -1;
  }
  RecordWriter writer;
  RecordReader reader;
};

// An object whose memory can be looked at after its end.
template <typename T>
struct Left {
  template <typename... A>
  explicit Left(A... arguments) : object(new (memory) T(arguments...)) {}
  T* operator->() { return object; }
  bool holds(const uint8_t* bytes, size_t length) const {
    return std::search(memory, memory + sizeof memory, bytes, bytes + length) != memory + sizeof memory;
  }
  // Ends the object and counts the places where it left as many bytes as an IV has, hardly any of them 0.
  size_t leftovers() {
    uint8_t before[sizeof memory];
    memcpy(before, memory, sizeof memory);
    object->~T();
    size_t found = 0;
    for (size_t at = 0; at + NONCE_BYTES <= sizeof memory; at += 1) {
      size_t set = 0;
      for (size_t index = at; index < at + NONCE_BYTES && memory[index] == before[index]; index += 1) {
        if (memory[index] != 0) set += 1;
      }
      if (set > NONCE_BYTES - 3) found += 1;
    }
    return found;
  }
  alignas(T) uint8_t memory[sizeof(T)] = {};
  T* object;
};

constexpr int NONE = -1;
constexpr int UNEXPECTED = 10;
const std::string KEY_UPDATE("\x18\0\0\1\0", 5);
const std::string KEY_UPDATE_ASKED("\x18\0\0\1\1", 5);
const std::string TICKET("\x04\0\0\3abc", 7);

}  // namespace

TEST(contents, "content of every size and padding comes through each cipher") {
  for (const Suite suite : SUITES) {
    Pair pair(suite);
    for (const size_t size : {0ul, 1ul, 15ul, 16ul, 17ul, 1000ul, RECORD_BYTES}) {
      for (const size_t padding : {0ul, 1ul, 100ul}) {
        if (size + padding > RECORD_BYTES) continue;
        std::string content(size, 'x');
        if (size > 0) content.back() = 0;
        std::string record = pair.seal(23, content, padding);
        const Opened opened = pair.open(&record);
        CHECK(opened.verdict == Verdict::DATA);
        CHECK(std::string(reinterpret_cast<char*>(opened.content), opened.length) == content);
      }
    }
  }
}

TEST(largest, "a record is at most 2^14 bytes and its type, padding included") {
  EQUAL(Pair().alert(Pair().seal(23, std::string(RECORD_BYTES, 'x'))), NONE);
  EQUAL(Pair().alert(Pair().seal(23, std::string(RECORD_BYTES, 'x'), 1)), 22);
  EQUAL(Pair().alert(Pair().seal(23, "x", RECORD_BYTES)), 22);
  Opened opened;
  const uint8_t longest[] = {23, 3, 3, 0x41, 0x00};
  EQUAL(RecordReader::measure(longest, 5, &opened), MAX_RECORD_BYTES);
  const uint8_t longer[] = {23, 3, 3, 0x41, 0x01};
  EQUAL(RecordReader::measure(longer, 5, &opened), 0u);
  EQUAL(opened.alert, 22);
}

TEST(outerTypes, "an unprotected record is refused before its length is known") {
  for (int type = 0; type < 256; type += 1) {
    Opened opened;
    const auto first = static_cast<uint8_t>(type);
    RecordReader::measure(&first, 1, &opened);
    EQUAL(opened.verdict == Verdict::FAULT, type != 23);
  }
}

TEST(innerTypes, "only application data, alerts and messages of the handshake are known") {
  for (int type = 1; type < 256; type += 1) {
    Pair pair;
    const int alert = pair.alert(pair.seal(static_cast<uint8_t>(type), "ab"));
    if (type == 21) EQUAL(alert, 47);  // neither warning nor fatal
    else if (type == 22 || type == 23) EQUAL(alert, NONE);
    else EQUAL(alert, UNEXPECTED);
  }
  // Nothing but padding, and nothing at all.
  for (const size_t padding : {4, 5, 6, 300}) EQUAL(Pair().alert(Pair().seal(0, "", padding)), UNEXPECTED);
}

TEST(authenticity, "no bit of a record can be changed") {
  for (const Suite suite : SUITES) {
    const std::string record = Pair(suite).seal(23, "content");
    for (size_t bit = 8; bit < record.size() * 8; bit += 1) {
      // Another length is another record.
      if (bit >= 24 && bit < 40) continue;
      std::string changed = record;
      changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
      EQUAL(Pair(suite).alert(changed), bit < 24 ? 70 : 20);
    }
    EQUAL(Pair(suite).alert(record), NONE);
  }
}

TEST(order, "a record out of order, twice or left out is refused") {
  Pair pair;
  const std::string first = pair.seal(23, "1");
  const std::string second = pair.seal(23, "2");
  EQUAL(Pair().alert(second), 20);
  Pair twice;
  EQUAL(twice.alert(first), NONE);
  EQUAL(twice.alert(first), 20);
}

TEST(nonces, "no nonce is used twice under a key") {
  for (const Suite suite : SUITES) {
    // The same content under the same key and nonce would be the same record.
    Pair pair(suite);
    std::vector<std::string> seen;
    for (int index = 0; index < 1'000; index += 1) {
      if (index % 300 == 299) {
        uint8_t record[KEY_UPDATE_BYTES];
        pair.writer.keyUpdate(false, record);
      }
      seen.push_back(pair.seal(23, "content"));
    }
    std::sort(seen.begin(), seen.end());
    CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());
  }
}

TEST(overflow, "the sequence never wraps, and AES-GCM stops at its limit") {
  for (const Suite suite : SUITES) {
    const bool isGcm = suite != Suite::CHACHA20_POLY1305_SHA256;
    const uint64_t last = isGcm ? AES_GCM_RECORDS : UINT64_MAX;
    Pair pair(suite, true, last - 1);
    uint8_t record[MAX_RECORD_BYTES];
    CHECK(pair.writer.seal(ContentType::APPLICATION_DATA, record, 1, record + 100) > 0);
    EQUAL(pair.writer.seal(ContentType::APPLICATION_DATA, record, 1, record + 100), 0u);
    EQUAL(pair.writer.keyUpdate(false, record), 0u);
  }
  Pair writing(Suite::CHACHA20_POLY1305_SHA256, true, UINT64_MAX - 1);
  Pair same(Suite::CHACHA20_POLY1305_SHA256, true, UINT64_MAX - 1);
  EQUAL(same.alert(writing.seal(23, "last")), NONE);
  EQUAL(same.alert(writing.seal(23, "beyond")), 20);
}

TEST(keyUpdates, "both directions change their keys, alone or asked") {
  for (const Suite suite : SUITES) {
    Pair pair(suite);
    for (int round = 0; round < 20; round += 1) {
      uint8_t record[KEY_UPDATE_BYTES];
      const bool asks = round % 2 == 1;
      const size_t length = pair.writer.keyUpdate(asks, record);
      EQUAL(length, KEY_UPDATE_BYTES);
      CHECK(pair.open(std::string(reinterpret_cast<char*>(record), length)).verdict == Verdict::QUIET);
      EQUAL(pair.reader.takeUpdateRequest(), asks);
      CHECK(!pair.reader.takeUpdateRequest());
      CHECK(pair.open(pair.seal(23, "after")).verdict == Verdict::DATA);
    }
    EQUAL(pair.reader.updates(), 20u);
    EQUAL(pair.reader.keys().sequence(), 1u);
  }
}

TEST(badUpdates, "a KeyUpdate is one byte, 0 or 1, and ends its record") {
  EQUAL(Pair().alert(Pair().seal(22, std::string("\x18\0\0\1\2", 5))), 47);
  EQUAL(Pair().alert(Pair().seal(22, std::string("\x18\0\0\2\0\0", 6))), 50);
  EQUAL(Pair().alert(Pair().seal(22, std::string("\x18\0\0\0", 4))), 50);
  EQUAL(Pair().alert(Pair().seal(22, KEY_UPDATE + KEY_UPDATE)), UNEXPECTED);
}

TEST(messages, "tickets are for clients; nothing else follows a handshake") {
  EQUAL(Pair(SUITES[0], false).alert(Pair().seal(22, TICKET + TICKET)), NONE);
  EQUAL(Pair(SUITES[0], true).alert(Pair().seal(22, TICKET)), UNEXPECTED);
  for (int type = 0; type < 256; type += 1) {
    if (type == 4 || type == 24) continue;
    const std::string message = static_cast<char>(type) + std::string("\0\0\1\0", 4);
    EQUAL(Pair(SUITES[0], false).alert(Pair().seal(22, message)), UNEXPECTED);
  }
  EQUAL(Pair(SUITES[0], false).alert(Pair().seal(22, "\x04\x7f\xff\xff")), 47);
  EQUAL(Pair().alert(Pair().seal(22, "")), UNEXPECTED);
}

TEST(fragments, "a message may come in pieces, which nothing interrupts") {
  const std::string both = TICKET + KEY_UPDATE_ASKED;
  for (size_t cut = 1; cut < both.size(); cut += 1) {
    Pair pair(SUITES[0], false);
    CHECK(pair.open(pair.seal(22, both.substr(0, cut))).verdict == Verdict::QUIET);
    CHECK(pair.open(pair.seal(22, both.substr(cut))).verdict == Verdict::QUIET);
    EQUAL(pair.reader.updates(), 1u);
    CHECK(pair.reader.takeUpdateRequest());
  }
  for (const uint8_t type : {21, 23}) {
    Pair pair(SUITES[0], false);
    CHECK(pair.open(pair.seal(22, TICKET.substr(0, 5))).verdict == Verdict::QUIET);
    EQUAL(pair.alert(pair.seal(type, std::string("\1\0", 2))), UNEXPECTED);
  }
}

TEST(alerts, "close_notify closes, user_canceled waits, others end") {
  CHECK(Pair().open(Pair().seal(21, std::string("\1\0", 2))).verdict == Verdict::CLOSED);
  CHECK(Pair().open(Pair().seal(21, "\1\x5a")).verdict == Verdict::QUIET);
  const Opened opened = Pair().open(Pair().seal(21, "\2\x2a"));
  CHECK(opened.verdict == Verdict::PEER_ALERT);
  EQUAL(opened.alert, 42);
  EQUAL(Pair().alert(Pair().seal(21, "\2\x2a\2\x2a")), 50);
  EQUAL(Pair().alert(Pair().seal(21, "\2")), 50);
  EQUAL(Pair().alert(Pair().seal(21, "")), UNEXPECTED);
}

TEST(idleRecords, "records without application data are limited") {
  for (const uint8_t type : {22, 23}) {
    Pair pair(SUITES[0], false);
    const std::string content = type == 22 ? TICKET : "";
    for (unsigned count = 0; count < MAX_IDLE_RECORDS; count += 1) EQUAL(pair.alert(pair.seal(type, content)), NONE);
    EQUAL(pair.alert(pair.seal(23, "x")), NONE);
    for (unsigned count = 0; count < MAX_IDLE_RECORDS; count += 1) EQUAL(pair.alert(pair.seal(type, content)), NONE);
    EQUAL(pair.alert(pair.seal(type, content)), UNEXPECTED);
  }
}

TEST(secrets, "a secret of another length than the suite's is refused") {
  uint8_t secret[MAX_SECRET_BYTES] = {};
  for (const Suite suite : SUITES) {
    for (size_t length = 0; length <= MAX_SECRET_BYTES; length += 1) {
      RecordWriter writer;
      EQUAL(writer.keys().open(suite, secret, length, 0), length == secretBytes(suite));
    }
  }
}

TEST(zeroed, "no secret and no IV outlives its keys, and none outlives the setup of a link") {
  for (const Suite suite : SUITES) {
    uint8_t secret[MAX_SECRET_BYTES];
    for (size_t index = 0; index < sizeof secret; index += 1) secret[index] = static_cast<uint8_t>(index + 101);
    {
      Left<TrafficKeys> keys(Direction::OPEN);
      CHECK(keys->open(suite, secret, secretBytes(suite), 0));
      CHECK(keys.holds(secret, secretBytes(suite)));
      CHECK(keys.leftovers() == 0);
    }
    Left<TrafficKeys> updated(Direction::SEAL);
    CHECK(updated->open(suite, secret, secretBytes(suite), 0) && updated->update());
    CHECK(!updated.holds(secret, secretBytes(suite)));
    CHECK(updated.leftovers() == 0);
  }
  for (const bool reads : {true, false}) {
    Left<LinkSetup> setup;
    uint8_t* secret = reads ? setup->readSecret : setup->writeSecret;
    for (size_t index = 0; index < MAX_SECRET_BYTES; index += 1) secret[index] = static_cast<uint8_t>(index + 101);
    CHECK(setup.leftovers() == 0);
  }
}

TEST(linkRecords, "a link answers a wrong record by its alert and ends") {
  Rig rig;
  std::string record(30, 'x');
  record.replace(0, 5, std::string("\x17\3\3\0\x19", 5));
  rig.sendRaw(record);
  rig.run();
  EQUAL(rig.alert, 20);
  CHECK(rig.gone() != nullptr && rig.gone()->cause == static_cast<uint32_t>(LinkCause::TLS_FAULT));
  EQUAL(rig.gone()->code, 20u);
}

TEST(cutRecords, "a record may come in pieces of any size") {
  const std::string ping = frame(PING, 0, 0, "12345678");
  for (const size_t size : {1ul, 4ul, 5ul, 6ul, 30ul}) {
    Rig rig;
    rig.listener->events.clear();
    std::string records;
    for (int index = 0; index < 3; index += 1) {
      uint8_t record[MAX_RECORD_BYTES];
      const size_t length = rig.writer.seal(ContentType::APPLICATION_DATA,
                                            reinterpret_cast<const uint8_t*>(ping.data()), ping.size(), record);
      records.append(reinterpret_cast<char*>(record), length);
    }
    for (size_t at = 0; at < records.size(); at += size) {
      rig.sendRaw(records.substr(at, size));
      rig.run();
    }
    std::string got;
    for (const Event& event : rig.listener->events) got += event.bytes;
    CHECK(got == ping + ping + ping);
    CHECK(rig.gone() == nullptr);
  }
}

TEST(linkEnds, "a link tells the end by close_notify, by FIN and by an alert apart") {
  Rig closed;
  closed.sendRecord(ContentType::ALERT, std::string("\1\0", 2));
  closed.run();
  CHECK(closed.gone() != nullptr && closed.gone()->cause == static_cast<uint32_t>(LinkCause::CLOSED));
  EQUAL(closed.alert, 0);
  Rig cut;
  shutdown(cut.peerFd, SHUT_WR);
  cut.run();
  CHECK(cut.gone() != nullptr && cut.gone()->cause == static_cast<uint32_t>(LinkCause::TRUNCATED));
  Rig refused;
  refused.sendRecord(ContentType::ALERT, "\2\x2a");
  refused.run();
  CHECK(refused.gone() != nullptr && refused.gone()->cause == static_cast<uint32_t>(LinkCause::PEER_ALERT));
  EQUAL(refused.gone()->code, 42u);
}

TEST(linkUpdates, "a link changes its key when asked, when due and when told") {
  Rig rig({.rekeyRecords = 4});
  rig.sendRecord(ContentType::HANDSHAKE, KEY_UPDATE_ASKED);
  // Only the sequence of the writer moved; its key must follow.
  rig.writer.keys().update();
  rig.send(frame(PING, 0, 0, "12345678"));
  rig.run();
  EQUAL(rig.reader.updates(), 1u);
  for (int index = 0; index < 20; index += 1) rig.control(frame(PING, FLAG_ACK, 0, "12345678"));
  CHECK(rig.reader.updates() >= 5);
  const uint64_t before = rig.reader.updates();
  rig.command(Command::Kind::REKEY, 0, 1);
  EQUAL(rig.reader.updates(), before + 1);
  CHECK(rig.reader.takeUpdateRequest());
  CHECK(!rig.broken);
  EQUAL(rig.plain.size(), 20u * 17);
}

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
