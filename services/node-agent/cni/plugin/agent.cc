#include "agent.h"

#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "clock.h"

namespace weft {
namespace {

constexpr size_t kMaxReasonBytes = 1'024;

class Socket {
 public:
  Socket() : fd_(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int fd() const { return fd_; }

  // Bounds the next call by the time that is left.
  bool limit(const Deadline& deadline) {
    const int left = deadline.leftMs();
    if (left <= 0) {
      errno = EAGAIN;
      return false;
    }
    const timeval time{left / 1000, left % 1000 * 1000};
    return setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof time) == 0 &&
           setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time) == 0;
  }

 private:
  int fd_;
};

std::string failure(const char* what) {
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINPROGRESS) {
    return "the node agent is silent for " + std::to_string(kAgentMs / 1000) + " s";
  }
  return std::string("the node agent cannot be reached: ") + what + ": " + std::strerror(errno);
}

bool sendAll(Socket& socket, std::string_view text, const Deadline& deadline) {
  while (!text.empty()) {
    if (!socket.limit(deadline)) return false;
    const ssize_t sent = send(socket.fd(), text.data(), text.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return false;
    text.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

}  // namespace

std::optional<Answer> readAnswer(std::string_view received) {
  // `HTTP/1.1 200 OK`
  constexpr std::string_view kProtocol = "HTTP/1.";
  constexpr size_t kStatusAt = kProtocol.size() + 2;
  const size_t end = received.find("\r\n\r\n");
  if (end == std::string_view::npos || !received.starts_with(kProtocol)) return std::nullopt;
  if (end < kStatusAt + 3 || received[kStatusAt - 1] != ' ') return std::nullopt;
  Answer answer;
  for (char digit : received.substr(kStatusAt, 3)) {
    if (digit < '0' || digit > '9') return std::nullopt;
    answer.status = answer.status * 10 + (digit - '0');
  }
  std::string_view body = received.substr(end + 4);
  while (!body.empty() && (body.back() == '\n' || body.back() == ' ')) body.remove_suffix(1);
  answer.reason = body.substr(0, kMaxReasonBytes);
  return answer;
}

std::optional<size_t> answerSize(std::string_view received) {
  constexpr std::string_view kName = "\r\ncontent-length:";
  const size_t end = received.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view header = received.substr(0, end);
  const auto same = [](char one, char small) {
    return one == small || (one >= 'A' && one <= 'Z' && one - 'A' + 'a' == small);
  };
  const auto found = std::search(header.begin(), header.end(), kName.begin(), kName.end(), same);
  if (found == header.end()) return std::nullopt;
  std::string_view digits(found + kName.size(), header.end());
  while (digits.starts_with(' ')) digits.remove_prefix(1);
  size_t length = 0;
  const auto [rest, error] = std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (error != std::errc() || length > kMaxAnswerBytes) return std::nullopt;
  return end + 4 + length;
}

std::optional<Answer> askAgent(const std::string& socketPath, std::string_view route,
                               std::string_view event, std::string& problem) {
  const Deadline deadline(kAgentMs);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socketPath.size() >= sizeof address.sun_path) {
    problem = "the path of the node agent's socket is too long: " + socketPath;
    return std::nullopt;
  }
  std::memcpy(address.sun_path, socketPath.data(), socketPath.size());
  Socket socket;
  if (socket.fd() < 0 || !socket.limit(deadline) ||
      connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    problem = failure(socketPath.c_str());
    return std::nullopt;
  }
  // HTTP/1.0: the answer comes in one piece.
  std::string request = "POST " + std::string(route) + " HTTP/1.0\r\n";
  request += "Host: unix\r\nConnection: close\r\n";
  request += "Content-Type: application/json\r\nContent-Length: " + std::to_string(event.size());
  request += "\r\n\r\n";
  request += event;
  // An agent that refuses may close before it has read everything; its answer counts.
  const bool sent = sendAll(socket, request, deadline);
  std::string received;
  char chunk[4'096];
  while (received.size() < kMaxAnswerBytes) {
    if (!socket.limit(deadline)) break;
    const ssize_t count = recv(socket.fd(), chunk, sizeof chunk, 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      if (count == 0) errno = sent ? EPROTO : EPIPE;
      break;
    }
    received.append(chunk, static_cast<size_t>(count));
    // The end of the connection takes the agent some time more.
    const auto size = answerSize(received);
    if (size && received.size() >= *size) break;
  }
  const int error = errno;
  if (auto answer = readAnswer(received)) return answer;
  errno = received.size() >= kMaxAnswerBytes ? EPROTO : error;
  problem = failure("no answer in HTTP");
  return std::nullopt;
}

}  // namespace weft
