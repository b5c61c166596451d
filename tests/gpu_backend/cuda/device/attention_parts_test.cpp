// Attention of ranks that share sequences: what all parts make together is attention of whole
// sequences in double. Keys are those of all parts (all_gather) or of one after the other (a ring).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "gpu_backend/cuda/attention.hpp"
#include "gpu_backend/cuda/kernels/grouped.hpp"
#include "gpu_backend/cuda/kernels/ring.hpp"
#include "gpu_backend/cuda/warpgroup_attention.hpp"
#include "tests/gpu_backend/cuda/device/attention_reference.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {
namespace {

enum class KeyExchange { all_gather, ring };
/// The kernels that a call is expected to get.
enum class Kernels { warpgroups, plain };

/// Sequences of which each part has a place for every row, and what the parts have made so far.
template <class T>
class SharedSequences {
 public:
  SharedSequences(const AttentionSizes& sizes, std::int64_t parts, KeyExchange exchange,
                  Kernels kernels)
      : s_(sizes),
        parts_(parts),
        exchange_(exchange),
        kernels_(kernels),
        planner_(AttentionPlanner::create()),
        qkv_(random_values<T>(s_.tokens() * s_.row(), 1)),
        d_output_(random_values<T>(s_.tokens() * s_.width(), 2)),
        positions_(s_.positions()),
        output_(d_output_.size()),
        log_sum_exp_(static_cast<std::size_t>(s_.tokens() * s_.heads)),
        d_qkv_(qkv_.size()) {}

  /// `known`: the right results of these sizes, if a call has computed them.
  void run(std::optional<Reference>& known) {
    ASSERT_TRUE(planner_) << planner_.error().message();
    for (std::int64_t part = 0; part < parts_; ++part) ASSERT_NO_FATAL_FAILURE(run_part(part));
    if (!known) known = reference(s_, widened(qkv_), widened(d_output_));
    const Reference& want = *known;
    EXPECT_LT(relative_error(output_, want.output), kTolerance<T>);
    EXPECT_LT(relative_error(log_sum_exp_, want.log_sum_exp), 1e-5);
    const std::int64_t key = s_.width();
    const std::int64_t value = key + s_.kv_heads * s_.head_dim;
    EXPECT_LT(error_of(want, 0, key), kTolerance<T>) << "dQ";
    EXPECT_LT(error_of(want, key, value), kTolerance<T>) << "dK";
    EXPECT_LT(error_of(want, value, s_.row()), kTolerance<T>) << "dV";
  }

 private:
  using Shape = kernels::AttentionShape;

  [[nodiscard]] Shape shape(std::int64_t part, std::int64_t shift) const {
    return {.batch = s_.batch,
            .heads = s_.heads,
            .kv_heads = s_.kv_heads,
            .seq_len = s_.seq_len,
            .head_dim = s_.head_dim,
            .share = {.parts = parts_, .part = part, .is_part = true},
            .key_parts = exchange_ == KeyExchange::ring ? 1 : 0,
            .shift = shift,
            .window = s_.window,
            .query_scalar = s_.query_scalar,
            .score_cap = s_.score_cap,
            .positions = s_.document > 0 ? positions_.data() + 1 : nullptr};
  }
  [[nodiscard]] std::int64_t key_cols() const { return s_.row() - s_.width(); }
  /// The place of a key's row.
  [[nodiscard]] static std::int64_t key_place(const Shape& of, std::int64_t row) {
    return of.has_all_keys() ? of.share.gathered_place(row, of.seq_len)
                             : of.share.before(of.shift).place(row, of.seq_len);
  }
  /// `visit(token, row)`: for each row of the part's queries or of the keys.
  void for_queries(const Shape& of, const std::function<void(std::int64_t, std::int64_t)>& visit) {
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t row = 0; row < of.queries(); ++row)
        visit(b * s_.seq_len + of.place(row), b * of.queries() + row);
  }
  void for_keys(const Shape& of, const std::function<void(std::int64_t, std::int64_t)>& visit) {
    for (std::int64_t b = 0; b < s_.batch; ++b)
      for (std::int64_t row = 0; row < of.keys(); ++row)
        visit(b * s_.seq_len + key_place(of, row), b * of.keys() + row);
  }
  [[nodiscard]] std::vector<T> keys_of(const Shape& of) {
    std::vector<T> keys(static_cast<std::size_t>(s_.batch * of.keys() * key_cols()));
    for_keys(of, [&](std::int64_t token, std::int64_t row) {
      std::copy_n(qkv_.begin() + token * s_.row() + s_.width(), key_cols(),
                  keys.begin() + row * key_cols());
    });
    return keys;
  }
  /// Columns [0, width) of the queries' rows.
  [[nodiscard]] std::vector<T> rows_of(const Shape& of, const std::vector<T>& all,
                                       std::int64_t row_cols) {
    std::vector<T> rows(static_cast<std::size_t>(s_.batch * of.queries() * s_.width()));
    for_queries(of, [&](std::int64_t token, std::int64_t row) {
      std::copy_n(all.begin() + token * row_cols, s_.width(), rows.begin() + row * s_.width());
    });
    return rows;
  }

  template <class Call>
  void launch(const Call& call) {
    if constexpr (std::is_same_v<T, Bf16>) {
      const auto takes = warpgroups_take(call);
      ASSERT_TRUE(takes) << takes.error().message();
      ASSERT_EQ(*takes, kernels_ == Kernels::warpgroups);
    }
    const auto launch = planner_->bind(call, nullptr);
    ASSERT_TRUE(launch) << launch.error().message();
    const auto ran = (*launch)();
    ASSERT_TRUE(ran) << ran.error().message();
  }

  /// The memory of a part's queries.
  struct PartMemory {
    PartMemory(SharedSequences& of, const Shape& own)
        : rows(of.s_.batch * own.queries()),
          query(of.rows_of(own, of.qkv_, of.s_.row())),
          d_out(of.rows_of(own, of.d_output_, of.s_.width())),
          out(rows * of.s_.width()),
          part_out(rows * of.s_.width()),
          d_query(rows * of.s_.width()),
          part_d_query(rows * of.s_.width()),
          sums(rows * of.s_.heads),
          part_sums(rows * of.s_.heads),
          d_query_sum(rows * of.s_.width()),
          row_sums(rows * of.s_.heads),
          workspace(256) {}

    void expect_margins() const {
      for (const bool whole :
           {out.margin_is_whole(), part_out.margin_is_whole(), sums.margin_is_whole(),
            part_sums.margin_is_whole(), d_query.margin_is_whole(), part_d_query.margin_is_whole(),
            d_query_sum.margin_is_whole(), workspace.margin_is_whole()})
        EXPECT_TRUE(whole);
    }

    std::int64_t rows;
    DeviceArray<T> query, d_out, out, part_out, d_query, part_d_query;
    DeviceArray<float> sums, part_sums, d_query_sum, row_sums;
    DeviceArray<std::uint8_t> workspace;
  };

  template <class U>
  [[nodiscard]] kernels::HeadView<U> of_queries(const Shape& of, U* data) const {
    return kernels::heads_in_rows(data, of.queries(), s_.head_dim, s_.width(), 0);
  }
  template <class U>
  [[nodiscard]] kernels::HeadView<U> of_keys(const Shape& of, U* data) const {
    return kernels::heads_in_rows(data, of.keys(), s_.head_dim, key_cols(), 0);
  }
  template <class U>
  [[nodiscard]] kernels::HeadView<U> of_values(const Shape& of, U* data) const {
    return kernels::heads_in_rows(data, of.keys(), s_.head_dim, key_cols(),
                                  s_.kv_heads * s_.head_dim);
  }

  void run_part(std::int64_t part) {
    const Shape own = shape(part, 0);
    const std::int64_t steps = exchange_ == KeyExchange::ring ? parts_ : 1;
    PartMemory memory(*this, own);
    for (std::int64_t step = 0; step < steps; ++step)
      ASSERT_NO_FATAL_FAILURE(run_forward(shape(part, step), memory));
    for (std::int64_t step = 0; step < steps; ++step)
      ASSERT_NO_FATAL_FAILURE(run_backward(shape(part, step), memory));
    memory.expect_margins();
    const std::vector<T> made = memory.out.download();
    const std::vector<T> d_queries = memory.d_query.download();
    const std::vector<float> all_sums = memory.sums.download();
    for_queries(own, [&](std::int64_t token, std::int64_t row) {
      for (std::int64_t i = 0; i < s_.width(); ++i) {
        output_[at(token * s_.width() + i)] = widen(made[at(row * s_.width() + i)]);
        d_qkv_[at(token * s_.row() + i)] = widen(d_queries[at(row * s_.width() + i)]);
      }
      for (std::int64_t h = 0; h < s_.heads; ++h)
        log_sum_exp_[at(token * s_.heads + h)] = all_sums[at(row * s_.heads + h)];
    });
  }

  void run_forward(const Shape& of, PartMemory& m) {
    const bool first = of.shift == 0;
    const DeviceArray<T> keys(keys_of(of));
    const T* const query = m.query.data();
    const T* const key = keys.data();
    launch(kernels::AttentionForward<T>{
        .shape = of,
        .query = of_queries(of, query),
        .key = of_keys(of, key),
        .value = of_values(of, key),
        .output = of_queries(of, first ? m.out.data() : m.part_out.data()),
        .log_sum_exp = first ? m.sums.data() : m.part_sums.data(),
        .workspace = m.workspace.as_bytes()});
    if (first) return;
    ASSERT_TRUE(attention_merge(kernels::AttentionMerge<T>{.rows = m.rows,
                                                           .heads = s_.heads,
                                                           .head_dim = s_.head_dim,
                                                           .output = m.out.data(),
                                                           .log_sum_exp = m.sums.data(),
                                                           .other = m.part_out.data(),
                                                           .other_log_sum_exp = m.part_sums.data()},
                                nullptr));
  }

  void run_backward(const Shape& of, PartMemory& m) {
    const bool first = of.shift == 0;
    const DeviceArray<T> keys(keys_of(of));
    const DeviceArray<T> d_keys(s_.batch * of.keys() * key_cols());
    const T* const query = m.query.data();
    const T* const key = keys.data();
    const T* const out = m.out.data();
    const T* const d_out = m.d_out.data();
    m.d_query_sum.poison();
    m.row_sums.poison();
    launch(kernels::AttentionBackward<T>{
        .shape = of,
        .query = of_queries(of, query),
        .key = of_keys(of, key),
        .value = of_values(of, key),
        .output = of_queries(of, out),
        .d_output = of_queries(of, d_out),
        .log_sum_exp = m.sums.data(),
        .d_query = of_queries(of, first ? m.d_query.data() : m.part_d_query.data()),
        .d_key = of_keys(of, d_keys.data()),
        .d_value = of_values(of, d_keys.data()),
        .d_query_sum = m.d_query_sum.data(),
        .row_sums = m.row_sums.data(),
        .workspace = m.workspace.as_bytes()});
    if (!first) {
      ASSERT_TRUE(add_rows(kernels::AddRows<T>{.rows = m.rows,
                                               .cols = s_.width(),
                                               .output = m.d_query.data(),
                                               .input = m.part_d_query.data()},
                           nullptr));
    }
    const std::vector<T> made = d_keys.download();
    for_keys(of, [&](std::int64_t token, std::int64_t row) {
      for (std::int64_t i = 0; i < key_cols(); ++i)
        d_qkv_[at(token * s_.row() + s_.width() + i)] += widen(made[at(row * key_cols() + i)]);
    });
    EXPECT_TRUE(d_keys.margin_is_whole());
  }

  [[nodiscard]] static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }
  /// The error of columns of the gradient's rows.
  [[nodiscard]] double error_of(const Reference& want, std::int64_t begin, std::int64_t end) const {
    std::vector<double> got;
    std::vector<double> expected;
    for (std::int64_t row = 0; row < s_.tokens(); ++row)
      for (std::int64_t i = begin; i < end; ++i) {
        got.push_back(d_qkv_[at(row * s_.row() + i)]);
        expected.push_back(want.d_qkv[at(row * s_.row() + i)]);
      }
    return relative_error(got, expected);
  }

  AttentionSizes s_;
  std::int64_t parts_;
  KeyExchange exchange_;
  Kernels kernels_;
  Result<AttentionPlanner> planner_;
  std::vector<T> qkv_, d_output_;
  DeviceArray<std::int32_t> positions_;
  std::vector<double> output_, log_sum_exp_, d_qkv_;
};

template <class T>
void expect_parts_make_the_whole(const AttentionSizes& sizes, std::int64_t parts, Kernels kernels) {
  std::optional<Reference> want;
  for (const KeyExchange exchange : {KeyExchange::ring, KeyExchange::all_gather}) {
    if (exchange == KeyExchange::all_gather && sizes.batch > 1) continue;
    SCOPED_TRACE(sizes.text() + " parts " + std::to_string(parts) +
                 (exchange == KeyExchange::ring ? " ring" : " all_gather"));
    SharedSequences<T>(sizes, parts, exchange, kernels).run(want);
  }
}

/// Chunks are of one tile or of two.
void expect_right_by_warpgroups(const AttentionSizes& sizes, std::int64_t parts) {
  expect_parts_make_the_whole<Bf16>(sizes, parts, Kernels::warpgroups);
}
bool has_no_warpgroups() {
  const auto has = has_warpgroups();
  EXPECT_TRUE(has) << has.error().message();
  return !has || !*has;
}

/// Heads of one width together, of which two or four share keys.
AttentionSizes sizes_of(std::int64_t head_dim, std::int64_t seq_len, std::int64_t window = 0,
                        std::int64_t document = 0) {
  return {.heads = head_dim < 128 ? 4 : 2,
          .kv_heads = 1,
          .seq_len = seq_len,
          .head_dim = head_dim,
          .window = window,
          .document = document};
}

TEST(AttentionParts, ByWarpgroupsMakeTheWhole) {
  if (has_no_warpgroups()) GTEST_SKIP() << "no GPU of compute capability 9.0";
  for (const std::int64_t head_dim : {64, 96, 128, 256}) {
    expect_right_by_warpgroups(sizes_of(head_dim, 768), 3);
    expect_right_by_warpgroups({.batch = 2,
                                .heads = 4,
                                .kv_heads = 4,
                                .seq_len = 512,
                                .head_dim = head_dim,
                                .query_scalar = 2.5},
                               2);
  }
  expect_right_by_warpgroups(sizes_of(128, 1024), 2);
  expect_right_by_warpgroups(sizes_of(64, 1024), 4);
}

// Windows of two tokens and a few, and longer than a chunk.
TEST(AttentionParts, ByWarpgroupsWithWindowsMakeTheWhole) {
  if (has_no_warpgroups()) GTEST_SKIP() << "no GPU of compute capability 9.0";
  for (const std::int64_t head_dim : {64, 96, 128, 256}) {
    expect_right_by_warpgroups(sizes_of(head_dim, 512, 2), 2);
    expect_right_by_warpgroups(sizes_of(head_dim, 768, 100), 3);
    expect_right_by_warpgroups(sizes_of(head_dim, 1024, 300), 2);
  }
}

TEST(AttentionParts, ByWarpgroupsWithCapsMakeTheWhole) {
  if (has_no_warpgroups()) GTEST_SKIP() << "no GPU of compute capability 9.0";
  for (const std::int64_t head_dim : {128, 256})
    for (const std::int64_t window : {0, 150}) {
      AttentionSizes sizes = sizes_of(head_dim, 512, window);
      sizes.query_scalar = 2.5;
      sizes.score_cap = 3;
      expect_right_by_warpgroups(sizes, 2);
    }
}

// Documents of one token and a few, and longer than a tile.
TEST(AttentionParts, ByWarpgroupsBetweenDocumentsMakeTheWhole) {
  if (has_no_warpgroups()) GTEST_SKIP() << "no GPU of compute capability 9.0";
  for (const std::int64_t head_dim : {64, 96, 128, 256}) {
    expect_right_by_warpgroups(sizes_of(head_dim, 512, 0, 1), 2);
    expect_right_by_warpgroups(sizes_of(head_dim, 768, 90, 70), 3);
    expect_right_by_warpgroups(sizes_of(head_dim, 1024, 0, 200), 2);
  }
}

template <class T>
void expect_right_by_plain_kernels() {
  expect_parts_make_the_whole<T>({1, 4, 2, 48, 16}, 4, Kernels::plain);
  expect_parts_make_the_whole<T>({2, 3, 1, 36, 20}, 3, Kernels::plain);
  expect_parts_make_the_whole<T>({2, 3, 1, 40, 8, 11, 2.5, 1.5}, 2, Kernels::plain);
  expect_parts_make_the_whole<T>({.heads = 2, .seq_len = 48, .head_dim = 8, .document = 5}, 3,
                                 Kernels::plain);
  expect_parts_make_the_whole<T>({1, 4, 1, 200, 128, 33}, 2, Kernels::plain);
}

TEST(AttentionParts, InSinglePrecisionMakeTheWhole) { expect_right_by_plain_kernels<float>(); }
TEST(AttentionParts, OfOddLengthsMakeTheWhole) { expect_right_by_plain_kernels<Bf16>(); }
TEST(AttentionParts, InFp16MakeTheWhole) { expect_right_by_plain_kernels<Fp16>(); }

/// Rows that see keys of both sets, of one, and of none.
template <class T>
void expect_merged(std::int64_t rows, std::int64_t heads, std::int64_t head_dim) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const std::vector<T> a = random_values<T>(rows * heads * head_dim, 1);
  const std::vector<T> b = random_values<T>(rows * heads * head_dim, 2);
  std::vector<float> sum_a = random_values<float>(rows * heads, 3, 5);
  std::vector<float> sum_b = random_values<float>(rows * heads, 4, 5);
  for (std::size_t i = 0; i < sum_a.size(); ++i) {
    if (i % 3 == 1) sum_a[i] = kNone;
    if (i % 4 == 1) sum_b[i] = kNone;
  }
  std::vector<double> want, want_sums;
  for (std::size_t i = 0; i < sum_a.size(); ++i) {
    const bool only_a = sum_b[i] == kNone;
    const double share = only_a ? 1 : 1 / (1 + std::exp(double{sum_b[i]} - double{sum_a[i]}));
    for (std::size_t d = 0; d < static_cast<std::size_t>(head_dim); ++d) {
      const std::size_t e = i * static_cast<std::size_t>(head_dim) + d;
      want.push_back(share * widen(a[e]) + (1 - share) * widen(b[e]));
    }
    want_sums.push_back(only_a ? double{sum_a[i]}
                               : std::log(std::exp(double{sum_a[i]}) + std::exp(double{sum_b[i]})));
  }
  const DeviceArray<T> output(a), other(b);
  const DeviceArray<float> sums(sum_a), other_sums(sum_b);
  ASSERT_TRUE(attention_merge(kernels::AttentionMerge<T>{.rows = rows,
                                                         .heads = heads,
                                                         .head_dim = head_dim,
                                                         .output = output.data(),
                                                         .log_sum_exp = sums.data(),
                                                         .other = other.data(),
                                                         .other_log_sum_exp = other_sums.data()},
                              nullptr));
  EXPECT_LT(relative_error(output.download(), want), kTolerance<T>);
  const std::vector<float> got = sums.download();
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want_sums[i])) {
      EXPECT_EQ(got[i], kNone);
      continue;
    }
    EXPECT_NEAR(got[i], want_sums[i], 1e-5 * (1 + std::abs(want_sums[i])));
  }
  EXPECT_TRUE(output.margin_is_whole() && sums.margin_is_whole());
}

TEST(Ring, MergesByLogSumExp) {
  expect_merged<Bf16>(65, 4, 128);
  expect_merged<Bf16>(33, 3, 96);
  expect_merged<Fp16>(7, 5, 20);
  expect_merged<float>(50, 2, 64);
  expect_merged<float>(9, 1, 7);
}

template <class T>
void expect_rows(std::int64_t rows, std::int64_t queries, std::int64_t keys) {
  const std::int64_t row = queries + 2 * keys;
  const std::vector<T> all = random_values<T>(rows * row, 1);
  const DeviceArray<T> qkv(all), taken(rows * 2 * keys), joined(rows * row), sums(all);
  ASSERT_TRUE(
      take_keys(kernels::TakeKeys<T>{.columns = {.rows = rows, .key_cols = keys},
                                     .key = {.data = qkv.data() + queries, .row = row},
                                     .value = {.data = qkv.data() + queries + keys, .row = row},
                                     .output = taken.data()},
                nullptr));
  ASSERT_TRUE(join_keys(
      kernels::JoinKeys<T>{.columns = {.rows = rows, .query_cols = queries, .key_cols = keys},
                           .query = {.data = qkv.data(), .row = row},
                           .key_value = taken.data(),
                           .output = joined.data()},
      nullptr));
  EXPECT_EQ(widened(joined.download()), widened(all));
  EXPECT_TRUE(taken.margin_is_whole() && joined.margin_is_whole());
  ASSERT_TRUE(add_rows(
      kernels::AddRows<T>{.rows = rows, .cols = row, .output = sums.data(), .input = joined.data()},
      nullptr));
  std::vector<double> twice = widened(all);
  for (double& value : twice) value *= 2;
  EXPECT_EQ(widened(sums.download()), twice);
  EXPECT_TRUE(sums.margin_is_whole());
}

TEST(Ring, TakesJoinsAndAddsRows) {
  expect_rows<Bf16>(33, 64, 16);
  expect_rows<Bf16>(5, 3, 7);
  expect_rows<Fp16>(9, 40, 8);
  expect_rows<float>(17, 12, 4);
  expect_rows<float>(3, 5, 1);
}

}  // namespace
}  // namespace mfsdp::cuda
