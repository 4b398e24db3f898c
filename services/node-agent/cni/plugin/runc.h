// Runs runc, which weft-runtime stands for.
#pragma once
#include <optional>
#include <string>
#include <vector>

namespace weft {

using Words = std::vector<std::string>;

// Tells what failed; nothing when all went well.
using Problem = std::optional<std::string>;

// Returns what failed with the reason that errno has.
std::string systemProblem(const std::string& what);

// Reads a descriptor to its end. `name` stands in the problem.
Problem readToEnd(int fd, const std::string& name, std::string& text);

// Becomes the program with these arguments. Returns only when that fails.
Problem become(const std::string& program, const Words& words);

// Runs the program with these arguments and reads its standard output. `name` stands in the problem.
Problem runProgram(const std::string& program, const Words& words, const std::string& name,
                   std::string& output);

}  // namespace weft
