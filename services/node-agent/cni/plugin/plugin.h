// The commands of the plugin, apart from the agent, the helper and the process.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent.h"
#include "helper.h"
#include "request.h"

namespace weft {

// A network configuration is a few kilobytes; what is longer is refused.
inline constexpr size_t kMaxInputBytes = 1024 * 1024;

// Whom the plugin asks.
struct Judges {
  std::function<std::optional<Answer>(const std::string& socketPath, std::string_view event,
                                      std::string& problem)>
      agent;
  std::function<Verdict(const std::string& question)> helper;
};

// The output of the process and its exit status.
struct Outcome {
  int status = 0;
  // For the runtime.
  std::string output;
  // For people; the runtime logs it.
  std::string log;
};

// Carries out CNI_COMMAND with the configuration that standard input held. DEL, GC and STATUS always succeed: a pod that ends
// needs no agent, and the node stays ready for pods outside the mesh.
Outcome run(const Environment& environment, std::string_view input, const Judges& judges);

}  // namespace weft
