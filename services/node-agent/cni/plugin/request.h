// A container runtime's request to the plugin: the environment and standard input, checked.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "json.h"

namespace weft {

// Error codes of the CNI specification, section "Error".
enum class Code {
  incompatibleVersion = 1,
  invalidEnvironment = 4,
  ioFailure = 5,
  undecodable = 6,
  invalidConfig = 7,
  tryAgain = 11,
};

// A refusal, as the runtime gets it.
struct Failure {
  Code code;
  std::string message;
  std::string details;
};

inline constexpr std::string_view kVersions[] = {"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"};
inline constexpr std::string_view kNewest = "1.1.0";

// Returns true for a version that the plugin speaks.
bool speaks(std::string_view version);

// Reads a variable of the environment; null when it is not set.
using Environment = std::function<const char*(const char* name)>;

// The plugin's entry in the network configuration, and the result of the plugins before it.
struct Settings {
  std::string version;
  // Holds the agent's socket and the kubeconfig.
  std::string runDir;
  std::string ownNamespace;
  // DaemonSets of Weft in its own namespace.
  std::vector<std::string> ownDaemonSets;
  std::vector<std::string> excludedNamespaces;
  // Whether pods start that nobody can judge.
  bool allowUnknown = false;
  // Null when the plugin is the first of its list.
  const Value* previous = nullptr;
};

// The pod that a container belongs to.
struct Pod {
  std::string name;
  std::string space;
  std::string uid;
};

// Reads the settings. `config` must outlive them.
std::optional<Failure> readSettings(const Value& config, Settings& settings);

// Reads CNI_ARGS. The pod stays empty where no Kubernetes runs the container.
std::optional<Failure> readPod(const Environment& environment, Pod& pod);

// Checks that the runtime set these variables.
std::optional<Failure> require(const Environment& environment,
                               std::initializer_list<const char*> names);

// Returns why the pod never belongs to the mesh; empty when that must be asked.
std::string_view exemption(const Settings& settings, const Pod& pod);

}  // namespace weft
