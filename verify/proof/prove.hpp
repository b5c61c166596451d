// Everything that is proved about a program without running it.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"
#include "verify/proof/memory/bounds.hpp"
#include "verify/proof/order/proof_settings.hpp"

namespace mfsdp {

/// Counts of what was checked for each rank, over all plans.
struct Expansion {
  std::int64_t ranks = 0;                ///< of the mesh; 0: ranks were proved by class only
  std::int64_t collectives = 0;          ///< of each rank in the unrolled plans, summed over ranks
  std::int64_t parameter_intervals = 0;  ///< parts of parameters that a rank updates, likewise

  friend bool operator==(const Expansion&, const Expansion&) = default;
};

struct Proof {
  std::vector<Finding> findings;  ///< by rule, then in host order
  /// The structure (MF001 to MF005) is wrong: nothing after it was looked at, no bound is known.
  bool only_structure = false;
  /// Units and parameters are those of the configured model, whose values were followed (MF113).
  bool of_model = false;
  Bounds bounds;
  std::int64_t ops = 0;        ///< of all plans
  std::int64_t waits = 0;      ///< among them
  std::int64_t instances = 0;  ///< of ops in the unrolled plans
  Expansion expansion;

  friend bool operator==(const Proof&, const Proof&) = default;
};

/// Whether the ranks of a mesh are few enough to look at one by one.
[[nodiscard]] Result<void> check_world(const Mesh& mesh);

/// Every finding of the checks of one program that needs no other class's program: all but values
/// (MF111 to MF113) and scales (MF307, MF308, MF311 to MF313), which follow what is received.
[[nodiscard]] Result<Proof> prove_part(const Program& program, const ProofSettings& settings);

/// Proves every plan of a program over all interleavings that streams, events, communicators and
/// the host allow. A plan that is no plan (MF0xx errors) is not judged further. Errors: a plan too
/// large to unroll, or a mesh too large to expand.
[[nodiscard]] Result<Proof> prove(const Program& program, const ProofSettings& settings = {});

}  // namespace mfsdp
