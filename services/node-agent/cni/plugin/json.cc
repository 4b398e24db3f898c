#include "json.h"

#include <cstdint>

namespace weft {
namespace {

// Returns the length of the UTF-8 character at the start of `text`; 0 for bytes that are none (RFC 3629).
size_t characterLength(std::string_view text) {
  const auto at = [&](size_t index) { return static_cast<uint8_t>(text[index]); };
  const uint8_t first = at(0);
  if (first < 0x80) return 1;
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < length) return 0;
  for (size_t index = 1; index < length; ++index) {
    if ((at(index) & 0xc0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and characters above U+10FFFF.
  if (first == 0xe0 && at(1) < 0xa0) return 0;
  if (first == 0xed && at(1) > 0x9f) return 0;
  if (first == 0xf0 && at(1) < 0x90) return 0;
  if (first == 0xf4 && at(1) > 0x8f) return 0;
  return length;
}

void append(std::string& to, uint32_t point) {
  if (point < 0x80) {
    to += static_cast<char>(point);
  } else if (point < 0x800) {
    to += static_cast<char>(0xc0 | point >> 6);
    to += static_cast<char>(0x80 | (point & 0x3f));
  } else if (point < 0x10000) {
    to += static_cast<char>(0xe0 | point >> 12);
    to += static_cast<char>(0x80 | (point >> 6 & 0x3f));
    to += static_cast<char>(0x80 | (point & 0x3f));
  } else {
    to += static_cast<char>(0xf0 | point >> 18);
    to += static_cast<char>(0x80 | (point >> 12 & 0x3f));
    to += static_cast<char>(0x80 | (point >> 6 & 0x3f));
    to += static_cast<char>(0x80 | (point & 0x3f));
  }
}

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  bool document(Value& value) {
    space();
    if (!read(value, 0)) return false;
    space();
    return at_ == text_.size() || fail("something follows the document");
  }

  const std::string& problem() const { return problem_; }

 private:
  bool fail(const char* why) {
    if (problem_.empty()) problem_ = std::string(why) + " at byte " + std::to_string(at_);
    return false;
  }

  bool more() const { return at_ < text_.size(); }
  char peek() const { return more() ? text_[at_] : '\0'; }

  bool take(char wanted) {
    if (!more() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }

  void space() {
    while (more() && (peek() == ' ' || peek() == '\t' || peek() == '\n' || peek() == '\r')) ++at_;
  }

  bool word(std::string_view wanted) {
    if (text_.substr(at_, wanted.size()) != wanted) return fail("no value");
    at_ += wanted.size();
    return true;
  }

  bool read(Value& value, int depth) {
    if (depth > kMaxDepth) return fail("the nesting is too deep");
    const size_t start = at_;
    if (!content(value, depth)) return false;
    value.raw = text_.substr(start, at_ - start);
    return true;
  }

  bool content(Value& value, int depth) {
    switch (peek()) {
      case '{':
        value.kind = Value::Kind::object;
        return object(value, depth);
      case '[':
        value.kind = Value::Kind::array;
        return array(value, depth);
      case '"':
        value.kind = Value::Kind::string;
        return string(value.text);
      case 't':
        value.kind = Value::Kind::boolean;
        return word("true");
      case 'f':
        value.kind = Value::Kind::boolean;
        return word("false");
      case 'n':
        return word("null");
      default:
        value.kind = Value::Kind::number;
        return number();
    }
  }

  bool object(Value& value, int depth) {
    ++at_;
    space();
    if (take('}')) return true;
    while (true) {
      Member member;
      if (peek() != '"') return fail("no name of a member");
      if (!string(member.name)) return false;
      space();
      if (!take(':')) return fail("no colon after a name");
      space();
      if (!read(member.value, depth + 1)) return false;
      value.members.push_back(std::move(member));
      space();
      if (take('}')) return true;
      if (!take(',')) return fail("neither a comma nor the end of an object");
      space();
    }
  }

  bool array(Value& value, int depth) {
    ++at_;
    space();
    if (take(']')) return true;
    while (true) {
      Value item;
      if (!read(item, depth + 1)) return false;
      value.items.push_back(std::move(item));
      space();
      if (take(']')) return true;
      if (!take(',')) return fail("neither a comma nor the end of an array");
      space();
    }
  }

  bool digits() {
    const size_t start = at_;
    while (peek() >= '0' && peek() <= '9') ++at_;
    return at_ > start || fail("no digit");
  }

  bool number() {
    take('-');
    if (!take('0') && !digits()) return false;
    if (take('.') && !digits()) return false;
    if (peek() == 'e' || peek() == 'E') {
      ++at_;
      if (!take('+')) take('-');
      return digits();
    }
    return true;
  }

  bool string(std::string& to) {
    ++at_;
    while (more()) {
      const char next = peek();
      if (next == '"') {
        ++at_;
        return true;
      }
      if (next == '\\') {
        if (!escape(to)) return false;
        continue;
      }
      if (static_cast<uint8_t>(next) < 0x20) return fail("a control character in a string");
      const size_t length = characterLength(text_.substr(at_));
      if (length == 0) return fail("a string is not UTF-8");
      to.append(text_.substr(at_, length));
      at_ += length;
    }
    return fail("a string without an end");
  }

  bool escape(std::string& to) {
    ++at_;
    const char kind = peek();
    ++at_;
    switch (kind) {
      case '"':
      case '\\':
      case '/':
        to += kind;
        return true;
      case 'b':
        to += '\b';
        return true;
      case 'f':
        to += '\f';
        return true;
      case 'n':
        to += '\n';
        return true;
      case 'r':
        to += '\r';
        return true;
      case 't':
        to += '\t';
        return true;
      case 'u':
        return point(to);
      default:
        --at_;
        return fail("an unknown escape");
    }
  }

  bool point(std::string& to) {
    uint32_t high = 0;
    if (!hex(high)) return false;
    if (high >= 0xdc00 && high < 0xe000) return fail("half of a surrogate pair");
    if (high < 0xd800 || high >= 0xe000) {
      append(to, high);
      return true;
    }
    uint32_t low = 0;
    if (!take('\\') || !take('u')) return fail("half of a surrogate pair");
    if (!hex(low)) return false;
    if (low < 0xdc00 || low >= 0xe000) return fail("half of a surrogate pair");
    append(to, 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00));
    return true;
  }

  bool hex(uint32_t& value) {
    for (int index = 0; index < 4; ++index, ++at_) {
      const char digit = peek();
      value <<= 4;
      if (digit >= '0' && digit <= '9') {
        value |= static_cast<uint32_t>(digit - '0');
      } else if (digit >= 'a' && digit <= 'f') {
        value |= static_cast<uint32_t>(digit - 'a' + 10);
      } else if (digit >= 'A' && digit <= 'F') {
        value |= static_cast<uint32_t>(digit - 'A' + 10);
      } else {
        return fail("no hexadecimal digit");
      }
    }
    return true;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string problem_;
};

}  // namespace

const Value* Value::member(std::string_view name) const {
  for (auto member = members.rbegin(); member != members.rend(); ++member) {
    if (member->name == name) return &member->value;
  }
  return nullptr;
}

std::optional<Value> readJson(std::string_view text, std::string& problem) {
  Reader reader(text);
  Value value;
  if (reader.document(value)) return value;
  problem = reader.problem();
  return std::nullopt;
}

std::string quoted(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string result = "\"";
  while (!text.empty()) {
    const auto first = static_cast<uint8_t>(text[0]);
    const size_t length = characterLength(text);
    if (length == 0) {
      result += "\xef\xbf\xbd";
    } else if (first == '"' || first == '\\') {
      result += '\\';
      result += text[0];
    } else if (first < 0x20) {
      result += "\\u00";
      result += kHex[first >> 4];
      result += kHex[first & 15];
    } else {
      result.append(text.substr(0, length));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return result + '"';
}

}  // namespace weft
