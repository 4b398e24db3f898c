// weft-cni: the chained CNI plugin. The container runtime starts it for each pod, on the host, as root. Under the name weft-runtime
// it is the OCI runtime of a Docker engine.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "plugin.h"
#include "result.h"
#include "runtime.h"

namespace {

bool writeAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

// Reads to the end, or to one byte more than is allowed.
bool readAll(int fd, std::string& text) {
  char chunk[16 * 1024];
  while (text.size() <= weft::kMaxInputBytes) {
    const ssize_t count = read(fd, chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) return true;
    text.append(chunk, static_cast<size_t>(count));
  }
  return true;
}

}  // namespace

int main(int count, char** words) {
  const std::string_view name = count > 0 ? words[0] : "";
  if (name.substr(name.rfind('/') + 1) == "weft-runtime") {
    return weft::runRuntime({words + 1, words + count});
  }
  const weft::Environment environment = [](const char* name) { return std::getenv(name); };
  const weft::Judges judges{
      [](const std::string& socketPath, std::string_view event, std::string& problem) {
        return weft::askAgent(socketPath, "/cmdadd", event, problem);
      },
      weft::askHelper};
  std::string input;
  weft::Outcome outcome;
  if (readAll(STDIN_FILENO, input)) {
    outcome = weft::run(environment, input, judges);
  } else {
    const std::string reason = std::strerror(errno);
    // As `run` promises for commands that always succeed.
    outcome = weft::run(environment, "", judges);
    if (outcome.status != 0) {
      const weft::Failure failure{weft::Code::ioFailure, "standard input cannot be read: " + reason, ""};
      outcome.output = weft::errorText(weft::kNewest, failure);
    }
  }
  writeAll(STDERR_FILENO, outcome.log);
  return writeAll(STDOUT_FILENO, outcome.output) ? outcome.status : 1;
}
