// JSONL for training: chats, prompts with completions, documents and tokens, one a line.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {

/// Lines as line_text.hpp says, of all files in this order; lines of white space are passed over.
/// A line with answers that is longer than seq_len is cut, and one whose prompt alone fills seq_len
/// is left out; a document that is longer becomes several pieces. describe() counts all three.
/// A sample is one line (or piece), filled up with padding; where the settings pack, as many as fit
/// (pack.hpp). Positions begin anew in each line, and in the padding behind the last one.
/// All lines are encoded here once, so that a bad one is told of before the run begins.
/// Errors: those of LineEncoder; a token outside the vocabulary; no line with an answer within
/// seq_len; bytes where the vocabulary is too small for them.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_sft_jsonl(
    const std::vector<std::filesystem::path>& files, const DatasetSettings& settings,
    const std::string& where);

}  // namespace mfsdp
