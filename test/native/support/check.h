// The smallest test runner that does: named tests, checks that name their place, one line a test.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace check {

struct Test {
  const char* name;
  void (*run)();
};

inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

inline int& failures() {
  static int count = 0;
  return count;
}

struct Registration {
  Registration(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

inline void fail(const char* file, int line, const std::string& what) {
  failures() += 1;
  std::printf("  %s:%d: %s\n", file, line, what.c_str());
}

template <typename A, typename B>
void equal(const A& actual, const B& expected, const char* text, const char* file, int line) {
  if (actual == expected) return;
  if constexpr (std::is_arithmetic_v<A> && std::is_arithmetic_v<B>) {
    fail(file, line, std::string(text) + " is " + std::to_string(actual) + " and not " +
                         std::to_string(expected));
  } else {
    fail(file, line, std::string(text) + " differs");
  }
}

// Runs the tests whose name contains `filter`; prints `ok NAME` or `not ok NAME`. The exit status tells a failure.
inline int main(const char* filter) {
  int failed = 0;
  for (const Test& test : tests()) {
    if (filter != nullptr && std::string(test.name).find(filter) == std::string::npos) continue;
    const int before = failures();
    test.run();
    const bool good = failures() == before;
    if (!good) failed += 1;
    std::printf("%s %s\n", good ? "ok" : "not ok", test.name);
    std::fflush(stdout);
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace check

#define TEST(identifier, name)                                        \
  static void identifier();                                           \
  static const check::Registration registration_##identifier(name, identifier); \
  static void identifier()
#define CHECK(condition) \
  do {                   \
    if (!(condition)) check::fail(__FILE__, __LINE__, #condition); \
  } while (false)
#define EQUAL(actual, expected) check::equal(actual, expected, #actual, __FILE__, __LINE__)
