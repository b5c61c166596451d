// Everything that is proved about a program without running it.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {

struct PoolBound {
  std::string name;
  Bytes height;       ///< as the plan states
  Bytes lower_bound;  ///< largest sum of aligned live bytes, over all interleavings of all plans

  friend bool operator==(const PoolBound&, const PoolBound&) = default;
};

/// What holds in every interleaving, of plan "train" unless said otherwise.
struct Bounds {
  std::int64_t live_full_weights = 0;    ///< gathered weight buffers at one time
  std::int64_t live_full_gradients = 0;  ///< full gradient buffers at one time
  Bytes peak;                            ///< device bytes: persistent, and each pool at its fullest
  std::vector<PoolBound> pools;
  std::int64_t concurrent_collectives = 0;  ///< that may be enabled at one time, in any plan
  std::vector<OpId> redundant_waits;        ///< that order nothing new, in any plan

  friend bool operator==(const Bounds&, const Bounds&) = default;
};

struct ProofSettings {
  std::int64_t steps = 2;           ///< that are unrolled
  std::int64_t repetitions = 2;     ///< of a repeated segment, at most, where nothing takes turns
  std::size_t most_findings = 100;  ///< per rule; further ones are left out
  /// Looks at every rank of the mesh by itself (rank_sequences.hpp, rank_slices.hpp) beside the
  /// proof by class: some seconds for 16,384 ranks.
  bool expand_ranks = false;
  /// Plans of so many ops are proved on two threads; the findings are the same.
  std::size_t ops_for_two_threads = 20'000;
};

/// All repetitions of a segment.
inline constexpr std::int64_t kAllRepetitions = std::numeric_limits<std::int64_t>::max();

/// What was looked at rank by rank, over all plans.
struct Expansion {
  std::int64_t ranks = 0;                ///< of the mesh; 0: everything was proved by class
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
