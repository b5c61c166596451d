// The angles of rotary position embedding, as the plan's persistent buffer "rope_table" holds them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/model/model.hpp"

namespace mfsdp {

/// [seq_len, d], d = rotated_dim(): for each position the cosines of its d / 2 angles, then their
/// sines. Angle i of position p is p * theta^(-2i / d). The model may scale its frequency, and YaRN
/// and LongRoPE multiply cosines and sines too. Computed in double, rounded once. `local`: for the
/// layers with a sliding window, by local_rope_theta, unscaled; or for those without RoPE: cosines
/// of 1, sines of 0, which change no element.
[[nodiscard]] std::vector<float> make_rope_table(const ModelShape& model, std::int64_t seq_len,
                                                 bool local = false);

/// The frequencies, radians per position: d / 2 of them. With f_i = theta^(-2i / d):
///   linear    f_i / factor
///   llama3    f_i / factor below low_freq_factor rotations in the original context, f_i above
///             high_freq_factor rotations, blended by rotations between
///   yarn      f_i / factor for i >= high, f_i for i <= low, blended by i between; low and high are
///             the i, rounded outwards unless exact_range, with beta_fast and beta_slow rotations
///             (Peng et al., arXiv 2309.00071; bounds as transformers' modeling_rope_utils.py has
///             them)
///   longrope  f_i / factor_i, long factors where seq_len exceeds the original context, else short
///             ones (Ding et al., arXiv 2402.13753)
[[nodiscard]] std::vector<double> rope_frequencies(const ModelShape& model, std::int64_t seq_len,
                                                   bool local = false);

/// The factor of cosines and sines: attention_factor if the model states it, else
/// 0.1 ln(factor) + 1 for YaRN and sqrt(1 + ln(factor) / ln(original context)) for LongRoPE.
[[nodiscard]] double rope_magnitude(const ModelShape& model);

}  // namespace mfsdp
