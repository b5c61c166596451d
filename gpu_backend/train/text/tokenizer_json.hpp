// Functions that the readers of tokenizer.json share.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/train/text/bpe.hpp"

namespace mfsdp {

/// Far above any known tokenizer; ids index tables.
inline constexpr std::int64_t kMostTokenIds = std::int64_t{1} << 22;

/// Tokens by id and by name.
struct TokenTables {
  std::vector<std::string> bytes_of;
  std::vector<bool> is_there;
  TextMap<std::int32_t> by_text;
};

/// Reads "model": a BPE whose vocabulary has all bytes. Fills `tables`.
[[nodiscard]] Result<Bpe> read_bpe(const nlohmann::json& json, const std::string& where,
                                   TokenTables& tables);

/// An error that names the first unsupported key.
[[nodiscard]] Result<void> refuse_other_keys(const nlohmann::json& object,
                                             std::initializer_list<std::string_view> known,
                                             const std::string& where);

/// An error unless the field is missing or has one of these values. The error names the first of
/// them as expected.
[[nodiscard]] Result<void> expect_one_of(const nlohmann::json& object, const char* key,
                                         std::initializer_list<nlohmann::json> allowed,
                                         const std::string& where);

[[nodiscard]] Result<bool> flag_field(const nlohmann::json& object, const char* key, bool otherwise,
                                      const std::string& where);

[[nodiscard]] tl::unexpected<Error> unsupported_type(const std::string& where,
                                                     const std::string& type,
                                                     std::string_view supported);

}  // namespace mfsdp
