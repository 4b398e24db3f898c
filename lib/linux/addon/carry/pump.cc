#include "pump.h"

#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace weft::carry {

namespace {
// Room beyond a batch for what encryption adds.
constexpr size_t SEALED_BYTES = BATCH_BYTES + 64 * 1024;
// A longer list of commands is not kept for the next ones.
constexpr size_t KEPT_COMMANDS = 256;
// About a third of the slice that others have on two processors. With 0.1 ms, bulk streams lost a few percent.
constexpr uint64_t SLICE_NS = 500'000;

// struct sched_attr of sched_setattr(2), which Debian's headers declare beside a second sched_param.
struct SchedulingAttributes {
  uint32_t size = sizeof(SchedulingAttributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtimeNs = 0;
  uint64_t deadlineNs = 0;
  uint64_t periodNs = 0;
};

// Asks for short slices. Since Linux 6.12 such a thread, when it wakes, goes before one that is in the midst of a longer slice;
// before, the request is ignored. It gets no larger share of the processor by that.
void askForShortSlices() {
  SchedulingAttributes attributes;
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;
  attributes.runtimeNs = SLICE_NS;
  // Where it is refused, the thread works as it did.
  [[maybe_unused]] const long ignored = syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace

void resetAndClose(int fd) {
  const linger none = {1, 0};
  setsockopt(fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
  close(fd);
}

Pump::Pump()
    : readScratch_(new uint8_t[READ_BYTES + MAX_RECORD_BYTES]),
      plainScratch_(new uint8_t[BATCH_BYTES]),
      sealedScratch_(new uint8_t[SEALED_BYTES]) {}

Pump::~Pump() {
  if (threaded_) {
    Command stop{};
    stop.kind = Command::Kind::STOP;
    post(std::move(stop));
    pthread_join(thread_, nullptr);
  }
  for (Command& command : commands_) {
    if (command.fd >= 0) resetAndClose(command.fd);
    if (command.setup != nullptr) resetAndClose(command.setup->fd);
  }
  while (!links_.empty()) links_.begin()->second->abandon();
  deadStreams_.clear();
  deadLinks_.clear();
  if (epollFd_ >= 0) close(epollFd_);
  if (wakeFd_ >= 0) close(wakeFd_);
}

int Pump::open(bool withThread) {
  wakeFd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wakeFd_ < 0) return errno;
  epollFd_ = epoll_create1(EPOLL_CLOEXEC);
  if (epollFd_ < 0) return errno;
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = &wake_;
  if (epoll_ctl(epollFd_, EPOLL_CTL_ADD, wakeFd_, &event) != 0) return errno;
  if (!withThread) return 0;
  // Node's own threads handle signals.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int failed = pthread_create(&thread_, nullptr, run, this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (failed != 0) return failed;
  threaded_ = true;
  pthread_setname_np(thread_, "weft-carry");
  return 0;
}

void Pump::post(Command&& command) {
  queue(std::move(command));
  wake();
}

void Pump::queue(Command&& command) {
  const std::lock_guard<std::mutex> guard(mutex_);
  commands_.push_back(std::move(command));
}

void Pump::drive() {
  if (work_.try_lock()) {
    bool isDone = false;
    // Otherwise the thread is in the midst of its links.
    if (active_.empty()) {
      obeyAll();
      serveActive();
      // What has ended may be in the hands of the thread, which frees it.
      isDone = active_.empty() && deadStreams_.empty() && deadLinks_.empty();
    }
    work_.unlock();
    if (isDone) return;
  }
  wake();
}

void Pump::wake() {
  if (commanded_.exchange(true)) return;
  const uint64_t one = 1;
  // Fails only when a wake-up is pending already.
  [[maybe_unused]] const ssize_t ignored = write(wakeFd_, &one, sizeof one);
}

int Pump::recall(uint32_t link, uint32_t stream) {
  const std::lock_guard<std::mutex> guard(work_);
  // It may have been offered in this turn.
  obeyAll();
  const auto found = links_.find(link);
  return found == links_.end() ? -1 : found->second->recall(stream);
}

void Pump::handled(uint32_t link, LinkCounts* counts, uint32_t events, uint32_t bytes,
                   int64_t received) {
  const uint32_t eventsLeft = counts->waitingEvents.fetch_sub(events) - events;
  const uint32_t bytesLeft = counts->waitingBytes.fetch_sub(bytes) - bytes;
  const bool isFull = eventsLeft >= MAX_WAITING_EVENTS || bytesLeft >= MAX_WAITING_BYTES;
  const bool resumes = !isFull && counts->paused.exchange(false);
  if (received == UNCHANGED && !resumes) return;
  Command resume{};
  resume.kind = Command::Kind::RESUME;
  resume.link = link;
  resume.first = received;
  post(std::move(resume));
}

void* Pump::run(void* self) {
  auto* pump = static_cast<Pump*>(self);
  askForShortSlices();
  while (!pump->stopped_) pump->round(-1);
  return nullptr;
}

void Pump::round(int timeoutMs) {
  epoll_event events[MAX_EVENTS];
  const int count = epoll_wait(epollFd_, events, MAX_EVENTS, hasMore_ ? 0 : timeoutMs);
  const std::lock_guard<std::mutex> guard(work_);
  movedBefore_ = moved;
  moved = 0;
  for (int index = 0; index < count; index += 1) {
    auto* source = static_cast<Source*>(events[index].data.ptr);
    switch (source->kind) {
      case Source::Kind::WAKE: {
        uint64_t wakeUps = 0;
        [[maybe_unused]] const ssize_t ignored = read(wakeFd_, &wakeUps, sizeof wakeUps);
        break;
      }
      case Source::Kind::LINK: {
        auto* link = static_cast<Link*>(source);
        link->notice(events[index].events);
        activate(link);
        break;
      }
      case Source::Kind::STREAM:
        static_cast<Stream*>(source)->notice(events[index].events);
        break;
    }
  }
  if (commanded_.exchange(false)) obeyAll();
  serveActive();
  // Only now does no event, list or caller point to them.
  deadStreams_.clear();
  deadLinks_.clear();
  hasMore_ = !active_.empty();
}

// One turn for each link that has something to do.
void Pump::serveActive() {
  serving_.swap(active_);
  for (Link* link : serving_) {
    link->queued = false;
    if (link->serve()) activate(link);
  }
  serving_.clear();
  for (size_t index = 0; index < unwatched_.size(); index += 1) unwatched_[index]->watch();
  unwatched_.clear();
  std::erase_if(active_, [](Link* link) { return link->dead(); });
}

void Pump::obeyAll() {
  // Both lists keep their memory for the next commands.
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    obeyed_.swap(commands_);
  }
  for (Command& command : obeyed_) {
    obey(&command);
    if (command.fd < 0) continue;
    // Nobody has taken it: the stream has ended.
    if (command.kind == Command::Kind::OFFER) command.counts->unused = command.fd;
    else resetAndClose(command.fd);
  }
  obeyed_.clear();
  if (obeyed_.capacity() > KEPT_COMMANDS) obeyed_.shrink_to_fit();
}

void Pump::obey(Command* command) {
  switch (command->kind) {
    case Command::Kind::LINK:
      begin(command);
      return;
    case Command::Kind::STOP:
      stopped_ = true;
      return;
    case Command::Kind::ABANDON: {
      std::vector<Link*> abandoned;
      for (const auto& entry : links_) {
        if (entry.second->listener() == command->listener) abandoned.push_back(entry.second.get());
      }
      for (Link* link : abandoned) link->obey(command);
      return;
    }
    default: {
      const auto found = links_.find(command->link);
      if (found != links_.end()) found->second->obey(command);
    }
  }
}

void Pump::begin(Command* command) {
  LinkSetup* setup = command->setup.get();
  auto made = std::make_unique<Link>(this, command->link, setup);
  Link* link = made.get();
  links_.emplace(command->link, std::move(made));
  if (!watch(setup->fd, link, true)) link->destroy(LinkCause::INTERNAL, 0, errno);
  else if (!link->open(setup)) link->destroy(LinkCause::INTERNAL);
  activate(link);
}

void Pump::activate(Link* link) {
  if (link->queued || link->dead()) return;
  link->queued = true;
  active_.push_back(link);
}

namespace {

epoll_event reportTo(Source* source, bool output) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLPRI | EPOLLRDHUP | EPOLLET;
  if (output) event.events |= EPOLLOUT;
  event.data.ptr = source;
  return event;
}

}  // namespace

bool Pump::watch(int fd, Source* source, bool output) {
  epoll_event event = reportTo(source, output);
  return epoll_ctl(epollFd_, EPOLL_CTL_ADD, fd, &event) == 0;
}

// Fails only for a socket that is not watched yet.
void Pump::rewatch(int fd, Source* source, bool output) {
  epoll_event event = reportTo(source, output);
  epoll_ctl(epollFd_, EPOLL_CTL_MOD, fd, &event);
}

void Pump::watchLater(Stream* stream) { unwatched_.push_back(stream); }

// Explicit, because another holder's duplicate would keep the registration alive.
void Pump::unwatch(int fd) { epoll_ctl(epollFd_, EPOLL_CTL_DEL, fd, nullptr); }

void Pump::bury(std::unique_ptr<Stream> stream) { deadStreams_.push_back(std::move(stream)); }

void Pump::bury(Link* link) {
  const auto found = links_.find(link->number());
  if (found == links_.end()) return;
  deadLinks_.push_back(std::move(found->second));
  links_.erase(found);
}

Pieces* Pump::lend() {
  if (freePieces_.empty()) {
    pieces_.push_back(std::make_unique<Pieces>());
    freePieces_.push_back(pieces_.back().get());
  }
  Pieces* pieces = freePieces_.back();
  freePieces_.pop_back();
  return pieces;
}

void Pump::giveBack(Pieces* pieces) {
  pieces->clear();
  freePieces_.push_back(pieces);
}

}  // namespace weft::carry
