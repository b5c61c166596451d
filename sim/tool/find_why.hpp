// Why the best combination of a search is better than the second best.
#pragma once

#include <string>
#include <vector>

#include "reports/record/result.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

/// "4.7 % faster than the second best, nearly all from less recomputation". The logarithm of how
/// much better it is (tokens/s of all GPUs, or tokens for the money) is the sum of what GPUs,
/// prices and time per token bring; the time is split by kernels, what collectives slow them,
/// exposed communication and idle time. `find` is fastest or cheapest; `prices` are those of a
/// GPU-hour, 1 where none are known.
struct Compared {
  const RunFigures& run;
  double price = 1;
};
[[nodiscard]] std::string why_better(const Compared& best, const Compared& second, Find find);

}  // namespace mfsdp
