// Kernels of FP8: values are held in one byte, and a scale of fp32 multiplies what is held. A scale
// is an operand of its own, named after the operand that it belongs to:
//
//   input T[rows, cols] --amax--> amax
//   input, amax --cast_scaled--> output F[rows, cols], output_t F[cols, rows], output_scale
//   input F[m, k], weight F[n, k], and their scales --gemm_fp8--> output T[m, n]
//
// Matrix units of some GPUs multiply only rows by rows, so each GEMM of a linear layer reads its
// two inputs as [.., inner]. The gradients read transposed copies: d_input those of weights,
// weight_grad those of d_output and input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/plan/kernel_costs.hpp"
#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/element_types.hpp"
#include "core/plan/kernels/gemm.hpp"
#include "core/plan/kernels/typed_bytes.hpp"

namespace mfsdp {

/// An element of an FP8 type that the operand states.
struct AnyFp8 {
  static constexpr Element element = Element::fp8;
  std::uint8_t bits = 0;
};

namespace kernels {

/// The dims of FP8 GEMMs are multiples of it.
inline constexpr std::int64_t kFp8Grain = 16;

/// amax = the largest |input|, or the larger of that and amax. NaN if any is NaN.
template <class T>
struct Amax {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* input = nullptr;
  bool adds = false;      ///< keeps what is larger
  float* amax = nullptr;  ///< [1]

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.reads("input", input, {"rows", "cols"});
    op.adds("amax", amax, adds, {1}, {.element = Element::fp32});
  }
};

/// Delayed scaling, between two steps: history's rows move up by one, and the last one takes
/// next_amax. amax becomes the largest of all rows, NaN left out; with `recent` the last one. It
/// stays where that is 0, infinite or NaN. A tensor whose next_amax is 0 keeps all its numbers.
/// next_amax becomes 0.
struct AmaxHistory {
  std::int64_t slots = 0;
  std::int64_t tensors = 0;
  bool recent = false;
  float* next_amax = nullptr;  ///< [tensors]
  float* amax = nullptr;       ///< [tensors]
  float* history = nullptr;    ///< [slots, tensors], the oldest row first

  void state(auto& op) {
    op.attribute_if_any("recent", recent);
    op.attribute("slots", slots);
    op.attribute("tensors", tensors);
    op.updates("next_amax", next_amax, {"tensors"}, {.element = Element::fp32});
    op.updates("amax", amax, {"tensors"}, {.element = Element::fp32});
    op.updates("history", history, {"slots", "tensors"}, {.element = Element::fp32});
  }
};

/// The outputs of a cast with a scale for the whole tensor.
void state_casts(auto& op, auto& call) {
  op.writes("output", call.output, {"rows", "cols"}, {.optional = true});
  op.writes("output_t", call.output_t, {"cols", "rows"}, {.optional = true});
  op.writes("output_scale", call.output_scale, {1}, {.element = Element::fp32});
}
void expect_casts(auto& op, const auto& call) {
  const bool stored = call.output.data != nullptr;
  const bool transposed = call.output_t.data != nullptr;
  op.expect(stored || transposed, "output", "expected this operand or output_t");
  op.expect(!stored || !transposed || call.output.dtype == call.output_t.dtype, "output_t",
            "expected the dtype of output");
}

/// output = input * factor, rounded to nearest even and at most the type's largest number;
/// output_scale = 1 / factor. The factor is that number / amax, both rounded to nearest; 1 where
/// amax is 0, infinite or NaN; and the largest float where it would be infinite. Values
/// are multiplied as floats. With through_bf16 input and amax are rounded to bf16 first.
template <class T>
struct CastScaled {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* input = nullptr;
  const float* amax = nullptr;       ///< [1]
  TypedBytes<AnyFp8> output = {};    ///< [rows, cols]; null where not wanted
  TypedBytes<AnyFp8> output_t = {};  ///< [cols, rows]; null where not wanted
  float* output_scale = nullptr;     ///< [1]
  float* next_amax = nullptr;        ///< [1], keeps the largest |input| too; null: not wanted
  bool through_bf16 = false;

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.attribute_if_any("through_bf16", through_bf16);
    op.reads("input", input, {"rows", "cols"});
    op.reads("amax", amax, {1}, {.element = Element::fp32});
    state_casts(op, *this);
    op.updates("next_amax", next_amax, {1}, {.optional = true, .element = Element::fp32});
    expect_casts(op, *this);
  }

  [[nodiscard]] DType dtype() const { return dtype_of_either(output, output_t); }
};

/// The cast of `product` = silu(gate) * up, which is rounded to T first but not stored. As CastScaled.
template <class T>
struct SwigluForwardCast {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* gate_up = nullptr;  ///< gates first
  const float* amax = nullptr;
  TypedBytes<AnyFp8> output = {};
  TypedBytes<AnyFp8> output_t = {};
  float* output_scale = nullptr;

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.reads("gate_up", gate_up, {"rows", {2, "cols"}});
    op.reads("amax", amax, {1}, {.element = Element::fp32});
    state_casts(op, *this);
    expect_casts(op, *this);
  }

  [[nodiscard]] DType dtype() const { return dtype_of_either(output, output_t); }
};

/// output[cols, rows] = input[rows, cols]^T, byte by byte.
struct Transpose {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  TypedBytes<const AnyFp8> input = {};
  TypedBytes<AnyFp8> output = {};

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.reads("input", input, {"rows", "cols"});
    op.writes("output", output, {"cols", "rows"});
    op.expect(input.dtype == output.dtype, "output", "expected the dtype of input");
  }
};

/// c[rows, cols] = scale * a_scale * b_scale * a[rows, inner] * b[cols, inner]^T (+ bias[cols])
/// (+ c).
template <class C>
struct Fp8Gemm {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t inner = 0;
  TypedBytes<const AnyFp8> a = {};
  TypedBytes<const AnyFp8> b = {};
  const float* a_scale = nullptr;  ///< [1]
  const float* b_scale = nullptr;  ///< [1]
  const C* bias = nullptr;
  C* c = nullptr;
  bool adds = false;
  float scale = 1;
  /// Sums may be kept in fewer bits while a tile is computed; else they are moved to fp32 at
  /// intervals.
  bool fast = false;
  std::span<std::byte> workspace = {};  ///< scratch

 protected:
  struct Roles {
    const char* a;
    const char* a_scale;
    const char* b;
    const char* b_scale;
  };
  void state_inputs(auto& op, const Roles& role, const Dims& a_shape, const Dims& b_shape) {
    op.reads(role.a, a, a_shape);
    op.reads(role.a_scale, a_scale, {1}, {.element = Element::fp32});
    op.reads(role.b, b, b_shape);
    op.reads(role.b_scale, b_scale, {1}, {.element = Element::fp32});
    op.expect(a.dtype != DType::fp8_e5m2 || b.dtype != DType::fp8_e5m2, role.b,
              "expected fp8_e4m3 beside fp8_e5m2");
  }
  void state_rest(auto& op, const char* output) {
    op.attribute_if_any("fast", fast);
    op.attribute_if_any("scale", scale);
    op.workspace(workspace);
    op.expect(rows % kFp8Grain == 0 && cols % kFp8Grain == 0 && inner % kFp8Grain == 0, output,
              "expected m, n and k that are multiples of ", kFp8Grain);
  }
};

/// output[m, n] = input[m, k] * weight[n, k]^T (+ bias) (+ output).
template <class T>
struct Fp8GemmForward : Fp8Gemm<T> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    this->state_inputs(op, {"input", "input_scale", "weight", "weight_scale"}, {"m", "k"},
                       {"n", "k"});
    op.reads("bias", this->bias, {"n"}, {.optional = true});
    op.adds("output", this->c, this->adds, {"m", "n"});
    this->rows = s.m, this->cols = s.n, this->inner = s.k;
    this->state_rest(op, "output");
  }
};

/// d_input[m, k] = d_output[m, n] * weight_t[k, n]^T (+ d_input).
template <class T>
struct Fp8GemmInputGradient : Fp8Gemm<T> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    this->state_inputs(op, {"d_output", "d_output_scale", "weight_t", "weight_scale"}, {"m", "n"},
                       {"k", "n"});
    op.adds("d_input", this->c, this->adds, {"m", "k"});
    this->rows = s.m, this->cols = s.k, this->inner = s.n;
    this->state_rest(op, "d_input");
  }
};

/// weight_grad[n, k] = d_output_t[n, m] * input_t[k, m]^T (+ weight_grad).
template <class G>
struct Fp8GemmWeightGradient : Fp8Gemm<G> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    this->state_inputs(op, {"d_output_t", "d_output_scale", "input_t", "input_scale"}, {"n", "m"},
                       {"k", "m"});
    op.adds("weight_grad", this->c, this->adds, {"n", "k"}, {.element = Element::gradient});
    this->rows = s.n, this->cols = s.k, this->inner = s.m;
    this->state_rest(op, "weight_grad");
  }
};

}  // namespace kernels
}  // namespace mfsdp
