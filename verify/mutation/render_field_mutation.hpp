// A report of changed fields as text, Markdown and JSON. Every text ends in a newline.
#pragma once

#include <string>

#include "verify/mutation/mutate_fields.hpp"

namespace mfsdp {

/// "412 fields, 9,120 mutants, 9,120 judged: 5,000 refused, ..., 20 defects"
[[nodiscard]] std::string summary(const FieldMutationReport& report);

/// Fields with defects, most defects first, with one example each; then counts by rule.
[[nodiscard]] std::string render_field_mutation_text(const FieldMutationReport& report);
/// All fields with their counts, then every defect.
[[nodiscard]] std::string render_field_mutation_markdown(const FieldMutationReport& report);
/// {"plan", "fields", "mutants", "judged", counts by fate, "by_field": [{"field", ...}], "rules":
/// [{"rule", "mutants"}], "verdicts": [{"number", "field", "place", "edit", "before", "after",
/// "fate", "rules", "why"}]}
[[nodiscard]] std::string render_field_mutation_json(const FieldMutationReport& report);

}  // namespace mfsdp
