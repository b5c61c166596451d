// The time in a step at which each parameter's gradient is complete, and the op that writes it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// The last op of a microbatch that writes a parameter's gradient. For tied weights that is the op
/// of the embedding: a value from the blocks reaches their gradient only then.
struct GradientWriter {
  std::int64_t position = 0;  ///< among the ops of the train plan, in host order
  std::string op;             ///< empty if no op writes it: the parameter is frozen
};

/// In the order of find_parameters (parameter_places.hpp), which is that of the program's groups.
[[nodiscard]] std::vector<GradientWriter> gradient_writers(const Program& program);

}  // namespace mfsdp
