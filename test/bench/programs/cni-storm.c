// Runs a CNI plugin for many pods, so many at once, as a container runtime does, and tells what each run took.
// cni-storm PROGRAM COMMAND CONFIG FOLDER AT_ONCE OUTPUT; standard input has a line for each pod: namespace/name and the path of its
// network namespace, between them a space. The plugins' own output is appended to OUTPUT. Prints for each run: wall, user and system microseconds, and the status.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

enum { MAX_PODS = 1024, TEXT = 512 };

struct run {
  pid_t pid;
  long long startUs;
  char arguments[TEXT];
  char netns[TEXT];
  char container[32];
};

static struct run runs[MAX_PODS];

static long long nowUs(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000LL + now.tv_nsec / 1000;
}

static void fail(const char *what, int error) {
  fprintf(stderr, "cni-storm: %s: %s\n", what, strerror(error));
  exit(1);
}

static long long micros(struct timeval time) { return time.tv_sec * 1000000LL + time.tv_usec; }

static void start(struct run *run, char **words) {
  char command[64];
  char path[TEXT];
  snprintf(command, sizeof command, "CNI_COMMAND=%s", words[2]);
  snprintf(path, sizeof path, "CNI_PATH=%s", words[4]);
  char *environment[] = {command,        run->container, run->netns,
                         "CNI_IFNAME=eth0", path,        run->arguments,
                         "PATH=/usr/sbin:/usr/bin:/sbin:/bin", NULL};
  char *arguments[] = {words[1], NULL};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, words[3], O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&actions, 1, words[6], O_WRONLY | O_APPEND, 0);
  run->startUs = nowUs();
  const int error = posix_spawn(&run->pid, words[1], &actions, NULL, arguments, environment);
  if (error != 0) fail(words[1], error);
  posix_spawn_file_actions_destroy(&actions);
}

static void collect(int started) {
  int status;
  struct rusage usage;
  const pid_t pid = wait4(-1, &status, 0, &usage);
  if (pid < 0) fail("wait4", errno);
  const long long endUs = nowUs();
  for (int index = 0; index < started; index += 1) {
    if (runs[index].pid != pid) continue;
    printf("%lld %lld %lld %d\n", endUs - runs[index].startUs, micros(usage.ru_utime),
           micros(usage.ru_stime), WIFEXITED(status) ? WEXITSTATUS(status) : -1);
  }
}

int main(int count, char **words) {
  if (count != 7) fail("usage: PROGRAM COMMAND CONFIG FOLDER AT_ONCE OUTPUT", EINVAL);
  const int atOnce = atoi(words[5]);
  int pods = 0;
  char name[TEXT / 4];
  char netns[TEXT / 2];
  while (pods < MAX_PODS && scanf("%127s %255s", name, netns) == 2) {
    struct run *run = &runs[pods];
    char *slash = strchr(name, '/');
    if (slash == NULL) fail(name, EINVAL);
    *slash = '\0';
    snprintf(run->arguments, TEXT, "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s",
             name, slash + 1);
    snprintf(run->netns, TEXT, "CNI_NETNS=%s", netns);
    snprintf(run->container, sizeof run->container, "CNI_CONTAINERID=c%d", pods);
    pods += 1;
  }
  int running = 0;
  for (int index = 0; index < pods; index += 1) {
    if (running == atOnce) {
      collect(index);
      running -= 1;
    }
    start(&runs[index], words);
    running += 1;
  }
  for (; running > 0; running -= 1) collect(pods);
  return 0;
}
