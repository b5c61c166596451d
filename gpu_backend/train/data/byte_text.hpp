// Plain text: its bytes are its tokens.
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

}  // namespace mfsdp
