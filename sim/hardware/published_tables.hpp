// Prices of GEMMs and attention from tables that others published for a GPU, in place of the H200's
// scaled tables.
#pragma once

#include <optional>

#include "core/base/error.hpp"
#include "core/plan/price_tables.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// The GPU priced by its published tables, as far as they go; `published_prices` describes them.
/// All else keeps its prices. The error names --tables: the file has no published tables.
[[nodiscard]] Result<Gpu> with_published_tables(Gpu gpu);

/// The GPU priced by the requested tables, else by its file's default. If the file has a default,
/// `priced_by` names the tables and the reason for the default. Errors as above.
[[nodiscard]] Result<Gpu> with_price_tables(Gpu gpu, std::optional<PriceTables> asked);

}  // namespace mfsdp
