#include "runc.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace weft {
namespace {

// Files of a container are tens of kilobytes.
constexpr size_t kMaxTextBytes = 4 * 1024 * 1024;

}  // namespace

std::string systemProblem(const std::string& what) { return what + ": " + std::strerror(errno); }

Problem readToEnd(int fd, const std::string& name, std::string& text) {
  char chunk[16 * 1024];
  for (;;) {
    const ssize_t count = read(fd, chunk, sizeof chunk);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return systemProblem(name);
    if (count == 0) return std::nullopt;
    text.append(chunk, static_cast<size_t>(count));
    if (text.size() > kMaxTextBytes) return name + " is too long";
  }
}

Problem become(const std::string& program, const Words& words) {
  std::vector<char*> arguments{const_cast<char*>(program.c_str())};
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execvp(program.c_str(), arguments.data());
  return systemProblem(program);
}

Problem runProgram(const std::string& program, const Words& words, const std::string& name,
                   std::string& output) {
  int pipe[2];
  if (pipe2(pipe, O_CLOEXEC) != 0) return systemProblem("pipe");
  const pid_t pid = fork();
  if (pid == 0) {
    dup2(pipe[1], STDOUT_FILENO);
    become(program, words);
    _exit(127);
  }
  const int error = errno;
  close(pipe[1]);
  if (pid < 0) {
    close(pipe[0]);
    errno = error;
    return systemProblem("fork");
  }
  Problem problem = readToEnd(pipe[0], name, output);
  close(pipe[0]);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!problem && (!WIFEXITED(status) || WEXITSTATUS(status) != 0)) problem = name + " failed";
  return problem;
}

}  // namespace weft
