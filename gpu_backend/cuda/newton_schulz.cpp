#include "gpu_backend/cuda/newton_schulz.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/plan/kernel_spec.hpp"
#include "core/plan/newton_schulz.hpp"
#include "gpu_backend/cuda/bind_kind.hpp"
#include "gpu_backend/cuda/kernel_binder.hpp"
#include "gpu_backend/cuda/kernels/orthogonal.hpp"

namespace mfsdp::cuda {
namespace {

/// Factor of stored matrices. No entry of X, R and Z exceeds 5; the entries of all Z multiplied are
/// below 3.4445^5 = 485.
template <class H>
inline constexpr float kUnit = std::is_same_v<H, float> ? 1.0F : 1024.0F;
template <class H>
inline constexpr float kUnitOfQ = std::is_same_v<H, float> ? 1.0F : 64.0F;

/// One GEMM of the form: its shape and its memory.
struct Part {
  GemmShape shape;
  GemmMemory memory;
};

/// The steps of one orthogonalisation. `Do` is called for each GEMM, and with `launches` also for
/// the other kernels.
template <class T, bool launches, class Do>
class Orthogonalisation {
  using H = Working<T>;

 public:
  Orthogonalisation(const kernels::NewtonSchulz<T>& k, cudaStream_t stream, const Do& product)
      : k_(k),
        m_(std::min(k.rows, k.cols)),
        n_(std::max(k.rows, k.cols)),
        stream_(stream),
        product_(product),
        space_(newton_schulz_workspace_of(k.rows, k.cols, sizeof(H))) {
    for (std::int64_t i = 0; i < NewtonSchulzWorkspace::kSquares; ++i)
      free_.push_back(at<H>(space_.squares + i * space_.square));
    x_ = at<H>(space_.first);
    other_ = at<H>(space_.second);
  }

  Result<void> run() {
    if (static_cast<std::int64_t>(k_.workspace.size()) < space_.bytes)
      return fail("kernel newton_schulz", fmt::format("expected a workspace of {} bytes, got {}",
                                                      space_.bytes, k_.workspace.size()));
    if (m_ == 0) return {};
    MFSDP_TRY(load());
    for (int step = 1; step <= kNewtonSchulzSteps; ++step) MFSDP_TRY(advance(step));
    if (!launches) return {};
    const auto scale = static_cast<float>(orthogonal_scale(k_.rows, k_.cols));
    return store_scaled<T>(k_.rows, k_.cols, x_, scale / kUnit<H>, k_.matrix, stream_);
  }

 private:
  template <class E>
  [[nodiscard]] E* at(std::int64_t byte) const {
    return reinterpret_cast<E*>(k_.workspace.data() + byte);
  }
  [[nodiscard]] H* take() {
    H* square = free_.back();
    free_.pop_back();
    return square;
  }

  Result<void> load() {
    if (!launches) return {};
    const std::span<const T> all(k_.matrix, static_cast<std::size_t>(k_.rows * k_.cols));
    const auto sums = k_.workspace.subspan(static_cast<std::size_t>(space_.sums));
    MFSDP_LET(inverse, inverse_norm(all, sums, stream_));
    return load_scaled<T>(k_.rows, k_.cols, k_.matrix, kUnit<H>, inverse, x_, stream_);
  }
  Result<void> mirror_of(H* square) {
    return launches ? mirror(m_, square, stream_) : Result<void>{};
  }
  /// Z of the Gram matrix and its square.
  Result<void> polynomial(const H* square, H* to) {
    if (!launches) return {};
    const NewtonSchulzCoefficients by;
    return add_polynomial<H>(m_, static_cast<float>(by.a) * kUnit<H>, static_cast<float>(by.b),
                             gram_, static_cast<float>(by.c), square, to, stream_);
  }

  Result<void> advance(int step) {
    const bool by_gram = goes_by_gram(m_, n_);
    const bool begins = step == 1 || !by_gram;
    const bool ends = step == kNewtonSchulzSteps || !by_gram;
    if (begins) {
      gram_ = take();
      MFSDP_TRY(symmetric(x_, x_, n_, gram_));
      MFSDP_TRY(mirror_of(gram_));
    }
    H* const square = take();
    MFSDP_TRY(symmetric(gram_, gram_, m_, square));
    H* const z = take();
    MFSDP_TRY(polynomial(square, z));
    free_.push_back(square);
    H* const before = q_;
    q_ = z;
    if (begins) unit_of_q_ = kUnit<H>;
    if (!begins) {
      q_ = take();
      MFSDP_TRY(symmetric(z, before, m_, q_, kUnitOfQ<H> / (kUnit<H> * unit_of_q_)));
      MFSDP_TRY(mirror_of(q_));
      unit_of_q_ = kUnitOfQ<H>;
      free_.push_back(before);
    }
    if (!ends) {  // R' = Z R Z
      H* const half = take();
      MFSDP_TRY(symmetric(z, gram_, m_, half));
      MFSDP_TRY(mirror_of(half));
      MFSDP_TRY(symmetric(half, z, m_, gram_));
      MFSDP_TRY(mirror_of(gram_));
      free_.push_back(half);
    }
    if (!begins) free_.push_back(z);
    if (!ends) return {};
    MFSDP_TRY(times_x());
    free_.push_back(q_);
    free_.push_back(gram_);
    return {};
  }

  /// X = Q X.
  Result<void> times_x() {
    Part part = part_of(q_, x_, other_, m_, n_, m_);
    part.shape.b_row = n_;
    part.shape.b_transposed = false;
    part.shape.c_row = n_;
    part.memory.scale = 1 / unit_of_q_;
    MFSDP_TRY(product_(part));
    std::swap(x_, other_);
    return {};
  }

  /// c = a b^T [m, m], which is symmetric, from a [m, inner] and b [m, inner]. Computes the lower
  /// triangle in parts of equal size: the quarter below the middle; the same quarters of the two
  /// halves on the diagonal; and the remaining four squares, entirely.
  Result<void> symmetric(const H* a, const H* b, std::int64_t inner, H* c,
                         float scale = 1 / kUnit<H>) {
    const auto scaled = [&](Part part) {
      part.memory.scale = scale;
      return product_(part);
    };
    if (!is_cut_in_parts(m_)) return scaled(part_of(a, b, c, m_, m_, inner));
    const std::int64_t half = m_ / 2;
    const std::int64_t side = m_ / 4;
    MFSDP_TRY(scaled(part_of(a + half * inner, b, c + half * m_, half, half, inner)));
    Part below = part_of(a + side * inner, b, c + side * m_, side, side, inner);
    batch(below, 2, 2 * side, inner);
    MFSDP_TRY(scaled(below));
    Part diagonal = part_of(a, b, c, side, side, inner);
    batch(diagonal, 4, side, inner);
    return scaled(diagonal);
  }

  /// `rows`: distance of consecutive GEMMs of the batch, along the diagonal.
  void batch(Part& part, std::int64_t count, std::int64_t rows, std::int64_t inner) const {
    part.shape.batch = count;
    part.shape.a_step = part.shape.b_step = rows * inner;
    part.shape.c_step = rows * m_ + rows;
  }

  [[nodiscard]] Part part_of(const H* a, const H* b, H* c, std::int64_t rows, std::int64_t cols,
                             std::int64_t inner) const {
    const auto workspace = k_.workspace.subspan(static_cast<std::size_t>(space_.products),
                                                static_cast<std::size_t>(kOrthogonalGemmBytes));
    const auto row_bytes = static_cast<std::int64_t>(sizeof(H));
    return {.shape = {.rows = rows,
                      .cols = cols,
                      .inner = inner,
                      .a_row = inner,
                      .b_row = inner,
                      .c_row = m_,
                      .b_transposed = true,
                      .operands = dtype_of<H>,
                      .result = dtype_of<H>,
                      .alignment = common_alignment(std::array{
                          reinterpret_cast<std::uintptr_t>(a), reinterpret_cast<std::uintptr_t>(b),
                          reinterpret_cast<std::uintptr_t>(c),
                          static_cast<std::uintptr_t>(inner * row_bytes),
                          static_cast<std::uintptr_t>(m_ * row_bytes),
                          static_cast<std::uintptr_t>(n_ * row_bytes)})},
            .memory = {.a = a,
                       .b = b,
                       .bias = nullptr,
                       .c = c,
                       .scale = 1 / kUnit<H>,
                       .workspace = workspace}};
  }

  const kernels::NewtonSchulz<T>& k_;
  std::int64_t m_;
  std::int64_t n_;
  cudaStream_t stream_;
  const Do& product_;
  NewtonSchulzWorkspace space_;
  std::vector<H*> free_;  ///< unused squares
  H* x_ = nullptr;
  H* other_ = nullptr;
  H* gram_ = nullptr;
  H* q_ = nullptr;
  float unit_of_q_ = 1;
};

/// Directions are bf16 or fp32.
struct DirectionTypes {
  using First = ElementTypes<Bf16, float>;
};

}  // namespace

template <class T>
Result<void> prepare(GemmPlanner& planner, const kernels::NewtonSchulz<T>& k, cudaStream_t stream) {
  const auto product = [&](const Part& part) {
    return planner.prepare(part.shape, part.memory, stream);
  };
  return Orthogonalisation<T, false, decltype(product)>(k, stream, product).run();
}

template <class T>
Result<void> run(const GemmPlanner& planner, const kernels::NewtonSchulz<T>& k,
                 cudaStream_t stream) {
  const auto product = [&](const Part& part) {
    return planner.run(part.shape, part.memory, stream);
  };
  return Orthogonalisation<T, true, decltype(product)>(k, stream, product).run();
}

template Result<void> prepare(GemmPlanner&, const kernels::NewtonSchulz<Bf16>&, cudaStream_t);
template Result<void> prepare(GemmPlanner&, const kernels::NewtonSchulz<float>&, cudaStream_t);
template Result<void> run(const GemmPlanner&, const kernels::NewtonSchulz<Bf16>&, cudaStream_t);
template Result<void> run(const GemmPlanner&, const kernels::NewtonSchulz<float>&, cudaStream_t);

template <>
Result<Launch> bind_kind(const KernelBinding<K::newton_schulz>& to) {
  return to.bind<DirectionTypes>([&](const auto& k) -> Result<Launch> {
    MFSDP_LET(planner, to.binder.gemm());
    MFSDP_TRY(prepare(*planner, k, to.stream));
    return [planner, k, stream = to.stream] { return run(*planner, k, stream); };
  });
}

}  // namespace mfsdp::cuda
