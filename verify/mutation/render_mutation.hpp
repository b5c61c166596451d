// A mutation report as text, Markdown and JSON. Every text ends in a newline.
#pragma once

#include <string>

#include "verify/mutation/mutate.hpp"

namespace mfsdp {

/// Counts by kind and by rule; then each mutant that is not killed, with the reason if it is not
/// certified. `program` is the unchanged program.
[[nodiscard]] std::string render_mutation_text(const Program& program,
                                               const MutationReport& report);
/// The same as tables.
[[nodiscard]] std::string render_mutation_markdown(const Program& program,
                                                   const MutationReport& report);
/// {"plan", "mutants", "judged", "killed", "correct", "uncertified", "kinds": [{"kind", ...}],
/// "rules": [{"rule", "mutants"}], "verdicts": [{"mutant", "fate", "rules", "refusal"}]}
[[nodiscard]] std::string render_mutation_json(const Program& program,
                                               const MutationReport& report);

/// "14,741 mutants, 1,500 judged: 1,412 killed, 88 correct, 0 uncertified"
[[nodiscard]] std::string summary(const MutationReport& report);

}  // namespace mfsdp
