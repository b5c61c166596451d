// Where the memory of an engine that is not ours goes, and what would lower it.
#pragma once

#include <string>

#include "core/cli/text_style.hpp"
#include "sim/predict/prediction_request.hpp"

namespace mfsdp {

/// The tensors at the peak, by name; the memory that is reserved in addition; and the three changes
/// that save most of the device's memory, each predicted. Requires a request with its program, of an
/// engine with PyTorch's allocator.
[[nodiscard]] std::string explain_engine_memory(const PredictionRequest& request,
                                                const Prediction& prediction,
                                                const TextStyle& style);

}  // namespace mfsdp
