// The part of a model that one rank of tp has.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"

namespace mfsdp {

/// The configuration with the heads, features and ids of one rank of tp. Ids are padded to a multiple
/// of `unit` on each rank. The mesh and the tokens stay. Requires equal shares.
[[nodiscard]] PlanConfig config_of_rank(const PlanConfig& config, std::int64_t unit = 1);

struct ShareOf {
  std::string_view what;
  std::int64_t size = 0;
};

/// Adds an error for each size that the ranks do not divide.
void check_shares(const char* flag, std::int64_t ranks, std::initializer_list<ShareOf> shares,
                  Reasons& reasons);

}  // namespace mfsdp
