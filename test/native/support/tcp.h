// Pairs of connected TCP sockets on the loopback device.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>

namespace carried {

// Both non-blocking; `buffer` bounds what the kernel keeps between them.
inline void tcpPair(int ends[2], int buffer = 0) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  auto* plain = reinterpret_cast<sockaddr*>(&address);
  if (buffer > 0) setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  if (bind(listener, plain, length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, plain, &length) != 0) {
    abort();
  }
  ends[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (buffer > 0) {
    setsockopt(ends[0], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
    setsockopt(ends[0], SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
  }
  if (connect(ends[0], plain, length) != 0) abort();
  ends[1] = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (ends[1] < 0) abort();
  if (buffer > 0) setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
  close(listener);
  for (int index = 0; index < 2; index += 1) {
    const int on = 1;
    setsockopt(ends[index], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fcntl(ends[index], F_SETFL, fcntl(ends[index], F_GETFL) | O_NONBLOCK);
  }
}

}  // namespace carried
