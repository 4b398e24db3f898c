// Any input of the plugin: its output is JSON, and a result keeps what it was given. The first line is CNI_ARGS, the second the
// agent's answer, the third the helper's; the rest is standard input.
#include <cstdint>
#include <cstdlib>

#include "plugin.h"
#include "result.h"

namespace {

void hold(bool condition) {
  if (!condition) abort();
}

std::string line(std::string_view& rest) {
  const size_t end = rest.find('\n');
  const std::string text(rest.substr(0, end));
  rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
  return text;
}

// A line of the input has no line of a header in it: slashes stand for its ends.
std::string withLines(std::string_view text) {
  std::string lines;
  for (char letter : text) {
    if (letter == '/') {
      lines += "\r\n";
    } else {
      lines += letter;
    }
  }
  return lines;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t length) {
  std::string_view rest(reinterpret_cast<const char*>(bytes), length);
  const std::string arguments = line(rest);
  const std::string answer = line(rest);
  const std::string verdict = line(rest);
  for (const char* command : {"ADD", "CHECK", "VERSION", "DEL", "GC", "STATUS", "OTHER"}) {
    const weft::Environment environment = [&](const char* name) -> const char* {
      const std::string_view wanted = name;
      if (wanted == "CNI_COMMAND") return command;
      return wanted == "CNI_ARGS" ? arguments.c_str() : "x";
    };
    const weft::Judges judges{
        [&](const std::string&, std::string_view event, std::string& problem) {
          std::string why;
          hold(weft::readJson(event, why).has_value());
          problem = why;
          const std::string received = "HTTP/1.1 " + withLines(answer) + "\r\n\r\n" + answer;
          const auto size = weft::answerSize(received);
          hold(!size || *size <= received.size() + weft::kMaxAnswerBytes);
          return weft::readAnswer(received);
        },
        [&](const std::string& question) {
          std::string why;
          hold(weft::readJson(question, why).has_value());
          return weft::readVerdict(verdict);
        }};
    const weft::Outcome outcome = weft::run(environment, rest, judges);
    const std::string_view name = command;
    const bool silent = name == "DEL" || name == "GC" || name == "STATUS";
    hold(!silent || (outcome.status == 0 && outcome.output.empty()));
    if (outcome.output.empty()) continue;
    std::string why;
    const auto output = weft::readJson(outcome.output, why);
    hold(output.has_value());
    hold((outcome.status == 0) == (output->member("code") == nullptr) || name == "ADD");
    const weft::Value* version = output->member("cniVersion");
    hold(version != nullptr && weft::speaks(version->text));
  }
  return 0;
}
