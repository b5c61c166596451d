// Which tables price a GPU's kernels.
#pragma once

#include <array>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// What products and attention are priced by.
enum class PriceTables {
  own,       ///< the tables that the GPU's file names, scaled
  published  ///< what others published of the GPU
};

template <>
struct Names<PriceTables> {
  static constexpr std::array<std::string_view, 2> values{"own", "published"};
};

}  // namespace mfsdp
