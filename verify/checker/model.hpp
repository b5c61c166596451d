// The kernels of a configuration's model, as the checker knows them: the values that each kernel
// reads and makes, with their shapes and attributes. They are written from the mathematics, not
// from the planner's recipes or the proofs' tables.
//
//   x    = mid' + mlp_out' (input; ' is the block before)     mid     = x + attention_out
//   qkv  = norm(x) * W                                        gate_up = norm(mid) * W
//   attention = softmax(rope(query) rope(key)) value          mlp_out = swiglu(gate_up) * W
//
// GPT-2 has layer norms, biases, a table of positions in place of RoPE, and an MLP without a gate.
// OLMo 2 norms what attention and MLP add, and nothing before them: x = mid' + norm(mlp_out').
//
// A value belongs to an owner, which is a place in forward order (0 the embedding, 1 to L the
// blocks, L + 1 final norm and head), and to a microbatch.
#pragma once

#include <array>
#include <optional>

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {

using Shape = std::vector<Int>;

/// A value's name, and the distance in forward order from the step's owner to the value's owner.
struct Named {
  std::string name{};  ///< empty: none
  Int shift = 0;
};

/// One operand of a step. Sizes are elements.
struct Flow {
  std::string role, access;  ///< "adds": write, or read_write where beta is 1; "may": either
  std::string dtype;         ///< empty: that of a gradient
  Shape shape;               ///< kRows: the rows that this op works on; n kRows: n times as many
  Named reads{}, makes{};
  std::string parameter{};  ///< whose weights it reads or whose gradient it makes
  Int row = 0;              ///< of heads laid out in rows: elements of a row; else 0
  Int column = 0;           ///< where it begins in a row, or in the value
};
inline constexpr Int kRows = -1;

enum class Place { embedding, block, head };

struct Step {
  std::string kernel;
  Int product = 0;  ///< a GEMM's attribute "kind"
  Place place = Place::block;
  std::map<std::string, Json> attributes{};  ///< without those that only state the cost
  std::vector<Flow> flows{};
  bool chunk = false;                ///< of some rows, not all tokens
  std::optional<bool> slides{};      ///< of such layers alone, or of the others alone
  std::optional<bool> other_rope{};  ///< likewise of layers with the second table of angles
  Int least_scratch = -1;            ///< bytes of its workspace; -1: it has none
  std::optional<bool> fp8{};         ///< of blocks in FP8 alone, or of the others alone
  bool delays = false;               ///< casts by a scale of earlier steps
};

class Model {
 public:
  /// Refuses where units and parameters of the plan are not those of its configuration's model.
  explicit Model(const PlanView& view);

  /// By kernel; of a GEMM "gemm 0" to "gemm 2".
  [[nodiscard]] const std::vector<Step>& steps(const std::string& kernel) const;
  /// How many steps of a microbatch give a gradient to parameters of that role.
  [[nodiscard]] Int gradients_of(const std::string& role) const { return gradients_.at(role); }
  [[nodiscard]] Place place_of(Int owner) const;
  /// Whether that owner is a block whose attention has a window.
  [[nodiscard]] bool slides(Int owner) const;
  [[nodiscard]] bool has_other_rope(Int owner) const;
  /// Whether the linear layers of that block multiply in FP8.
  [[nodiscard]] bool multiplies_in_fp8(Int owner) const;
  /// Whether a kernel is a GEMM of a linear layer.
  [[nodiscard]] static bool multiplies(const std::string& kernel) {
    return kernel == "gemm" || kernel == "gemm_fp8" || kernel == "gemm_blocks";
  }
  /// Tensors in the history of delayed scaling, and its steps; 0 without it.
  [[nodiscard]] Int amax_columns() const {
    return fp8_recipe_ == "delayed" ? times(12, layers_ - 2 * fp8_kept_) : 0;
  }
  [[nodiscard]] Int amax_slots() const { return amax_slots_; }
  [[nodiscard]] bool takes_recent_amax() const { return takes_recent_amax_; }
  /// Whether a parameter of a group of that unit is its owner's.
  [[nodiscard]] bool owns(Int owner, const std::string& role, Int unit) const;

  Int tokens = 0;                            ///< of a microbatch on a rank
  Int token_rows = 2;                        ///< ids, labels; positions in documents where masked
  Int microbatches = 0;                      ///< of a step
  std::map<std::string, Int> rope_tables{};  ///< bytes of each, by its port
  /// What each rank of ep has of such values of all of them; empty where none is sent.
  [[nodiscard]] static std::string received(const std::string& sent);
  /// The name on receiving ranks of cp of such values of all of them; empty where none is sent.
  [[nodiscard]] static std::string regrouped(const std::string& sent);
  /// An all-reduce or a reduce-scatter over tp makes this of terms of a value; empty: nothing.
  [[nodiscard]] std::string summed(const std::string& terms, bool scatters) const;
  /// An all-gather over tp makes this of a rank's rows of a value; empty: nothing.
  [[nodiscard]] std::string gathered_rows(const std::string& rows) const;
  /// An all-gather, and a sum of terms, over cp make this of the value; empty: nothing.
  [[nodiscard]] std::string gathered_keys(const std::string& sent) const;
  [[nodiscard]] std::string summed_over_cp(const std::string& terms, bool scatters) const;
  // Rings (ring.cpp).
  /// A rank of cp receives this where all send that value to the next; empty: none sends it.
  [[nodiscard]] std::string passed_on(const std::string& sent) const;
  /// The value that contains both, which are parts of one value; empty: they are not, or overlap.
  [[nodiscard]] std::string joined(const std::string& part, const std::string& other) const;
  /// Whether it is a rank's part of the softmax of rows, which an all-gather makes into all parts.
  [[nodiscard]] static bool is_part(const std::string& value);
  std::string statistic;      ///< dtype of statistics
  Json clip;                  ///< limit of the norm
  bool main_weights = false;  ///< beside those that kernels read
  bool scales_loss = false;   ///< gradients, from the loss on
  Int scale_window = 0;       ///< steps until that scale grows; 0: it stays
  /// The attributes that --exact-sums adds to a kernel of `rows` rows.
  [[nodiscard]] std::map<std::string, Json> exact(const std::string& kernel, Int rows) const;

 private:
  void check_units(const PlanView& view) const;
  void check_parameters(const PlanView& view) const;
  /// By role: name and shape.
  using Parameters = std::map<std::string, std::pair<std::string, Shape>>;
  [[nodiscard]] Parameters parameters_of(Int position) const;
  void add(Step step);
  [[nodiscard]] Flow in_rows_of(Place place, Flow flow) const;
  void add_product(const std::string& parameter, Place place, Int outputs, Int inputs,
                   const std::array<const char*, 4>& values);
  // FP8 (fp8.cpp).
  void read_fp8();
  void check_fp8_groups(const PlanView& view) const;
  void add_amax(const std::string& value, const Shape& shape, const Flow& source);
  void add_casts(const std::string& value, const char* type, const Shape& shape,
                 const Flow& source);
  void add_block_casts(const std::string& value, const Shape& shape, const Flow& source);
  void add_block_product(const std::string& parameter, Int outputs, Int inputs,
                         const std::array<const char*, 4>& values);
  [[nodiscard]] bool casts(const std::string& value) const;
  void add_with_amax(Step step);
  void add_product_casts();
  void add_fp8_product(const std::string& parameter, Int outputs, Int inputs,
                       const std::array<const char*, 4>& values);
  /// A linear layer with an adapter (lora.cpp): some rows of a matrix.
  struct Adapter {
    std::string layer, module;  ///< "q_proj" of "self_attn"
    std::string matrix, role;   ///< the matrix' role, and how those of the adapter begin
    Int begin, outputs, inputs;
  };
  void read_adapters();
  [[nodiscard]] std::vector<Adapter> adapters_beside(const std::string& matrix) const;
  void add_parameters_of_adapters(Parameters& of, const std::string& block) const;
  void add_adapters(const std::string& matrix, Int outputs,
                    const std::array<const char*, 4>& values);
  /// The names of out and d_in before adapters add to them.
  [[nodiscard]] std::string product_without_adapters(const std::string& matrix,
                                                     const std::string& out) const;
  [[nodiscard]] std::string gradient_without_adapters(const std::string& matrix,
                                                      const std::string& d_in) const;
  [[nodiscard]] Json root_of_hidden() const;
  [[nodiscard]] Int scale_exponent() const;
  void add_ends();
  void add_positions(std::map<std::string, Json> sizes);
  [[nodiscard]] std::map<std::string, Json> norm_sizes(std::map<std::string, Json> sizes) const;
  void add_norms();
  void add_output_norms();
  void add_bias(const std::string& parameter, Int cols, const char* d_output);
  void add_weight_gradient(const std::string& parameter, Place place, const char* partials,
                           Int cols, Int column);
  void add_norm_backward(const std::string& parameter, Place place, const char* d_normed,
                         const char* normed, const char* input, const char* rstd,
                         const char* d_after, const char* d_before, const char* partials);
  void add_attention();
  void add_rotation();
  [[nodiscard]] std::vector<Flow> in_documents(std::vector<Flow> flows) const;
  void add_mlp();
  // Tensor parallelism (tensor_parallel.cpp).
  void read_tensor_ranks(const PlanView& view);
  void take_part_of_rank();
  [[nodiscard]] std::string in_terms(const std::string& parameter, Int dim,
                                     const std::string& value) const;
  [[nodiscard]] std::string of_all_rows(const std::string& parameter, Int dim,
                                        const std::string& value) const;
  /// Whether ranks make terms of that projection's output.
  [[nodiscard]] bool has_terms(const std::string& parameter) const;
  [[nodiscard]] static std::string short_of_bias(const std::string& value);
  void add_bias_of_sum(const std::string& parameter, const std::string& value);
  [[nodiscard]] std::string in_whole_heads(const std::string& value) const;
  [[nodiscard]] Int projected_cols() const;
  void add_key_parts();
  [[nodiscard]] static Json vocabulary_begin(Int ids);
  [[nodiscard]] std::string counts_here() const;
  [[nodiscard]] std::string counts_of_part() const;
  [[nodiscard]] Json balance_here() const;
  void add_parts(Step loss);
  // Context parallelism (context_parallel.cpp).
  void read_context_ranks(const PlanView& view);
  [[nodiscard]] std::string as_attended(const std::string& value) const;
  void add_groups_of_heads();
  void add_key_rows();
  [[nodiscard]] std::map<std::string, Json> of_part(std::map<std::string, Json> sizes) const;
  [[nodiscard]] Flow own_query() const;
  [[nodiscard]] std::vector<Flow> gathered_inputs() const;
  [[nodiscard]] std::vector<Flow> gathered_gradients() const;
  [[nodiscard]] bool has_chunks() const { return gathers_keys_ || passes_keys_; }
  [[nodiscard]] std::string held_keys(Int shift) const;
  [[nodiscard]] std::string with_step(const std::string& of, Int shift, Int step) const;
  void add_ring_attention(const std::map<std::string, Json>& sizes, std::optional<bool> slides);
  // Blocks with experts (experts.cpp).
  void read_experts(const Json& model);
  [[nodiscard]] bool has_experts(Int owner) const;
  void add_parameters_of_experts(Parameters& of, const std::string& block) const;
  void add_grouped_product(const std::string& parameter, Int outputs, Int inputs,
                           const std::array<const char*, 4>& values);
  void add_experts();
  void add_routing();
  // Expert parallelism (expert_parallel.cpp).
  [[nodiscard]] Int room() const;
  [[nodiscard]] Int experts_here() const {
    return expert_ranks_ == 0 ? experts_ : experts_ / expert_ranks_;
  }
  [[nodiscard]] std::map<std::string, Json> with_balance(std::map<std::string, Json> sizes) const;
  void add_orders_of_ranks();
  void add_arrivals();
  void add_shared_expert();
  void add_expert_biases();
  void add_biases_of_experts(const std::string& parameter, Int cols, bool weighted,
                             const std::string& before, const std::string& after,
                             const std::string& d_after);
  void add_sinks();
  void read_latent(const Json& model);
  void add_parameters_of_latent(Parameters& of, const std::string& attention,
                                bool has_indexer) const;
  [[nodiscard]] Json latent_epsilon() const;
  void add_latent();
  void add_latent_queries();
  void add_latent_keys();
  void add_weighted_gates(const std::string& of, Int rows, Int inner, Int experts);
  [[nodiscard]] Int backward_scratch() const;
  [[nodiscard]] Flow weight(const std::string& parameter, Shape shape) const;
  [[nodiscard]] static Flow gradient(const std::string& parameter, Shape shape);
  void add_attention_of(const std::map<std::string, Json>& sizes, std::optional<bool> slides);
  void add_rotation_by(const std::string& table, std::optional<bool> other_rope);
  [[nodiscard]] std::vector<Flow> heads(const std::string& rotated, Int row) const;

  const Json& config_;
  Int layers_, hidden_, inner_, vocab_, heads_, kv_heads_, head_dim_, seq_, batch_, world_ = 1,
                                                                                    outer_ = 1;
  bool tied_, bias_, qk_norm_, exact_;
  // The properties of the model family.
  bool gpt2_names_ = false;
  bool layer_norms_ = false, biases_ = false, whole_norms_ = false;
  bool gates_ = true, rotates_ = true, input_norms_ = true;
  bool output_norms_ = false;   ///< of what attention and MLP add to the residual
  bool centred_ = false;        ///< norms multiply by 1 + weight
  std::string gated_{};         ///< which kernels the MLP has
  Int first_width_ = 0;         ///< columns of the MLP's first projection
  Int positions_ = 0;           ///< rows of the table of positions
  Int turned_ = 0;              ///< elements of a head that RoPE rotates
  Int window_ = 0;              ///< of layers that slide, where it leaves out tokens
  std::vector<Int> sliding_{};  ///< layers
  bool two_tables_ = false;     ///< some layers have a RoPE table of their own: these, or
  std::vector<Int> nope_{};     ///< if there are none, those with a sliding window
  bool mixtral_names_ = false;
  Int experts_ = 0;            ///< of a block that has any; 0: none has
  Int expert_ranks_ = 0;       ///< ranks of expert parallelism; 0: each rank has all experts
  Json capacity_{};            ///< of these ranks, over their equal share; none: for all rows
  Int chosen_ = 0;             ///< experts of a token
  Int expert_inner_ = 0;       ///< width of one
  Int shared_inner_ = 0;       ///< width of one that all tokens have; 0: there is none
  std::vector<Int> dense_{};   ///< layers without
  bool normalises_ = false;    ///< the weights of a token's experts
  Json balance_{}, z_loss_{};  ///< coefficients of the router's own losses
  Json clamp_{}, slope_{};     ///< of a SwiGLU that is clamped
  bool sinks_ = false;         ///< each head has one
  bool latent_ = false;        ///< queries, keys and values by way of latent vectors
  Int value_dim_ = 0;          ///< of a head
  Int query_latent_ = 0;       ///< width of the queries' vector; 0: they have none
  Int kv_latent_ = 0;          ///< of the keys' and values', without the rotated elements
  Int index_heads_ = 0;        ///< of the indexer, whose parameters no kernel reads; 0: none
  Int index_dim_ = 0;
  std::vector<Int> shared_index_ = {};  ///< layers without an indexer
  Int groups_ = 0;                      ///< of experts
  Int chosen_groups_ = 0;
  bool sigmoid_ = false;       ///< weights are sigmoids, chosen by a correction too
  bool plain_shared_ = false;  ///< that expert has no weight, and another name
  bool gates_shared_ = false;  ///< the expert that all tokens have is multiplied by a weight
  Json routed_scale_{};
  Int context_ranks_ = 1;             ///< of cp
  bool gathers_keys_ = false;         ///< each of these has its queries, and all keys
  bool passes_keys_ = false;          ///< or the keys of one rank at a time
  Int attended_ = 0;                  ///< tokens whose queries attention has
  Int places_ = 0;                    ///< tokens of whole sequences
  Int piece_ = 0;                     ///< rows that exact sums take at a time
  Int tensor_ranks_ = 1;              ///< of tp
  Int key_holders_ = 1;               ///< of one head of keys
  std::map<std::string, Int> cut_{};  ///< dim along which they divide parameters of that role
  Int lookup_rows_ = 0;               ///< of the embedding, on a rank
  Int vocab_here_ = 0;                ///< columns of the logits, on a rank
  Int rows_ = 0;                      ///< of a rank between blocks
  bool splits_rows_ = false;          ///< ranks of tp have those of other tokens
  Int rank_ = 0;                      ///< of adapters; 0: there are none
  Json scale_{};                      ///< by which their GEMMs are multiplied
  std::vector<Adapter> adapters_{};
  bool fp8_ = false;  ///< blocks multiply in FP8
  std::string fp8_recipe_{};
  Int amax_slots_ = 0;
  bool takes_recent_amax_ = false;
  Int fp8_kept_ = 0;              ///< but as many first and last ones
  std::string fp8_accumulate_{};  ///< which GEMMs may sum in fewer bits
  bool fp8_gather_ = false;       ///< weights are cast once a step, before they are gathered
  std::string compute_;
  std::map<std::string, std::vector<Step>> steps_{};
  std::map<std::string, Int> gradients_{};
};

}  // namespace mfsdp::checker
