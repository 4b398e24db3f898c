// The module: registers every group once per environment (main thread and each worker thread).
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "common.h"

namespace {

void dropEnvData(napi_env, void* data, void*) {
  auto* own = static_cast<weft::EnvData*>(data);
  weft::closeAllHeld(own);
  if (own->homeNetnsFd >= 0) close(own->homeNetnsFd);
  delete own;
}

}  // namespace

NAPI_MODULE_INIT() {
  // thread-self and not self: a worker thread has a namespace of its own.
  const int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (home < 0) return weft::throwErrno(env, "open", errno, "/proc/thread-self/ns/net");
  auto* data = new weft::EnvData{home, {}};
  napi_set_instance_data(env, data, dropEnvData, nullptr);
  weft::registerNetns(env, exports);
  weft::registerSockets(env, exports);
  weft::registerAccepting(env, exports);
  weft::registerUdp(env, exports);
  weft::registerSeqpacket(env, exports);
  weft::registerPoll(env, exports);
  weft::registerDiagnostics(env, exports);
  weft::registerRulesDigest(env, exports);
  weft::registerProcess(env, exports);
  weft::registerMemory(env, exports);
  weft::registerSplice(env, exports);
  weft::registerOutput(env, exports);
  weft::registerCarry(env, exports);
  return exports;
}
