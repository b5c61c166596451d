// When in a step each parameter's gradient is there, and by which op.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// The last op of a microbatch that writes a parameter's gradient. Of tied weights that is the
/// embedding's: a value that arose in the blocks reaches their gradient then.
struct GradientWriter {
  std::int64_t position = 0;  ///< among the ops of the train plan, in host order
  std::string op;             ///< empty where none writes it: the parameter is frozen
};

/// In the order of find_parameters (parameter_places.hpp): of the program's groups.
[[nodiscard]] std::vector<GradientWriter> gradient_writers(const Program& program);

}  // namespace mfsdp
