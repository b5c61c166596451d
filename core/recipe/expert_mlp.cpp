#include "core/recipe/expert_mlp.hpp"

#include <algorithm>
#include <utility>

namespace mfsdp::recipe {
namespace {

/// Inserts an attribute, sorted by name.
void add(std::vector<Attribute>& attributes, std::string_view name, std::int64_t value) {
  attributes.insert(std::ranges::lower_bound(attributes, name, {}, &Attribute::name),
                    Attribute(std::string(name), value));
}

}  // namespace

ExpertMlp::ExpertMlp(Builder& builder)
    : b_(builder),
      model_(builder.config.model),
      chosen_(checked_mul(builder.sizes.rows, model_.experts_per_token)),
      rows_(deals() ? checked_mul(builder.config.rows_per_peer(), builder.config.expert_parallel)
                    : chosen_),
      experts_(builder.config.experts_per_rank()),
      router_{.weight = ParameterRole::router,
              .outputs = model_.experts,
              .inputs = builder.sizes.hidden},
      gate_up_{.weight = ParameterRole::experts_gate_up,
               .outputs = 2 * model_.expert_intermediate,
               .inputs = builder.sizes.hidden},
      down_{.weight = ParameterRole::experts_down,
            .outputs = builder.sizes.hidden,
            .inputs = model_.expert_intermediate},
      shared_gate_up_{.weight = ParameterRole::shared_gate_up,
                      .outputs = 2 * model_.shared_intermediate,
                      .inputs = builder.sizes.hidden},
      shared_down_{.weight = ParameterRole::shared_down,
                   .outputs = builder.sizes.hidden,
                   .inputs = model_.shared_intermediate},
      shared_gate_{
          .weight = ParameterRole::shared_gate, .outputs = 1, .inputs = builder.sizes.hidden} {}

/// Attributes of the router kernels, sorted by name.
std::vector<Attribute> ExpertMlp::routing(bool chooses) const {
  std::vector<Attribute> attributes;
  const bool groups = chooses && model_.router_groups != 0;
  if (groups) attributes.emplace_back("chosen_groups", model_.chosen_groups);
  attributes.emplace_back("experts", model_.experts);
  if (groups) attributes.emplace_back("groups", model_.router_groups);
  if (model_.normalised_routing) attributes.emplace_back("normalised", 1);
  attributes.emplace_back("rows", b_.sizes.rows);
  if (model_.routed_scale.num != 0) attributes.emplace_back("scale", model_.routed_scale);
  // A rank of tp or cp has a part of the sequence as rows, whose loss is that of as short a sequence
  // with a coefficient as much smaller: with the counts of the whole one.
  if (model_.router_aux_loss.num != 0)
    attributes.emplace_back("seq", b_.config.seq_len / parts_of_sequence());
  if (model_.sigmoid_routing) attributes.emplace_back("sigmoid", 1);
  attributes.emplace_back("top_k", model_.experts_per_token);
  return attributes;
}

std::vector<Attribute> ExpertMlp::rows() const {
  std::vector<Attribute> attributes{
      {"cols", b_.sizes.hidden}, {"rows", b_.sizes.rows}, {"top_k", model_.experts_per_token}};
  if (!deals()) return attributes;
  add(attributes, "balanced_rows", chosen_);
  add(attributes, "m", rows_);
  return attributes;
}

/// Attributes of a kernel that reorders the rows of expert-parallel experts.
std::vector<Attribute> ExpertMlp::arrived() const {
  return {{"balanced_rows", chosen_},           {"cols", b_.sizes.hidden}, {"m", rows_},
          {"peers", b_.config.expert_parallel}, {"rows", rows_},           {"top_k", 1}};
}

std::vector<Attribute> ExpertMlp::inner() const {
  std::vector<Attribute> attributes;
  const bool clamps = model_.swiglu_limit.num != 0;
  if (clamps) attributes.emplace_back("alpha", model_.swiglu_alpha);
  attributes.emplace_back("cols", model_.expert_intermediate);
  attributes.emplace_back("experts", experts_);
  if (model_.traits().interleaved_experts) attributes.emplace_back("interleaved", 1);
  if (clamps) attributes.emplace_back("limit", model_.swiglu_limit);
  attributes.emplace_back("m", rows_);
  if (deals()) add(attributes, "balanced_rows", chosen_);
  return attributes;
}

std::vector<Attribute> ExpertMlp::bias_sizes(const Linear& layer) const {
  std::vector<Attribute> attributes{{"experts", experts_}, {"m", rows_}, {"n", layer.outputs}};
  if (deals()) add(attributes, "balanced_rows", chosen_);
  return attributes;
}

void ExpertMlp::bias_gradient(const std::string& name, const Linear& layer, ParameterRole bias,
                              RecipeOperand d_output, const Backward& how, bool weighted) {
  if (!has_biases()) return;
  std::vector<Attribute> sizes = bias_sizes(layer);
  add(sizes, "beta", 0);
  std::vector<RecipeOperand> operands{std::move(d_output), on("ends", "expert_ends" + how.suffix)};
  if (weighted) operands.push_back(on("row_weights", "row_weights" + how.suffix));
  operands.push_back(weight_grad(bias));
  b_.kernel(name, KernelKind::expert_bias_gradient, std::move(sizes), std::move(operands), bias);
}

std::vector<Attribute> ExpertMlp::sizes_of(const Linear& layer, bool adds) const {
  std::vector<Attribute> attributes;
  if (adds) attributes.emplace_back("beta", 0);
  attributes.emplace_back("experts", experts_);
  attributes.emplace_back("k", layer.inputs);
  attributes.emplace_back("m", rows_);
  attributes.emplace_back("n", layer.outputs);
  if (deals()) add(attributes, "balanced_rows", chosen_);
  return attributes;
}

void ExpertMlp::forward(const std::string& suffix) {
  const auto at = [&](const char* name) { return name + suffix; };
  const auto ends = [&] { return on("ends", at("expert_ends")); };
  b_.gemm_forward(at("router"), router_, b_.sizes.rows, on("input", at("normed2")),
                  on("output", at("router_logits")),
                  has_biases() ? std::optional(ParameterRole::router_bias) : std::nullopt);
  std::vector<RecipeOperand> routed{on("logits", at("router_logits")),
                                    on("indices", at("expert_indices")),
                                    on("weights", at("expert_weights"))};
  if (model_.router_aux_loss.num != 0) routed.push_back(on("counts", at("expert_counts")));
  if (model_.sigmoid_routing) routed.push_back(weight(ParameterRole::router_correction));
  b_.kernel(at("route"), KernelKind::router_forward, routing(true), std::move(routed));
  const char* of_rows = deals() ? "chosen_" : "expert_";
  b_.kernel(
      at("order"), KernelKind::expert_order,
      {{"experts", model_.experts}, {"rows", b_.sizes.rows}, {"top_k", model_.experts_per_token}},
      {on("indices", at("expert_indices")), on("ends", of_rows + at("ends")),
       on("order", of_rows + at("order")), on("places", of_rows + at("places")),
       stream_workspace()});
  if (deals()) find_peers(suffix);
  b_.kernel(at("dispatch"), KernelKind::permute_rows, rows(),
            {on("input", at("normed2")), on("order", at("expert_order")),
             on("weights", at("expert_weights")),
             on("row_weights", at(deals() ? "sent_weights" : "row_weights")),
             on("output", at(deals() ? "sent" : "dispatched"))});
  if (deals()) send_out(suffix);
  b_.kernel(at("gate_up"), KernelKind::grouped_product, sizes_of(gate_up_),
            {on("input", at("dispatched")), weight(gate_up_.weight), ends(),
             on("output", at("gate_up")), stream_workspace()});
  if (has_biases())
    b_.kernel(at("gate_up_bias"), KernelKind::expert_bias_forward, bias_sizes(gate_up_),
              {on("output", at("gate_up")), weight(ParameterRole::experts_gate_up_bias), ends()});
  if (shares() && !deals()) shared_forward(suffix);
}

void ExpertMlp::finish() {
  if (shares() && !deals()) shared_finish();
  b_.kernel("swiglu", KernelKind::weighted_swiglu_forward, inner(),
            {on("gate_up"), on("row_weights"), on("ends", "expert_ends"), on("product")});
  b_.kernel("down", KernelKind::grouped_product, sizes_of(down_),
            {on("input", "product"), weight(down_.weight), on("ends", "expert_ends"),
             on("output", "expert_out"), stream_workspace()});
  if (has_biases())
    b_.kernel("down_bias", KernelKind::expert_bias_forward, bias_sizes(down_),
              {on("output", "expert_out"), weight(ParameterRole::experts_down_bias),
               on("ends", "expert_ends"), on("row_weights")});
  if (deals()) {
    arrange("leave", "expert_out", "arrival_places", "leaving");
    exchange_rows("return", "leaving", "returned");
    if (shares()) shared_finish();
  }
  std::vector<Attribute> attributes = rows();
  add(attributes, "beta", shares() ? 1 : 0);
  b_.kernel("combine", KernelKind::combine_rows, std::move(attributes),
            {on("input", deals() ? "returned" : "expert_out"), on("places", "expert_places"),
             on("output", "mlp_out")});
}

void ExpertMlp::weight_gradient(const std::string& name, const Linear& layer,
                                RecipeOperand d_output, RecipeOperand input,
                                const std::string& suffix) {
  b_.kernel(name, KernelKind::grouped_weight_gradient, sizes_of(layer, true),
            {std::move(d_output), std::move(input), on("ends", "expert_ends" + suffix),
             weight_grad(layer.weight), stream_workspace()},
            layer.weight);
}

void ExpertMlp::backward_rows(const Backward& how) {
  const auto at = [&](const char* name) { return name + how.suffix; };
  const auto ends = [&] { return on("ends", at("expert_ends")); };
  b_.kernel("combine.backward", KernelKind::permute_rows, rows(),
            {from(Source::microbatch, on("input", "d_residual")), on("order", at("expert_order")),
             on("output", deals() ? "d_returned" : "d_expert_out")});
  if (deals()) {
    exchange_rows("return.backward", "d_returned", "d_leaving");
    if (shares()) shared_backward_product(how);
    arrange("leave.backward", "d_leaving", at("arrival_order"), "d_expert_out");
  }
  b_.kernel("down.dgrad", KernelKind::grouped_input_gradient, sizes_of(down_),
            {on("d_output", "d_expert_out"), weight(down_.weight), ends(),
             on("d_input", "d_product"), stream_workspace()});
  const RecipeOperand d_product = on("d_product");
  b_.kernel("swiglu.backward", KernelKind::weighted_swiglu_backward, inner(),
            {on("gate_up", at("gate_up")), on("row_weights", at("row_weights")), ends(),
             how.keeps_output ? d_product : rewritten(d_product), on("d_row_weights")});
  weight_gradient("down.wgrad", down_, on("d_output", "d_expert_out"),
                  on("input", how.keeps_output ? at("product") : "d_product"), how.suffix);
  bias_gradient("down_bias.grad", down_, ParameterRole::experts_down_bias,
                on("d_output", "d_expert_out"), how, true);
  if (has_biases())
    b_.kernel("down_bias.backward", KernelKind::expert_bias_dots, bias_sizes(down_),
              {on("d_output", "d_expert_out"), weight(ParameterRole::experts_down_bias), ends(),
               on("d_row_weights")});
  bias_gradient("gate_up_bias.grad", gate_up_, ParameterRole::experts_gate_up_bias,
                on("d_output", at("gate_up")), how, false);
  b_.kernel("gate_up.dgrad", KernelKind::grouped_input_gradient, sizes_of(gate_up_),
            {on("d_output", at("gate_up")), weight(gate_up_.weight), ends(),
             on("d_input", "d_dispatched"), stream_workspace()});
  if (deals()) {
    b_.kernel("arrange.backward", KernelKind::permute_rows, arrived(),
              {on("input", "d_dispatched"), on("order", at("arrival_places")),
               on("weights", "d_row_weights"), on("row_weights", "d_received_weights"),
               on("output", "d_received")});
    exchange_rows("send.backward", "d_received", "d_sent");
    exchange_weights("send_weights.backward", "d_received_weights", "d_sent_weights");
    if (shares()) shared_backward_down(how);
  }
  std::vector<Attribute> combines = rows();
  add(combines, "beta", 0);
  b_.kernel("dispatch.backward", KernelKind::combine_rows, std::move(combines),
            {on("input", deals() ? "d_sent" : "d_dispatched"), on("places", at("expert_places")),
             on("row_weights", deals() ? "d_sent_weights" : "d_row_weights"),
             on("weights", "d_expert_weights"), on("output", "d_normed2")});
  route_backward(how);
  if (shares() && !deals()) {
    shared_backward_product(how);
    shared_backward_down(how);
  }
  if (shares()) shared_backward_rows(how);
}

/// From the gradients of chosen experts' weights to the router's part of "d_normed2".
void ExpertMlp::route_backward(const Backward& how) {
  const auto at = [&](const char* name) { return name + how.suffix; };
  std::vector<Attribute> routes = routing(false);
  std::vector<RecipeOperand> operands{on("logits", at("router_logits")),
                                      on("indices", at("expert_indices")),
                                      on("d_weights", "d_expert_weights")};
  const bool balances = model_.router_aux_loss.num != 0;
  if (balances) {
    const Rational& coefficient = model_.router_aux_loss;
    routes.insert(routes.begin(),
                  {"aux_loss",
                   make_rational(coefficient.num, checked_mul(coefficient.den, parts_of_sequence()))
                       .value()});
    operands.push_back(on("counts", all_counts(at("expert_counts"))));
  }
  if (model_.router_z_loss.num != 0) routes.emplace_back("z_loss", model_.router_z_loss);
  if (b_.config.scales_loss() && (balances || model_.router_z_loss.num != 0))
    operands.push_back(from(Source::global, on("loss_scale", std::string(global::loss_scale))));
  operands.push_back(on("d_logits", "d_router_logits"));
  b_.kernel("route.backward", KernelKind::router_backward, std::move(routes), std::move(operands));
  b_.gemm_dgrad("router.dgrad", router_, b_.sizes.rows, on("d_output", "d_router_logits"),
                on("d_input", "d_normed2"), true);
}

std::int64_t ExpertMlp::parts_of_sequence() const {
  return b_.sizes.tensor_ranks * sequence_parts(b_.config.mesh);
}

/// Those of all rows of each sequence, of which ranks of tp, and then those of cp, have parts.
std::string ExpertMlp::all_counts(std::string counts) {
  const auto of = [&](const char* role, Access access, const std::string& name) {
    return shaped(on(role, name), access, DType::int32,
                  {checked_mul(b_.config.micro_batch, model_.experts)});
  };
  const auto sum_over = [&](Axis axis, const std::string& sums, const std::string& all) {
    if (b_.config.mesh.size(axis) == 1) return;
    b_.sum_counts(sums, axis, of("input", Access::read, counts), of("output", Access::write, all));
    counts = all;
  };
  sum_over(Axis::tp, "expert_counts.sums", "expert_counts.all");
  sum_over(Axis::cp, "expert_counts.of_sequences.sums", "expert_counts.of_sequences");
  return counts;
}

void ExpertMlp::backward_weights(const Backward& how) {
  const std::string normed = how.keeps_output ? "normed2" : "d_normed2";
  const auto of_all_tokens = [&] {
    b_.gemm_wgrad("router.wgrad", router_, b_.sizes.rows, on("d_output", "d_router_logits"),
                  on("input", normed), weight_grad(router_.weight));
    if (has_biases())
      b_.bias_grad("router_bias.grad", ParameterRole::router_bias,
                   on("d_output", "d_router_logits"), b_.sizes.rows, model_.experts,
                   "router_bias.partials");
    if (shares()) shared_backward_weights(how, normed);
  };
  const bool beside_resending = shares() && deals() && !how.keeps_output;
  if (!beside_resending) of_all_tokens();
  std::string dispatched = "dispatched";
  if (!how.keeps_output) {
    dispatched += ".backward";
    const auto recompute = [&](const auto& kernels) {
      b_.phase = Phase::recompute;
      kernels();
      b_.phase = Phase::backward;
    };
    recompute([&] {
      b_.kernel("redispatch", KernelKind::permute_rows, rows(),
                {on("input", normed), on("order", "expert_order" + how.suffix),
                 on("output", deals() ? "sent.backward" : dispatched)},
                gate_up_.weight);
      if (deals()) exchange_rows("resend", "sent.backward", "received.backward", gate_up_.weight);
    });
    if (beside_resending) of_all_tokens();
    if (deals())
      recompute([&] {
        arrange("rearrange", "received.backward", "arrival_order" + how.suffix, dispatched,
                gate_up_.weight);
      });
  }
  weight_gradient("gate_up.wgrad", gate_up_, on("d_output", "gate_up" + how.suffix),
                  on("input", dispatched), how.suffix);
}

// ---- expert-parallel ---------------------------------------------------------------------------

/// The rows for each rank, and their number for each of its experts.
void ExpertMlp::find_peers(const std::string& suffix) {
  const auto at = [&](const char* name) { return name + suffix; };
  b_.kernel(at("peers"), KernelKind::peer_order,
            {{"experts", model_.experts},
             {"m", rows_},
             {"peers", b_.config.expert_parallel},
             {"rows", b_.sizes.rows},
             {"top_k", model_.experts_per_token}},
            {on("ends", at("chosen_ends")), on("row_order", at("chosen_order")),
             on("counts", at("sent_counts")), on("order", at("expert_order")),
             on("places", at("expert_places"))});
}

void ExpertMlp::send_out(const std::string& suffix) {
  const auto at = [&](const char* name) { return name + suffix; };
  const auto counts = [&](const char* role, Access access, const char* name) {
    return shaped(on(role, at(name)), access, DType::int32, {model_.experts});
  };
  b_.exchange(at("send_counts"), Axis::ep, counts("input", Access::read, "sent_counts"),
              counts("output", Access::write, "received_counts"));
  exchange_rows(at("send"), at("sent"), at("received"));
  exchange_weights(at("send_weights"), at("sent_weights"), at("received_weights"));
  if (shares()) shared_forward(suffix);
  b_.kernel(at("arrival"), KernelKind::arrival_order,
            {{"experts", experts_}, {"m", rows_}, {"peers", b_.config.expert_parallel}},
            {on("counts", at("received_counts")), on("ends", at("expert_ends")),
             on("order", at("arrival_order")), on("places", at("arrival_places"))});
  b_.kernel(at("arrange"), KernelKind::permute_rows, arrived(),
            {on("input", at("received")), on("order", at("arrival_order")),
             on("weights", at("received_weights")), on("row_weights", at("row_weights")),
             on("output", at("dispatched"))});
}

void ExpertMlp::exchange_rows(const std::string& name, const std::string& from,
                              const std::string& to, std::optional<ParameterRole> gradient_of) {
  const Shape shape{rows_, b_.sizes.hidden};
  b_.exchange(name, Axis::ep, shaped(on("input", from), Access::read, b_.sizes.compute, shape),
              shaped(on("output", to), Access::write, b_.sizes.compute, shape), gradient_of);
}

void ExpertMlp::exchange_weights(const std::string& name, const std::string& from,
                                 const std::string& to) {
  b_.exchange(name, Axis::ep, shaped(on("input", from), Access::read, b_.sizes.statistic, {rows_}),
              shaped(on("output", to), Access::write, b_.sizes.statistic, {rows_}));
}

void ExpertMlp::arrange(const std::string& name, const std::string& from, const std::string& order,
                        const std::string& to, std::optional<ParameterRole> gradient_of) {
  b_.kernel(name, KernelKind::permute_rows, arrived(),
            {on("input", from), on("order", order), on("output", to)}, gradient_of);
}

// ---- the shared expert -------------------------------------------------------------------------

std::vector<Attribute> ExpertMlp::shared_inner() const {
  return {{"cols", model_.shared_intermediate}, {"experts", 1}, {"m", b_.sizes.rows}};
}

void ExpertMlp::shared_forward(const std::string& suffix) {
  const auto at = [&](const char* name) { return name + suffix; };
  if (model_.has_gated_shared()) {
    b_.gemm_forward(at("shared_gate"), shared_gate_, b_.sizes.rows, on("input", at("normed2")),
                    on("output", at("shared_logits")));
    b_.kernel(at("shared_sigmoid"), KernelKind::sigmoid_forward, {{"rows", b_.sizes.rows}},
              {on("input", at("shared_logits")), on("output", at("shared_weights"))});
  }
  b_.gemm_forward(at("shared_gate_up"), shared_gate_up_, b_.sizes.rows, on("input", at("normed2")),
                  on("output", at("shared_gate_up")));
}

void ExpertMlp::shared_finish() {
  std::vector<RecipeOperand> operands{on("gate_up", "shared_gate_up")};
  if (model_.has_gated_shared()) operands.push_back(on("row_weights", "shared_weights"));
  operands.push_back(on("product", "shared_product"));
  b_.kernel("shared_swiglu", KernelKind::weighted_swiglu_forward, shared_inner(),
            std::move(operands));
  b_.gemm_forward("shared_down", shared_down_, b_.sizes.rows, on("input", "shared_product"),
                  on("output", "mlp_out"));
}

void ExpertMlp::shared_backward_product(const Backward& how) {
  const auto at = [&](const char* name) { return name + how.suffix; };
  b_.gemm_dgrad("shared_down.dgrad", shared_down_, b_.sizes.rows,
                from(Source::microbatch, on("d_output", "d_residual")),
                on("d_input", "d_shared_product"));
  const RecipeOperand d_product = on("d_product", "d_shared_product");
  std::vector<RecipeOperand> operands{on("gate_up", at("shared_gate_up"))};
  const bool gated = model_.has_gated_shared();
  if (gated) operands.push_back(on("row_weights", at("shared_weights")));
  operands.push_back(how.keeps_output ? d_product : rewritten(d_product));
  if (gated) operands.push_back(on("d_row_weights", "d_shared_weights"));
  b_.kernel("shared_swiglu.backward", KernelKind::weighted_swiglu_backward, shared_inner(),
            std::move(operands));
}

void ExpertMlp::shared_backward_down(const Backward& how) {
  const auto at = [&](const char* name) { return name + how.suffix; };
  b_.gemm_wgrad("shared_down.wgrad", shared_down_, b_.sizes.rows,
                from(Source::microbatch, on("d_output", "d_residual")),
                on("input", how.keeps_output ? at("shared_product") : "d_shared_product"),
                weight_grad(shared_down_.weight));
  if (model_.has_gated_shared())
    b_.kernel("shared_sigmoid.backward", KernelKind::sigmoid_backward, {{"rows", b_.sizes.rows}},
              {on("output", at("shared_weights")), on("d_output", "d_shared_weights"),
               on("d_input", "d_shared_logits")});
}

void ExpertMlp::shared_backward_rows(const Backward& how) {
  const auto at = [&](const char* name) { return name + how.suffix; };
  b_.gemm_dgrad("shared_gate_up.dgrad", shared_gate_up_, b_.sizes.rows,
                on("d_output", at("shared_gate_up")), on("d_input", "d_normed2"), true);
  if (model_.has_gated_shared())
    b_.gemm_dgrad("shared_gate.dgrad", shared_gate_, b_.sizes.rows,
                  on("d_output", "d_shared_logits"), on("d_input", "d_normed2"), true);
}

void ExpertMlp::shared_backward_weights(const Backward& how, const std::string& normed) {
  b_.gemm_wgrad("shared_gate_up.wgrad", shared_gate_up_, b_.sizes.rows,
                on("d_output", "shared_gate_up" + how.suffix), on("input", normed),
                weight_grad(shared_gate_up_.weight));
  if (model_.has_gated_shared())
    b_.gemm_wgrad("shared_gate.wgrad", shared_gate_, b_.sizes.rows,
                  on("d_output", "d_shared_logits"), on("input", normed),
                  weight_grad(shared_gate_.weight));
}

}  // namespace mfsdp::recipe
