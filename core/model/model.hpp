// A decoder-only transformer as the planner sees it: its shape, its units and their parameters.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/rational.hpp"
#include "core/base/vocabulary.hpp"
#include "core/model/family.hpp"

namespace mfsdp {

/// Frequency scaling of RoPE as in Llama 3.1; factor 1 means none.
struct RopeScaling {
  Rational factor{1, 1};
  Rational low_freq_factor{1, 1};
  Rational high_freq_factor{1, 1};
  std::int64_t original_max_seq_len = 0;

  friend bool operator==(const RopeScaling&, const RopeScaling&) = default;
};

/// All that the plan needs to know of a model; the model's name is not part of it.
struct ModelShape {
  Family family = Family::llama;
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t layers = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t max_seq_len = 0;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  Rational rms_norm_eps{1, 100000};
  Rational rope_theta{10000, 1};
  RopeScaling rope_scaling;

  friend bool operator==(const ModelShape&, const ModelShape&) = default;

  /// Columns of the fused query, key and value projection: (heads + 2 kv_heads) * head_dim.
  [[nodiscard]] std::int64_t qkv_width() const { return (heads + 2 * kv_heads) * head_dim; }
  /// Columns of the attention output: heads * head_dim.
  [[nodiscard]] std::int64_t attention_width() const { return heads * head_dim; }
};

enum class UnitKind { embedding, block, head, embedding_and_head };

template <>
struct Names<UnitKind> {
  static constexpr std::array<std::string_view, 4> values{"embedding", "block", "head",
                                                          "embedding_and_head"};
};

/// What a parameter does in its unit; the recipe finds its weights by role.
enum class ParameterRole {
  embedding,      ///< [vocab, hidden]; also the head's matrix when tied
  input_norm,     ///< [hidden]
  qkv,            ///< [qkv_width, hidden]: query, key, value rows in this order
  qkv_bias,       ///< [qkv_width]
  q_norm,         ///< [head_dim]
  k_norm,         ///< [head_dim]
  attention_out,  ///< [hidden, heads * head_dim]
  post_norm,      ///< [hidden]
  gate_up,        ///< [2 * intermediate, hidden]: gate rows, then up rows
  down,           ///< [hidden, intermediate]
  final_norm,     ///< [hidden]
  head            ///< [vocab, hidden]
};

template <>
struct Names<ParameterRole> {
  static constexpr std::array<std::string_view, 12> values{
      "embedding",     "input_norm", "qkv",     "qkv_bias", "q_norm",     "k_norm",
      "attention_out", "post_norm",  "gate_up", "down",     "final_norm", "head"};
};

/// A checkpoint tensor that a fused parameter holds: its name and its rows of dim 0.
struct ParameterPart {
  std::string name;
  std::int64_t rows = 0;

  friend bool operator==(const ParameterPart&, const ParameterPart&) = default;
};

/// One parameter as it is run. Fused ones (qkv, gate_up) list the checkpoint's tensors in order;
/// a parameter that is not fused has no parts and carries the checkpoint's own name.
struct Parameter {
  std::string name;
  ParameterRole role = ParameterRole::embedding;
  std::vector<std::int64_t> shape;  ///< dims, outermost first
  std::vector<ParameterPart> parts;
  DType dtype = DType::bf16;
  UnitId unit;
  bool decay = false;  ///< weight decay applies: matrices only

  [[nodiscard]] std::int64_t elements() const;
  /// Elements of one row: product of all dims but the first; 1 for a vector.
  [[nodiscard]] std::int64_t row_elements() const;
};

/// What is gathered as one, in forward order.
struct Unit {
  UnitId id;
  std::string name;  ///< "embedding", "layers.3", "head", "embedding_head"
  UnitKind kind = UnitKind::block;
  std::vector<std::size_t> parameters;  ///< indices into Model::parameters
};

struct Model {
  ModelShape shape;
  std::vector<Unit> units;
  std::vector<Parameter> parameters;  ///< in unit order, then layout order

  [[nodiscard]] std::int64_t parameter_count() const;
};

/// The units and parameters of a shape. Layout order in a block: input_norm, qkv, [qkv_bias],
/// [q_norm, k_norm], attention_out, post_norm, gate_up, down. With tied embeddings the embedding
/// and the final norm form one unit, first in order. Parameters have dtype `dtype`.
[[nodiscard]] Model make_model(const ModelShape& shape, DType dtype);

}  // namespace mfsdp
