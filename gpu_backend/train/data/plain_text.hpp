// Plain text as training data: by its bytes, or by a tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {

/// The files' bytes in this order, kEndToken between one file and the next. Bytes are taken as they
/// are: text that is not UTF-8 trains as well, and describe() says so.
/// `where` is what the user named. Errors as make_token_stream's; a vocabulary too small for bytes.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_byte_text(
    const std::vector<std::filesystem::path>& files, const DatasetSettings& settings,
    const std::string& where);

/// The files' tokens in this order as one stream, each file between what the tokenizer puts before
/// a text and, where it has one, the token that ends texts. All tokens are held in memory, 4 bytes
/// each. `settings.text` is not null.
/// Errors as make_token_stream's; text that is no UTF-8.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_tokenized_text(
    const std::vector<std::filesystem::path>& files, const DatasetSettings& settings,
    const std::string& where);

}  // namespace mfsdp
