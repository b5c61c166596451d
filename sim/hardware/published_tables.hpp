// Prices of products and attention from what others published of a GPU, instead of the H200's
// tables, scaled.
#pragma once

#include "core/base/error.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// The GPU priced by its published tables, as far as it has them; `published_prices` says so. What
/// it was priced by stays what is not published. The error names --tables: its file has none.
[[nodiscard]] Result<Gpu> with_published_tables(Gpu gpu);

}  // namespace mfsdp
