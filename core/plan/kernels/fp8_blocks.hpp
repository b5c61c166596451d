// Kernels whose operands have a scale for each block of values (core/plan/fp8_blocks.hpp). B values
// are a block's row, and c elements of its type. The scales of a matrix lie in lines along its rows:
// the first line has those of all rows' first blocks.
//
//   input T[R, C] --cast_blocks--> output F[R, C/B * c]      output_scale S[C/B, R]
//                                  output_t F[C, R/B * c]    output_t_scale S[R/B, C]
//
// Blocks of B x B values have a scale for B rows: S[C/B, R/B].
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

/// A byte of codes whose type the operand states: E4M3, or two of E2M1, the first in the low bits.
struct BlockCode {
  static constexpr Element element = Element::codes;
  std::uint8_t bits = 0;
};

/// The first byte of a block's scale, whose type the operand states: fp32, E8M0 or E4M3.
struct BlockScale {
  static constexpr Element element = Element::scales;
  std::byte first{};
};

namespace kernels {

/// Codes of values and the scales of their blocks; of nvfp4 `amax` and `tensor_scale` too.
template <class T>
struct CastBlocks {
  std::int64_t block = 0;     ///< B
  std::int64_t codes = 0;     ///< c
  std::int64_t lines = 0;     ///< of scales, for each B rows: B, or 1 of blocks of B x B
  std::int64_t blocks = 0;    ///< C / B
  std::int64_t blocks_t = 0;  ///< R / B
  const T* input = nullptr;
  const float* amax = nullptr;  ///< [1] of input
  TypedBytes<BlockCode> output = {};
  TypedBytes<BlockScale> output_scale = {};
  TypedBytes<BlockCode> output_t = {};
  TypedBytes<BlockScale> output_t_scale = {};
  float* tensor_scale = nullptr;  ///< [1]

  void state(auto& op) {
    op.attribute("block", block);
    op.attribute("blocks", blocks);
    op.attribute("blocks_t", blocks_t);
    op.attribute("codes", codes);
    op.attribute("lines", lines);
    op.reads("input", input, {{"blocks_t", "block"}, {"blocks", "block"}});
    op.reads("amax", amax, {1}, {.optional = true, .element = Element::fp32});
    op.writes("output", output, {{"blocks_t", "block"}, {"blocks", "codes"}}, {.optional = true});
    op.writes("output_scale", output_scale, {"blocks", {"blocks_t", "lines"}}, {.optional = true});
    op.writes("output_t", output_t, {{"blocks", "block"}, {"blocks_t", "codes"}},
              {.optional = true});
    op.writes("output_t_scale", output_t_scale, {"blocks_t", {"blocks", "lines"}},
              {.optional = true});
    op.writes("tensor_scale", tensor_scale, {1}, {.optional = true, .element = Element::fp32});
    op.expect(output.data != nullptr || output_t.data != nullptr, "output",
              "expected this operand or output_t");
    op.expect((output.data == nullptr) == (output_scale.data == nullptr), "output_scale",
              "expected it with output alone");
    op.expect((output_t.data == nullptr) == (output_t_scale.data == nullptr), "output_t_scale",
              "expected it with output_t alone");
    op.expect((amax == nullptr) == (tensor_scale == nullptr), "tensor_scale",
              "expected it with amax alone");
  }

  /// The types of whichever copy there is.
  [[nodiscard]] DType codes_dtype() const { return dtype_of_either(output, output_t); }
  [[nodiscard]] DType scales_dtype() const {
    return output.data != nullptr ? output_scale.dtype : output_t_scale.dtype;
  }
};

/// c[rows, cols] = scale * a[rows, inner] * b[cols, inner]^T (+ c), where a and b are codes times the
/// scales of their blocks, and times those of the tensors, if there are any.
template <class C>
struct BlockGemm {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t block = 0;    ///< B
  std::int64_t blocks = 0;   ///< inner / B
  std::int64_t codes = 0;    ///< c
  std::int64_t b_lines = 0;  ///< scales of b in a line
  TypedBytes<const BlockCode> a = {};
  TypedBytes<const BlockScale> a_scale = {};
  TypedBytes<const BlockCode> b = {};
  TypedBytes<const BlockScale> b_scale = {};
  const float* a_tensor_scale = nullptr;  ///< [1]; null: 1
  const float* b_tensor_scale = nullptr;  ///< likewise
  C* c = nullptr;
  bool adds = false;
  float scale = 1;
  std::span<std::byte> workspace = {};  ///< scratch

 protected:
  struct Roles {
    const char* a;
    const char* a_scale;
    const char* a_tensor_scale;
    const char* b;
    const char* b_scale;
    const char* b_tensor_scale;
  };
  void state_inputs(auto& op, const Roles& role, const Dim& a_rows, const Dim& b_rows,
                    const Dim& b_lines_dim) {
    op.attribute("block", block);
    op.attribute("blocks", blocks);
    op.attribute("codes", codes);
    const Dim inner("blocks", "codes");
    op.reads(role.a, a, {a_rows, inner});
    op.reads(role.a_scale, a_scale, {"blocks", a_rows});
    op.reads(role.a_tensor_scale, a_tensor_scale, {1},
             {.optional = true, .element = Element::fp32});
    op.reads(role.b, b, {b_rows, inner});
    op.reads(role.b_scale, b_scale, {"blocks", b_lines_dim});
    op.reads(role.b_tensor_scale, b_tensor_scale, {1},
             {.optional = true, .element = Element::fp32});
    op.expect(a.dtype == b.dtype && a_scale.dtype == b_scale.dtype, role.b,
              "expected the types of ", std::string_view(role.a));
    op.expect((a_tensor_scale == nullptr) == (b_tensor_scale == nullptr), role.b,
              "expected scales of both tensors or of none");
  }
  void state_rest(auto& op, const char* output, std::int64_t inner) {
    op.attribute_if_any("scale", scale);
    op.workspace(workspace);
    op.expect(inner == blocks * block, output, "expected blocks * block values to sum over, ",
              inner);
  }
};

/// output[m, n] = input[m, k] * weight[n, k]^T (+ output).
template <class T>
struct BlockGemmForward : BlockGemm<T> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    op.attribute("lines", this->b_lines);
    this->state_inputs(op,
                       {"input", "input_scale", "input_tensor_scale", "weight", "weight_scale",
                        "weight_tensor_scale"},
                       "m", "n", "lines");
    op.adds("output", this->c, this->adds, {"m", "n"});
    this->rows = s.m, this->cols = s.n;
    this->state_rest(op, "output", s.k);
  }
};

/// d_input[m, k] = d_output[m, n] * weight_t[k, n]^T (+ d_input).
template <class T>
struct BlockGemmInputGradient : BlockGemm<T> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    op.attribute("lines", this->b_lines);
    this->state_inputs(op,
                       {"d_output", "d_output_scale", "d_output_tensor_scale", "weight_t",
                        "weight_t_scale", "weight_tensor_scale"},
                       "m", "k", "lines");
    op.adds("d_input", this->c, this->adds, {"m", "k"});
    this->rows = s.m, this->cols = s.k;
    this->state_rest(op, "d_input", s.n);
  }
};

/// weight_grad[n, k] = d_output_t[n, m] * input_t[k, m]^T (+ weight_grad).
template <class G>
struct BlockGemmWeightGradient : BlockGemm<G> {
  void state(auto& op) {
    GemmSizes s;
    s.state(op);
    this->state_inputs(op,
                       {"d_output_t", "d_output_t_scale", "d_output_tensor_scale", "input_t",
                        "input_t_scale", "input_tensor_scale"},
                       "n", "k", "k");
    op.adds("weight_grad", this->c, this->adds, {"n", "k"}, {.element = Element::gradient});
    this->rows = s.n, this->cols = this->b_lines = s.k;
    this->state_rest(op, "weight_grad", s.m);
  }
};

}  // namespace kernels
}  // namespace mfsdp
