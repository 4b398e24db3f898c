#include "request.h"

#include <algorithm>

namespace weft {
namespace {

constexpr size_t kMaxNameLength = 253;
// Kubernetes ends the names of a DaemonSet's pods with a dash and five of these.
constexpr std::string_view kSuffixLetters = "bcdfghjklmnpqrstvwxz2456789";
constexpr size_t kSuffixLength = 5;

Failure invalidConfig(std::string_view field, const char* expected) {
  return {Code::invalidConfig, "field " + std::string(field) + " must be " + expected, ""};
}

std::optional<Failure> readText(const Value& config, std::string_view name, std::string& text) {
  const Value* value = config.member(name);
  if (value == nullptr) return std::nullopt;
  if (value->kind != Value::Kind::string) return invalidConfig(name, "a string");
  text = value->text;
  return std::nullopt;
}

std::optional<Failure> readList(const Value& config, std::string_view name,
                                std::vector<std::string>& list) {
  const Value* value = config.member(name);
  if (value == nullptr) return std::nullopt;
  if (value->kind != Value::Kind::array) return invalidConfig(name, "a list of strings");
  for (const Value& item : value->items) {
    if (item.kind != Value::Kind::string) return invalidConfig(name, "a list of strings");
    list.push_back(item.text);
  }
  return std::nullopt;
}

std::optional<Failure> readPrevious(const Value& config, Settings& settings) {
  const Value* previous = config.member("prevResult");
  if (previous == nullptr || previous->kind == Value::Kind::null) return std::nullopt;
  if (previous->kind != Value::Kind::object) return invalidConfig("prevResult", "an object");
  const Value* version = previous->member("cniVersion");
  if (version != nullptr && (version->kind != Value::Kind::string || !speaks(version->text))) {
    return invalidConfig("prevResult.cniVersion", "a version from 0.3.0 to 1.1.0");
  }
  settings.previous = previous;
  return std::nullopt;
}

// A name of Kubernetes: it goes into paths and requests.
bool isName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxNameLength && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), [](char letter) {
           return (letter >= 'a' && letter <= 'z') || (letter >= '0' && letter <= '9') ||
                  letter == '-' || letter == '.';
         });
}

bool isOfDaemonSet(std::string_view pod, std::string_view daemonSet) {
  if (pod.size() != daemonSet.size() + 1 + kSuffixLength) return false;
  if (!pod.starts_with(daemonSet) || pod[daemonSet.size()] != '-') return false;
  return pod.substr(daemonSet.size() + 1).find_first_not_of(kSuffixLetters) ==
         std::string_view::npos;
}

}  // namespace

bool speaks(std::string_view version) {
  return std::find(std::begin(kVersions), std::end(kVersions), version) != std::end(kVersions);
}

std::optional<Failure> readSettings(const Value& config, Settings& settings) {
  if (config.kind != Value::Kind::object) {
    return Failure{Code::invalidConfig, "the network configuration must be an object", ""};
  }
  // The specification's default for a configuration that names none.
  settings.version = "0.1.0";
  if (auto failure = readText(config, "cniVersion", settings.version)) return failure;
  if (!speaks(settings.version)) {
    return Failure{Code::incompatibleVersion, "CNI version " + settings.version + " is not supported",
                   "weft-cni speaks 0.3.0, 0.3.1, 0.4.0, 1.0.0 and 1.1.0"};
  }
  std::string onUnknown = "deny";
  if (auto failure = readText(config, "cni_agent_run_dir", settings.runDir)) return failure;
  if (auto failure = readText(config, "pod_namespace", settings.ownNamespace)) return failure;
  if (auto failure = readList(config, "own_daemonsets", settings.ownDaemonSets)) return failure;
  if (auto failure = readList(config, "exclude_namespaces", settings.excludedNamespaces)) {
    return failure;
  }
  if (auto failure = readText(config, "on_unknown", onUnknown)) return failure;
  if (settings.runDir.empty() || settings.runDir[0] != '/') {
    return invalidConfig("cni_agent_run_dir", "an absolute path");
  }
  if (onUnknown != "deny" && onUnknown != "allow") {
    return invalidConfig("on_unknown", "deny or allow");
  }
  settings.allowUnknown = onUnknown == "allow";
  return readPrevious(config, settings);
}

std::optional<Failure> readPod(const Environment& environment, Pod& pod) {
  const char* found = environment("CNI_ARGS");
  std::string_view rest = found == nullptr ? "" : found;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find(';'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    if (pair.empty()) continue;
    const size_t split = pair.find('=');
    if (split == std::string_view::npos) {
      return Failure{Code::invalidEnvironment, "CNI_ARGS must be KEY=VALUE pairs", std::string(pair)};
    }
    const std::string_view key = pair.substr(0, split);
    const std::string value(pair.substr(split + 1));
    if (key == "K8S_POD_NAME") pod.name = value;
    if (key == "K8S_POD_NAMESPACE") pod.space = value;
    if (key == "K8S_POD_UID") pod.uid = value;
  }
  if (pod.name.empty() != pod.space.empty()) {
    return Failure{Code::invalidEnvironment,
                   "CNI_ARGS must have both K8S_POD_NAME and K8S_POD_NAMESPACE, or neither", ""};
  }
  if (pod.name.empty()) return std::nullopt;
  for (const std::string& name : {pod.name, pod.space}) {
    if (!isName(name)) {
      return Failure{Code::invalidEnvironment, "CNI_ARGS names a pod that cannot exist", name};
    }
  }
  if (!pod.uid.empty() && !isName(pod.uid)) {
    return Failure{Code::invalidEnvironment, "K8S_POD_UID in CNI_ARGS is no uid", pod.uid};
  }
  return std::nullopt;
}

std::optional<Failure> require(const Environment& environment,
                               std::initializer_list<const char*> names) {
  for (const char* name : names) {
    const char* value = environment(name);
    if (value == nullptr || *value == '\0') {
      return Failure{Code::invalidEnvironment, std::string(name) + " is not set", ""};
    }
  }
  return std::nullopt;
}

std::string_view exemption(const Settings& settings, const Pod& pod) {
  if (pod.name.empty()) return "no pod of Kubernetes";
  const auto& excluded = settings.excludedNamespaces;
  if (std::find(excluded.begin(), excluded.end(), pod.space) != excluded.end()) {
    return "excluded namespace";
  }
  if (pod.space != settings.ownNamespace) return "";
  for (const std::string& daemonSet : settings.ownDaemonSets) {
    if (isOfDaemonSet(pod.name, daemonSet)) return "pod of Weft's own";
  }
  return "";
}

}  // namespace weft
