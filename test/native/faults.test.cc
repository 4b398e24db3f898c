// The end of a link whose socket or cipher fails.
#include <dlfcn.h>
#include <openssl/evp.h>

#include "support/check.h"
#include "support/peer.h"

using namespace carried;

namespace {

// Faults of the kernel and of OpenSSL that nothing else brings about: the errno of every send, and whether every cipher fails.
int sendFault = 0;
bool cipherFault = false;

template <typename F>
F* real(const char* name) {
  return reinterpret_cast<F*>(dlsym(RTLD_NEXT, name));
}

const std::string ANSWER = frame(PING, FLAG_ACK, 0, "12345678");

bool endedBy(const Rig& rig, LinkCause cause) {
  return rig.gone() != nullptr && rig.gone()->cause == static_cast<uint32_t>(cause);
}

}  // namespace

extern "C" ssize_t send(int fd, const void* bytes, size_t length, int flags) {
  if (sendFault == 0) return real<decltype(send)>("send")(fd, bytes, length, flags);
  errno = sendFault;
  return -1;
}

extern "C" int EVP_CipherFinal_ex(EVP_CIPHER_CTX* context, unsigned char* out, int* written) {
  if (cipherFault) return 0;
  return real<decltype(EVP_CipherFinal_ex)>("EVP_CipherFinal_ex")(context, out, written);
}

TEST(failedSend, "a link ends with the error of a send that no event follows") {
  Rig rig;
  sendFault = ENOBUFS;
  rig.control(ANSWER);
  sendFault = 0;
  CHECK(endedBy(rig, LinkCause::SOCKET));
  CHECK(rig.gone() != nullptr && rig.gone()->error == ENOBUFS);
}

TEST(lastRecords, "the alert that a peer has sent says why a send fails") {
  Rig rig;
  rig.sendRecord(ContentType::ALERT, "\2\x2a");
  Command command{};
  command.kind = Command::Kind::CONTROL;
  command.link = 1;
  command.bytes = ANSWER;
  rig.pump.queue(std::move(command));
  sendFault = EPIPE;
  // Serves the link before the pump looks at its socket.
  rig.pump.drive();
  sendFault = 0;
  CHECK(rig.gone() == nullptr);
  rig.run();
  CHECK(endedBy(rig, LinkCause::PEER_ALERT));
  CHECK(rig.gone() != nullptr && rig.gone()->code == 42);
}

TEST(failedCipher, "a link whose cipher fails sends nothing more and ends") {
  Rig rig;
  cipherFault = true;
  rig.control(ANSWER);
  cipherFault = false;
  rig.run();
  CHECK(endedBy(rig, LinkCause::INTERNAL));
  EQUAL(rig.plain.size(), 0u);
  EQUAL(rig.alert, -1);
  CHECK(rig.closed);
}

TEST(endBehindData, "an end that comes together with data is told") {
  for (const bool isReset : {false, true}) {
    Rig rig;
    rig.send(ANSWER);
    if (isReset) {
      close(rig.peerFd);
      rig.peerFd = -1;
    } else {
      shutdown(rig.peerFd, SHUT_WR);
    }
    rig.run();
    CHECK(endedBy(rig, LinkCause::TRUNCATED));
  }
}

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
