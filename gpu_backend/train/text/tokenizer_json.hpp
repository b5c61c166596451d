// What the readers of tokenizer.json share.
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

/// Far above any that is known; ids index tables.
inline constexpr std::int64_t kMostTokenIds = std::int64_t{1} << 22;

/// Tokens by id and by name.
struct TokenTables {
  std::vector<std::string> bytes_of;
  std::vector<bool> is_there;
  TextMap<std::int32_t> by_text;
};

/// "model": a BPE whose vocabulary holds all bytes. Fills `tables`.
[[nodiscard]] Result<Bpe> read_bpe(const nlohmann::json& json, const std::string& where,
                                   TokenTables& tables);

/// What is not known is refused by name.
[[nodiscard]] Result<void> refuse_other_keys(const nlohmann::json& object,
                                             std::initializer_list<std::string_view> known,
                                             const std::string& where);

/// An error unless the field is one of these or not there; the first is what the error expects.
[[nodiscard]] Result<void> expect_one_of(const nlohmann::json& object, const char* key,
                                         std::initializer_list<nlohmann::json> allowed,
                                         const std::string& where);

[[nodiscard]] Result<bool> flag_field(const nlohmann::json& object, const char* key, bool otherwise,
                                      const std::string& where);

[[nodiscard]] tl::unexpected<Error> unsupported_type(const std::string& where,
                                                     const std::string& type,
                                                     std::string_view supported);

}  // namespace mfsdp
