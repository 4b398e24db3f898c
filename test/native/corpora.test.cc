// The committed inputs of the fuzzers, each once, and changed ones: it needs no clang, and takes the same ones each time, where it has the time for all.
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
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

constexpr size_t MAX_CHANGES = 8;
constexpr size_t LARGEST_INPUT_BYTES = 4'096;
// The limit of one target: a busy machine takes several times as long for an input.
constexpr double MOST_PROCESSOR_SECONDS = 2;

using Take = int (*)(const uint8_t*, size_t);

void give(Take take, const std::string& bytes) { take(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()); }

std::vector<std::string> committed(const char* target) {
  const auto folder = std::filesystem::path(__FILE__).parent_path() / "corpora" / target;
  // A map sorts them by name: folders have another order on each machine.
  std::map<std::string, std::string> inputs;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    inputs[entry.path().filename()] = {std::istreambuf_iterator<char>(file), {}};
  }
  std::vector<std::string> all;
  for (const auto& [name, bytes] : inputs) all.push_back(bytes);
  return all;
}

void replay(const char* target, Take take) {
  const std::vector<std::string> inputs = committed(target);
  for (const std::string& bytes : inputs) give(take, bytes);
  CHECK(!inputs.empty());
}

// One small change, as a fuzzer makes them.
void change(std::string* bytes, const std::string& other, std::mt19937* random) {
  const auto below = [&](size_t bound) { return bound == 0 ? 0 : (*random)() % bound; };
  const size_t at = below(bytes->size());
  const auto byte = static_cast<char>(below(256));
  switch (below(6)) {
    case 0:
      if (!bytes->empty()) (*bytes)[at] = static_cast<char>((*bytes)[at] ^ (1 << below(8)));
      return;
    case 1:
      if (!bytes->empty()) (*bytes)[at] = byte;
      return;
    case 2:
      bytes->insert(at, 1 + below(4), byte);
      return;
    case 3:
      bytes->erase(at, 1 + below(16));
      return;
    case 4:
      bytes->resize(at);
      return;
    default:
      bytes->insert(at, other.substr(below(other.size()), 1 + below(64)));
  }
}

double processorSeconds() {
  timespec used = {};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

// Gives this many changed inputs, or as many as fit into the time.
void vary(const char* target, Take take, size_t count) {
  const std::vector<std::string> inputs = committed(target);
  std::mt19937 random(1);
  const double end = processorSeconds() + MOST_PROCESSOR_SECONDS;
  for (size_t index = 0; index < count && processorSeconds() < end; index += 1) {
    std::string bytes = inputs[random() % inputs.size()];
    const size_t changes = 1 + random() % MAX_CHANGES;
    for (size_t done = 0; done < changes; done += 1) change(&bytes, inputs[random() % inputs.size()], &random);
    bytes.resize(std::min(bytes.size(), LARGEST_INPUT_BYTES));
    give(take, bytes);
  }
}

}  // namespace

TEST(recordInputs, "records: no committed input breaks the record layer") { replay("records", records::takeRecords); }
TEST(frameInputs, "frames: no committed input breaks the cutting of frames") { replay("frames", frames::takeFrames); }
TEST(flowInputs, "flow: no committed input breaks the windows") { replay("flow", flow::takeFlow); }
TEST(mailboxInputs, "mailbox: no committed input breaks a link under commands") { replay("mailbox", mailbox::takeMailbox); }

TEST(changedRecords, "records: no changed input breaks the record layer") { vary("records", records::takeRecords, 15'000); }
TEST(changedFrames, "frames: no changed input breaks the cutting of frames") { vary("frames", frames::takeFrames, 15'000); }
TEST(changedFlow, "flow: no changed input breaks the windows") { vary("flow", flow::takeFlow, 5'000); }
TEST(changedMailbox, "mailbox: no changed input breaks a link under commands") { vary("mailbox", mailbox::takeMailbox, 5'000); }

int main(int count, char** values) { return check::main(count > 1 ? values[1] : nullptr); }
