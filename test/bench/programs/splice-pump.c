/*
 * The least a relay can do: one thread, epoll, and splice(2) through a pipe in each direction. No policy, no TLS, no
 * names. What stands beside it in a run shows how much of the kernel's own speed is left.
 * Arguments: LISTEN-PORT HOST PORT, any number of times; IPv4. HOST 0.0.0.0 stands for where a redirected connection was
 * going; both of its sockets carry the mark that redirection lets pass, as a listener's do. `inside` IP NETNS in place of
 * a port: redirected connections to this address are made inside that network namespace and keep the client's address, as
 * listeners do it.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* A connection gives way to the others after so many moves. */
enum { PIPE_BYTES = 1 << 20, EVENTS = 256, BACKLOG = 4096, MOVES = 16 };
enum { PROXY_MARK = 0x539, ORIGINAL_DST = 80, PODS = 8 };

struct side {
  int fd;
  struct conn *conn;
};

/* Bytes from `from` to `to`, by way of a pipe. */
struct way {
  struct side *from, *to;
  int pipe[2];
  size_t held;
  int ended, closed;
};

struct conn {
  struct side client, server;
  struct way up, down;
  int dead, waiting;
  struct conn *next_dead, *next_waiting;
};

struct listener {
  struct side side;
  struct sockaddr_in to;
};

struct pod {
  struct in_addr ip;
  int netns;
};

static int loop, home;
static struct pod pods[PODS];
static int pod_count;
static struct conn *dead_list, *waiting_list;

static void die(const char *what) {
  perror(what);
  exit(1);
}

static void watch(int fd, void *data, uint32_t events) {
  struct epoll_event event = {.events = events, .data.ptr = data};
  if (epoll_ctl(loop, EPOLL_CTL_ADD, fd, &event) < 0) die("epoll_ctl");
}

static void end_conn(struct conn *conn) {
  if (conn->dead) return;
  conn->dead = 1;
  close(conn->client.fd);
  close(conn->server.fd);
  for (int i = 0; i < 2; i++) {
    close(conn->up.pipe[i]);
    close(conn->down.pipe[i]);
  }
  /* Events of this round may still name it. */
  conn->next_dead = dead_list;
  dead_list = conn;
}

static void end_turn(struct conn *conn) {
  if (conn->waiting) return;
  conn->waiting = 1;
  conn->next_waiting = waiting_list;
  waiting_list = conn;
}

/* Moves what can be moved in a turn; 0 when the connection is broken. */
static int pump(struct way *way) {
  for (int moves = 0; moves < MOVES; moves++) {
    int moved = 0;
    if (!way->ended && way->held < PIPE_BYTES) {
      ssize_t in = splice(way->from->fd, NULL, way->pipe[1], NULL, PIPE_BYTES - way->held,
                          SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
      if (in > 0) {
        way->held += (size_t)in;
        moved = 1;
      } else if (in == 0) {
        way->ended = 1;
      } else if (errno != EAGAIN) {
        return 0;
      }
    }
    if (way->held > 0) {
      ssize_t out = splice(way->pipe[0], NULL, way->to->fd, NULL, way->held,
                           SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
      if (out > 0) {
        way->held -= (size_t)out;
        moved = 1;
      } else if (out < 0 && errno != EAGAIN) {
        return 0;
      }
    }
    if (way->ended && way->held == 0 && !way->closed) {
      shutdown(way->to->fd, SHUT_WR);
      way->closed = 1;
    }
    if (!moved) return 1;
  }
  end_turn(way->from->conn);
  return 1;
}

static void turn(struct conn *conn) {
  int alive = pump(&conn->up) && pump(&conn->down);
  if (!alive || (conn->up.closed && conn->down.closed)) end_conn(conn);
}

static void open_way(struct way *way, struct side *from, struct side *to) {
  way->from = from;
  way->to = to;
  if (pipe2(way->pipe, O_NONBLOCK | O_CLOEXEC) < 0) die("pipe2");
  fcntl(way->pipe[0], F_SETPIPE_SZ, PIPE_BYTES);
}

static const struct pod *pod_at(struct in_addr ip) {
  for (int i = 0; i < pod_count; i++)
    if (pods[i].ip.s_addr == ip.s_addr) return &pods[i];
  return NULL;
}

/* A socket keeps the namespace it was made in. */
static int open_in(const struct pod *pod) {
  if (pod != NULL && setns(pod->netns, CLONE_NEWNET) < 0) die("setns");
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) die("socket");
  if (pod != NULL && setns(home, CLONE_NEWNET) < 0) die("setns");
  return fd;
}

static void mark(int fd) {
  int value = PROXY_MARK;
  if (setsockopt(fd, SOL_SOCKET, SO_MARK, &value, sizeof value) < 0) die("mark");
}

/* The socket for a redirected connection. */
static int open_redirected(int client, struct sockaddr_in *to) {
  struct sockaddr_in from;
  socklen_t to_length = sizeof *to, from_length = sizeof from;
  int one = 1;
  if (getsockopt(client, IPPROTO_IP, ORIGINAL_DST, to, &to_length) < 0) die("original destination");
  const struct pod *pod = pod_at(to->sin_addr);
  int fd = open_in(pod);
  mark(fd);
  if (pod == NULL || getpeername(client, (struct sockaddr *)&from, &from_length) < 0) return fd;
  from.sin_port = 0;
  setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof one);
  if (setsockopt(fd, IPPROTO_IP, IP_TRANSPARENT, &one, sizeof one) < 0) die("transparent");
  if (bind(fd, (struct sockaddr *)&from, sizeof from) < 0) die("bind");
  return fd;
}

static void take(struct listener *listener) {
  int one = 1;
  int client = accept4(listener->side.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client < 0) return;
  struct sockaddr_in to = listener->to;
  int server = to.sin_addr.s_addr == INADDR_ANY ? open_redirected(client, &to) : open_in(NULL);
  setsockopt(client, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  if (connect(server, (struct sockaddr *)&to, sizeof to) < 0 &&
      errno != EINPROGRESS) {
    close(client);
    close(server);
    return;
  }
  struct conn *conn = calloc(1, sizeof *conn);
  if (conn == NULL) die("calloc");
  conn->client = (struct side){client, conn};
  conn->server = (struct side){server, conn};
  open_way(&conn->up, &conn->client, &conn->server);
  open_way(&conn->down, &conn->server, &conn->client);
  watch(client, &conn->client, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
  watch(server, &conn->server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET);
}

static void serve(struct listener *listener, const char *port, const char *host, const char *to) {
  int one = 1;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  struct sockaddr_in own = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
  listener->to = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(to))};
  if (inet_pton(AF_INET, host, &listener->to.sin_addr) != 1) die(host);
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  /* What is accepted inherits it. */
  if (listener->to.sin_addr.s_addr == INADDR_ANY) mark(fd);
  if (bind(fd, (struct sockaddr *)&own, sizeof own) < 0 || listen(fd, BACKLOG) < 0) die("listen");
  listener->side = (struct side){fd, NULL};
  watch(fd, &listener->side, EPOLLIN);
}

static void add_pod(const char *ip, const char *netns) {
  if (pod_count == PODS) die("too many pods");
  struct pod *pod = &pods[pod_count++];
  pod->netns = open(netns, O_RDONLY | O_CLOEXEC);
  if (pod->netns < 0 || inet_pton(AF_INET, ip, &pod->ip) != 1) die(netns);
}

int main(int argc, char **argv) {
  struct rlimit files = {65536, 65536};
  struct epoll_event events[EVENTS];
  int listeners = (argc - 1) / 3;
  struct listener *all = calloc((size_t)listeners + 1, sizeof *all);
  signal(SIGPIPE, SIG_IGN);
  setrlimit(RLIMIT_NOFILE, &files);
  loop = epoll_create1(EPOLL_CLOEXEC);
  home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
  for (int i = 0; i < listeners; i++) {
    char **words = argv + 1 + i * 3;
    if (strcmp(words[0], "inside") == 0)
      add_pod(words[1], words[2]);
    else
      serve(&all[i], words[0], words[1], words[2]);
  }
  for (;;) {
    struct conn *again = waiting_list;
    int count = epoll_wait(loop, events, EVENTS, again == NULL ? -1 : 0);
    waiting_list = NULL;
    for (struct conn *next; again != NULL; again = next) {
      next = again->next_waiting;
      again->waiting = 0;
      if (!again->dead) turn(again);
    }
    for (int i = 0; i < count; i++) {
      struct side *side = events[i].data.ptr;
      if (side->conn == NULL)
        take((struct listener *)side);
      else if (events[i].events & EPOLLERR)
        end_conn(side->conn);
      else if (!side->conn->dead)
        turn(side->conn);
    }
    while (dead_list != NULL) {
      struct conn *conn = dead_list;
      dead_list = conn->next_dead;
      free(conn);
    }
  }
}
