// The passes of a proof: what each one finds, and what must hold before it is run.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"
#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/proof_settings.hpp"
#include "verify/proof/order/unrolled_plan.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {

/// Every pass needs a program whose ids resolve (no MF001 to MF005). Some need more.
struct PassNeeds {
  /// No error of rules MF006, MF007 and MF101 to MF108: one order of the ops stands for all.
  bool order = false;
  bool model = false;        ///< the plans compute the configured model
  bool all_classes = false;  ///< the program is that of all ranks, not one class of a job
  bool every_rank = false;   ///< ProofSettings::expand_ranks
};

struct PassInfo {
  std::string_view name;
  std::string_view finds;  ///< rules, "MF111 MF112"
  PassNeeds needs{};
};

/// All passes, in their order.
[[nodiscard]] std::vector<PassInfo> passes();

/// Finds MF001 to MF005: what core/plan/structure_faults.hpp lists.
void check_program_structure(const Program& program, FindingList& findings);

/// Runs all other passes on a program without such findings. `runs` of an unfolded program
/// (order/unfolded_program.hpp), by plan; else empty. `all_classes`: it is not one class of several.
/// Throws OverflowError where a size leaves 63 bits.
void run_passes(const Program& program, std::span<const std::vector<SegmentRun>> runs,
                const ProofSettings& settings, bool all_classes, FindingList& findings,
                Proof& proof);

}  // namespace mfsdp
