// The config.json of a checkpoint: written for transformers, compared with a plan.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "core/model/model.hpp"

namespace mfsdp {

/// A config.json that transformers loads: of Qwen2 if projections have biases, of Qwen3 if heads
/// are normed, else of Llama, which also covers Mistral. The ids of tokens that begin or end text
/// are null: a plan does not contain them. `dtype`: of the weights. Errors: the text would be read
/// as another shape, because no family has this shape or a number has no short decimal form.
[[nodiscard]] Result<std::string> hf_config_text(const ModelShape& shape, DType dtype);

/// Whether the weights of `folder` belong to a model of this shape, according to its config.json.
/// An error names the first field that differs, with both values. The longest sequence may differ:
/// no weight depends on it.
[[nodiscard]] Result<void> check_hf_config(const std::filesystem::path& folder,
                                           const ModelShape& shape);

}  // namespace mfsdp
