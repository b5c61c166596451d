// Adapters beside the matrices of a block, which alone train where a configuration has them:
//
//   rows = in A^T              out = out without it + scale (rows B^T), in its layer's columns
//   d_rows = scale (d_out B)   d_in = d_in without it + d_rows A, one layer after the other
//   d_B = scale (d_out^T rows) d_A = d_rows^T in                      scale = lora_alpha /
//   lora_rank
#include <numeric>

#include "verify/checker/model.hpp"

namespace mfsdp::checker {
namespace {

/// alpha / rank, an integer where it is one.
Json scale_of(const Json& alpha, Int rank) {
  const Int num = alpha.is_object() ? alpha.at("num").get<Int>() : alpha.get<Int>();
  const Int den = times(alpha.is_object() ? alpha.at("den").get<Int>() : 1, rank);
  const Int common = std::gcd(num, den);
  if (num < 1 || common < 1) refuse("config: lora_alpha is not above 0");
  if (den == common) return num / common;
  return {{"num", num / common}, {"den", den / common}};
}

/// The name of an output to which `missing` adapters have not been added yet.
std::string without(const std::string& value, unsigned missing) {
  return missing == 0 ? value : fmt::format("{} without {}", value, missing);
}

}  // namespace

void Model::read_adapters() {
  rank_ = config_.value("lora_rank", Int{0});
  const Names asked = config_.value("lora_targets", Names{});
  if (rank_ < 0 || (rank_ == 0) != asked.empty() || (rank_ == 0) == config_.contains("lora_alpha"))
    refuse("config: rank, alpha and targets of adapters do not belong together");
  if (rank_ == 0) return;
  const std::string family = config_.at("model").at("family");
  const Names adapted{"glm4_moe", "gpt_oss", "llama", "minimax_m2", "mixtral", "olmoe"};
  if (!adapted.contains(family) || config_.at("model").contains("residual_multiplier"))
    refuse("config: this family has no adapters");
  scale_ = scale_of(config_.at("lora_alpha"), rank_);
  const Int query = heads_ * head_dim_;
  const Int key = kv_heads_ * head_dim_;
  std::vector<Adapter> all;
  if (config_.at("model").value("fused_weights", false))
    all = {{"qkv_proj", "self_attn", "qkv", "qkv", 0, query + 2 * key, hidden_},
           {"gate_up_proj", "mlp", "gate_up", "gate_up", 0, 2 * inner_, hidden_}};
  else
    all = {{"q_proj", "self_attn", "qkv", "q", 0, query, hidden_},
           {"k_proj", "self_attn", "qkv", "k", query, key, hidden_},
           {"v_proj", "self_attn", "qkv", "v", query + key, key, hidden_},
           {"gate_proj", "mlp", "gate_up", "gate", 0, inner_, hidden_},
           {"up_proj", "mlp", "gate_up", "up", inner_, inner_, hidden_}};
  all.push_back({"o_proj", "self_attn", "attention_out", "attention_out", 0, hidden_, query});
  all.push_back({"down_proj", "mlp", "down", "down", 0, hidden_, inner_});
  if (experts_ != 0) std::erase_if(all, [](const Adapter& a) { return a.module == "mlp"; });
  for (const Adapter& adapter : all)
    if (asked.contains(adapter.layer)) adapters_.push_back(adapter);
  if (adapters_.size() != asked.size()) refuse("config: a target of adapters is not a layer");
}

std::vector<Model::Adapter> Model::adapters_beside(const std::string& matrix) const {
  std::vector<Adapter> beside;
  for (const Adapter& adapter : adapters_)
    if (adapter.matrix == matrix) beside.push_back(adapter);
  return beside;
}

void Model::add_parameters_of_adapters(Parameters& of, const std::string& block) const {
  for (const Adapter& adapter : adapters_) {
    const std::string name = block + adapter.module + "." + adapter.layer;
    of[adapter.role + "_lora_a"] = {name + ".lora_A.weight", {rank_, adapter.inputs}};
    of[adapter.role + "_lora_b"] = {name + ".lora_B.weight", {adapter.outputs, rank_}};
  }
}

std::string Model::product_without_adapters(const std::string& matrix,
                                            const std::string& out) const {
  return without(out, (1U << adapters_beside(matrix).size()) - 1U);
}

std::string Model::gradient_without_adapters(const std::string& matrix,
                                             const std::string& d_in) const {
  return without(d_in, static_cast<unsigned>(adapters_beside(matrix).size()));
}

void Model::add_adapters(const std::string& matrix, Int outputs,
                         const std::array<const char*, 4>& values) {
  const std::string in = of_all_rows(matrix, 0, values[0]);
  const bool adds_bias_later = biases_ && has_terms(matrix);
  const std::string out = adds_bias_later ? short_of_bias(values[1]) : values[1];
  const std::string d_out = of_all_rows(matrix, 1, values[2]);
  const std::string d_in = values[3];
  const std::vector<Adapter> beside = adapters_beside(matrix);
  for (std::size_t i = 0; i < beside.size(); ++i) {
    const Adapter& adapter = beside[i];
    const std::string a = adapter.role + "_lora_a";
    const std::string b = adapter.role + "_lora_b";
    // Ranks of tp have terms of what is made with divided inputs, or of a gradient of outputs.
    const std::string rows = in_terms(matrix, 1, "lora " + adapter.role);
    const std::string d_rows = in_terms(matrix, 0, "d_lora " + adapter.role);
    const auto flow = [&](const char* role, const char* access, Int width, const std::string& reads,
                          const std::string& makes) {
      return Flow{.role = role,
                  .access = access,
                  .dtype = compute_,
                  .shape = {tokens, width},
                  .reads = {reads},
                  .makes = {makes}};
    };
    const auto in_columns = [&](Flow made) {
      if (adapter.outputs == outputs) return made;
      made.row = outputs;
      made.column = adapter.begin;
      return made;
    };
    const auto step = [&](Int product, Int n, Int k, bool of_b, std::vector<Flow> flows) {
      Step made{.kernel = "gemm",
                .product = product,
                .attributes = {{"k", k}, {"kind", product}, {"m", tokens}, {"n", n}},
                .flows = std::move(flows),
                .least_scratch = 1};
      // Where beta is 1, the GEMM reads the values that it adds to.
      if (product != 2) made.attributes["beta"] = of_b == (product == 0) ? 1 : 0;
      if (of_b && scale_ != Json(1)) made.attributes["scale"] = scale_;
      add(std::move(made));
    };
    const Flow d_columns = in_columns(flow("d_output", "read", adapter.outputs, d_out, ""));
    step(0, rank_, adapter.inputs, false,
         {flow("input", "read", adapter.inputs, in, ""), weight(a, {rank_, adapter.inputs}),
          flow("output", "write", rank_, "", rows)});
    // Layers have columns of their own: their adapters may be added in any order.
    for (unsigned missing = 1; missing < 1U << beside.size(); ++missing)
      if (const unsigned bit = 1U << i; (missing & bit) != 0)
        step(0, adapter.outputs, rank_, true,
             {flow("input", "read", rank_, rows, ""), weight(b, {adapter.outputs, rank_}),
              in_columns(flow("output", "read_write", adapter.outputs,
                              in_terms(matrix, 1, without(out, missing)),
                              in_terms(matrix, 1, without(out, missing & ~bit))))});
    step(1, adapter.outputs, rank_, true,
         {d_columns, weight(b, {adapter.outputs, rank_}),
          flow("d_input", "write", rank_, "", d_rows)});
    // All add to the same gradient, whose bits depend on the order.
    const auto left = static_cast<unsigned>(beside.size() - i);
    step(1, rank_, adapter.inputs, false,
         {flow("d_output", "read", rank_, d_rows, ""), weight(a, {rank_, adapter.inputs}),
          flow("d_input", "read_write", adapter.inputs, in_terms(matrix, 0, without(d_in, left)),
               in_terms(matrix, 0, without(d_in, left - 1)))});
    step(
        2, adapter.outputs, rank_, true,
        {d_columns, flow("input", "read", rank_, rows, ""), gradient(b, {adapter.outputs, rank_})});
    step(2, rank_, adapter.inputs, false,
         {flow("d_output", "read", rank_, d_rows, ""),
          flow("input", "read", adapter.inputs, in, ""), gradient(a, {rank_, adapter.inputs})});
  }
}

}  // namespace mfsdp::checker
