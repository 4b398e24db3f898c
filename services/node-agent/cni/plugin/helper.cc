#include "helper.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "clock.h"

namespace weft {
namespace {

// The installer's folder beside the program (services/node-agent/cni/helper-files.ts).
constexpr const char kFolder[] = "weft-cni.d";
// A file in it whose bytes are the turns of helpers: who runs one has locked a byte.
constexpr const char kTurns[] = "/package.json";
// A pod without a turn in this time is one that nobody can judge.
constexpr int kTurnMs = 20'000;
constexpr useconds_t kTurnPollUs = 20'000;

// The folder as it is now: the installer may replace the link to it meanwhile.
std::string findFolder(std::string& problem) {
  char program[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length < 0) {
    problem = std::string("/proc/self/exe: ") + std::strerror(errno);
    return "";
  }
  std::string path(program, static_cast<size_t>(length));
  path.resize(path.rfind('/') + 1);
  path += kFolder;
  char resolved[PATH_MAX];
  if (realpath(path.c_str(), resolved) == nullptr) {
    problem = path + ": " + std::strerror(errno);
    return "";
  }
  return resolved;
}

// Takes a turn, which the kernel returns when this process ends. Sets `problem` when there is none in time.
bool takeTurn(const std::string& folder, std::string& problem) {
  const std::string path = folder + kTurns;
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) {
    problem = path + ": " + std::strerror(errno);
    return false;
  }
  const Deadline deadline(kTurnMs);
  for (;;) {
    for (int turn = 0; turn < kMaxHelpers; ++turn) {
      struct flock lock {};
      lock.l_type = F_WRLCK;
      lock.l_whence = SEEK_SET;
      lock.l_start = turn;
      lock.l_len = 1;
      if (fcntl(fd, F_SETLK, &lock) == 0) return true;
      if (errno != EAGAIN && errno != EACCES) {
        problem = path + ": " + std::strerror(errno);
        return false;
      }
    }
    if (deadline.leftMs() <= 0) {
      problem = std::to_string(kMaxHelpers) + " helpers run all the time";
      return false;
    }
    usleep(kTurnPollUs);
  }
}

struct Child {
  pid_t pid = -1;
  int input = -1;
  int output = -1;
};

[[noreturn]] void become(const std::string& folder, int input, int output) {
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  const std::string loader = folder + "/ld.so";
  const std::string libraries = folder + "/lib";
  const std::string node = folder + "/node";
  const std::string script = folder + "/services/node-agent/cni/helper.ts";
  const char* arguments[] = {loader.c_str(), "--library-path", libraries.c_str(),
                             node.c_str(),   script.c_str(),   nullptr};
  const char* environment[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", nullptr};
  execve(loader.c_str(), const_cast<char**>(arguments), const_cast<char**>(environment));
  _exit(127);
}

std::optional<Child> start(const std::string& folder) {
  int input[2];
  int output[2];
  if (pipe2(input, O_CLOEXEC) != 0) return std::nullopt;
  if (pipe2(output, O_CLOEXEC) != 0) {
    close(input[0]);
    close(input[1]);
    return std::nullopt;
  }
  const pid_t pid = fork();
  if (pid == 0) become(folder, input[0], output[1]);
  close(input[0]);
  close(output[1]);
  if (pid > 0) return Child{pid, input[1], output[0]};
  close(input[1]);
  close(output[0]);
  return std::nullopt;
}

// Writes the question; the helper reads all of it before it does anything else.
void tell(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

// Returns the output, or nothing when it does not end in time.
std::optional<std::string> hear(int fd, const Deadline& deadline) {
  std::string heard;
  char chunk[1'024];
  while (heard.size() < kMaxVerdictBytes) {
    pollfd wanted{fd, POLLIN, 0};
    const int ready = poll(&wanted, 1, deadline.leftMs() > 0 ? deadline.leftMs() : 0);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return std::nullopt;
    const ssize_t count = read(fd, chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return heard;
    heard.append(chunk, static_cast<size_t>(count));
  }
  return heard;
}

Verdict unknown(std::string reason) { return {Verdict::Kind::unknown, std::move(reason)}; }

}  // namespace

Verdict readVerdict(std::string_view line) {
  while (!line.empty() && line.back() == '\n') line.remove_suffix(1);
  const std::string_view word = line.substr(0, line.find(' '));
  const std::string reason(line.substr(word.size() == line.size() ? word.size() : word.size() + 1));
  if (word == "mesh") return {Verdict::Kind::mesh, reason};
  if (word == "outside") return {Verdict::Kind::outside, reason};
  if (word == "unknown") return unknown(reason);
  return unknown("the helper said nothing that can be read");
}

Verdict askHelper(const std::string& question) {
  std::string problem;
  const std::string folder = findFolder(problem);
  if (folder.empty() || !takeTurn(folder, problem)) return unknown("no helper: " + problem);
  const Deadline deadline(kHelperMs);
  // A helper that ends early must not end the plugin.
  signal(SIGPIPE, SIG_IGN);
  const std::optional<Child> child = start(folder);
  if (!child) return unknown(std::string("the helper cannot be started: ") + std::strerror(errno));
  tell(child->input, question);
  close(child->input);
  const std::optional<std::string> heard = hear(child->output, deadline);
  if (!heard) kill(child->pid, SIGKILL);
  close(child->output);
  int status = 0;
  while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!heard) return unknown("the helper is silent for " + std::to_string(kHelperMs / 1000) + " s");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return unknown("the helper failed");
  return readVerdict(*heard);
}

}  // namespace weft
