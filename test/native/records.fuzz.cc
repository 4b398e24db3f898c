// Records of any inner text, sealed rightly or not: nothing but what was sealed as application data comes out.
#include "support/input.h"
#include "support/peer.h"

using namespace carried;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  Input input(bytes, length);
  const auto suite = static_cast<Suite>(input.byte() % 3);
  const bool isServer = input.byte() % 2 == 0;
  uint8_t secret[MAX_SECRET_BYTES] = {5};
  TrafficKeys sealing(Direction::SEAL);
  sealing.open(suite, secret, secretBytes(suite), 0);
  RecordReader reader(isServer);
  reader.keys().open(suite, secret, secretBytes(suite), 0);
  while (!input.ended()) {
    const uint8_t how = input.byte();
    const uint8_t type = how % 4 == 0 ? input.byte() : static_cast<uint8_t>(21 + how % 3);
    std::string inner = input.text(input.byte());
    const std::string content = inner;
    inner.append(how % 16 == 9 ? 300 : how / 64, 0);
    std::string record(RECORD_HEADER_BYTES + inner.size() + 1 + TAG_BYTES, 0);
    auto* out = reinterpret_cast<uint8_t*>(record.data());
    const size_t sealed = record.size() - RECORD_HEADER_BYTES;
    const uint8_t header[] = {23, 3, 3, static_cast<uint8_t>(sealed >> 8), static_cast<uint8_t>(sealed)};
    std::copy_n(header, sizeof header, out);
    // The type follows the content, and the padding follows the type.
    std::string text = content + static_cast<char>(type) + inner.substr(content.size());
    sealing.seal(header, reinterpret_cast<const uint8_t*>(text.data()), text.size() - 1,
                 static_cast<uint8_t>(text.back()), out + RECORD_HEADER_BYTES);
    const bool harmed = how % 16 == 15;
    if (harmed) out[input.number() % record.size()] ^= static_cast<uint8_t>(1 + input.byte() % 255);
    Opened opened;
    const size_t measured = RecordReader::measure(out, record.size(), &opened);
    if (opened.verdict == Verdict::FAULT) return 0;
    if (measured == 0 || measured > record.size()) return 0;
    const uint64_t updates = reader.updates();
    opened = reader.open(out, measured);
    hold(!harmed || opened.verdict == Verdict::FAULT, "a changed record was accepted");
    if (opened.verdict == Verdict::DATA) {
      std::string wanted = text;
      while (!wanted.empty() && wanted.back() == 0) wanted.pop_back();
      wanted.pop_back();
      hold(std::string(reinterpret_cast<char*>(opened.content), opened.length) == wanted, "other content");
    }
    if (opened.verdict != Verdict::DATA && opened.verdict != Verdict::QUIET) return 0;
    if (reader.updates() > updates) sealing.update();
  }
  return 0;
}
