#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "core/plan/plan.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"

namespace mfsdp {
namespace {

using ::testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A kernel with memory of its own for each operand.
class Fp8Call {
 public:
  Fp8Call(KernelKind kind, std::vector<Attribute> attributes)
      : kernel_{.kind = kind, .operands = {}, .attributes = std::move(attributes)} {}

  template <class T>
  void add(const std::string& role, Access access, std::vector<std::int64_t> shape,
           const std::vector<T>& values = {}) {
    Tensor& made = tensors_.emplace_back(role, access, dtype_of<T>, std::move(shape));
    made.strides.assign(made.shape.size(), 1);
    for (std::size_t i = made.strides.size(); i-- > 1;)
      made.strides[i - 1] = made.strides[i] * made.shape[i];
    made.bytes.resize(static_cast<std::size_t>(product_of(made.shape)) * sizeof(T));
    std::ranges::copy(std::as_bytes(std::span(values)), made.bytes.begin());
  }
  std::string run() {
    const Program program;
    std::vector<OperandView> views;
    for (Tensor& tensor : tensors_)
      views.push_back({.role = tensor.role,
                       .access = tensor.access,
                       .data = tensor.bytes.data(),
                       .dtype = tensor.dtype,
                       .shape = tensor.shape,
                       .strides = tensor.strides});
    const auto ran =
        run_kernel({.kernel = &kernel_, .operands = views, .group = {}}, {.program = &program});
    return ran ? "" : ran.error().message();
  }
  /// The operand's values.
  template <class T>
  std::vector<float> values(const std::string& role) {
    const Tensor& tensor = *std::ranges::find(tensors_, role, &Tensor::role);
    std::vector<float> values;
    for (const T* at = reinterpret_cast<const T*>(tensor.bytes.data());
         values.size() * sizeof(T) < tensor.bytes.size(); ++at)
      values.push_back(widen(*at));
    return values;
  }
  void retype(const std::string& role, DType dtype) {
    std::ranges::find(tensors_, role, &Tensor::role)->dtype = dtype;
  }

 private:
  struct Tensor {
    std::string role;
    Access access;
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::int64_t> strides{};
    std::vector<std::byte> bytes{};
  };
  Kernel kernel_;
  std::vector<Tensor> tensors_;
};

float amax_of(const std::vector<float>& values, bool adds, float before) {
  const auto count = static_cast<std::int64_t>(values.size());
  Fp8Call call(KernelKind::amax, {{"beta", adds ? 1 : 0}, {"cols", count}, {"rows", 1}});
  call.add<float>("input", Access::read, {1, count}, values);
  call.add<float>("amax", adds ? Access::read_write : Access::write, {1}, {before});
  EXPECT_EQ(call.run(), "");
  return call.values<float>("amax").front();
}

TEST(Fp8, TheLargestMagnitudeKeepsNan) {
  EXPECT_EQ(amax_of({1, -3, 2}, false, 9), 3);
  EXPECT_EQ(amax_of({1, -3, 2}, true, 9), 9);
  EXPECT_EQ(amax_of({1, -3, 2}, true, 2), 3);
  EXPECT_TRUE(std::isnan(amax_of({1, kNan, 2}, false, 0)));
  EXPECT_TRUE(std::isnan(amax_of({1, 2}, true, kNan)));
}

struct CastOfFour {
  std::vector<float> row, transposed;
  float scale = 0;
  float next_amax = 0;
};

/// Casts [2, 2] values.
template <class F>
CastOfFour cast(const std::vector<float>& values, float amax) {
  Fp8Call call(KernelKind::cast_scaled, {{"cols", 2}, {"rows", 2}});
  call.add<float>("input", Access::read, {2, 2}, values);
  call.add<float>("amax", Access::read, {1}, {amax});
  call.add<F>("output", Access::write, {2, 2});
  call.add<F>("output_t", Access::write, {2, 2});
  call.add<float>("output_scale", Access::write, {1});
  call.add<float>("next_amax", Access::read_write, {1}, {0.25F});
  EXPECT_EQ(call.run(), "");
  return {call.values<F>("output"), call.values<F>("output_t"),
          call.values<float>("output_scale").front(), call.values<float>("next_amax").front()};
}

TEST(Fp8, CastsFillTheRangeOfTheType) {
  const CastOfFour e4m3 =
      cast<Fp8E4m3>({0.5F, -0.25F, 0.0F, 0.125F}, 0.5F);  // factor 448 / 0.5 = 896
  EXPECT_EQ(e4m3.scale, 1 / 896.0F);
  EXPECT_THAT(e4m3.row, ElementsAre(448, -224, 0, 112));
  EXPECT_THAT(e4m3.transposed, ElementsAre(448, 0, -224, 112));
  EXPECT_EQ(e4m3.next_amax, 0.5F);
  const CastOfFour e5m2 = cast<Fp8E5m2>({0.5F, -0.25F, 0.0F, 0.3F}, 0.5F);
  EXPECT_EQ(e5m2.scale, 1 / 114688.0F);
  EXPECT_THAT(e5m2.row, ElementsAre(57344, -28672, 0, 32768));  // 34406 of steps of 8192
  // What is larger than amax, as of delayed scales, is cut off.
  EXPECT_THAT(cast<Fp8E4m3>({4, -4, 1, 0}, 1).row, ElementsAre(448, -448, 448, 0));
}

/// Gate and up weights that align give SwiGLU's output single values of hundreds of times the others
/// (arXiv 2409.12517). The scale of their own tensor holds them, and the others to what its range leaves.
/// The scale of steps before clips them, and the next step knows.
TEST(Fp8, OutliersOfSwigluAreHeldByTheirOwnScaleAndClippedByAnOlderOne) {
  constexpr float kOutlier = 1600;
  const std::vector<float> product{kOutlier, -2.9F, 0.4F, 1.7F};
  const CastOfFour current = cast<Fp8E4m3>(product, kOutlier);
  EXPECT_EQ(current.row[0] * current.scale, kOutlier);
  for (std::size_t i = 1; i < product.size(); ++i) {
    const float least = current.scale * std::exp2(-10.0F);  // half of the smallest code
    EXPECT_NEAR(current.row[i] * current.scale, product[i],
                std::max(std::fabs(product[i]) / 16, least));
  }
  const CastOfFour delayed = cast<Fp8E4m3>(product, 2.9F);
  EXPECT_EQ(delayed.row[0] * delayed.scale, 2.9F);
  EXPECT_EQ(delayed.next_amax, kOutlier);
  for (std::size_t i = 1; i < product.size(); ++i)
    EXPECT_NEAR(delayed.row[i] * delayed.scale, product[i], std::fabs(product[i]) / 16);
}

TEST(Fp8, CastsWithoutAUsableAmaxHaveScaleOne) {
  for (const float amax : {0.0F, kNan, std::numeric_limits<float>::infinity()}) {
    const CastOfFour plain = cast<Fp8E4m3>({1, 2, 3, 500}, amax);
    EXPECT_EQ(plain.scale, 1);
    EXPECT_THAT(plain.row, ElementsAre(1, 2, 3, 448));
  }
  // 448 / 1e-37 is no float.
  const CastOfFour tiny = cast<Fp8E4m3>({1e-37F, 0, 0, 0}, 1e-37F);
  EXPECT_EQ(tiny.scale, 1 / std::numeric_limits<float>::max());
  EXPECT_EQ(tiny.row.front(), 36.0F);  // 1e-37 * 3.4e38 = 34.03, in steps of 4
  EXPECT_TRUE(std::isnan(cast<Fp8E5m2>({kNan, 1, 1, 1}, 1).row.front()));
}

/// A history of three steps of two tensors.
struct History {
  std::vector<float> next, amax, rows;
};
History after_step(bool recent, const std::vector<float>& next, const std::vector<float>& amax,
                   const std::vector<float>& rows) {
  std::vector<Attribute> attributes{{"slots", 3}, {"tensors", 2}};
  if (recent) attributes.insert(attributes.begin(), {"recent", 1});
  Fp8Call call(KernelKind::amax_history, attributes);
  call.add<float>("next_amax", Access::read_write, {2}, next);
  call.add<float>("amax", Access::read_write, {2}, amax);
  call.add<float>("history", Access::read_write, {3, 2}, rows);
  EXPECT_EQ(call.run(), "");
  return {call.values<float>("next_amax"), call.values<float>("amax"),
          call.values<float>("history")};
}

TEST(Fp8, AHistoryGivesTheLargestOfItsSteps) {
  const History all = after_step(false, {2, 5}, {9, 4}, {9, 1, 3, 4, 1, 2});
  EXPECT_THAT(all.next, ElementsAre(0, 0));
  EXPECT_THAT(all.amax, ElementsAre(3, 5));  // 9 has left the history
  EXPECT_THAT(all.rows, ElementsAre(3, 4, 1, 2, 2, 5));
  EXPECT_THAT(after_step(true, {2, 5}, {9, 4}, {9, 1, 3, 4, 1, 2}).amax, ElementsAre(2, 5));
  // Nothing was cast; what is not finite gives no scale.
  const History odd =
      after_step(false, {0, std::numeric_limits<float>::infinity()}, {9, 4}, {9, 1, 3, 4, 1, 2});
  EXPECT_THAT(odd.amax, ElementsAre(9, 4));
  EXPECT_THAT(std::vector(odd.rows.begin(), odd.rows.begin() + 4), ElementsAre(9, 4, 3, 2));
  EXPECT_THAT(after_step(false, {kNan, 0}, {1, 0}, {0, 0, 0, 0, 8, 0}).amax, ElementsAre(8, 0));
}

/// Shards in fp32 that are cast by way of bf16, with the largest magnitude of all shards, have the
/// codes and the scale of the whole weight.
TEST(Fp8, CastsOfShardsAreThoseOfTheWhole) {
  constexpr std::int64_t kCount = 192;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 0.02F);
  std::vector<float> main(kCount);
  std::vector<Bf16> rounded(kCount);
  for (std::size_t i = 0; i < main.size(); ++i) {
    main[i] = normal(random);
    rounded[i] = narrow<Bf16>(main[i]);
  }
  const auto cast = [](const auto& values, float amax, bool through) {
    using T = std::decay_t<decltype(values[0])>;
    std::vector<Attribute> attributes{{"cols", std::ssize(values)}, {"rows", 1}};
    if (through) attributes.emplace_back("through_bf16", 1);
    Fp8Call call(KernelKind::cast_scaled, std::move(attributes));
    call.add<T>("input", Access::read, {1, std::ssize(values)}, {values.begin(), values.end()});
    call.add<float>("amax", Access::read, {1}, {amax});
    call.add<Fp8E4m3>("output", Access::write, {1, std::ssize(values)});
    call.add<float>("output_scale", Access::write, {1});
    EXPECT_EQ(call.run(), "");
    std::vector<float> made = call.values<Fp8E4m3>("output");
    made.push_back(call.values<float>("output_scale")[0]);
    return made;
  };
  const auto amax_of = [](const auto& values) {
    using T = std::decay_t<decltype(values[0])>;
    Fp8Call call(KernelKind::amax, {{"beta", 0}, {"cols", std::ssize(values)}, {"rows", 1}});
    call.add<T>("input", Access::read, {1, std::ssize(values)}, {values.begin(), values.end()});
    call.add<float>("amax", Access::write, {1});
    EXPECT_EQ(call.run(), "");
    return call.values<float>("amax")[0];
  };
  const std::vector<float> whole = cast(rounded, amax_of(rounded), false);
  for (const std::size_t ranks : {1, 2, 4}) {
    const std::size_t shard = main.size() / ranks;
    float amax = 0;
    for (std::size_t r = 0; r < ranks; ++r)
      amax = std::max(amax, amax_of(std::span(main).subspan(r * shard, shard)));
    std::vector<float> all;
    for (std::size_t r = 0; r < ranks; ++r) {
      const std::vector<float> part = cast(std::span(main).subspan(r * shard, shard), amax, true);
      all.insert(all.end(), part.begin(), part.end() - 1);
      EXPECT_EQ(part.back(), whole.back());
    }
    EXPECT_EQ(all, std::vector(whole.begin(), whole.end() - 1)) << ranks;
  }
}

TEST(Fp8, SwigluIsCastAsIfItWereStored) {
  constexpr std::int64_t kRows = 16;
  constexpr std::int64_t kCols = 32;
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 2);
  std::vector<Bf16> gate_up(2 * kRows * kCols);
  for (Bf16& value : gate_up) value = narrow<Bf16>(normal(random));
  const std::vector<Attribute> sizes{{"cols", kCols}, {"rows", kRows}};
  Fp8Call stored(KernelKind::swiglu_forward, sizes);
  stored.add<Bf16>("gate_up", Access::read, {kRows, 2 * kCols}, gate_up);
  stored.add<Bf16>("product", Access::write, {kRows, kCols});
  stored.add<float>("amax", Access::write, {1});
  EXPECT_EQ(stored.run(), "");
  const std::vector<float> amax = stored.values<float>("amax");
  std::vector<Bf16> product;
  for (const float value : stored.values<Bf16>("product")) product.push_back(narrow<Bf16>(value));
  Fp8Call cast(KernelKind::cast_scaled, sizes);
  cast.add<Bf16>("input", Access::read, {kRows, kCols}, product);
  Fp8Call fused(KernelKind::swiglu_forward_cast, sizes);
  fused.add<Bf16>("gate_up", Access::read, {kRows, 2 * kCols}, gate_up);
  for (Fp8Call* call : {&cast, &fused}) {
    call->add<float>("amax", Access::read, {1}, amax);
    call->add<Fp8E4m3>("output_t", Access::write, {kCols, kRows});
    call->add<float>("output_scale", Access::write, {1});
    EXPECT_EQ(call->run(), "");
  }
  EXPECT_EQ(fused.values<Fp8E4m3>("output_t"), cast.values<Fp8E4m3>("output_t"));
  EXPECT_EQ(fused.values<float>("output_scale"), cast.values<float>("output_scale"));
}

TEST(Fp8, Transposes) {
  Fp8Call call(KernelKind::transpose, {{"cols", 3}, {"rows", 2}});
  std::vector<Fp8E5m2> codes;
  for (std::uint8_t i = 1; i <= 6; ++i) codes.push_back({i});
  call.add<Fp8E5m2>("input", Access::read, {2, 3}, codes);
  call.add<Fp8E5m2>("output", Access::write, {3, 2});
  ASSERT_EQ(call.run(), "");
  const float step = 0x1p-16F;
  EXPECT_THAT(call.values<Fp8E5m2>("output"),
              ElementsAre(step, 4 * step, 2 * step, 5 * step, 3 * step, 6 * step));
  call.retype("output", DType::fp8_e4m3);
  EXPECT_EQ(call.run(), "kernel transpose: operand output: expected the dtype of input");
}

template <class T>
std::vector<T> random_codes(std::int64_t count, std::mt19937& random) {
  std::vector<T> codes;
  while (std::ssize(codes) < count)
    if (const T code{static_cast<std::uint8_t>(random())}; std::isfinite(widen(code)))
      codes.push_back(code);
  return codes;
}

/// One of the three GEMMs: its operands a [rows, inner] and b [cols, inner], and c.
struct Fp8Product {
  GemmKind kind;
  const char *a, *a_scale, *b, *b_scale, *c;
  std::int64_t rows, cols, inner;
};
constexpr std::int64_t kM = 32;
constexpr std::int64_t kN = 16;
constexpr std::int64_t kK = 48;

template <class A, class B, class C>
Fp8Call product(const Fp8Product& p, std::int64_t m = kM) {
  std::mt19937 random(7);
  Fp8Call call(KernelKind::gemm_fp8,
               {{"beta", 1}, {"k", kK}, {"kind", number_of(p.kind)}, {"m", m}, {"n", kN}});
  call.add<A>(p.a, Access::read, {p.rows, p.inner}, random_codes<A>(p.rows * p.inner, random));
  call.add<float>(p.a_scale, Access::read, {1}, {0.01F});
  call.add<B>(p.b, Access::read, {p.cols, p.inner}, random_codes<B>(p.cols * p.inner, random));
  call.add<float>(p.b_scale, Access::read, {1}, {0.002F});
  std::vector<C> before(static_cast<std::size_t>(p.rows * p.cols), narrow<C>(1.5F));
  call.add<C>(p.c, Access::read_write, {p.rows, p.cols}, before);
  return call;
}

template <class A, class B, class C>
void check_product(const Fp8Product& p, double step) {
  Fp8Call call = product<A, B, C>(p);
  ASSERT_EQ(call.run(), "") << p.c;
  const auto a = call.values<A>(p.a);
  const auto b = call.values<B>(p.b);
  const auto c = call.values<C>(p.c);
  for (std::int64_t row = 0; row < p.rows; ++row)
    for (std::int64_t col = 0; col < p.cols; ++col) {
      double sum = 0;
      double size = 0;
      for (std::int64_t i = 0; i < p.inner; ++i) {
        const double term = static_cast<double>(a[static_cast<std::size_t>(row * p.inner + i)]) *
                            b[static_cast<std::size_t>(col * p.inner + i)];
        sum += term;
        size += std::fabs(term);
      }
      const double factor = static_cast<double>(0.01F) * static_cast<double>(0.002F);
      const double wanted = factor * sum + 1.5;
      ASSERT_NEAR(c[static_cast<std::size_t>(row * p.cols + col)], wanted,
                  factor * size * static_cast<double>(p.inner) * 0x1p-24 + std::fabs(wanted) * step)
          << p.c << " " << row << " " << col;
    }
}

constexpr Fp8Product kForwardProduct{
    GemmKind::forward, "input", "input_scale", "weight", "weight_scale", "output", kM, kN, kK};

TEST(Fp8, ProductsAreThoseOfTheValuesTimesScales) {
  check_product<Fp8E4m3, Fp8E4m3, Bf16>(kForwardProduct, 0x1p-8);
  check_product<Fp8E4m3, Fp8E4m3, Fp16>(kForwardProduct, 0x1p-10);
  check_product<Fp8E5m2, Fp8E4m3, Bf16>({GemmKind::input_gradient, "d_output", "d_output_scale",
                                         "weight_t", "weight_scale", "d_input", kM, kK, kN},
                                        0x1p-8);
  check_product<Fp8E5m2, Fp8E4m3, float>({GemmKind::weight_gradient, "d_output_t", "d_output_scale",
                                          "input_t", "input_scale", "weight_grad", kN, kK, kM},
                                         0x1p-22);
}

TEST(Fp8, RefusesProductsThatNoMatrixUnitHas) {
  Fp8Call two_wide = product<Fp8E4m3, Fp8E4m3, Bf16>(kForwardProduct);
  two_wide.retype("input", DType::fp8_e5m2);
  two_wide.retype("weight", DType::fp8_e5m2);
  EXPECT_EQ(two_wide.run(), "kernel gemm_fp8: operand weight: expected fp8_e4m3 beside fp8_e5m2");
  two_wide.retype("weight", DType::uint8);
  EXPECT_EQ(two_wide.run(),
            "kernel gemm_fp8: operand weight: expected fp8_e4m3 or fp8_e5m2 [16, 48], got uint8 "
            "[16, 48]");
  Fp8Product odd = kForwardProduct;
  odd.rows = 24;
  EXPECT_EQ((product<Fp8E4m3, Fp8E4m3, Bf16>(odd, 24).run()),
            "kernel gemm_fp8: operand output: expected m, n and k that are multiples of 16");
}

}  // namespace
}  // namespace mfsdp
