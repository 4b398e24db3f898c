#include "guard.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace weft {
namespace {

// Waits for the word of the guarded process, or for its end. Returns true when it released the guard.
bool isReleased(int socket) {
  char word;
  ssize_t count;
  do {
    count = recv(socket, &word, sizeof word, 0);
  } while (count < 0 && errno == EINTR);
  return count > 0;
}

}  // namespace

Problem Guard::start(const std::function<bool()>& cleanUp) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return systemProblem("socketpair");
  pid_ = fork();
  if (pid_ == 0) {
    close(ends[1]);
    // A signal to the group of the guarded process must not end both.
    setsid();
    _exit(isReleased(ends[0]) || cleanUp() ? 0 : 1);
  }
  const int error = errno;
  close(ends[0]);
  if (pid_ < 0) {
    close(ends[1]);
    errno = error;
    return systemProblem("fork");
  }
  socket_ = ends[1];
  return std::nullopt;
}

void Guard::release() {
  // A guard that was killed hears nothing, and has nothing to do.
  send(socket_, "", 1, MSG_NOSIGNAL);
  wait();
}

bool Guard::cleanUp() { return wait(); }

bool Guard::wait() {
  close(socket_);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace weft
