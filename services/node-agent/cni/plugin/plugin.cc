#include "plugin.h"

#include "result.h"

namespace weft {
namespace {

Outcome refuse(std::string_view version, const Failure& failure) {
  return {1, errorText(speaks(version) ? version : kNewest, failure), ""};
}

// The version of a configuration, for the answer to VERSION and for errors.
std::string versionOf(const std::optional<Value>& config) {
  const Value* version = config ? config->member("cniVersion") : nullptr;
  return version == nullptr ? "" : version->text;
}

class Adding {
 public:
  Adding(const Environment& environment, const Value& config, const Judges& judges)
      : environment_(environment), config_(config), judges_(judges) {}

  Outcome run() {
    if (auto failure = readSettings(config_, settings_)) {
      const Value* version = config_.member("cniVersion");
      return refuse(version == nullptr ? "" : version->text, *failure);
    }
    const auto missing = require(environment_, {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"});
    if (missing) return refuse(settings_.version, *missing);
    if (auto failure = readPod(environment_, pod_)) return refuse(settings_.version, *failure);
    if (!exemption(settings_, pod_).empty()) return pass();
    std::string event;
    const AddEvent facts{pod_, environment_("CNI_NETNS"), environment_("CNI_CONTAINERID"),
                         settings_.previous};
    if (auto failure = eventText(facts, event)) return refuse(settings_.version, *failure);
    std::string problem;
    const auto answer = judges_.agent(settings_.runDir + "/pluginevent.sock", event, problem);
    return answer ? obey(*answer) : judge(problem);
  }

 private:
  Outcome pass(std::string log = "") { return {0, resultText(settings_), std::move(log)}; }

  std::string name() const { return "pod " + pod_.space + "/" + pod_.name; }

  Outcome obey(const Answer& answer) {
    if (answer.status == 200) return pass();
    // The agent is alive and cannot tell; neither could the helper.
    if (answer.status == 503) return decideUnknown(answer.reason);
    const Code code = answer.status == 400 ? Code::invalidEnvironment : Code::tryAgain;
    const std::string reason =
        answer.reason.empty() ? "status " + std::to_string(answer.status) : answer.reason;
    return refuse(settings_.version,
                  {code, name() + " was not enrolled in the mesh: " + reason, ""});
  }

  // Judges without the agent. A pod of the mesh must not start: nothing would redirect it.
  Outcome judge(const std::string& problem) {
    const std::string question = "{\"namespace\":" + quoted(pod_.space) +
                                 ",\"name\":" + quoted(pod_.name) + ",\"uid\":" + quoted(pod_.uid) +
                                 ",\"settings\":" + withoutPrevious() + "}";
    const Verdict verdict = judges_.helper(question);
    switch (verdict.kind) {
      case Verdict::Kind::outside:
        return pass();
      case Verdict::Kind::mesh:
        return refuse(settings_.version, {Code::tryAgain,
                                          name() + " belongs to the mesh (" + verdict.reason +
                                              ") and must wait: " + problem,
                                          ""});
      case Verdict::Kind::unknown:
        break;
    }
    return decideUnknown(problem + "; " + verdict.reason);
  }

  Outcome decideUnknown(const std::string& reason) {
    if (settings_.allowUnknown) {
      return pass("weft-cni: " + name() + " started outside the mesh, for on_unknown is allow: " +
                  reason + "\n");
    }
    return refuse(settings_.version,
                  {Code::tryAgain,
                   "nobody can tell whether " + name() + " belongs to the mesh: " + reason,
                   "WEFT_CNI_ON_UNKNOWN=allow of the node agent lets such pods start outside the mesh"});
  }

  // The helper knows the settings by their names, and needs no result.
  std::string withoutPrevious() const {
    std::string text = "{";
    for (const Member& member : config_.members) {
      if (member.name == "prevResult" || member.name == "runtimeConfig") continue;
      if (text.size() > 1) text += ',';
      text += quoted(member.name) + ":";
      text += member.value.raw;
    }
    return text + "}";
  }

  const Environment& environment_;
  const Value& config_;
  const Judges& judges_;
  Settings settings_;
  Pod pod_;
};

Outcome check(const Environment& environment, const Value& config) {
  Settings settings;
  const Value* version = config.member("cniVersion");
  const std::string_view asked = version == nullptr ? "" : std::string_view(version->text);
  if (auto failure = readSettings(config, settings)) return refuse(asked, *failure);
  const auto missing = require(environment, {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"});
  // The agent itself reads the rules of its pods back.
  return missing ? refuse(asked, *missing) : Outcome{};
}

}  // namespace

Outcome run(const Environment& environment, std::string_view input, const Judges& judges) {
  const char* found = environment("CNI_COMMAND");
  const std::string_view command = found == nullptr ? "" : found;
  if (command == "DEL" || command == "GC" || command == "STATUS") return {};
  if (input.size() > kMaxInputBytes) {
    return refuse("", {Code::undecodable,
                       "standard input is longer than " + std::to_string(kMaxInputBytes) + " bytes",
                       ""});
  }
  std::string problem;
  const std::optional<Value> config = readJson(input, problem);
  if (command == "VERSION") return {0, versionsText(versionOf(config)), ""};
  if (command != "ADD" && command != "CHECK") {
    return refuse(versionOf(config),
                  {Code::invalidEnvironment,
                   "CNI_COMMAND must be ADD, DEL, CHECK, STATUS, GC or VERSION",
                   std::string(command)});
  }
  if (!config) {
    return refuse("", {Code::undecodable, "standard input is no JSON: " + problem, ""});
  }
  return command == "ADD" ? Adding(environment, *config, judges).run()
                          : check(environment, *config);
}

}  // namespace weft
