// Blocks with experts in place of an MLP: T tokens, each with K of E experts, of width f.
//
//   logits = normed2 W_r^T      p = softmax(logits)      the K largest: indices, weights of p
//   rows: T K, those of expert 0 first; order: the token and choice of each, places: back again
//   dispatched = normed2 of each row's token       gate_up = dispatched W1_e^T
//   `product` = swiglu(gate_up) weight             expert_out = `product` W2_e^T
//   mlp_out = sum of a token's K rows
//
// Backward runs in reverse order. The routes may add losses of their own: balance and z.
#include "verify/checker/flows.hpp"
#include "verify/checker/model.hpp"

namespace mfsdp::checker {

void Model::read_experts(const Json& model) {
  experts_ = model.value("experts", Int{0});
  chosen_ = model.value("experts_per_token", Int{0});
  expert_inner_ = model.value("expert_intermediate", Int{0});
  shared_inner_ = model.value("shared_intermediate", Int{0});
  dense_ = model.value("dense_layers", dense_);
  normalises_ = model.value("normalised_routing", false);
  if (model.contains("router_aux_loss")) balance_ = model.at("router_aux_loss");
  if (model.contains("router_z_loss")) z_loss_ = model.at("router_z_loss");
  if (model.contains("swiglu_limit")) clamp_ = model.at("swiglu_limit");
  if (model.contains("swiglu_alpha")) slope_ = model.at("swiglu_alpha");
  groups_ = model.value("router_groups", Int{0});
  chosen_groups_ = model.value("chosen_groups", Int{0});
  sigmoid_ = model.value("sigmoid_routing", false);
  if (model.contains("routed_scale")) routed_scale_ = model.at("routed_scale");
  gates_shared_ = shared_inner_ != 0 && !plain_shared_;
  const bool grouped = groups_ != 0 || chosen_groups_ != 0 || sigmoid_;
  if (grouped && (!balance_.is_null() || !z_loss_.is_null()))
    refuse("config: this checker does not know the routing");
  if (clamp_.is_null() != slope_.is_null()) refuse("config: half a clamped SwiGLU");
  if (sinks_ && experts_ == 0) refuse("config: no experts beside sinks");
  expert_ranks_ = config_.value("expert_parallel", Int{0});
  if (config_.contains("capacity_factor")) capacity_ = config_.at("capacity_factor");
  if (expert_ranks_ != 0 && (expert_ranks_ < 2 || experts_ == 0 || experts_ % expert_ranks_ != 0))
    refuse("config: experts cannot be divided over the ranks of ep");
  if (experts_ == 0) return;
  const bool sizes = chosen_ >= 1 && chosen_ <= experts_ && expert_inner_ >= 1;
  if (!sizes || gated_ != "swiglu" || !input_norms_ || output_norms_ ||
      model.value("fused_weights", false) || std::ssize(dense_) >= layers_)
    refuse("config: this checker does not know these experts");
}

bool Model::has_experts(Int owner) const {
  return experts_ != 0 && std::ranges::find(dense_, owner - 1) == dense_.end();
}

void Model::add_parameters_of_experts(Parameters& of, const std::string& block) const {
  const std::string inner = block + (mixtral_names_ ? "block_sparse_moe." : "mlp.");
  const std::string router = inner + (sinks_ ? "router" : "gate");
  of["router"] = {router + ".weight", {experts_, hidden_}};
  const std::string corrected = mixtral_names_ ? inner : router + ".";
  if (sigmoid_) of["router_correction"] = {corrected + "e_score_correction_bias", {experts_}};
  if (biases_) {
    of["router_bias"] = {router + ".bias", {experts_}};
    of["experts_gate_up_bias"] = {inner + "experts.gate_up_proj.bias",
                                  {times(2 * experts_, expert_inner_)}};
    of["experts_down_bias"] = {inner + "experts.down_proj.bias", {times(experts_, hidden_)}};
  }
  of["experts_gate_up"] = {inner + "experts.gate_up_proj.weight",
                           {times(2 * experts_, expert_inner_), hidden_}};
  of["experts_down"] = {inner + "experts.down_proj.weight",
                        {times(experts_, hidden_), expert_inner_}};
  if (shared_inner_ == 0) return;
  const std::string shared = inner + (plain_shared_ ? "shared_experts." : "shared_expert.");
  of["shared_gate_up"] = {shared + "gate_up_proj.weight", {2 * shared_inner_, hidden_}};
  of["shared_down"] = {shared + "down_proj.weight", {hidden_, shared_inner_}};
  if (gates_shared_) of["shared_gate"] = {inner + "shared_expert_gate.weight", {1, hidden_}};
}

/// The three grouped GEMMs of a linear layer that each expert has.
void Model::add_grouped_product(const std::string& parameter, Int outputs, Int inputs,
                                const std::array<const char*, 4>& values) {
  const auto& [in, out, d_out, d_in] = values;
  const Int rows = room();
  const Shape matrices{times(experts_here(), outputs), inputs};
  const Flow ends = reads("ends", "int32", {experts_here()}, "ends of experts");
  const auto step = [&](const char* kernel, std::vector<Flow> flows) {
    flows.push_back(ends);
    add({.kernel = kernel,
         .attributes = with_balance(
             {{"experts", experts_here()}, {"k", inputs}, {"m", rows}, {"n", outputs}}),
         .flows = std::move(flows),
         .least_scratch = 1});
  };
  step("grouped_product",
       {reads("input", compute_, {rows, inputs}, in), weight(parameter, matrices),
        makes("output", compute_, {rows, outputs}, out)});
  step("grouped_input_gradient",
       {reads("d_output", compute_, {rows, outputs}, d_out), weight(parameter, matrices),
        makes("d_input", compute_, {rows, inputs}, d_in)});
  step("grouped_weight_gradient",
       {reads("d_output", compute_, {rows, outputs}, d_out),
        reads("input", compute_, {rows, inputs}, in), gradient(parameter, matrices)});
}

void Model::add_experts() {
  add_product("router", Place::block, experts_, hidden_,
              {"normed2", "logits of experts", "d_logits of experts",
               shared_inner_ == 0 ? "d_rows>d_normed2" : "d_rows>d_routed"});
  add_grouped_product(
      "experts_gate_up", 2 * expert_inner_, hidden_,
      {"dispatched", biases_ ? "bare gate_up" : "gate_up", "d_gate_up", "d_dispatched"});
  add_grouped_product(
      "experts_down", hidden_, expert_inner_,
      {"product", biases_ ? "bare expert_out" : "expert_out", "d_expert_out", "d_product"});
  if (biases_) add_expert_biases();
  add_routing();
  add_weighted_gates("", room(), expert_inner_, experts_here());
  if (expert_ranks_ != 0) add_orders_of_ranks();
  if (expert_ranks_ != 0) add_arrivals();
  if (shared_inner_ != 0) add_shared_expert();
}

/// The activation times a weight of each row; of experts that not all tokens have with the ends of
/// their rows.
void Model::add_weighted_gates(const std::string& of, Int rows, Int inner, Int experts) {
  const Shape products{rows, inner};
  const Shape gates{rows, 2 * inner};
  const Flow weights = reads("row_weights", statistic, {rows}, of + "weights of rows");
  std::map<std::string, Json> sizes{{"cols", inner}, {"experts", experts}, {"m", rows}};
  if (!clamp_.is_null()) sizes["limit"] = clamp_;
  if (!slope_.is_null()) sizes["alpha"] = slope_;
  const bool biased = biases_ && of.empty();
  const bool weighs = of.empty() || gates_shared_;
  if (sinks_ && of.empty()) sizes["interleaved"] = 1;
  if (of.empty()) sizes = with_balance(std::move(sizes));
  std::vector<Flow> forward{reads("gate_up", compute_, gates, of + "gate_up"), weights,
                            makes("product", compute_, products, of + "product")};
  std::vector<Flow> backward{
      turns("gate_up", compute_, gates, of + "gate_up", "d_" + of + "gate_up"), weights,
      turns("d_product", compute_, products, "d_" + of + "product", of + "product", "may"),
      makes("d_row_weights", statistic, {rows},
            (biased ? "bare d_" : "d_") + of + "weights of rows")};
  if (!weighs) {
    backward.pop_back();
    for (auto* flows : {&forward, &backward})
      std::erase_if(*flows, [](const Flow& flow) { return flow.role == "row_weights"; });
  }
  if (of.empty())
    for (auto* flows : {&forward, &backward})
      flows->push_back(reads("ends", "int32", {experts}, "ends of experts"));
  add({.kernel = "weighted_swiglu_forward", .attributes = sizes, .flows = std::move(forward)});
  add({.kernel = "weighted_swiglu_backward", .attributes = sizes, .flows = std::move(backward)});
}

/// To the rows of each expert its bias is added, times a row's weight where the row is; its
/// gradient is the sum over these rows.
void Model::add_biases_of_experts(const std::string& parameter, Int cols, bool weighted,
                                  const std::string& before, const std::string& after,
                                  const std::string& d_after) {
  const Int rows = room();
  const Int experts = experts_here();
  const auto sizes = with_balance({{"experts", experts}, {"m", rows}, {"n", cols}});
  const Flow ends = reads("ends", "int32", {experts}, "ends of experts");
  std::vector<Flow> forward{turns("output", compute_, {rows, cols}, before, after),
                            weight(parameter, {times(experts, cols)}), ends};
  std::vector<Flow> backward{reads("d_output", compute_, {rows, cols}, d_after), ends,
                             gradient(parameter, {times(experts, cols)})};
  if (weighted)
    for (auto* flows : {&forward, &backward})
      flows->push_back(reads("row_weights", statistic, {rows}, "weights of rows"));
  add({.kernel = "expert_bias_forward", .attributes = sizes, .flows = std::move(forward)});
  add({.kernel = "expert_bias_gradient", .attributes = sizes, .flows = std::move(backward)});
}

void Model::add_expert_biases() {
  const Int rows = room();
  const Int experts = experts_here();
  add_bias("router_bias", experts_, "d_logits of experts");
  add_biases_of_experts("experts_gate_up_bias", 2 * expert_inner_, false, "bare gate_up", "gate_up",
                        "d_gate_up");
  add_biases_of_experts("experts_down_bias", hidden_, true, "bare expert_out", "expert_out",
                        "d_expert_out");
  // A value that is multiplied by a weight adds to the weight's gradient.
  add({.kernel = "expert_bias_dots",
       .attributes = with_balance({{"experts", experts}, {"m", rows}, {"n", hidden_}}),
       .flows = {reads("d_output", compute_, {rows, hidden_}, "d_expert_out"),
                 weight("experts_down_bias", {times(experts, hidden_)}),
                 reads("ends", "int32", {experts}, "ends of experts"),
                 turns("d_row_weights", statistic, {rows}, "bare d_weights of rows",
                       "d_weights of rows")}});
}

/// The shared expert takes every token. A sigmoid of a linear layer may scale its output, to which
/// the output of the chosen experts is added.
void Model::add_shared_expert() {
  add_product("shared_gate_up", Place::block, 2 * shared_inner_, hidden_,
              {"normed2", "shared_gate_up", "d_shared_gate_up",
               gates_shared_ ? "d_routed>d_shared" : "d_routed>d_normed2"});
  add_product("shared_down", Place::block, hidden_, shared_inner_,
              {"shared_product", "mlp_out of all", "d_output", "d_shared_product"});
  add_weighted_gates("shared_", rows_, shared_inner_, 1);
  if (!gates_shared_) return;
  add_product("shared_gate", Place::block, 1, hidden_,
              {"normed2", "shared logits", "d_shared logits", "d_shared>d_normed2"});
  const Flow output = reads("output", statistic, {rows_}, "shared_weights of rows");
  add({.kernel = "sigmoid_forward",
       .attributes = {{"rows", rows_}},
       .flows = {reads("input", compute_, {rows_, 1}, "shared logits"),
                 makes("output", statistic, {rows_}, "shared_weights of rows")}});
  add({.kernel = "sigmoid_backward",
       .attributes = {{"rows", rows_}},
       .flows = {output, reads("d_output", statistic, {rows_}, "d_shared_weights of rows"),
                 makes("d_input", compute_, {rows_, 1}, "d_shared logits")}});
}

/// Adds the kernels that choose a token's experts and move its rows there and back.
void Model::add_routing() {
  const Int rows = times(rows_, chosen_);
  const Shape by_token{rows_, chosen_};
  const Shape narrow{rows_, hidden_};
  const Int all = room();
  const Shape wide{all, hidden_};
  const bool is_expert_parallel = expert_ranks_ != 0;
  const Shape of_logits{rows_, experts_};
  const bool balances = !balance_.is_null();
  const Flow logits = reads("logits", compute_, of_logits, "logits of experts");
  const Flow indices = reads("indices", "int32", by_token, "experts of tokens");
  std::map<std::string, Json> sizes{{"experts", experts_}, {"rows", rows_}, {"top_k", chosen_}};
  add({.kernel = "expert_order",
       .attributes = sizes,
       .flows = {indices,
                 makes("ends", "int32", {experts_},
                       is_expert_parallel ? "ends by expert" : "ends of experts"),
                 makes("order", "int32", {rows},
                       is_expert_parallel ? "order by expert" : "order of rows"),
                 makes("places", "int32", by_token,
                       is_expert_parallel ? "places by expert" : "places of rows")},
       .least_scratch = times(4 * experts_, (rows_ + 255) / 256)});
  if (normalises_) sizes["normalised"] = 1;
  if (sigmoid_) sizes["sigmoid"] = 1;
  if (!routed_scale_.is_null()) sizes["scale"] = routed_scale_;
  if (balances) sizes["seq"] = seq_ / times(tensor_ranks_, context_ranks_);
  Step forward{.kernel = "router_forward",
               .attributes = sizes,
               .flows = {logits, makes("indices", "int32", by_token, "experts of tokens"),
                         makes("weights", statistic, by_token, "weights of experts")}};
  if (balances)
    forward.flows.push_back(makes("counts", "int32", {batch_, experts_}, counts_here()));
  if (sigmoid_) forward.flows.push_back(weight("router_correction", {experts_}));
  if (groups_ != 0) forward.attributes["groups"] = groups_;
  if (groups_ != 0) forward.attributes["chosen_groups"] = chosen_groups_;
  add(std::move(forward));
  if (balances) sizes["aux_loss"] = balance_here();
  if (!z_loss_.is_null()) sizes["z_loss"] = z_loss_;
  Step backward{
      .kernel = "router_backward",
      .attributes = sizes,
      .flows = {logits, indices, reads("d_weights", statistic, by_token, "d_weights of experts"),
                makes("d_logits", compute_, of_logits, "d_logits of experts")}};
  if (balances)
    backward.flows.push_back(reads("counts", "int32", {batch_, experts_}, "counts of experts"));
  if (scales_loss && (balances || !z_loss_.is_null()))
    backward.flows.push_back(reads("loss_scale", "fp32", {4}, "loss_scale"));
  add(std::move(backward));
  // Rows of tokens to those of experts: with their weights, made again, and gradients.
  std::map<std::string, Json> moved =
      with_balance({{"cols", hidden_}, {"rows", rows_}, {"top_k", chosen_}});
  if (is_expert_parallel) moved["m"] = all;
  const Flow order = reads("order", "int32", {all}, "order of rows");
  const auto permutes = [&](const char* from, const char* to, std::vector<Flow> beside) {
    std::vector<Flow> flows{reads("input", compute_, narrow, from), order,
                            makes("output", compute_, wide, to)};
    flows.insert(flows.end(), beside.begin(), beside.end());
    add({.kernel = "permute_rows", .attributes = moved, .flows = std::move(flows)});
  };
  // With expert parallelism, rows of tokens are sent to other ranks.
  const char* there = is_expert_parallel ? "sent" : "dispatched";
  permutes("normed2", there,
           {reads("weights", statistic, by_token, "weights of experts"),
            makes("row_weights", statistic, {all},
                  is_expert_parallel ? "weights for ranks" : "weights of rows")});
  permutes("normed2", there, {});
  permutes("d_output", is_expert_parallel ? "d_returned" : "d_expert_out", {});
  const auto combines = [&](const char* from, Flow to, std::vector<Flow> beside) {
    std::map<std::string, Json> summed = moved;
    summed["beta"] = to.access == "read_write" ? 1 : 0;
    std::vector<Flow> flows{reads("input", compute_, wide, from),
                            reads("places", "int32", by_token, "places of rows"), std::move(to)};
    flows.insert(flows.end(), beside.begin(), beside.end());
    add({.kernel = "combine_rows", .attributes = summed, .flows = std::move(flows)});
  };
  combines(is_expert_parallel ? "returned" : "expert_out",
           shared_inner_ == 0 ? makes("output", compute_, narrow, "mlp_out")
                              : turns("output", compute_, narrow, "mlp_out of all", "mlp_out"),
           {});
  combines(is_expert_parallel ? "d_sent" : "d_dispatched",
           makes("output", compute_, narrow, "d_rows"),
           {reads("row_weights", statistic, {all},
                  is_expert_parallel ? "d_weights for ranks" : "d_weights of rows"),
            makes("weights", statistic, by_token, "d_weights of experts")});
}

}  // namespace mfsdp::checker
