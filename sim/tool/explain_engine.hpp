// Where the memory of an engine that is not ours goes, and what would lower it.
#pragma once

#include <string>

#include "core/cli/text_style.hpp"
#include "sim/predict/prediction_request.hpp"

namespace mfsdp {

/// Tables of the memory allocated at the peak, by name; of the memory reserved beside it; and of
/// the three changes that save most of the device's memory, each predicted. `request`: built, of
/// such an engine.
[[nodiscard]] std::string explain_engine_memory(const PredictionRequest& request,
                                                const Prediction& prediction,
                                                const TextStyle& style);

}  // namespace mfsdp
