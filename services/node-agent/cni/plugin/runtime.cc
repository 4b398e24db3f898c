#include "runtime.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <initializer_list>

#include "agent.h"
#include "clock.h"
#include "guard.h"
#include "json.h"

namespace weft {
namespace {

// An agent that answers has this time: nobody tries the start again, and many containers may start at once.
constexpr int kHoldMs = 15'000;
constexpr useconds_t kRetryUs = 500'000;
// The agent does not know the engine's containers yet. An engine that starts answers the agent only when it has started them.
constexpr int kUnknown = 503;
constexpr int kDiscardMs = 1'000;
constexpr useconds_t kDiscardPollUs = 5'000;
constexpr const char kRoute[] = "/start";

struct Options {
  std::string runc = "runc";
  std::string agent = "/var/run/ztunnel/weft-runtime.sock";
};

// A document and the text that its views point into.
struct Document {
  std::string text;
  Value value;
};

Problem parse(const std::string& name, Document& document) {
  std::string problem;
  auto value = readJson(document.text, problem);
  if (!value) return name + " is no JSON: " + problem;
  document.value = std::move(*value);
  return std::nullopt;
}

Problem readFile(const std::string& path, Document& document) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return systemProblem(path);
  const Problem problem = readToEnd(fd, path, document.text);
  close(fd);
  return problem ? problem : parse(path, document);
}

// The value below these names; null when there is none.
const Value* find(const Value& value, std::initializer_list<std::string_view> names) {
  const Value* at = &value;
  for (std::string_view name : names) {
    if (at != nullptr) at = at->member(name);
  }
  return at;
}

std::string textOf(const Value& value, std::initializer_list<std::string_view> names) {
  const Value* found = find(value, names);
  return found == nullptr ? "" : found->text;
}

// Runs runc on the container instead of `start`.
Problem runc(const Options& options, const Words& start, const Words& command, std::string& output) {
  Words words(start.begin(), start.end() - 2);
  words.insert(words.end(), command.begin(), command.end());
  return runProgram(options.runc, words, options.runc + " " + command[0], output);
}

Problem readState(const Options& options, const Words& start, Document& state) {
  if (auto problem = runc(options, start, {"state", start.back()}, state.text)) return problem;
  if (auto problem = parse("the container's state", state)) return problem;
  if (state.value.member("pid") == nullptr) return "the container's state has no pid";
  return std::nullopt;
}

// The value of a global option of runc.
std::string optionOf(const Words& words, std::string_view name) {
  for (size_t at = 0; at + 1 < words.size(); ++at) {
    if (words[at] == name) return words[at + 1];
  }
  return "";
}

// Whether the container has a network that is neither the host's nor another container's.
bool hasOwnNetwork(const Value& spec) {
  const Value* namespaces = find(spec, {"linux", "namespaces"});
  if (namespaces == nullptr) return false;
  for (const Value& one : namespaces->items) {
    if (textOf(one, {"type"}) == "network") return textOf(one, {"path"}).empty();
  }
  return false;
}

// The engine's folder of the container, which its host name and hosts are mounted from; empty when there is none.
std::string folderOf(const Value& spec, const std::string& id) {
  const std::string part = "/containers/" + id + "/";
  const Value* mounts = find(spec, {"mounts"});
  if (mounts == nullptr) return "";
  for (const Value& mount : mounts->items) {
    const std::string source = textOf(mount, {"source"});
    const size_t at = source.rfind(part);
    if (at != std::string::npos) return source.substr(0, at + part.size());
  }
  return "";
}

// Whether only the agent may let the container start. A pod without a mode is in the mesh where the agent's selectors say so; one
// of a named node is a pod of Compose's, which joins the mesh by its health.
bool claims(const Value& labels) {
  const Value* mode = labels.member("istio.io/dataplane-mode");
  if (mode != nullptr) return mode->text == "ambient";
  return labels.member("weft.io/pod") != nullptr && labels.member("weft.io/node") == nullptr;
}

// Asks until the agent lets the container start. Fails when it says no, for an agent that is away, and for one that takes too long.
Problem ask(const Options& options, const std::string& event, bool claimed) {
  const Deadline held(kHoldMs);
  Deadline away(kAgentMs);
  for (;;) {
    std::string problem;
    const auto answer = askAgent(options.agent, kRoute, event, problem);
    if (answer) {
      if (answer->status == 200) return std::nullopt;
      problem = answer->reason.empty() ? "status " + std::to_string(answer->status) : answer->reason;
      if (answer->status / 100 == 4 || held.leftMs() <= 0) return problem;
      if (answer->status != kUnknown) away = Deadline(kAgentMs);
    } else if (!claimed) {
      return std::nullopt;
    }
    if (away.leftMs() <= 0) return "the container is to be in the mesh, but " + problem;
    usleep(kRetryUs);
  }
}

// Waits until the container may start. Returns why it may not.
Problem hold(const Options& options, const Words& start) {
  Document state;
  if (auto problem = readState(options, start, state)) return problem;
  const std::string& id = start.back();
  Document spec;
  if (auto problem = readFile(textOf(state.value, {"bundle"}) + "/config.json", spec)) return problem;
  if (!hasOwnNetwork(spec.value)) return std::nullopt;
  // The engine's plugins are no containers, and have no labels.
  if (optionOf(start, "--root").ends_with("/plugins.moby")) return std::nullopt;
  const std::string folder = folderOf(spec.value, id);
  if (folder.empty()) return "no file of a Docker engine is mounted in the container";
  const std::string configPath = folder + "config.v2.json";
  Document config;
  if (auto problem = readFile(configPath, config)) return problem;
  if (find(config.value, {"Config"}) == nullptr) return configPath + " has no Config";
  const Value* labels = find(config.value, {"Config", "Labels"});
  if (labels == nullptr) return std::nullopt;
  const bool claimed = claims(*labels);
  if (!claimed && labels->member("weft.io/pod") == nullptr) return std::nullopt;
  std::string event = "{\"ContainerID\":" + quoted(id) + ",\"Pid\":";
  event.append(state.value.member("pid")->raw);
  event.append(",\"Labels\":").append(labels->raw).append("}");
  return ask(options, event, claimed);
}

// Tells the reason as runc does: the engine shows the last error of the log.
void tell(const Words& words, const std::string& reason) {
  const std::string text = "weft-runtime: " + reason;
  dprintf(STDERR_FILENO, "%s\n", text.c_str());
  const int fd = open(optionOf(words, "--log").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return;
  char time[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(time, sizeof time, "%FT%TZ", std::gmtime(&now));
  dprintf(fd, "{\"level\":\"error\",\"msg\":%s,\"time\":\"%s\"}\n", quoted(text).c_str(), time);
  close(fd);
}

// Ends the created process, and waits until it has ended: the engine leaves it behind when a start fails, and could not start the
// container again.
bool discard(const Options& options, const Words& start) {
  Document state;
  const Problem unknown = readState(options, start, state);
  std::string output;
  if (const auto problem = runc(options, start, {"kill", start.back(), "KILL"}, output)) {
    tell(start, *problem);
    return false;
  }
  if (unknown) return true;
  const pid_t pid = std::atoi(std::string(state.value.member("pid")->raw).c_str());
  const Deadline ended(kDiscardMs);
  while (pid > 0 && kill(pid, 0) == 0 && ended.leftMs() > 0) usleep(kDiscardPollUs);
  return true;
}

// Holds the start. The created process ends when the container may not start, and when this process is killed meanwhile.
Problem holdStart(const Options& options, const Words& start) {
  Guard guard;
  if (auto problem = guard.start([&] { return discard(options, start); })) return problem;
  Problem problem = hold(options, start);
  if (!problem) {
    guard.release();
  } else if (!guard.cleanUp()) {
    *problem += "; its process could not be ended";
  }
  return problem;
}

Problem takeOptions(Words& words, Options& options) {
  while (!words.empty() && words[0].starts_with("--weft-")) {
    const size_t split = words[0].find('=');
    const std::string name = words[0].substr(0, split);
    const std::string value = split == std::string::npos ? "" : words[0].substr(split + 1);
    if (value.empty() || (name != "--weft-runc" && name != "--weft-agent")) {
      return "option " + words[0] + " must be --weft-runc=PATH or --weft-agent=PATH";
    }
    (name == "--weft-runc" ? options.runc : options.agent) = value;
    words.erase(words.begin());
  }
  return std::nullopt;
}

}  // namespace

int runRuntime(Words words) {
  Options options;
  Problem problem = takeOptions(words, options);
  // The engine's shim writes global options, `start` and the id.
  const bool starts = words.size() >= 2 && words[words.size() - 2] == "start";
  if (!problem && starts) problem = holdStart(options, words);
  if (!problem) problem = become(options.runc, words);
  tell(words, *problem);
  return 1;
}

}  // namespace weft
