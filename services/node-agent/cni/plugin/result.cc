#include "result.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cstdint>

namespace weft {
namespace {

// A piece of the previous result that is replaced.
struct Splice {
  size_t offset;
  size_t length;
  std::string text;
};

size_t offsetIn(std::string_view whole, std::string_view part) {
  return static_cast<size_t>(part.data() - whole.data());
}

// Results before 1.0.0 name the family of each address.
void addFamilies(const Value& result, std::vector<Splice>& splices) {
  const Value* ips = result.member("ips");
  if (ips == nullptr) return;
  for (const Value& ip : ips->items) {
    if (ip.kind != Value::Kind::object || ip.members.empty() || ip.member("version") != nullptr) {
      continue;
    }
    const Value* address = ip.member("address");
    const bool v6 = address != nullptr && address->text.find(':') != std::string::npos;
    splices.push_back(
        {offsetIn(result.raw, ip.raw) + 1, 0, v6 ? "\"version\":\"6\"," : "\"version\":\"4\","});
  }
}

std::string base64(const uint8_t* bytes, size_t length) {
  static constexpr char kLetters[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t index = 0; index < length; index += 3) {
    const size_t left = length - index;
    const uint32_t group = static_cast<uint32_t>(bytes[index]) << 16 |
                           (left > 1 ? static_cast<uint32_t>(bytes[index + 1]) << 8 : 0) |
                           (left > 2 ? bytes[index + 2] : 0u);
    text += kLetters[group >> 18];
    text += kLetters[group >> 12 & 63];
    text += left > 1 ? kLetters[group >> 6 & 63] : '=';
    text += left > 2 ? kLetters[group & 63] : '=';
  }
  return text;
}

bool isAddress(const std::string& text) {
  uint8_t bytes[16];
  return inet_pton(AF_INET, text.c_str(), bytes) == 1 || inet_pton(AF_INET6, text.c_str(), bytes) == 1;
}

// Appends `{"IP":…,"Mask":…}` for an address with a prefix length; false when it is none.
bool appendAddress(const std::string& cidr, std::string& text) {
  const size_t slash = cidr.find('/');
  if (slash == std::string::npos) return false;
  const std::string ip = cidr.substr(0, slash);
  if (!isAddress(ip)) return false;
  const size_t width = ip.find(':') == std::string::npos ? 4 : 16;
  unsigned bits = 0;
  const char* end = cidr.data() + cidr.size();
  const auto [rest, error] = std::from_chars(cidr.data() + slash + 1, end, bits);
  if (error != std::errc() || rest != end || bits > width * 8) return false;
  uint8_t mask[16] = {};
  for (unsigned bit = 0; bit < bits; ++bit) mask[bit / 8] |= static_cast<uint8_t>(0x80 >> bit % 8);
  text += "{\"IP\":" + quoted(ip) + ",\"Mask\":" + quoted(base64(mask, width)) + "}";
  return true;
}

bool appendIp(const Value& ip, std::string& text) {
  const Value* address = ip.member("address");
  if (address == nullptr || address->kind != Value::Kind::string) return false;
  const Value* index = ip.member("interface");
  const bool known = index != nullptr && index->kind == Value::Kind::number;
  text += "{\"Interface\":";
  text += known ? index->raw : std::string_view("null");
  text += ",\"Address\":";
  if (!appendAddress(address->text, text)) return false;
  const Value* gateway = ip.member("gateway");
  if (gateway != nullptr && gateway->kind == Value::Kind::string && isAddress(gateway->text)) {
    text += ",\"Gateway\":" + quoted(gateway->text);
  }
  text += "}";
  return true;
}

}  // namespace

std::string resultText(const Settings& settings) {
  const std::string version = quoted(settings.version);
  if (settings.previous == nullptr) return "{\"cniVersion\":" + version + ",\"dns\":{}}\n";
  const Value& result = *settings.previous;
  std::vector<Splice> splices;
  bool named = false;
  for (const Member& member : result.members) {
    if (member.name != "cniVersion") continue;
    named = true;
    splices.push_back({offsetIn(result.raw, member.value.raw), member.value.raw.size(), version});
  }
  if (!named) {
    const char* comma = result.members.empty() ? "" : ",";
    splices.push_back({1, 0, "\"cniVersion\":" + version + comma});
  }
  if (settings.version[0] == '0') addFamilies(result, splices);
  std::sort(splices.begin(), splices.end(),
            [](const Splice& a, const Splice& b) { return a.offset < b.offset; });
  std::string text;
  size_t at = 0;
  for (const Splice& splice : splices) {
    text += result.raw.substr(at, splice.offset - at);
    text += splice.text;
    at = splice.offset + splice.length;
  }
  text += result.raw.substr(at);
  return text + '\n';
}

std::string errorText(std::string_view version, const Failure& failure) {
  std::string text = "{\"cniVersion\":" + quoted(version);
  text += ",\"code\":" + std::to_string(static_cast<int>(failure.code));
  text += ",\"msg\":" + quoted(failure.message);
  if (!failure.details.empty()) text += ",\"details\":" + quoted(failure.details);
  return text + "}\n";
}

std::string versionsText(std::string_view asked) {
  std::string text = "{\"cniVersion\":" + quoted(speaks(asked) ? asked : kNewest);
  text += ",\"supportedVersions\":[";
  for (std::string_view version : kVersions) {
    if (version != kVersions[0]) text += ',';
    text += quoted(version);
  }
  return text + "]}\n";
}

std::optional<Failure> eventText(const AddEvent& event, std::string& text) {
  text = "{\"Netns\":" + quoted(event.netns) + ",\"PodName\":" + quoted(event.pod.name) +
         ",\"PodNamespace\":" + quoted(event.pod.space) + ",\"IPs\":[";
  const Value* ips = event.previous == nullptr ? nullptr : event.previous->member("ips");
  if (ips != nullptr) {
    for (const Value& ip : ips->items) {
      if (&ip != &ips->items.front()) text += ',';
      if (appendIp(ip, text)) continue;
      return Failure{Code::invalidConfig, "prevResult.ips has an entry without a valid address",
                     std::string(ip.raw)};
    }
  }
  text += "],\"PodUID\":" + quoted(event.pod.uid) + ",\"ContainerID\":" + quoted(event.container) +
          ",\"AgentDecides\":true}";
  return std::nullopt;
}

}  // namespace weft
