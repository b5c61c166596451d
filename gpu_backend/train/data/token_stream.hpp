// Runs of tokens as one long stream, cut into samples: for text and for token files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/data/token_run.hpp"

namespace mfsdp {

/// Sample i has tokens [i * seq_len, (i + 1) * seq_len) of the runs joined, and their successors as
/// labels; what is left at the end belongs to no sample. Every label carries loss.
/// `where` is what the user named, `description` what the data set says of itself.
/// Positions begin anew behind each token that ends a document.
/// Errors: documents that are to be masked, and no token that ends them; fewer than seq_len + 1
/// tokens; a wrong token among the first 2^24, those that the entropy is taken of. Later tokens are
/// checked as they are read.
[[nodiscard]] Result<std::unique_ptr<Dataset>> make_token_stream(std::vector<TokenRun> runs,
                                                                 const DatasetSettings& settings,
                                                                 const std::string& where,
                                                                 std::string description);

}  // namespace mfsdp
