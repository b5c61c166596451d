// Prices of products and attention from what others published of a GPU, instead of the H200's
// tables, scaled.
#pragma once

#include <optional>

#include "core/base/error.hpp"
#include "core/plan/price_tables.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// The GPU priced by its published tables, as far as it has them; `published_prices` says so. What
/// it was priced by stays what is not published. The error names --tables: its file has none.
[[nodiscard]] Result<Gpu> with_published_tables(Gpu gpu);

/// The GPU priced by the tables that are asked for, else by its file's default. Where the file says
/// one, `priced_by` tells which tables they are and why these are its default. Errors as above.
[[nodiscard]] Result<Gpu> with_price_tables(Gpu gpu, std::optional<PriceTables> asked);

}  // namespace mfsdp
