// Certificates that were altered, with the checksum set right again.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace mfsdp::test {

inline std::string hash_of_json(const nlohmann::json& document) {
  const std::string line = document.dump();
  const XXH128_hash_t hash = XXH3_128bits(line.data(), line.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

inline std::string sealed(nlohmann::json certificate) {
  if (certificate.is_object() && certificate.contains("claims"))
    certificate["checksum"] = hash_of_json(certificate["claims"]);
  return certificate.dump();
}

}  // namespace mfsdp::test
