// Asks the slow helper, which judges a pod by the Kubernetes API while no agent answers.
#pragma once
#include <string>
#include <string_view>

namespace weft {

// Node starts, and reads twice from an API server that may be away.
inline constexpr int kHelperMs = 20'000;
inline constexpr size_t kMaxVerdictBytes = 4 * 1024;
// Helpers of a node at once: each takes some eighty megabytes, and every pod may start at the same time, as after a boot.
inline constexpr int kMaxHelpers = 8;

// A judgement about a pod.
struct Verdict {
  enum class Kind { mesh, outside, unknown };
  Kind kind = Kind::unknown;
  std::string reason;
};

// Reads the helper's line: `mesh`, `outside` or `unknown`, a space, and the reason. Anything else is unknown.
Verdict readVerdict(std::string_view line);

// Runs the helper of the installed folder beside this program, with the question on its standard input. Waits for its turn, and the
// helper's time counts from then on.
Verdict askHelper(const std::string& question);

}  // namespace weft
