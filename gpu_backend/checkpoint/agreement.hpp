// Checks that a run fits the save from which it resumes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/checkpoint/format.hpp"
#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {

/// Reads eight samples, spread evenly. Errors: those of the dataset.
[[nodiscard]] Result<DataIdentity> identify(const Dataset& data, std::int64_t seq_len,
                                            bool documents = false);

/// Errors name `where`, the field, and the values of this run and of the save. Run and save must
/// agree in: the model's shape, the dtypes of weights and main weights, the optimizer and its
/// settings except the learning rate, the frozen parameters, the seed. Returns a warning for each
/// difference in the data, the length of a sequence, and the sequences of a step. Everything else
/// may differ.
[[nodiscard]] Result<std::vector<std::string>> check_agreement(const RunIdentity& run,
                                                               const RunIdentity& saved,
                                                               const std::string& where);

}  // namespace mfsdp
