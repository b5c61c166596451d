// Token files of llm.c: 256 int32 (magic, version, number of tokens, zeros), then the tokens.
// Written by its dev/data/data_common.py, write_datafile.
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/data/token_run.hpp"

namespace mfsdp {

/// Whether a file begins with a magic number of llm.c's token files.
[[nodiscard]] bool is_llmc_tokens(std::span<const std::byte> file);

/// The tokens of a whole file: version 1 (magic 20240520) has uint16, version 7 (20240801) uint32.
/// Errors: another magic or version, and a size that is not the one that the header says.
[[nodiscard]] Result<TokenRun> parse_llmc_tokens(std::span<const std::byte> file,
                                                 const std::string& name);

/// Shards as one stream, in this order; all of one version. `where` is what the user named.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_llmc_tokens(
    const std::vector<std::filesystem::path>& files, const DatasetSettings& settings,
    const std::string& where);

}  // namespace mfsdp
