// The source of the tables with which a GPU's kernels are priced.
#pragma once

#include <array>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// The tables for GEMMs and attention.
enum class PriceTables {
  own,       ///< the tables that the GPU's file names, scaled
  published  ///< published measurements of the GPU
};

template <>
struct Names<PriceTables> {
  static constexpr std::array<std::string_view, 2> values{"own", "published"};
};

}  // namespace mfsdp
