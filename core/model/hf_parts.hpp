// Parts of a config.json; hf_config.cpp reads the rest first.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/model/family.hpp"
#include "core/model/hf_config.hpp"
#include "core/model/hf_fields.hpp"

namespace mfsdp {

/// The fields of the language model in a config.json.
struct HfTextPart {
  std::shared_ptr<nlohmann::json> config;
  std::string prefix = {};  ///< of its fields' names: "text_config."; empty: the whole file
  std::optional<std::string> note = {};  ///< the parts that are left out
};

/// The language model of a config.json: the object for it in files of models with several parts, as
/// image and text, else the whole file. Fields that such files state outside are in the result too;
/// those that disagree with the object's own are an error.
[[nodiscard]] Result<HfTextPart> text_part_of(const nlohmann::json& document,
                                              const std::string& where);

/// Attention and RoPE: sliding windows and their layers, logit softcaps, the scale of attention
/// logits, and the scaling of RoPE. Fills model.shape, whose sizes must be read already, and
/// model.gaps for RoPE scalings whose table is not computed here.
[[nodiscard]] Result<void> read_hf_attention(const HfFields& fields, const HfFamily& family,
                                             HfModel& model);

/// Norms of queries and keys, layers without RoPE, and multipliers. Fills a shape whose attention
/// must be read already.
[[nodiscard]] Result<void> read_hf_variants(const HfFields& fields, const HfFamily& family,
                                            ModelShape& shape);

/// One error for all fields that change the computation in a way that the family's recipe lacks.
/// Adds a note about parts that are left out.
[[nodiscard]] Result<void> check_foreign_fields(const HfFields& fields, const HfFamily& family,
                                                std::vector<std::string>& notes);

/// The indexer of sparse attention. Fills a shape whose sizes must be read already, and a gap: plans
/// have its parameters and attention over the whole sequence.
[[nodiscard]] Result<void> read_hf_indexer(const HfFields& fields, HfModel& model);

/// Experts: their number, width and layers, and the routing of tokens. Fills a shape whose sizes
/// must be read already. Does nothing for families without experts.
[[nodiscard]] Result<void> read_hf_experts(const HfFields& fields, const HfFamily& family,
                                           ModelShape& shape);

}  // namespace mfsdp
