// Several data sets as one, by weight.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {

struct MixturePart {
  std::unique_ptr<Dataset> data;
  double weight = 1;  ///< above 0; only their ratios count
  std::string name;   ///< what the user named
};

/// Of each thousand samples of a run, a whole number is each part's, as near its weight as that
/// allows, in an order drawn from the seed; each part's own samples come in its own order, epoch
/// after epoch. What comes as number n is a function of (seed, n), so that a run goes on as it
/// would have gone on.
/// Errors: a part whose weight is less than half a thousandth of all.
[[nodiscard]] Result<std::unique_ptr<Dataset>> mix(std::vector<MixturePart> parts);

}  // namespace mfsdp
