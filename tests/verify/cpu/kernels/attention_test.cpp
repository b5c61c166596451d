#include "verify/cpu/kernels/attention.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "tests/verify/cpu/kernels/gradients.hpp"
#include "verify/cpu/kernels/ring.hpp"

namespace mfsdp::kernels {
namespace {

using test::finite_differences;
using test::RandomValues;
using test::relative_error;
using test::Values;

/// Fused rows of query, key and value heads, as the plan has them.
struct AttentionCase {
  AttentionShape s;  ///< without positions
  RandomValues random;
  Values qkv, output, log_sum_exp;
  std::vector<std::int32_t> positions;  ///< empty: a sequence is one document
  Values sinks;                         ///< of each head; empty: there are none

  AttentionCase(AttentionShape shape, std::uint32_t seed) : s(shape), random(seed) {
    qkv = random(s.batch * s.seq_len * row());
    output.resize(static_cast<std::size_t>(s.batch * s.seq_len * width()));
    log_sum_exp.resize(static_cast<std::size_t>(s.batch * s.seq_len * s.heads));
  }

  /// A document begins at each place that `begins` names, beside those where sequences begin.
  template <class Begins>
  void cut_documents(const Begins& begins) {
    for (std::int64_t t = 0; t < s.batch * s.seq_len; ++t)
      positions.push_back(t % s.seq_len == 0 || begins(t % s.seq_len) ? 0 : positions.back() + 1);
  }
  [[nodiscard]] AttentionShape shape() const {
    AttentionShape whole = s;
    if (!positions.empty()) whole.positions = positions.data();
    return whole;
  }

  [[nodiscard]] std::int64_t width() const { return s.heads * s.values(); }
  [[nodiscard]] std::int64_t values_begin() const { return (s.heads + s.kv_heads) * s.head_dim; }
  [[nodiscard]] std::int64_t row() const { return values_begin() + s.kv_heads * s.values(); }

  template <class T>
  HeadView<T> view(T* data, std::int64_t row_size, std::int64_t column,
                   std::int64_t head_dim) const {
    return {.data = data + column,
            .batch = s.seq_len * row_size,
            .head = head_dim,
            .position = row_size};
  }
  template <class T>
  HeadView<T> query(T* rows) const {
    return view(rows, row(), 0, s.head_dim);
  }
  template <class T>
  HeadView<T> key(T* rows) const {
    return view(rows, row(), s.heads * s.head_dim, s.head_dim);
  }
  template <class T>
  HeadView<T> value(T* rows) const {
    return view(rows, row(), values_begin(), s.values());
  }

  void forward() {
    const double* rows = qkv.data();
    attention_forward<double>({.shape = shape(),
                               .query = query(rows),
                               .key = key(rows),
                               .value = value(rows),
                               .output = view(output.data(), width(), 0, s.values()),
                               .log_sum_exp = log_sum_exp.data()});
    if (sinks.empty()) return;
    sink_forward<double>({.rows = s.batch * s.seq_len,
                          .heads = s.heads,
                          .head_dim = s.values(),
                          .output = output.data(),
                          .log_sum_exp = log_sum_exp.data(),
                          .sinks = sinks.data()});
  }

  [[nodiscard]] Values backward(const Values& d_output) const {
    Values d_qkv(qkv.size(), 7.0);
    const double* rows = qkv.data();
    attention_backward<double>({.shape = shape(),
                                .query = query(rows),
                                .key = key(rows),
                                .value = value(rows),
                                .output = view(output.data(), width(), 0, s.values()),
                                .d_output = view(d_output.data(), width(), 0, s.values()),
                                .log_sum_exp = log_sum_exp.data(),
                                .d_query = query(d_qkv.data()),
                                .d_key = key(d_qkv.data()),
                                .d_value = value(d_qkv.data())});
    return d_qkv;
  }

  /// softmax(cap(q k^T / sqrt(d))) v over the positions up to each query's own. A window keeps the
  /// last `window` of these: as in transformers' masks, key > query - window. With packed documents
  /// only the query's own counts; the query's position is the number of its tokens before it.
  [[nodiscard]] Values naive() const {
    Values out(output.size());
    const auto at = [&](std::int64_t b, std::int64_t i, std::int64_t column) {
      return qkv[static_cast<std::size_t>((b * s.seq_len + i) * row() + column)];
    };
    for (std::int64_t b = 0; b < s.batch; ++b)
      for (std::int64_t h = 0; h < s.heads; ++h)
        for (std::int64_t i = 0; i < s.seq_len; ++i) {
          const std::int64_t group = h * s.kv_heads / s.heads;
          const std::int64_t key_column = (s.heads + group) * s.head_dim;
          const std::int64_t value_column = values_begin() + group * s.values();
          double total = sinks.empty() ? 0 : std::exp(sinks[static_cast<std::size_t>(h)]);
          double* to = out.data() + (b * s.seq_len + i) * width() + h * s.values();
          for (std::int64_t j = 0; j <= i; ++j) {
            if (s.window > 0 && j <= i - s.window) continue;
            if (!positions.empty() &&
                i - j > positions[static_cast<std::size_t>(b * s.seq_len + i)])
              continue;
            double score = 0;
            for (std::int64_t d = 0; d < s.head_dim; ++d)
              score += at(b, i, h * s.head_dim + d) * at(b, j, key_column + d);
            score /=
                std::sqrt(s.query_scalar > 0 ? s.query_scalar : static_cast<double>(s.head_dim));
            if (s.score_cap > 0) score = s.score_cap * std::tanh(score / s.score_cap);
            const double weight = std::exp(score);
            total += weight;
            for (std::int64_t d = 0; d < s.values(); ++d)
              to[d] += weight * at(b, j, value_column + d);
          }
          for (std::int64_t d = 0; d < s.values(); ++d) to[d] /= total;
        }
    return out;
  }
};

AttentionCase any_case() {
  AttentionShape s;
  s.batch = *rc::gen::inRange(1, 3);
  s.kv_heads = *rc::gen::inRange(1, 3);
  s.heads = s.kv_heads * *rc::gen::inRange(1, 4);
  s.seq_len = *rc::gen::inRange(1, 7);
  s.head_dim = *rc::gen::inRange(1, 5);
  s.value_dim = *rc::gen::element(0, 0, 3);
  s.window = *rc::gen::inRange(0, 8);
  s.query_scalar = *rc::gen::element(0.0, 2.5);
  s.score_cap = *rc::gen::element(0.0, 0.0, 0.7, 5.0);
  AttentionCase made(s, *rc::gen::arbitrary<std::uint32_t>());
  if (*rc::gen::arbitrary<bool>())
    made.cut_documents([](std::int64_t) { return *rc::gen::inRange(0, 3) == 0; });
  return made;
}

/// With a sink a query's weights sum to less than 1; attention's own backward is that of the rest.
RC_GTEST_PROP(Attention, SinksTakeTheirShare, ()) {
  AttentionCase c = any_case();
  c.sinks = c.random(c.s.heads);
  c.forward();
  RC_ASSERT(relative_error(c.output, c.naive()) < 1e-13);
  const Values d_output = c.random(std::ssize(c.output));
  const auto loss = [&] { return test::dot(c.naive(), d_output); };
  RC_ASSERT(relative_error(c.backward(d_output), finite_differences(c.qkv, loss)) < 1e-8);
  Values by_row(c.log_sum_exp.size());
  sink_backward<double>({.rows = c.s.batch * c.s.seq_len,
                         .heads = c.s.heads,
                         .head_dim = c.s.values(),
                         .output = c.output.data(),
                         .d_output = d_output.data(),
                         .log_sum_exp = c.log_sum_exp.data(),
                         .sinks = c.sinks.data(),
                         .d_sinks = by_row.data()});
  const Values expected = finite_differences(c.sinks, loss);
  for (std::size_t h = 0; h < expected.size(); ++h) {
    double sum = 0;
    for (std::size_t i = h; i < by_row.size(); i += expected.size()) sum += by_row[i];
    RC_ASSERT(std::fabs(sum - expected[h]) < 1e-8);
  }
}

RC_GTEST_PROP(Attention, ForwardIsTheFormula, ()) {
  AttentionCase c = any_case();
  c.forward();
  RC_ASSERT(relative_error(c.output, c.naive()) < 1e-13);
}

RC_GTEST_PROP(Attention, BackwardIsTheForwardsDerivative, ()) {
  AttentionCase c = any_case();
  c.forward();
  const Values d_output = c.random(static_cast<std::int64_t>(c.output.size()));
  const Values d_qkv = c.backward(d_output);
  const Values expected = finite_differences(c.qkv, [&] { return test::dot(c.naive(), d_output); });
  RC_ASSERT(relative_error(d_qkv, expected) < 1e-6);
}

/// Several blocks of query rows with an uneven last one: 150 = 64 + 64 + 22. The derivative along
/// one direction stands for all of them.
TEST(Attention, LongSequencesGoBlockByBlock) {
  AttentionCase c({.batch = 1, .heads = 4, .kv_heads = 2, .seq_len = 150, .head_dim = 6}, 11);
  c.forward();
  EXPECT_LT(relative_error(c.output, c.naive()), 1e-13);
  const Values d_output = c.random(static_cast<std::int64_t>(c.output.size()));
  const Values direction = c.random(static_cast<std::int64_t>(c.qkv.size()));
  const Values d_qkv = c.backward(d_output);
  const Values middle = c.qkv;
  Values along{0};
  const Values expected = finite_differences(along, [&] {
    for (std::size_t i = 0; i < middle.size(); ++i) c.qkv[i] = middle[i] + along[0] * direction[i];
    return test::dot(c.naive(), d_output);
  });
  EXPECT_NEAR(test::dot(d_qkv, direction) / expected[0], 1, 1e-6);
}

/// A window that ends within a block, at its edge and beyond the first ones: blocks begin at their
/// first row's first key.
TEST(Attention, WindowsReachOverBlocks) {
  for (const std::int64_t window : {1, 10, 64, 65, 100}) {
    AttentionCase c({.batch = 1,
                     .heads = 2,
                     .kv_heads = 1,
                     .seq_len = 150,
                     .head_dim = 4,
                     .window = window,
                     .score_cap = 1.5},
                    static_cast<std::uint32_t>(window));
    c.forward();
    EXPECT_LT(relative_error(c.output, c.naive()), 1e-13) << window;
    const Values d_output = c.random(static_cast<std::int64_t>(c.output.size()));
    const Values direction = c.random(static_cast<std::int64_t>(c.qkv.size()));
    const Values d_qkv = c.backward(d_output);
    const Values middle = c.qkv;
    Values along{0};
    const Values expected = finite_differences(along, [&] {
      for (std::size_t i = 0; i < middle.size(); ++i)
        c.qkv[i] = middle[i] + along[0] * direction[i];
      return test::dot(c.naive(), d_output);
    });
    EXPECT_NEAR(test::dot(d_qkv, direction) / expected[0], 1, 1e-6) << window;
  }
}

/// Documents that end within a block of 64 rows, at its edge, and are longer than one; with a
/// window and a cap. No query sees a key of another document, whose gradient comes from its own
/// alone.
TEST(Attention, DocumentsReachOverBlocks) {
  for (const std::int64_t window : {0, 40}) {
    AttentionCase c({.batch = 2,
                     .heads = 2,
                     .kv_heads = 1,
                     .seq_len = 150,
                     .head_dim = 4,
                     .window = window,
                     .score_cap = 1.5},
                    7);
    c.cut_documents([](std::int64_t i) { return i == 10 || i == 64 || i == 65 || i == 140; });
    c.forward();
    EXPECT_LT(relative_error(c.output, c.naive()), 1e-13) << window;
    const Values d_output = c.random(static_cast<std::int64_t>(c.output.size()));
    const Values direction = c.random(static_cast<std::int64_t>(c.qkv.size()));
    const Values d_qkv = c.backward(d_output);
    const Values middle = c.qkv;
    Values along{0};
    const Values expected = finite_differences(along, [&] {
      for (std::size_t i = 0; i < middle.size(); ++i)
        c.qkv[i] = middle[i] + along[0] * direction[i];
      return test::dot(c.naive(), d_output);
    });
    EXPECT_NEAR(test::dot(d_qkv, direction) / expected[0], 1, 1e-6) << window;
  }
}

/// Values 1, 2, 4, 8 under equal scores: with documents of one and three tokens the means are of 1;
/// 2; 2 and 4; 2, 4 and 8.
TEST(Attention, ADocumentSeesItself) {
  AttentionCase c({.batch = 1, .heads = 1, .kv_heads = 1, .seq_len = 4, .head_dim = 1}, 3);
  c.qkv = {1, 0, 1, 1, 0, 2, 1, 0, 4, 1, 0, 8};
  c.cut_documents([](std::int64_t i) { return i == 1; });
  c.forward();
  EXPECT_DOUBLE_EQ(c.output[0], 1);
  EXPECT_DOUBLE_EQ(c.output[1], 2);
  EXPECT_DOUBLE_EQ(c.output[2], 3);
  EXPECT_DOUBLE_EQ(c.output[3], 14.0 / 3);
}

/// Values 1, 2, 4, 8 under equal scores: a window of 2 gives the mean of the last two.
TEST(Attention, AWindowCountsTheQueryItself) {
  AttentionCase c({.batch = 1, .heads = 1, .kv_heads = 1, .seq_len = 4, .head_dim = 1, .window = 2},
                  3);
  c.qkv = {1, 0, 1, 1, 0, 2, 1, 0, 4, 1, 0, 8};
  c.forward();
  EXPECT_DOUBLE_EQ(c.output[0], 1);
  EXPECT_DOUBLE_EQ(c.output[1], 1.5);
  EXPECT_DOUBLE_EQ(c.output[2], 3);
  EXPECT_DOUBLE_EQ(c.output[3], 6);
}

TEST(Attention, LogSumExpOfTheFirstPositionIsItsOnlyScore) {
  AttentionCase c({.batch = 1, .heads = 1, .kv_heads = 1, .seq_len = 2, .head_dim = 2}, 3);
  c.qkv = {1, 2, 3, 4, 5, 6, 1, 1, 1, 1, 1, 1};
  c.forward();
  EXPECT_DOUBLE_EQ(c.log_sum_exp[0], (1 * 3 + 2 * 4) / std::sqrt(2.0));
  EXPECT_DOUBLE_EQ(c.output[0], 5);
  EXPECT_DOUBLE_EQ(c.output[1], 6);
}

/// One sequence of which ranks have `parts`, with the gradient of its output and of its qkv.
struct Divided {
  AttentionCase c;
  std::int64_t parts = 1;
  Values d_output;
  Values whole;
};

Divided any_divided() {
  AttentionCase c = any_case();
  c.s.batch = 1;
  const std::int64_t parts = *rc::gen::inRange(2, 5);
  c.s.seq_len = 2 * parts * *rc::gen::inRange(1, 4);
  const bool documents = !c.positions.empty();
  c = AttentionCase(c.s, 3);
  if (documents) c.cut_documents([](std::int64_t) { return *rc::gen::inRange(0, 3) == 0; });
  c.forward();
  Values d_output = c.random(std::ssize(c.output));
  Values whole = c.backward(d_output);
  return {std::move(c), parts, std::move(d_output), std::move(whole)};
}

/// Queries of each part see keys in the order of ranks: outputs are those of the whole sequence, and
/// gradients of keys add up to them.
RC_GTEST_PROP(Attention, PartsOfASequenceMakeTheWhole, ()) {
  auto [c, parts, d_output, whole] = any_divided();
  Values sum(whole.size(), 0.0);
  const std::int64_t keys = c.s.kv_heads * (c.s.head_dim + c.s.values());
  const std::int64_t queries = c.s.heads * c.s.head_dim;
  Values all_keys(static_cast<std::size_t>(c.s.seq_len * keys));
  const SequenceShare any{.parts = parts};
  for (std::int64_t place = 0; place < c.s.seq_len; ++place)
    std::copy_n(c.qkv.begin() + place * c.row() + queries, keys,
                all_keys.begin() + any.gathered_row(place, c.s.seq_len) * keys);
  for (std::int64_t part = 0; part < parts; ++part) {
    AttentionShape s = c.shape();
    s.share = {.parts = parts, .part = part, .is_part = true};
    const std::int64_t rows = s.queries();
    Values query, d_out;
    for (std::int64_t row = 0; row < rows; ++row) {
      const auto from = c.qkv.begin() + s.place(row) * c.row();
      query.insert(query.end(), from, from + queries);
      const auto gradient = d_output.begin() + s.place(row) * c.width();
      d_out.insert(d_out.end(), gradient, gradient + c.width());
    }
    Values output(d_out.size()), log_sum_exp(static_cast<std::size_t>(rows * s.heads));
    Values d_query(query.size()), d_keys(all_keys.size());
    const std::int64_t values = s.kv_heads * s.head_dim;
    const auto view = [](auto* data, std::int64_t count, std::int64_t row, std::int64_t column,
                         std::int64_t head_dim) {
      return heads_in_rows(data, count, head_dim, row, column);
    };
    const double* const of_all = all_keys.data();
    const AttentionForward<double> forward{
        .shape = s,
        .query = view(static_cast<const double*>(query.data()), rows, queries, 0, s.head_dim),
        .key = view(of_all, s.seq_len, keys, 0, s.head_dim),
        .value = view(of_all, s.seq_len, keys, values, s.values()),
        .output = view(output.data(), rows, c.width(), 0, s.values()),
        .log_sum_exp = log_sum_exp.data()};
    attention_forward(forward);
    attention_backward<double>(
        {.shape = s,
         .query = forward.query,
         .key = forward.key,
         .value = forward.value,
         .output = view(static_cast<const double*>(output.data()), rows, c.width(), 0, s.values()),
         .d_output = view(static_cast<const double*>(d_out.data()), rows, c.width(), 0, s.values()),
         .log_sum_exp = log_sum_exp.data(),
         .d_query = view(d_query.data(), rows, queries, 0, s.head_dim),
         .d_key = view(d_keys.data(), s.seq_len, keys, 0, s.head_dim),
         .d_value = view(d_keys.data(), s.seq_len, keys, values, s.values())});
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t i = 0; i < c.width(); ++i)
        RC_ASSERT(std::fabs(output[static_cast<std::size_t>(row * c.width() + i)] -
                            c.output[static_cast<std::size_t>(s.place(row) * c.width() + i)]) <
                  1e-13);
      std::copy_n(d_query.begin() + row * queries, queries, sum.begin() + s.place(row) * c.row());
    }
    for (std::int64_t place = 0; place < s.seq_len; ++place)
      for (std::int64_t i = 0; i < keys; ++i)
        sum[static_cast<std::size_t>(place * c.row() + queries + i)] +=
            d_keys[static_cast<std::size_t>(s.key_row(place) * keys + i)];
  }
  RC_ASSERT(relative_error(sum, whole) < 1e-12);
}

/// Rows of one part of the sequence, `width` columns of `from` from `column` on.
Values rows_of(const Values& from, const AttentionShape& s, std::int64_t row, std::int64_t column,
               std::int64_t width) {
  Values rows;
  for (std::int64_t i = 0; i < s.queries(); ++i) {
    const auto begin = from.begin() + s.place(i) * row + column;
    rows.insert(rows.end(), begin, begin + width);
  }
  return rows;
}

/// A rank has the keys of one part after the other: merged outputs are those of the whole sequence,
/// and gradients add up to them. A part of which no query sees a key adds nothing.
RC_GTEST_PROP(Attention, StepsOfARingMakeTheWhole, ()) {
  auto [c, parts, d_output, whole] = any_divided();
  Values sum(whole.size(), 0.0);
  const std::int64_t queries = c.s.heads * c.s.head_dim;
  const std::int64_t keys = c.s.kv_heads * c.s.head_dim;
  const std::int64_t key_values = c.s.kv_heads * (c.s.head_dim + c.s.values());
  for (std::int64_t part = 0; part < parts; ++part) {
    AttentionShape s = c.shape();
    s.share = {.parts = parts, .part = part, .is_part = true};
    s.key_parts = 1;
    const std::int64_t rows = s.queries();
    const Values query = rows_of(c.qkv, s, c.row(), 0, queries);
    const Values d_out = rows_of(d_output, s, c.width(), 0, c.width());
    Values output, log_sum_exp;
    std::vector<AttentionForward<double>> steps;
    std::vector<Values> held;
    for (s.shift = 0; s.shift < parts; ++s.shift) {
      AttentionShape of_keys = s;
      of_keys.share = s.share.before(s.shift);
      held.push_back(rows_of(c.qkv, of_keys, c.row(), queries, key_values));
      Values made(d_out.size()), exponents(static_cast<std::size_t>(rows * s.heads));
      const double* const block = held.back().data();
      steps.push_back(
          {.shape = s,
           .query = heads_in_rows<const double>(query.data(), rows, s.head_dim, queries, 0),
           .key = heads_in_rows<const double>(block, rows, s.head_dim, key_values, 0),
           .value = heads_in_rows<const double>(block, rows, s.values(), key_values, keys),
           .output = heads_in_rows(made.data(), rows, s.values(), c.width(), 0),
           .log_sum_exp = exponents.data()});
      attention_forward(steps.back());
      if (s.shift == 0) {
        output = made;
        log_sum_exp = exponents;
        continue;
      }
      attention_merge<double>({.rows = rows,
                               .heads = s.heads,
                               .head_dim = s.values(),
                               .output = output.data(),
                               .log_sum_exp = log_sum_exp.data(),
                               .other = made.data(),
                               .other_log_sum_exp = exponents.data()});
    }
    RC_ASSERT(relative_error(output, rows_of(c.output, s, c.width(), 0, c.width())) < 1e-12);
    for (const AttentionForward<double>& step : steps) {
      Values d_query(query.size()), d_keys(held[0].size());
      attention_backward<double>(
          {.shape = step.shape,
           .query = step.query,
           .key = step.key,
           .value = step.value,
           .output = heads_in_rows<const double>(output.data(), rows, s.values(), c.width(), 0),
           .d_output = heads_in_rows<const double>(d_out.data(), rows, s.values(), c.width(), 0),
           .log_sum_exp = log_sum_exp.data(),
           .d_query = heads_in_rows(d_query.data(), rows, s.head_dim, queries, 0),
           .d_key = heads_in_rows(d_keys.data(), rows, s.head_dim, key_values, 0),
           .d_value = heads_in_rows(d_keys.data(), rows, s.values(), key_values, keys)});
      const SequenceShare of_keys = s.share.before(step.shape.shift);
      for (std::int64_t i = 0; i < rows; ++i) {
        const auto to = sum.begin() + s.place(i) * c.row();
        const auto from = d_query.begin() + i * queries;
        std::transform(from, from + queries, to, to, std::plus<>());
        const auto to_keys = sum.begin() + of_keys.place(i, s.seq_len) * c.row() + queries;
        const auto from_keys = d_keys.begin() + i * key_values;
        std::transform(from_keys, from_keys + key_values, to_keys, to_keys, std::plus<>());
      }
    }
  }
  RC_ASSERT(relative_error(sum, whole) < 1e-12);
}

}  // namespace
}  // namespace mfsdp::kernels
