// A search space as flags: read from the lists of a command line, and written for --tune-out.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/options_file.hpp"
#include "sim/search/candidates.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// The space of the lists, whose values are read once. Errors: a wrong value; options of a
/// combination that exclude each other.
[[nodiscard]] Result<SearchSpace> read_space(const SweptArguments& swept);

/// The flags of `kinds` that predict the candidate by itself: those of `arguments`, the command
/// line that was searched with, with the candidate's values, and then its other settings.
[[nodiscard]] Result<std::vector<GivenFlag>> candidate_flags(
    const std::vector<std::string>& arguments, const Candidate& candidate,
    const std::vector<FlagGroup>& kinds);

}  // namespace mfsdp
