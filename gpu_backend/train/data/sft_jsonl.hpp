// JSONL for supervised fine-tuning: one sample a line.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {

/// Samples as sft_line.hpp says, of all files in this order; lines of white space are passed over.
/// Samples are not packed: a short one is filled up with padding. One longer than seq_len is cut,
/// and one whose prompt alone fills seq_len is left out; describe() counts both.
/// All lines are parsed here once, so that a bad one is told of before the run begins.
/// Errors: those of parse_sft_line; no line with an answer within seq_len; a small vocabulary.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_sft_jsonl(
    const std::vector<std::filesystem::path>& files, const DatasetSettings& settings,
    const std::string& where);

}  // namespace mfsdp
