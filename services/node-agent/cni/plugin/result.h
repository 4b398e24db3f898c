// The texts that the plugin writes: results and errors for the runtime, and the event for the agent.
#pragma once
#include <string>
#include <string_view>

#include "request.h"

namespace weft {

// Returns the previous result in the version that was asked for. Foreign values keep their bytes.
std::string resultText(const Settings& settings);

// Returns an error for the runtime.
std::string errorText(std::string_view version, const Failure& failure);

// Returns the answer to VERSION.
std::string versionsText(std::string_view asked);

// The facts of one ADD.
struct AddEvent {
  const Pod& pod;
  std::string_view netns;
  std::string_view container;
  // Null without one.
  const Value* previous;
};

// Returns the body of the request to the agent, in the form of istio-cni's plugin (docs/spec/cni.md §8.2) with fields
// of Weft's own. Fails for a previous result whose addresses cannot be read.
std::optional<Failure> eventText(const AddEvent& event, std::string& text);

}  // namespace weft
