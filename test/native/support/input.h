// Reads a fuzzer's bytes as choices.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace carried {

class Input {
 public:
  Input(const uint8_t* bytes, size_t length) : bytes_(bytes), left_(length) {}
  bool ended() const { return left_ == 0; }
  uint8_t byte() {
    if (left_ == 0) return 0;
    left_ -= 1;
    return *bytes_++;
  }
  uint32_t number() { return static_cast<uint32_t>(byte()) << 24 | static_cast<uint32_t>(byte()) << 16 | static_cast<uint32_t>(byte()) << 8 | byte(); }
  std::string text(size_t length) {
    const size_t part = std::min(length, left_);
    std::string out(reinterpret_cast<const char*>(bytes_), part);
    bytes_ += part;
    left_ -= part;
    return out;
  }

 private:
  const uint8_t* bytes_;
  size_t left_;
};

// Ends the fuzzer, which keeps the input.
inline void hold(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken: %s\n", what);
  abort();
}

}  // namespace carried
