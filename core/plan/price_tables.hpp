// The source of the tables with which a GPU's kernels are priced.
#pragma once

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// The tables for GEMMs and attention.
enum class PriceTables {
  own,       ///< the tables that the GPU's file names, scaled
  published  ///< published measurements of the GPU
};

constexpr auto value_names(PriceTables) { return name_array("own", "published"); }

}  // namespace mfsdp
