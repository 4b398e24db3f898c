// The committed inputs of the fuzzers, each once: without clang nothing new is sought, but what was found stays mended.
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <vector>

#include "support/check.h"
#include "support/input.h"
#include "support/peer.h"

namespace records {
#define LLVMFuzzerTestOneInput takeRecords
#include "records.fuzz.cc"
#undef LLVMFuzzerTestOneInput
}  // namespace records

namespace frames {
#define LLVMFuzzerTestOneInput takeFrames
#include "frames.fuzz.cc"
#undef LLVMFuzzerTestOneInput
}  // namespace frames

namespace flow {
#define LLVMFuzzerTestOneInput takeFlow
#include "flow.fuzz.cc"
#undef LLVMFuzzerTestOneInput
}  // namespace flow

namespace mailbox {
#define LLVMFuzzerTestOneInput takeMailbox
#include "mailbox.fuzz.cc"
#undef LLVMFuzzerTestOneInput
}  // namespace mailbox

namespace {

void replay(const char* target, int (*take)(const uint8_t*, size_t)) {
  const auto folder = std::filesystem::path(__FILE__).parent_path() / "corpora" / target;
  size_t inputs = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    take(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    inputs += 1;
  }
  CHECK(inputs > 0);
}

}  // namespace

TEST(recordInputs, "records: no committed input breaks the record layer") { replay("records", records::takeRecords); }
TEST(frameInputs, "frames: no committed input breaks the cutting of frames") { replay("frames", frames::takeFrames); }
TEST(flowInputs, "flow: no committed input breaks the windows") { replay("flow", flow::takeFlow); }
TEST(mailboxInputs, "mailbox: no committed input breaks a link under commands") { replay("mailbox", mailbox::takeMailbox); }

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
