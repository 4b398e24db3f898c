#include "runtime.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <initializer_list>
#include <stdexcept>

#include "agent.h"
#include "clock.h"
#include "json.h"

namespace weft {
namespace {

using Words = std::vector<std::string>;

// An agent that answers has this time: nobody tries the start again, and many containers may start at once.
constexpr int kHoldMs = 15'000;
constexpr useconds_t kRetryUs = 500'000;
// The agent does not know the engine's containers yet. An engine that starts answers the agent only when it has started them.
constexpr int kUnknown = 503;
constexpr int kDiscardMs = 1'000;
constexpr useconds_t kDiscardPollUs = 5'000;
// Files of a container are tens of kilobytes.
constexpr size_t kMaxFileBytes = 4 * 1024 * 1024;
constexpr const char kRoute[] = "/start";

struct Options {
  std::string runc = "runc";
  std::string agent = "/var/run/ztunnel/weft-runtime.sock";
};

// Why a container may not start.
struct Refusal : std::runtime_error {
  using std::runtime_error::runtime_error;
};

[[noreturn]] void failed(const std::string& what) {
  throw Refusal(what + ": " + std::strerror(errno));
}

std::string readToEnd(int fd, const std::string& name) {
  std::string text;
  char chunk[16 * 1024];
  for (;;) {
    const ssize_t count = read(fd, chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) failed(name);
    if (count == 0) return text;
    text.append(chunk, static_cast<size_t>(count));
    if (text.size() > kMaxFileBytes) throw Refusal(name + " is too long");
  }
}

std::string readFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) failed(path);
  std::string text = readToEnd(fd, path);
  close(fd);
  return text;
}

Value parsed(std::string_view text, const std::string& name) {
  std::string problem;
  auto value = readJson(text, problem);
  if (!value) throw Refusal(name + " is no JSON: " + problem);
  return *value;
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

[[noreturn]] void become(const std::string& program, const Words& words) {
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(program.c_str(), arguments.data());
  failed(program);
}

// Runs runc on the container instead of `start`, and returns its standard output.
std::string runc(const Options& options, const Words& start, const Words& command) {
  Words words(start.begin(), start.end() - 2);
  words.insert(words.end(), command.begin(), command.end());
  const std::string name = options.runc + " " + command[0];
  int output[2];
  if (pipe2(output, O_CLOEXEC) != 0) failed("pipe");
  const pid_t pid = fork();
  if (pid < 0) failed("fork");
  if (pid == 0) {
    dup2(output[1], STDOUT_FILENO);
    try {
      become(options.runc, words);
    } catch (const Refusal&) {
      _exit(127);
    }
  }
  close(output[1]);
  const std::string text = readToEnd(output[0], name);
  close(output[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Refusal(name + " failed");
  return text;
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

// Asks until the agent lets the container start. Refuses when it says no, for an agent that is away, and for one that takes too long.
void ask(const Options& options, const std::string& event, bool claimed) {
  const Deadline held(kHoldMs);
  Deadline away(kAgentMs);
  for (;;) {
    std::string problem;
    const auto answer = askAgent(options.agent, kRoute, event, problem);
    if (answer) {
      if (answer->status == 200) return;
      problem = answer->reason.empty() ? "status " + std::to_string(answer->status) : answer->reason;
      if (answer->status / 100 == 4 || held.leftMs() <= 0) throw Refusal(problem);
      if (answer->status != kUnknown) away = Deadline(kAgentMs);
    } else if (!claimed) {
      return;
    }
    if (away.leftMs() <= 0) throw Refusal("the container is to be in the mesh, but " + problem);
    usleep(kRetryUs);
  }
}

void hold(const Options& options, const Words& start, const Value& state) {
  const std::string& id = start.back();
  const std::string specPath = textOf(state, {"bundle"}) + "/config.json";
  const std::string specText = readFile(specPath);
  const Value spec = parsed(specText, specPath);
  if (!hasOwnNetwork(spec)) return;
  // The engine's plugins are no containers, and have no labels.
  if (optionOf(start, "--root").ends_with("/plugins.moby")) return;
  const std::string folder = folderOf(spec, id);
  if (folder.empty()) throw Refusal("no file of a Docker engine is mounted in the container");
  const std::string configPath = folder + "config.v2.json";
  const std::string configText = readFile(configPath);
  const Value config = parsed(configText, configPath);
  if (find(config, {"Config"}) == nullptr) throw Refusal(configPath + " has no Config");
  const Value* labels = find(config, {"Config", "Labels"});
  if (labels == nullptr) return;
  const bool claimed = claims(*labels);
  if (!claimed && labels->member("weft.io/pod") == nullptr) return;
  std::string event = "{\"ContainerID\":" + quoted(id) + ",\"Pid\":";
  event.append(find(state, {"pid"})->raw).append(",\"Labels\":").append(labels->raw).append("}");
  ask(options, event, claimed);
}

// Ends the created process, and waits until it has ended: the engine leaves it behind when a start fails, and could not start the
// container again.
void discard(const Options& options, const Words& start, pid_t pid) {
  runc(options, start, {"kill", start.back(), "KILL"});
  const Deadline ended(kDiscardMs);
  while (kill(pid, 0) == 0 && ended.leftMs() > 0) usleep(kDiscardPollUs);
}

void holdStart(const Options& options, const Words& start) {
  const std::string text = runc(options, start, {"state", start.back()});
  const Value state = parsed(text, "the container's state");
  const Value* pid = state.member("pid");
  if (pid == nullptr) throw Refusal("the container's state has no pid");
  try {
    hold(options, start, state);
  } catch (const Refusal& refusal) {
    try {
      discard(options, start, static_cast<pid_t>(std::atoi(std::string(pid->raw).c_str())));
    } catch (const Refusal& second) {
      throw Refusal(refusal.what() + std::string("; ") + second.what());
    }
    throw;
  }
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

Options takeOptions(Words& words) {
  Options options;
  while (!words.empty() && words[0].starts_with("--weft-")) {
    const size_t split = words[0].find('=');
    const std::string name = words[0].substr(0, split);
    const std::string value = split == std::string::npos ? "" : words[0].substr(split + 1);
    if (value.empty() || (name != "--weft-runc" && name != "--weft-agent")) {
      throw Refusal("option " + words[0] + " must be --weft-runc=PATH or --weft-agent=PATH");
    }
    (name == "--weft-runc" ? options.runc : options.agent) = value;
    words.erase(words.begin());
  }
  return options;
}

}  // namespace

int runRuntime(Words words) {
  try {
    const Options options = takeOptions(words);
    // The engine's shim writes global options, `start` and the id.
    if (words.size() >= 2 && words[words.size() - 2] == "start") holdStart(options, words);
    become(options.runc, words);
  } catch (const Refusal& refusal) {
    tell(words, refusal.what());
    return 1;
  }
}

}  // namespace weft
