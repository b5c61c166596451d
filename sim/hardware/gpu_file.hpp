// The fields of a GPU file.
//
//   title = "NVIDIA RTX 4090"
//   [compute]
//   bf16_tflops = 165.2               # dense, with FP32 accumulation
//   sms = 128
//   [memory]
//   capacity_bytes = "24 GB"          # or a whole number of bytes
//   gb_per_s = 1008
//   [link]
//   kind = "pcie"                     # or nvlink, xgmi
//   gb_per_s = 31                     # to all peers together, per direction
//
// All of these but the title are required, unless `like` names a GPU that has them. The others have
// defaults: what was measured on an H200, scaled where the data sheet allows it. scenarios/README.md
// lists them.
#pragma once

#include "core/base/error.hpp"
#include "core/base/toml_fields.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Reads all fields. Errors are those of parse_gpu().
[[nodiscard]] Result<Gpu> read_gpu_fields(TomlFields& fields);

/// Takes the fields that `fields` does not have from `base`, but for its title, what was measured
/// on it and what others published about it.
void inherit_gpu(TomlFields& fields, const TomlFields& base);

}  // namespace mfsdp
