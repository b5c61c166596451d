// Judges whether the proofs find the faults of a plan's mutants.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "verify/mutation/mutant.hpp"

namespace mfsdp {

/// The verdict on a mutant.
enum class Fate {
  killed,      ///< the proofs find an error
  correct,     ///< they find none, and the checker accepts the certificate
  uncertified  ///< they find none, but the checker refuses the certificate
};

constexpr auto value_names(Fate) { return name_array("killed", "correct", "uncertified"); }

struct MutantVerdict {
  Mutant mutant;
  Fate fate = Fate::killed;
  std::vector<std::string> rules;  ///< of the errors, ascending; "refused" if the proofs fail
  std::string refusal;             ///< reason of an uncertified mutant; else empty

  friend bool operator==(const MutantVerdict&, const MutantVerdict&) = default;
};

/// Checks that the checker accepts the certificate of a program without findings. The error is the
/// reason of the refusal.
using Certify = std::function<Result<void>(const Program&)>;

struct MutationSettings {
  Certify certify = {};  ///< none: verify/proof writes the certificate, verify/checker reads it
  /// Judges at most this number of mutants that change the program, drawn with `seed`. None: all.
  std::optional<std::size_t> most = {};
  std::uint64_t seed = 0;
  std::size_t workers = 0;  ///< threads; 0: as many as the machine has
  /// Called from time to time, by one thread at a time. After it returns false, no further mutants
  /// are judged.
  std::function<bool(std::size_t done, std::size_t of)> progress = {};
};

struct FateCounts {
  std::int64_t killed = 0;
  std::int64_t correct = 0;
  std::int64_t uncertified = 0;

  friend bool operator==(const FateCounts&, const FateCounts&) = default;
};

struct MutationReport {
  std::int64_t mutants = 0;    ///< number of mutants from for_each_mutant()
  std::int64_t unchanged = 0;  ///< number of drawn mutants that change nothing; they are not judged
  FateCounts total;            ///< counts of judged mutants
  std::map<MutantKind, FateCounts> by_kind;
  std::map<std::string, std::int64_t> by_rule;  ///< mutants that a rule finds
  std::vector<MutantVerdict> verdicts;          ///< in the order of for_each_mutant

  friend bool operator==(const MutationReport&, const MutationReport&) = default;
};

/// Judges one altered program.
[[nodiscard]] MutantVerdict judge(const Program& altered, const Mutant& mutant,
                                  const Certify& certify);

/// Judges the mutants of a program. The result depends only on program, `most` and `seed`.
/// Errors: the program itself has findings, or no certificate.
[[nodiscard]] Result<MutationReport> mutate(const Program& program,
                                            const MutationSettings& settings);

}  // namespace mfsdp
