// Whether the proofs find what is wrong with the mutants of a plan.
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

/// What became of a mutant.
enum class Fate {
  killed,      ///< the proofs find an error
  correct,     ///< they find none, and the checker accepts the certificate
  uncertified  ///< they find none, but the checker refuses the certificate
};

template <>
struct Names<Fate> {
  static constexpr std::array<std::string_view, 3> values{"killed", "correct", "uncertified"};
};

struct MutantVerdict {
  Mutant mutant;
  Fate fate = Fate::killed;
  std::vector<std::string> rules;  ///< of the errors, ascending; "refused" where nothing is proved
  std::string refusal;             ///< why there is no certificate; empty unless uncertified

  friend bool operator==(const MutantVerdict&, const MutantVerdict&) = default;
};

/// Whether the checker accepts a certificate of a program that proves clean; the error is why not.
using Certify = std::function<Result<void>(const Program&)>;

struct MutationSettings {
  Certify certify = {};  ///< none: verify/proof writes the certificate, verify/checker reads it
  /// Judge so many of those that change the program, drawn with `seed`, or as many as there are;
  /// all of them without.
  std::optional<std::size_t> most = {};
  std::uint64_t seed = 0;
  std::size_t workers = 0;  ///< threads; 0: as many as the machine has
  /// Called now and then, by one thread at a time; no further mutants are judged once it says
  /// false.
  std::function<bool(std::size_t done, std::size_t of)> progress = {};
};

struct FateCounts {
  std::int64_t killed = 0;
  std::int64_t correct = 0;
  std::int64_t uncertified = 0;

  friend bool operator==(const FateCounts&, const FateCounts&) = default;
};

struct MutationReport {
  std::int64_t mutants = 0;    ///< that for_each_mutant names
  std::int64_t unchanged = 0;  ///< that were drawn and change nothing: they are not judged
  FateCounts total;            ///< of those that were judged
  std::map<MutantKind, FateCounts> by_kind;
  std::map<std::string, std::int64_t> by_rule;  ///< mutants that a rule finds
  std::vector<MutantVerdict> verdicts;          ///< in the order of for_each_mutant

  friend bool operator==(const MutationReport&, const MutationReport&) = default;
};

/// Judges one altered program.
[[nodiscard]] MutantVerdict judge(const Program& altered, const Mutant& mutant,
                                  const Certify& certify);

/// Judges the mutants of a program. The result is a function of program, `most` and `seed`.
/// Errors: a program that does not prove clean itself, or has no certificate.
[[nodiscard]] Result<MutationReport> mutate(const Program& program,
                                            const MutationSettings& settings);

}  // namespace mfsdp
