#pragma once
#include <string>
#include <vector>

namespace weft {

// Runs as weft-runtime, the OCI runtime of a Docker engine: runc, but the start of a container that is to be in the mesh waits for
// the node agent. `words` are the arguments after the program's name. Becomes runc; returns only the status of a failure.
int runRuntime(std::vector<std::string> words);

}  // namespace weft
