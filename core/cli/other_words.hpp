// Names that other tools use for these flags and values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace mfsdp {

/// The hint for `flag` ("--tp", "--tensor_parallel_size"), which a tool with the flags `known` does
/// not have: it is not modelled, or another flag means the same. Knows the words of Megatron-LM,
/// Hugging Face's Trainer, DeepSpeed, torchtitan, verl and Slurm. None for other words.
[[nodiscard]] std::optional<std::string> about_foreign_flag(std::string_view flag,
                                                            std::span<const std::string> known);

/// The hint for a value that `flag` does not take, such as "torchtitan" for --engine: the value
/// that means the same. None for other values.
[[nodiscard]] std::optional<std::string> about_foreign_value(std::string_view flag,
                                                             std::string_view value);

}  // namespace mfsdp
