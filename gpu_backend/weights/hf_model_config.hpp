// The config.json beside a checkpoint's weights: written for transformers, compared with a plan.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "core/model/model.hpp"

namespace mfsdp {

/// A config.json that transformers loads: of Qwen2 where projections have biases, of Qwen3 where
/// heads are normed, else of Llama, whose shape Mistral's is too. Tokens that begin or end text are
/// null: a plan knows none. `dtype`: of the weights. An error where reading the text would give
/// another shape: a shape of no family, numbers without a short decimal form.
[[nodiscard]] Result<std::string> hf_config_text(const ModelShape& shape, DType dtype);

/// Whether the weights of `folder` belong to a model of this shape, as its config.json says. An
/// error names the first field that differs, with both values. The longest sequence may differ: no
/// weight depends on it.
[[nodiscard]] Result<void> check_hf_config(const std::filesystem::path& folder,
                                           const ModelShape& shape);

}  // namespace mfsdp
