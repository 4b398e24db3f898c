// A strict JSON reader (RFC 8259). It keeps the bytes of every value, so that foreign values are printed as they came.
#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

// A document with deeper nesting is refused: the reader recurses.
inline constexpr int kMaxDepth = 64;

struct Member;

// A value of a document. Its views point into the text that was read, which must outlive it.
struct Value {
  enum class Kind { null, boolean, number, string, array, object };
  Kind kind = Kind::null;
  // The bytes of the value.
  std::string_view raw;
  // The characters of a string, with escapes resolved.
  std::string text;
  std::vector<Value> items;
  std::vector<Member> members;

  // Returns the member of that name; null when there is none. Of several the last counts, as in Go.
  const Value* member(std::string_view name) const;
};

struct Member {
  std::string name;
  Value value;
};

// Reads one document. On failure returns nothing and sets `problem` to the reason and the byte.
std::optional<Value> readJson(std::string_view text, std::string& problem);

// Returns `text` as a JSON string with its quotes. Bytes that are no UTF-8 become U+FFFD.
std::string quoted(std::string_view text);

}  // namespace weft
