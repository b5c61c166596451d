// The end of a search: the best combinations again, with collectives placed and carried otherwise,
// then with more units gathered ahead, more gradients live, and experts that are dealt out sharded
// otherwise than the rest. These change little but the order of a step and its memory, so that they
// need not be tried with all the rest.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"
#include "sim/tool/sweep_run.hpp"

namespace mfsdp {

/// Where collectives stand and what carries them, of the best combination of each strategy; then
/// how far ahead, and experts, of the best ones.
enum class FinerKind { transports, order };

/// What was tried beside the combinations.
struct Finer {
  FinerKind kind = FinerKind::order;
  std::vector<SweepRow> rows;  ///< values: of the combination that it varies, then its own
  std::vector<std::vector<std::string>> arguments;  ///< of each row, as if it were given alone
  std::vector<std::size_t> bases;                   ///< of each row, the combination's position
  std::vector<SweepAxis> axes;
  std::size_t varied = 0;  ///< of how many combinations
};

/// Of how many combinations at most, of FinerKind::order: the best ones.
inline constexpr std::size_t kVaried = 3;

/// Combinations of those at `best`, which are in order, with each value of the kind's flags, but
/// for what the command line gives: --placement of several GPUs and, where they have NVLink,
/// --gather and --reduce; or --prefetch, --grad-slots and, where several ranks have the same
/// experts, --expert-strategy. `batch`: the global batch that all combinations share, if they do.
/// Errors: as sweep_rows.
[[nodiscard]] Result<Finer> finer_rows(FinerKind kind, const Sweep& sweep,
                                       const std::vector<SweepRow>& rows,
                                       const std::vector<std::size_t>& best,
                                       std::optional<std::int64_t> batch, const SimOptions& options,
                                       const Session& session);

/// Takes the rows at `places` of these among the combinations, after them, with the flags in which
/// one of them is not as its combination; all others of our engine have the values of such flags
/// where they are not given. The rows taken are left without what they hold.
void take(Sweep& sweep, std::vector<SweepRow>& rows, Finer& finer,
          const std::vector<std::size_t>& places);

/// "The 3 best also with --prefetch 1,2,3 and --grad-slots 2,3,4.\n", or nothing.
[[nodiscard]] std::string finer_text(const Finer& finer);

}  // namespace mfsdp
