// Token files of Megatron-LM: PREFIX.bin holds the tokens, PREFIX.idx where sequences and documents
// begin. Written by its megatron/core/datasets/indexed_dataset.py. The index, little-endian and
// unaligned:
//
//   9 bytes "MMIDIDX\0\0" | u64 version 1 | u8 type | u64 sequences | u64 ends
//   int32 length[sequences], in tokens | int64 offset[sequences], in bytes of the .bin
//   int64 end[ends]: 0, then for each document the sequence after its last
//   int8 mode[sequences], only of multimodal data
#pragma once

#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gpu_backend/train/data/dataset.hpp"
#include "gpu_backend/train/data/token_run.hpp"

namespace mfsdp {

struct MegatronIndex {
  TokenType type = TokenType::int32;
  std::int64_t sequences = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
};

/// Whether a file begins as an index does.
[[nodiscard]] bool is_megatron_index(std::span<const std::byte> file);

/// Reads a whole index and compares it with a .bin of `bin_bytes`. Errors: whatever is not as
/// above; float tokens; sequences that do not follow each other in the .bin from its first byte to
/// its last (Megatron-LM writes no others); document ends that fall or leave the sequences.
[[nodiscard]] Result<MegatronIndex> parse_megatron_index(std::span<const std::byte> index,
                                                         std::size_t bin_bytes,
                                                         const std::string& name);

/// The .bin files as one stream, in this order, each with its .idx beside it: documents follow each
/// other as they were written, with the end tokens that preprocess_data's --append-eod put there.
[[nodiscard]] Result<std::unique_ptr<Dataset>> open_megatron_tokens(
    const std::vector<std::filesystem::path>& bin_files, const DatasetSettings& settings,
    const std::string& where);

}  // namespace mfsdp
