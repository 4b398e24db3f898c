// The pump's life outside a single direction: threads, commands, events, pipes, ends. splice-flow.cc moves the bytes.
//
// Events are edge-triggered. An event is noted at its socket, and the directions of that socket join the tail of a
// ready list. Each gets one bounded turn per round, so a bulk transfer cannot keep a small one waiting.
#include "splice-pump.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common.h"
#include "splice-parts.h"

namespace weft {

SplicePump::SplicePump() : maxPipes_(MAX_PIPES), pipeBytes_(PIPE_BYTES) {}

SplicePump& SplicePump::instance() {
  static auto* pump = new SplicePump();
  return *pump;
}

int SplicePump::start(const PumpSocket& a, const PumpSocket& b,
                      std::shared_ptr<PumpListener> listener, uint64_t* id) {
  auto join = std::make_unique<Join>();
  join->a.fd = a.fd;
  join->b.fd = b.fd;
  join->up.head = b.first + a.read;
  join->up.headUncounted = b.first.size();
  join->down.head = a.first + b.read;
  join->down.headUncounted = a.first.size();
  join->listener = std::move(listener);
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!launched_) {
      if (const int failed = launch()) return failed;
    }
    *id = join->id = nextId_++;
    joins_.emplace(join->id, std::move(join));
  }
  post({Command::Kind::START, *id, nullptr});
  return 0;
}

void SplicePump::abort(uint64_t id) { post({Command::Kind::ABORT, id, nullptr}); }

void SplicePump::abandon(const PumpListener* listener) {
  post({Command::Kind::ABANDON, 0, listener});
}

bool SplicePump::counts(uint64_t id, PumpCounts* counts) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto found = joins_.find(id);
  if (found == joins_.end()) return false;
  const Join& join = *found->second;
  counts->fromA = join.up.count.load(std::memory_order_relaxed);
  counts->fromB = join.down.count.load(std::memory_order_relaxed);
  counts->firstFromBNs = join.down.firstNs.load(std::memory_order_relaxed);
  return true;
}

PumpStats SplicePump::stats() {
  PumpStats stats;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    stats.joins = joins_.size();
  }
  stats.pipesOpen = pipesOpen_;
  stats.pipesHeld = pipesHeld_;
  stats.copiedBytes = copiedBytes_;
  return stats;
}

void SplicePump::limit(PumpLimits limits) {
  maxPipes_ = limits.maxPipes;
  pipeBytes_ = limits.pipeBytes;
}

// Called with the mutex held. 0, or an errno with nothing left open.
int SplicePump::launch() {
  wakeFd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wakeFd_ < 0) return errno;
  epollFd_ = epoll_create1(EPOLL_CLOEXEC);
  epoll_event wake = {};
  wake.events = EPOLLIN;
  // No socket: the wake-up itself.
  wake.data.ptr = nullptr;
  int failed = epollFd_ < 0 || epoll_ctl(epollFd_, EPOLL_CTL_ADD, wakeFd_, &wake) != 0 ? errno : 0;
  pthread_t thread = {};
  if (failed == 0) {
    // Node's own threads handle signals. A SIGPIPE of splice() is blocked here too.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(&thread, nullptr, run, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  if (failed != 0) {
    if (epollFd_ >= 0) close(epollFd_);
    close(wakeFd_);
    epollFd_ = wakeFd_ = -1;
    return failed;
  }
  pthread_setname_np(thread, "weft-splice");
  pthread_detach(thread);
  launched_ = true;
  return 0;
}

void SplicePump::post(Command command) {
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!launched_) return;
    commands_.push_back(command);
  }
  if (commanded_.exchange(true)) return;
  const uint64_t one = 1;
  // Fails only when a wake-up is pending already.
  [[maybe_unused]] const ssize_t ignored = write(wakeFd_, &one, sizeof one);
}

void* SplicePump::run(void* self) {
  static_cast<SplicePump*>(self)->loop();
  return nullptr;
}

void SplicePump::loop() {
  scratch_.resize(COPY_BYTES);
  epoll_event events[MAX_EVENTS];
  for (;;) {
    const int count = epoll_wait(epollFd_, events, MAX_EVENTS, ready_ == 0 ? -1 : 0);
    for (int index = 0; index < count; index += 1) {
      auto* side = static_cast<Side*>(events[index].data.ptr);
      if (side != nullptr) {
        notice(side, events[index].events);
        continue;
      }
      uint64_t wakeUps = 0;
      [[maybe_unused]] const ssize_t ignored = read(wakeFd_, &wakeUps, sizeof wakeUps);
    }
    // Joins end only from here on, when no event of this batch points to them.
    obey();
    for (size_t round = ready_; round > 0 && firstReady_ != nullptr; round -= 1) {
      serve(firstReady_);
      obey();
    }
  }
}

void SplicePump::obey() {
  if (!commanded_.exchange(false)) return;
  std::vector<Command> commands;
  std::vector<Join*> begun;
  std::vector<Join*> ended;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    commands.swap(commands_);
  }
  for (const Command& command : commands) {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (command.kind == Command::Kind::ABANDON) {
        for (const auto& [id, join] : joins_) {
          if (join->listener.get() == command.listener) ended.push_back(join.get());
        }
      } else {
        const auto found = joins_.find(command.id);
        if (found == joins_.end()) continue;
        auto& list = command.kind == Command::Kind::START ? begun : ended;
        list.push_back(found->second.get());
      }
    }
    for (Join* join : begun) begin(join);
    for (Join* join : ended) {
      join->fail(ECANCELED);
      finish(join, command.kind != Command::Kind::ABANDON, true);
    }
    begun.clear();
    ended.clear();
  }
}

void SplicePump::begin(Join* join) {
  for (Side* side : {&join->a, &join->b}) {
    epoll_event event = {};
    event.events = EPOLLIN | EPOLLPRI | EPOLLOUT | EPOLLET;
    event.data.ptr = side;
    if (epoll_ctl(epollFd_, EPOLL_CTL_ADD, side->fd, &event) != 0) {
      join->error = errno;
      finish(join, true, true);
      return;
    }
    side->watched = true;
  }
  enqueue(&join->up);
  enqueue(&join->down);
}

void SplicePump::notice(Side* side, uint32_t events) {
  Join* join = side->join;
  Flow* from = side->outgoing;
  Flow* to = side->incoming;
  const bool hungUp = (events & (EPOLLERR | EPOLLHUP)) != 0;
  if ((events & EPOLLIN) != 0 || hungUp) side->readable = true;
  // Each event tells it until the mark is passed.
  side->urgent = (events & EPOLLPRI) != 0;
  if ((events & EPOLLOUT) != 0 || hungUp) side->writable = true;
  // A socket is not read after the end of its input, or while the other one takes no bytes. Only this event shows its reset.
  if (hungUp && !side->dead) {
    int error = 0;
    socklen_t length = sizeof error;
    getsockopt(side->fd, SOL_SOCKET, SO_ERROR, &error, &length);
    if (error != 0 || (from->sourceEnded && (events & EPOLLHUP) != 0 && !to->done)) {
      broken(side, error);
    }
  }
  // Even if both directions are done, a turn settles the failure.
  if (!from->done || join->reset) enqueue(from);
  if (!to->done) enqueue(to);
}

void SplicePump::serve(Flow* flow) {
  unqueue(flow);
  Join* join = flow->join;
  if (!flow->done && !flow->to->dead && !join->reset && turn(flow) == Turn::MORE) enqueue(flow);
  settle(join);
}

// Handles the result of a turn. The join may be gone afterwards.
void SplicePump::settle(Join* join) {
  if (join->reset) {
    for (Flow* flow : {&join->up, &join->down}) passOnLast(flow);
    finish(join, true, true);
    return;
  }
  for (Flow* flow : {&join->up, &join->down}) {
    // The sink is gone.
    if (!flow->to->dead || flow->done) continue;
    flow->done = true;
    unqueue(flow);
    giveBack(flow);
    // Its earlier bytes are still to be passed on.
    Flow* last = flow->to->outgoing;
    flow->to->readable = true;
    if (!last->done) enqueue(last);
  }
  if (join->up.done && join->down.done) finish(join, true, false);
}

// The kernel keeps the bytes that a socket received before its reset. One turn passes on those that the sink takes now.
void SplicePump::passOnLast(Flow* flow) {
  // Without an end of the source, the turn cannot pass on a clean end.
  if (!flow->from->dead || flow->to->dead || flow->sourceEnded) return;
  // The failure may have shown itself before the event of these bytes.
  flow->from->readable = true;
  turn(flow);
}

// `reset`: neither side may see a clean end; bytes in between are dropped.
void SplicePump::finish(Join* join, bool tell, bool reset) {
  const bool oneIsGone = join->a.dead || join->b.dead;
  for (Flow* flow : {&join->up, &join->down}) {
    unqueue(flow);
    giveBack(flow);
  }
  for (Side* side : {&join->a, &join->b}) {
    if (reset) setResetOnClose(side->fd);
    // A close with unread bytes resets, and a reset discards bytes that the peer has not read yet.
    else if (oneIsGone && !side->dead && side->incoming->done) {
      size_t discarded = 0;
      ssize_t got = 0;
      while (discarded < DISCARD_BYTES &&
             (got = recv(side->fd, scratch_.data(), scratch_.size(), MSG_TRUNC | MSG_DONTWAIT)) > 0) {
        discarded += static_cast<size_t>(got);
      }
    }
    // Explicit, because another holder's duplicate would keep the registration alive.
    if (side->watched) epoll_ctl(epollFd_, EPOLL_CTL_DEL, side->fd, nullptr);
    close(side->fd);
  }
  const PumpEnd end = {join->id, join->up.count, join->down.count, join->error,
                       join->down.firstNs};
  std::unique_ptr<Join> owned;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    const auto found = joins_.find(join->id);
    owned = std::move(found->second);
    joins_.erase(found);
  }
  if (tell) owned->listener->ended(end);
}

void SplicePump::enqueue(Flow* flow) {
  if (flow->queued) return;
  flow->queued = true;
  flow->next = nullptr;
  flow->previous = lastReady_;
  (lastReady_ == nullptr ? firstReady_ : lastReady_->next) = flow;
  lastReady_ = flow;
  ready_ += 1;
}

void SplicePump::unqueue(Flow* flow) {
  if (!flow->queued) return;
  flow->queued = false;
  (flow->previous == nullptr ? firstReady_ : flow->previous->next) = flow->next;
  (flow->next == nullptr ? lastReady_ : flow->next->previous) = flow->previous;
  ready_ -= 1;
}

namespace {
// Whether it is one of the last descriptors of the process: the kernel assigns the lowest free number.
bool oneOfTheLast(int fd) {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return false;
  const rlim_t spared = std::min<rlim_t>(SPARED_DESCRIPTORS, files.rlim_cur / 8);
  return static_cast<rlim_t>(fd) + spared >= files.rlim_cur;
}
}  // namespace

// Null when the maximum is in use, or when no pipe can be made.
SplicePump::Pipe* SplicePump::borrow() {
  if (!idlePipes_.empty()) {
    Pipe* pipe = idlePipes_.back();
    idlePipes_.pop_back();
    pipesHeld_ += 1;
    return pipe;
  }
  if (pipesOpen_ >= maxPipes_) return nullptr;
  int ends[2];
  if (pipe2(ends, O_NONBLOCK | O_CLOEXEC) != 0) return nullptr;
  if (oneOfTheLast(std::max(ends[0], ends[1]))) {
    close(ends[0]);
    close(ends[1]);
    return nullptr;
  }
  // A user beyond the kernel's allowance gets less than requested, at least the pipe's initial size.
  for (size_t bytes = pipeBytes_; bytes > DEFAULT_PIPE_BYTES; bytes /= 2) {
    if (fcntl(ends[1], F_SETPIPE_SZ, static_cast<int>(bytes)) >= 0) break;
  }
  const int capacity = fcntl(ends[1], F_GETPIPE_SZ);
  pipesOpen_ += 1;
  pipesHeld_ += 1;
  return new Pipe{ends[0], ends[1],
                  capacity > 0 ? static_cast<size_t>(capacity) : DEFAULT_PIPE_BYTES};
}

void SplicePump::giveBack(Flow* flow) {
  Pipe* pipe = flow->pipe;
  if (pipe == nullptr) return;
  flow->pipe = nullptr;
  pipesHeld_ -= 1;
  const bool empty = flow->held == 0;
  flow->held = 0;
  if (empty && idlePipes_.size() < KEPT_PIPES && pipesOpen_ <= maxPipes_) {
    idlePipes_.push_back(pipe);
  } else {
    closePipe(pipe);
  }
}

void SplicePump::closePipe(Pipe* pipe) {
  close(pipe->readEnd);
  close(pipe->writeEnd);
  delete pipe;
  pipesOpen_ -= 1;
}

}  // namespace weft
