// Attention of whole sequences in double, one query row at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <vector>

namespace mfsdp::cuda {

struct AttentionSizes {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t seq_len = 1;
  std::int64_t head_dim = 8;
  std::int64_t window = 0;
  double query_scalar = 0;
  double score_cap = 0;
  std::int64_t document = 0;  ///< tokens of the first one, the next have one more each; 0: no mask

  /// The place where the document of the token at `i` begins.
  [[nodiscard]] std::int64_t document_begin(std::int64_t i) const {
    std::int64_t begin = 0;
    for (std::int64_t length = document; length > 0 && begin + length <= i; ++length)
      begin += length;
    return begin;
  }
  [[nodiscard]] std::int64_t first_seen(std::int64_t i) const {
    return std::max(document_begin(i), window > 0 ? i - window + 1 : 0);
  }
  [[nodiscard]] std::vector<std::int32_t> positions() const {
    std::vector<std::int32_t> all{-1};  // one element, so that the following ones are not at a
                                        // multiple of 16 bytes
    for (std::int64_t t = 0; t < tokens(); ++t)
      all.push_back(static_cast<std::int32_t>(t % seq_len - document_begin(t % seq_len)));
    return all;
  }
  [[nodiscard]] std::string text() const {
    std::ostringstream out;
    out << "B " << batch << " H " << heads << " K " << kv_heads << " S " << seq_len << " D "
        << head_dim << " window " << window << " cap " << score_cap << " document " << document;
    return out.str();
  }
  [[nodiscard]] std::int64_t tokens() const { return batch * seq_len; }
  [[nodiscard]] std::int64_t width() const { return heads * head_dim; }
  [[nodiscard]] std::int64_t row() const { return (heads + 2 * kv_heads) * head_dim; }
};

struct Reference {
  std::vector<double> output, log_sum_exp, d_qkv;
};

/// In double, one query row at a time, from packed rows [query heads, key heads, value heads].
inline Reference reference(const AttentionSizes& s, const std::vector<double>& qkv,
                           const std::vector<double>& d_output) {
  Reference r;
  r.output.assign(static_cast<std::size_t>(s.tokens() * s.width()), 0);
  r.log_sum_exp.assign(static_cast<std::size_t>(s.tokens() * s.heads), 0);
  r.d_qkv.assign(qkv.size(), 0);
  const double scale =
      1 / std::sqrt(s.query_scalar > 0 ? s.query_scalar : static_cast<double>(s.head_dim));
  std::vector<double> slopes(static_cast<std::size_t>(s.seq_len), 1);
  std::vector<double> p(static_cast<std::size_t>(s.seq_len));
  std::vector<double> dp(p.size());
  for (std::int64_t b = 0; b < s.batch; ++b)
    for (std::int64_t h = 0; h < s.heads; ++h) {
      const std::int64_t group = h / (s.heads / s.kv_heads);
      const std::int64_t q_col = h * s.head_dim;
      const std::int64_t k_col = (s.heads + group) * s.head_dim;
      const std::int64_t v_col = (s.heads + s.kv_heads + group) * s.head_dim;
      const auto at = [&](std::int64_t position, std::int64_t col) {
        return static_cast<std::size_t>((b * s.seq_len + position) * s.row() + col);
      };
      for (std::int64_t i = 0; i < s.seq_len; ++i) {
        const auto out = static_cast<std::size_t>((b * s.seq_len + i) * s.width() + q_col);
        double largest = -std::numeric_limits<double>::infinity();
        for (std::int64_t j = s.first_seen(i); j <= i; ++j) {
          double sum = 0;
          for (std::int64_t d = 0; d < s.head_dim; ++d)
            sum += qkv[at(i, q_col + d)] * qkv[at(j, k_col + d)];
          sum *= scale;
          if (s.score_cap > 0) {
            const double share = std::tanh(sum / s.score_cap);
            sum = s.score_cap * share;
            slopes[static_cast<std::size_t>(j)] = 1 - share * share;
          }
          p[static_cast<std::size_t>(j)] = sum;
          largest = std::max(largest, sum);
        }
        double total = 0;
        for (std::int64_t j = s.first_seen(i); j <= i; ++j) {
          double& score = p[static_cast<std::size_t>(j)];
          score = std::exp(score - largest);
          total += score;
        }
        r.log_sum_exp[static_cast<std::size_t>((b * s.seq_len + i) * s.heads + h)] =
            largest + std::log(total);
        double row_sum = 0;
        for (std::int64_t j = s.first_seen(i); j <= i; ++j) {
          double& probability = p[static_cast<std::size_t>(j)];
          probability /= total;
          double sum = 0;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            const auto e = static_cast<std::size_t>(d);
            r.output[out + e] += probability * qkv[at(j, v_col + d)];
            sum += d_output[out + e] * qkv[at(j, v_col + d)];
            r.d_qkv[at(j, v_col + d)] += probability * d_output[out + e];
          }
          dp[static_cast<std::size_t>(j)] = sum;
          row_sum += probability * sum;
        }
        for (std::int64_t j = s.first_seen(i); j <= i; ++j) {
          const auto n = static_cast<std::size_t>(j);
          const double ds = p[n] * (dp[n] - row_sum) * slopes[n] * scale;
          for (std::int64_t d = 0; d < s.head_dim; ++d) {
            r.d_qkv[at(i, q_col + d)] += ds * qkv[at(j, k_col + d)];
            r.d_qkv[at(j, k_col + d)] += ds * qkv[at(i, q_col + d)];
          }
        }
      }
    }
  return r;
}

}  // namespace mfsdp::cuda
