#pragma once
#include <sys/types.h>

#include <functional>

#include "runc.h"

namespace weft {

// A second process that cleans up unless this one releases it: also when this one is killed, which it could not tell otherwise.
// It keeps this one's standard output and error open. The engine's shim reads both to their end, so that it hears of the death
// only when everything is cleaned up.
class Guard {
 public:
  // Starts the guard. `cleanUp` runs in it, and returns false when something is left.
  Problem start(const std::function<bool()>& cleanUp);
  // Ends the guard: nothing is to be cleaned up any more.
  void release();
  // Lets the guard clean up, and waits for its end. Returns false when something is left.
  bool cleanUp();

 private:
  bool wait();

  pid_t pid_ = -1;
  int socket_ = -1;
};

}  // namespace weft
