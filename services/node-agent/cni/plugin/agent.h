// Asks the node agent over its unix socket.
#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace weft {

// The agent answers within this time, or counts as dead. istio-cni's plugin waits as long.
inline constexpr int kAgentMs = 5'000;
// An answer holds a reason in a few words; what is longer is cut.
inline constexpr size_t kMaxAnswerBytes = 16 * 1024;

// An answer of the agent.
struct Answer {
  int status = 0;
  std::string reason;
};

// Reads an answer as far as it has come. Nothing while its header is incomplete, and for what is no HTTP.
std::optional<Answer> readAnswer(std::string_view received);

// Returns how long the answer is that began like this. Nothing while its header is incomplete, and when the header does not tell.
std::optional<size_t> answerSize(std::string_view received);

// Posts the event to `route` and waits for the answer, for kAgentMs altogether. Nothing when no agent answers; then `problem` says why.
std::optional<Answer> askAgent(const std::string& socketPath, std::string_view route,
                               std::string_view event, std::string& problem);

}  // namespace weft
