#include "verify/proof/values/model_binding.hpp"

#include <fmt/format.h>

#include <map>

#include "core/plan/fp8_blocks.hpp"
#include "core/plan/instances.hpp"
#include "verify/findings/place_names.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/values/configured_model.hpp"
#include "verify/proof/values/context_parallel_steps.hpp"
#include "verify/proof/values/fp8_steps.hpp"
#include "verify/proof/values/held_key_steps.hpp"
#include "verify/proof/values/kernel_parameters.hpp"
#include "verify/proof/values/lora_steps.hpp"
#include "verify/proof/values/rank_config.hpp"
#include "verify/proof/values/value_layouts.hpp"

namespace mfsdp {
namespace {

/// The other weight of a step that has two, the second in its operands.
std::optional<ParameterRole> second_parameter(const ModelStep& step, const ModelShape& model,
                                              const Divided& divided) {
  if (!step.parameter) return std::nullopt;
  const FamilyTraits& traits = model.traits();
  const auto if_has = [](bool has, ParameterRole role) {
    return has ? std::optional(role) : std::nullopt;
  };
  switch (step.kind) {
    case KernelKind::qk_norm_rope_backward:
    case KernelKind::qk_norm_rope_forward:
    case KernelKind::qk_row_norm_rope_backward:
    case KernelKind::qk_row_norm_rope_forward: return ParameterRole::k_norm;
    case KernelKind::embedding_forward:
      return if_has(!traits.rotates, ParameterRole::position_embedding);
    case KernelKind::layer_norm_backward:
    case KernelKind::layer_norm_forward:
      return step.parameter == ParameterRole::input_norm  ? ParameterRole::input_norm_bias
             : step.parameter == ParameterRole::post_norm ? ParameterRole::post_norm_bias
                                                          : ParameterRole::final_norm_bias;
    case KernelKind::gemm: break;
    default: return std::nullopt;
  }
  if (step.variant != number_of(GemmKind::forward)) return std::nullopt;
  switch (*step.parameter) {
    case ParameterRole::qkv: return if_has(model.qkv_bias, ParameterRole::qkv_bias);
    case ParameterRole::attention_out:
      return if_has(traits.biases && !divided.blocks, ParameterRole::attention_out_bias);
    case ParameterRole::gate_up: return if_has(traits.biases, ParameterRole::gate_up_bias);
    case ParameterRole::down: return if_has(traits.biases, ParameterRole::down_bias);
    case ParameterRole::router: return if_has(traits.biases, ParameterRole::router_bias);
    default: return std::nullopt;
  }
}

bool is_weight(Category category) {
  return category == Category::model_weight || category == Category::unsharded_weight;
}
bool is_gradient(Category category) {
  return category == Category::main_grad || category == Category::unsharded_grad;
}

/// Whether an operand of that role may lie in a buffer of that category.
bool belongs(std::string_view role, Category category) {
  if (role == "weight") return is_weight(category);
  if (role == "weight_grad") return is_gradient(category) || category == Category::workspace;
  if (role == "grad") return is_gradient(category);
  if (role == "main_weight") return category == Category::main_weight;
  if (is_optimizer_state(role)) return category == Category::optimizer_state;
  return true;
}
/// Roles that `belongs` knows begin with these, but for an update's; most others do not.
bool is_named_for_memory(std::string_view role) {
  return !role.empty() && std::string_view("wgm").find(role.front()) != std::string_view::npos;
}

/// Adds to a sum over microbatches: a gradient, or the loss.
bool adds_up(KernelKind kind, std::int64_t variant) {
  switch (kind) {
    case KernelKind::bias_grad:
    case KernelKind::cross_entropy:
    case KernelKind::cross_entropy_loss:
    case KernelKind::embedding_backward:
    case KernelKind::expert_bias_gradient:
    case KernelKind::grouped_weight_gradient:
    case KernelKind::norm_weight_grad:
    case KernelKind::position_embedding_backward: return true;
    default: return is_gemm(kind) && variant == number_of(GemmKind::weight_gradient);
  }
}

/// Rows over which a norm's weight gradient is summed last, each of some tokens.
constexpr std::int64_t kMostPartialRows = 256;

class Binder {
 public:
  Binder(const UnrolledPlan& unrolled, const Layouts& layouts, const ValueCells& cells,
         FindingList& findings)
      : program_(*unrolled.program),
        index_(*unrolled.index),
        plan_(*unrolled.plan),
        layouts_(layouts),
        cells_(cells),
        findings_(findings),
        config_(config_on_rank(program_.config)),
        lora_(linear_config_on_rank(program_.config)) {}

  ModelBinding bind() && {
    out_.step_of.assign(cells_.first_use.size() - 1, kNone);
    out_.takes_tokens = takes_tokens(plan_);
    if (divided().sequences && !divided().keys) out_.unrotated = Value::d_qkv_sequences;
    if (divided().heads) out_.unrotated = Value::d_qkv_heads;
    if ((!out_.takes_tokens && !receives(plan_)) || !is_of_model(program_, index_))
      return std::move(out_);
    out_.applies = true;
    if (program_.config.has_fp8())
      cast_weights_ = cast_weights_of(plan_, program_, index_, layouts_);
    for (const Op& op : ops_of(plan_)) {
      op_ = &op;
      if (const auto* kernel = std::get_if<Kernel>(&op.body)) bind(*kernel);
      if (const auto* copy = std::get_if<Copy>(&op.body)) check(*copy);
      ++op_index_;
    }
    return std::move(out_);
  }

 private:
  void report(const std::string& what) {
    if (!findings_.wants("MF113")) return;
    findings_.add({.rule = "MF113",
                   .message = fmt::format("op {} ({}) {}", op_->id.value, op_->name, what),
                   .places = {place_in_plan(plan_, *op_)}});
  }

  /// The op has a finding: its results are accepted as any value.
  void excuse() { finish({.excused = true, .first_flow = flow_count()}); }
  /// The op is that step, with the flows from its first one on.
  void finish(BoundStep bound) {
    bound.last_flow = flow_count();
    out_.step_of[op_index_] = static_cast<std::uint32_t>(out_.steps.size());
    out_.steps.push_back(bound);
  }
  [[nodiscard]] std::uint32_t flow_count() const {
    return static_cast<std::uint32_t>(out_.flows.size());
  }
  void fail_step(const std::string& what) {
    report(what);
    excuse();
  }

  void check(const Copy& copy) {
    const auto is_host = [&](const Operand& operand) {
      const Buffer& buffer = program_.buffers[index_.buffers[operand.buffer]];
      return program_.pools[index_.pools[buffer.pool]].space == MemorySpace::host;
    };
    if (is_host(copy.input) != (copy.kind == CopyKind::h2d) ||
        is_host(copy.output) != (copy.kind == CopyKind::d2h))
      report(fmt::format("is a copy {}, but its operands are in other memories",
                         to_string(copy.kind)));
  }

  void bind(const Kernel& kernel) {
    for (const Operand& operand : kernel.operands) {
      const std::size_t buffer = index_.buffers[operand.buffer];
      const Category category = program_.buffers[buffer].category;
      const bool sums = kernel.kind == KernelKind::norm_partial && operand.role == "input";
      const bool is_named = sums || is_update(kernel) || is_named_for_memory(operand.role);
      // The weights of FP8 GEMMs are casts of weights, which lie elsewhere.
      const bool is_cast = is_cast_gemm(kernel.kind) && operand.role != "weight_grad";
      if (is_named && !is_cast && !belongs(sums ? "grad" : operand.role, category))
        return fail_step(
            fmt::format("has operand '{}' in memory for {}", operand.role, to_string(category)));
      if (!takes_gradients(kernel) && operand.role != "weight_grad" &&
          layouts_.homes[buffer].holds == Holds::gradient)
        return fail_step(fmt::format("has operand '{}' in memory for gradients", operand.role));
    }
    if (takes_gradients(kernel)) return;
    switch (kernel.kind) {
      case KernelKind::amax_history:
        if (const auto wrong = fp8::wrong_rows(kernel, program_, index_)) report(*wrong);
        return;
      case KernelKind::loss_finish:
      case KernelKind::norm_finish:
      case KernelKind::token_copy: return;
      case KernelKind::add_rows:
      case KernelKind::attention_merge:
        if (!divided().ring) break;
        return;
      default: break;
    }
    bind_step(kernel);
  }

  /// The largest magnitude of a value, or a cast of it.
  void bind_cast(const Kernel& kernel) {
    if (!program_.config.has_fp8()) return fail_step("is for FP8, which is not configured");
    const KernelParameters parameters = parameters_of(kernel);
    if (parameters.astray) return excuse();
    BoundStep bound{.first_flow = flow_count(), .casts = true};
    const Operand* input = operand_of(kernel, "input");
    const std::int64_t rows = input->shape.empty() ? 0 : input->shape[0];
    if (auto wrong = fp8::wrong_blocks(kernel, program_.config.fp8, parameters.count > 0))
      return fail_step(*wrong);
    if (parameters.count > 0) {
      bound.role = parameters.roles[0];
      bound.group = parameters.group;
      bound.weight = fp8::weight_of(*bound.role);
      if (!bound.weight)
        return fail_step(
            fmt::format("casts parameter '{}', which no FP8 GEMM reads", to_string(*bound.role)));
      bound.owner = owner_of(parameters.unit, kernel, *bound.role);
      if (!parameters.shard && input->shape != parameters.parameter->shape)
        return fail_step(fmt::format("reads parameter '{}' as a matrix of another shape",
                                     to_string(*bound.role)));
      if (parameters.shard &&
          !is_for_gathers(kernel, *parameters.group, program_, index_, layouts_))
        return fail_step(
            "does not cast a shard as it lies, rounded to the compute dtype, to where casts of it "
            "are gathered");
    } else {
      const Buffer& buffer = program_.buffers[index_.buffers[input->buffer]];
      if (input->dtype != program_.config.param_dtype ||
          kernel.find_attribute("through_bf16") != nullptr)
        return fail_step("reads a value in another dtype than the compute dtype");
      if (rows != program_.config.tokens_per_microbatch() ||
          input->touched_bytes() != buffer.size.value)
        return fail_step("does not read the whole of a value, of all tokens");
    }
    if (auto wrong = fp8::wrong_history(kernel, program_, index_, plan_)) return fail_step(*wrong);
    next_ = 0;
    for (const Flow& flow :
         fp8::cast_flows(kernel, program_.config.fp8, parameters.shard.value_or(0) > 0)) {
      const bool of_parameter = flow.role == "input" && parameters.count > 0;
      // weights.cpp follows casts that are gathered.
      const bool gathered = flow.role == "output" && parameters.shard;
      if (flow.role.empty() || of_parameter || gathered) continue;
      if (!bind_flow(kernel, {}, flow, 0)) return;
    }
    finish(bound);
  }

  /// A gathered cast of a weight as a whole, or the cast of a value.
  void bind_transpose(const Kernel& kernel) {
    if (!program_.config.has_fp8()) return fail_step("is for FP8, which is not configured");
    const KernelParameters parameters = parameters_of(kernel);
    if (parameters.astray) return excuse();
    const Operand& input = *operand_of(kernel, "input");
    const bool wide = input.dtype == DType::fp8_e5m2;
    BoundStep bound{.first_flow = flow_count(), .casts = true};
    next_ = 0;
    if (parameters.count > 0) {
      bound.role = parameters.roles[0];
      bound.group = parameters.group;
      bound.owner = owner_of(parameters.unit, kernel, *bound.role);
      bound.weight = fp8::weight_of(*bound.role);
      if (!bound.weight || input.shape != parameters.parameter->shape)
        return fail_step("does not transpose the gathered cast of a weight");
    } else {
      bound.transposes = true;
      const Buffer& buffer = program_.buffers[index_.buffers[input.buffer]];
      if (kernel.attribute("rows") != program_.config.tokens_per_microbatch() ||
          input.touched_bytes() != buffer.size.value)
        return fail_step("does not read the whole of a cast, of all tokens");
      const Flow read{
          .role = "input",
          .reads = {.value = Value::excused, .form = wide ? ValueForm::e5m2 : ValueForm::e4m3}};
      if (!bind_flow(kernel, {}, read, 0)) return;
    }
    const Flow made{
        .role = "output",
        .writes = {.value = Value::excused, .form = wide ? ValueForm::e5m2_t : ValueForm::e4m3_t}};
    if (!bind_flow(kernel, {}, made, 0)) return;
    finish(bound);
  }

  /// The parameter whose weight or gradient an FP8 GEMM has.
  [[nodiscard]] std::optional<ParameterRole> role_of_fp8(const Kernel& kernel) const {
    for (const char* role : {"weight", "weight_t"})
      if (const Operand* weight = operand_of(kernel, role)) {
        const auto found = cast_weights_.find(weight->buffer);
        return found == cast_weights_.end() ? std::nullopt : std::optional(found->second);
      }
    return std::nullopt;
  }

  /// Rows of all of a microbatch's tokens, and those of one rank of tp, which may have other rows of
  /// a value; which of the two it is shows in its layout. Rows of experts are always a rank's own.
  [[nodiscard]] std::pair<std::int64_t, std::int64_t> token_rows(const Kernel& kernel) const {
    const PlanConfig& config = program_.config;
    const bool of_sequences =
        divided().sequences && context_parallel::is_of_sequences(kernel.kind, divided().keys);
    if (!of_sequences && (is_of_experts(kernel) || is_of_arrived(kernel)))
      return {rows_of_experts(config), rows_of_experts(config)};
    const std::int64_t tokens =
        of_sequences ? config.sequence_tokens() : config.tokens_per_microbatch();
    return {tokens, tokens / config.mesh.size(Axis::tp)};
  }

  /// Binds the largest magnitude of what a kernel makes, if it takes that. False: it may not.
  bool bind_amax(const Kernel& kernel, const ModelStep& step) {
    if (operand_of(kernel, "amax") == nullptr) return true;
    const std::optional<Flow> amax = fp8::amax_flow(kernel.kind, step);
    if (takes_amaxes(program_.config.fp8) && amax) return bind_flow(kernel, step, *amax, 0);
    fail_step("takes the largest magnitude of what no FP8 GEMM reads");
    return false;
  }

  void bind_step(const Kernel& kernel) {
    if (casts_to_fp8(kernel.kind)) return bind_cast(kernel);
    if (kernel.kind == KernelKind::transpose) return bind_transpose(kernel);
    const KernelParameters parameters = parameters_of(kernel);
    if (parameters.homeless)
      return fail_step("has weights or a gradient in a buffer that holds none");
    if (parameters.astray) return excuse();
    std::optional<ParameterRole> role;
    if (parameters.count > 0) role = parameters.roles[0];
    if (is_cast_gemm(kernel.kind) && !role) role = role_of_fp8(kernel);
    if (kernel.kind == KernelKind::gemm && role == ParameterRole::embedding)
      role = ParameterRole::head;
    const std::int64_t variant = variant_of(kernel);
    const bool contributes = adds_up(kernel.kind, variant);
    // Chunks of the head's gradient are summed in a buffer of their own.
    const Group* group = parameters.group;
    if (!role && contributes && kernel.kind == KernelKind::gemm) {
      role = ParameterRole::head;
      group = group_of_head();
    }
    const ModelStep* step = lora_.find(kernel.kind, variant, role);
    const std::optional<ModelStep> of_fp8 =
        program_.config.has_fp8() && kernel.kind == fp8::product_kind(program_.config.fp8)
            ? fp8::product_step(program_.config.model, program_.config.fp8, variant, role)
            : std::nullopt;
    std::optional<ModelStep> cast;
    if (kernel.kind == KernelKind::swiglu_forward_cast && program_.config.has_fp8())
      cast = fp8::product_cast_step(program_.config.model, kernel);
    if (of_fp8) step = &*of_fp8;
    if (of_fp8)
      if (auto wrong = fp8::wrong_blocks(kernel, program_.config.fp8, false))
        return fail_step(*wrong);
    if (cast) step = &*cast;
    if (step == nullptr)
      step = find_step(program_.config.model, kernel.kind, variant, role, divided());
    if (step == nullptr || !is_complete(*step, parameters))
      return fail_step(
          role ? fmt::format("is not a step of the model for parameter '{}'", to_string(*role))
               : "is not a step of the model");
    if (auto wrong = wrong_bias(kernel, parameters)) return fail_step(*wrong);
    std::optional<ModelStep> in_parts;
    if (fp8::may_be_in_parts(kernel, program_.config, role)) {
      in_parts = *step;
      in_parts->chunk = true;
      step = &*in_parts;
    }
    const std::int64_t rows = rows_of(kernel);
    const auto [tokens, part] = token_rows(kernel);
    const bool of_whole_rows = rows == wanted_rows(kernel, *step, tokens);
    const bool of_own_rows = rows == wanted_rows(kernel, *step, part);
    if (!of_whole_rows && !of_own_rows)
      return fail_step(fmt::format("works on {} rows, but there are {}", rows, tokens));
    if (is_gemm(kernel.kind) && !has_scale(kernel, role))
      return fail_step("has another scale than the model's, or than alpha / rank of the adapters");
    if (auto wrong = wrong_part(kernel, parameters)) return fail_step(*wrong);
    BoundStep bound{.chunk = step->chunk,
                    .of_whole_rows = of_whole_rows,
                    .of_own_rows = of_own_rows,
                    .role = role,
                    .group = group,
                    .first_flow = flow_count(),
                    .contributes = contributes};
    if (parameters.count > 0) bound.owner = owner_of(parameters.unit, kernel, *role);
    next_ = 0;
    for (const Flow& flow : step->flows) {
      const bool is_there = flow.part != Part::positions || program_.config.document_mask;
      const bool gathered = of_fp8 && flow.role == "weight" && parameters.count > 0;
      const bool of_matrix =
          of_fp8 && in_parts && (flow.role.starts_with("weight") || flow.role.ends_with("_scale"));
      const bool has_rows = (!cast || flow.role == "gate_up") && !of_matrix;
      if (!flow.role.empty() && is_there && !gathered &&
          !bind_flow(kernel, *step, flow, has_rows ? rows : 0))
        return;
    }
    if (cast || bind_amax(kernel, *step)) finish(bound);
  }

  /// The rows of a step on a rank with these tokens. A chunk has as many as it states, up to all.
  [[nodiscard]] static std::int64_t wanted_rows(const Kernel& kernel, const ModelStep& step,
                                                std::int64_t tokens) {
    if (kernel.kind == KernelKind::norm_weight_grad) return std::min(tokens, kMostPartialRows);
    return step.chunk ? std::min(rows_of(kernel), tokens) : tokens;
  }

  /// A bias is cut as the outputs of its matrix are. On terms it would count once for each rank.
  [[nodiscard]] static std::optional<std::string> wrong_bias(const Kernel& kernel,
                                                             const KernelParameters& parameters) {
    if (kernel.kind != KernelKind::gemm || parameters.second_group == nullptr) return std::nullopt;
    const auto matrix = cut_of(parameters.group->shard);
    const auto bias = cut_of(parameters.second_group->shard);
    if (matrix == WeightCut::inputs)
      return fmt::format(
          "adds parameter '{}' to the term of each rank on {}: their sum would "
          "contain it once for each",
          to_string(parameters.roles[1]), to_string(kLayoutAxis));
    if (matrix == bias) return std::nullopt;
    return fmt::format("adds parameter '{}', which ranks on {} divide otherwise than the outputs",
                       to_string(parameters.roles[1]), to_string(kLayoutAxis));
  }

  /// The head's matrix may be the embedding's.
  [[nodiscard]] const Group* group_of_head() const {
    const bool is_tied = program_.config.model.tied_embeddings;
    for (const Group& group : program_.groups)
      for (const PlacedParameter& parameter : group.parameters)
        if (parameter.role == (is_tied ? ParameterRole::embedding : ParameterRole::head))
          return &group;
    return nullptr;
  }

  /// alpha / rank where adapters' output is scaled, and elsewhere the model's multiplier; 1 is left
  /// out.
  [[nodiscard]] bool has_scale(const Kernel& kernel, std::optional<ParameterRole> role) const {
    const Attribute* stated = kernel.find_attribute("scale");
    const PlanConfig& config = program_.config;
    if (!lora_.is_scaled(role)) {
      const Rational wanted = role ? gemm_multiplier(config.model, *role) : Rational{0, 1};
      return wanted.num == 0 ? stated == nullptr : stated != nullptr && stated->value == wanted;
    }
    const std::int64_t rank = checked_mul(config.lora_rank, config.lora_alpha.den);
    const Rational scale = stated == nullptr ? Rational{.num = 1} : stated->value;
    return (stated == nullptr || scale != Rational{.num = 1}) &&
           make_rational(config.lora_alpha.num, rank) == scale;
  }

  /// A rank's part of a vocabulary begins after those of the ranks before it, on each axis along
  /// which its rows are cut: innermost last. The step on an axis is the rows of all ranks that are
  /// further in.
  [[nodiscard]] static std::optional<std::string> wrong_begin(const Kernel& kernel,
                                                              const KernelParameters& parameters) {
    const bool embeds = kernel.kind == KernelKind::embedding_forward ||
                        kernel.kind == KernelKind::embedding_backward;
    if (!embeds || parameters.group == nullptr) return std::nullopt;
    const Attribute* stated = kernel.find_attribute("vocab_begin");
    const Placement& shard = parameters.group->shard;
    if (shard.empty())
      return stated == nullptr ? std::nullopt
                               : std::optional<std::string>(
                                     "has attribute 'vocab_begin', but the table is whole");
    const Operand* table = operand_of(kernel, "weight");
    if (table == nullptr) table = operand_of(kernel, "weight_grad");
    const AxisPlacement& cut = shard.front();
    if (shard.size() != 1 || cut.dim != 0 || table == nullptr || table->shape.empty())
      return "looks up a table that is not cut in rows along one axis";
    const std::int64_t rows = table->shape.front();
    const Attribute wanted = [&] {
      Attribute made("vocab_begin", std::int64_t{0});
      made.per = {{.axis = cut.axis, .step = rows}};
      return made;
    }();
    if (stated != nullptr && *stated == wanted) return std::nullopt;
    return fmt::format(
        "has a part of the vocabulary from another id on than 'vocab_begin' of {} "
        "per index on {}",
        rows, to_string(cut.axis));
  }

  /// A rank has its own part of a vocabulary, and of a head of keys.
  [[nodiscard]] std::optional<std::string> wrong_part(const Kernel& kernel,
                                                      const KernelParameters& parameters) const {
    if (auto wrong = wrong_begin(kernel, parameters)) return wrong;
    if (!divided().heads) return std::nullopt;
    return held_keys::wrong_parts(kernel, config_, holders_of_key(program_.config));
  }

  /// Works on the rows of experts: one for each expert of each token.
  static bool is_of_experts(const Kernel& kernel) {
    switch (kernel.kind) {
      case KernelKind::expert_bias_dots:
      case KernelKind::expert_bias_forward:
      case KernelKind::expert_bias_gradient:
      case KernelKind::grouped_input_gradient:
      case KernelKind::grouped_product:
      case KernelKind::grouped_weight_gradient: return true;
      case KernelKind::weighted_swiglu_backward:
      case KernelKind::weighted_swiglu_forward: return operand_of(kernel, "ends") != nullptr;
      default: return false;
    }
  }

  [[nodiscard]] Divided divided() const {
    return {.experts = program_.config.is_expert_parallel(),
            .sequences = program_.config.mesh.size(Axis::cp) > 1,
            .keys = program_.config.has_chunks(),
            .ring = program_.config.passes_keys(),
            .blocks = program_.config.mesh.size(kLayoutAxis) > 1,
            .heads = holders_of_key(program_.config) > 1};
  }

  /// States that it works on rows that ranks have sent.
  static bool is_of_arrived(const Kernel& kernel) {
    return kernel.kind == KernelKind::arrival_order ||
           (kernel.kind == KernelKind::permute_rows && kernel.find_attribute("peers") != nullptr);
  }

  [[nodiscard]] std::int64_t variant_of_arrived(bool has_weights) const {
    switch (op_->phase) {
      case Phase::backward: return has_weights ? 4 : 7;
      case Phase::recompute: return has_weights ? 3 : 6;
      default: return has_weights ? 3 : 5;
    }
  }

  [[nodiscard]] std::int64_t variant_of(const Kernel& kernel) const {
    if (is_gemm(kernel.kind)) return kernel.attribute("kind");
    const bool in_parts = operand_of(kernel, "parts") != nullptr;
    if (kernel.kind == KernelKind::cross_entropy) return in_parts ? 1 : 0;
    if (kernel.kind == KernelKind::cross_entropy_loss)
      return in_parts ? 2 : operand_of(kernel, "log_probs") != nullptr ? 1 : 0;
    if (kernel.kind == KernelKind::split_heads || kernel.kind == KernelKind::join_heads)
      return kernel.find_attribute("key_cols") == nullptr ? 1 : 0;
    const bool has_weights = operand_of(kernel, "weights") != nullptr;
    if (kernel.kind == KernelKind::permute_rows && is_of_arrived(kernel))
      return variant_of_arrived(has_weights);
    if (kernel.kind == KernelKind::permute_rows)
      return has_weights ? 0 : op_->phase == Phase::recompute ? 1 : 2;
    if (kernel.kind == KernelKind::combine_rows) return has_weights ? 1 : 0;
    if (kernel.kind == KernelKind::expert_bias_forward ||
        kernel.kind == KernelKind::expert_bias_gradient)
      return operand_of(kernel, "row_weights") != nullptr ? 1 : 0;
    if (kernel.kind == KernelKind::weighted_swiglu_forward ||
        kernel.kind == KernelKind::weighted_swiglu_backward)
      return is_of_experts(kernel) ? 0 : 1;
    if (kernel.kind != KernelKind::rms_norm_forward &&
        kernel.kind != KernelKind::layer_norm_forward)
      return 0;
    const bool adds_inputs = operand_of(kernel, "delta") != nullptr;
    if (operand_of(kernel, "skip") != nullptr) return adds_inputs ? -1 : 2;
    return adds_inputs ? 1 : 0;
  }

  static std::int64_t rows_of(const Kernel& kernel) {
    switch (kernel.kind) {
      case KernelKind::expert_bias_dots:
      case KernelKind::expert_bias_forward:
      case KernelKind::expert_bias_gradient:
      case KernelKind::gemm:
      case KernelKind::gemm_blocks:
      case KernelKind::gemm_fp8:
      case KernelKind::arrival_order:
      case KernelKind::grouped_input_gradient:
      case KernelKind::grouped_product:
      case KernelKind::grouped_weight_gradient:
      case KernelKind::weighted_swiglu_backward:
      case KernelKind::weighted_swiglu_forward: return kernel.attribute("m");
      case KernelKind::attention_backward:
      case KernelKind::attention_forward:
        return checked_mul(kernel.attribute("batch"), kernel.attribute("seq"));
      default: return kernel.attribute("rows");
    }
  }

  /// Every weight of the step, and no other.
  [[nodiscard]] bool is_complete(const ModelStep& step, const KernelParameters& parameters) const {
    const auto second = second_parameter(step, program_.config.model, divided());
    const bool corrects =
        step.kind == KernelKind::router_forward && program_.config.model.sigmoid_routing;
    if (corrects && parameters.count != 1) return false;
    return second ? parameters.count == 2 && parameters.roles[1] == *second : parameters.count <= 1;
  }

  [[nodiscard]] KernelParameters parameters_of(const Kernel& kernel) const {
    return mfsdp::parameters_of(*op_, kernel, program_, index_, layouts_);
  }

  /// 0 the embedding, then blocks; the head comes after them, also where it is the embedding's
  /// unit.
  [[nodiscard]] std::uint32_t owner_of(std::uint32_t unit, const Kernel& kernel,
                                       ParameterRole role) const {
    const bool embeds = kernel.kind == KernelKind::embedding_forward ||
                        kernel.kind == KernelKind::embedding_backward;
    const bool ends = role == ParameterRole::head || role == ParameterRole::final_norm ||
                      role == ParameterRole::final_norm_bias;
    if (!embeds && ends) return static_cast<std::uint32_t>(program_.config.model.layers) + 1;
    return unit;
  }

  /// The first operand of a role; most are in the order of the step's flows.
  const Operand* find(const Kernel& kernel, std::string_view role) {
    for (std::size_t i = next_; i < kernel.operands.size(); ++i)
      if (kernel.operands[i].role == role) {
        next_ = i + 1;
        return &kernel.operands[i];
      }
    return operand_of(kernel, role);
  }

  /// `rows`: of the operand, by token; 0: it has none.
  bool bind_flow(const Kernel& kernel, const ModelStep& step, const Flow& flow, std::int64_t rows) {
    const Operand* operand = find(kernel, flow.role);
    if (operand == nullptr) {
      fail_step(fmt::format("has no operand '{}'", flow.role));
      return false;
    }
    const auto uses = cells_.of(op_index_);
    const auto use = std::ranges::find(uses, operand, &CellUse::operand);
    if (use == uses.end() || !use->exact) {
      fail_step(
          fmt::format("has operand '{}' at bytes that cannot hold one whole value", flow.role));
      return false;
    }
    const bool reads = flow.reads.value != Value::unknown;
    const bool may_add = operand->role == "d_residual" || operand->role == "d_input";
    const bool adds = may_add ? kernel.attribute("beta") != 0 : reads;
    if (use->reads != reads || adds != reads) {
      fail_step(fmt::format(
          "{} operand '{}'",
          reads ? "overwrites instead of adding to" : "adds to instead of overwriting", flow.role));
      return false;
    }
    BoundFlow bound{.use = static_cast<std::uint32_t>(&*use - cells_.uses.data()),
                    .reads = flow.reads,
                    .writes = use->writes ? flow.writes : OwnedValue{}};
    const std::int64_t bytes = operand->touched_bytes();
    if (rows > 0 && bytes % rows == 0) bound.row_bytes = bytes / rows;
    place(step, flow, *operand, bytes, bound);
    // Throws where a row's place would leave 63 bits.
    (void)checked_add(bound.skip,
                      checked_mul(bound.row_bytes, program_.config.tokens_per_microbatch()));
    out_.flows.push_back(bound);
    return true;
  }

  /// Where in its value an operand begins, beside the chunk's first row.
  void place(const ModelStep& step, const Flow& flow, const Operand& operand, std::int64_t bytes,
             BoundFlow& bound) {
    const ModelShape& model = config_.model;
    const auto columns = [&](std::int64_t heads) {
      return product_of(heads, model.head_dim, size_of(operand.dtype));
    };
    switch (flow.part) {
      case Part::rows: break;
      case Part::labels:
        bound.skip = checked_mul(program_.config.tokens_per_microbatch(), size_of(operand.dtype));
        break;
      case Part::positions:
        bound.skip = product_of(2, program_.config.tokens_per_microbatch(), size_of(operand.dtype));
        break;
      case Part::key: bound.skip = columns(model.heads); break;
      case Part::value: bound.skip = columns(checked_add(model.heads, model.kv_heads)); break;
      case Part::part_value:
        bound.skip = columns(model.heads) + columns(1) / holders_of_key(program_.config);
        break;
      case Part::own_value: bound.skip = columns(model.kv_heads); break;
      case Part::second_half: bound.skip = bytes; break;
      case Part::keys_half:
        bound.skip = model.kv_heads > 0 ? product_of(bytes / model.kv_heads, model.heads) : bytes;
        break;
      case Part::unrotated:
        bound.unrotated = columns(checked_add(model.heads, model.kv_heads));
        break;
      case Part::adapter:
        bound.skip = checked_mul(lora_.columns_of(*step.parameter).begin, size_of(operand.dtype));
        break;
      case Part::adapted: leave_alone(step, operand, bound); break;
    }
  }

  /// The columns that no adapter adds to have what the model makes there without.
  void leave_alone(const ModelStep& step, const Operand& operand, BoundFlow& bound) {
    const auto gaps = lora_.left_alone(*step.parameter);
    if (gaps.empty()) return;
    const std::int64_t size = size_of(operand.dtype);
    const ModelStep& whole =
        *find_step(program_.config.model, step.kind, step.variant, step.parameter, divided());
    LeftAlone alone;
    alone.row = checked_mul(operand.shape.back(), size);
    for (const Flow& flow : whole.flows)
      if (flow.role == operand.role) alone.value = flow.writes;
    for (const LoraSteps::Columns& gap : gaps)
      alone.columns.emplace_back(checked_mul(gap.begin, size), checked_mul(gap.end, size));
    bound.left_alone = static_cast<std::uint32_t>(out_.left_alone.size());
    out_.left_alone.push_back(std::move(alone));
  }

  const Program& program_;
  const ProgramIndex& index_;
  const Plan& plan_;
  const Layouts& layouts_;
  const ValueCells& cells_;
  FindingList& findings_;
  PlanConfig config_;  ///< as one rank's kernels have it
  LoraSteps lora_;
  std::map<BufferId, ParameterRole> cast_weights_;
  ModelBinding out_;
  const Op* op_ = nullptr;
  std::size_t op_index_ = 0;
  std::size_t next_ = 0;  ///< operand that is looked at first
};

}  // namespace

ModelBinding bind_model(const UnrolledPlan& unrolled, const Layouts& layouts,
                        const ValueCells& cells, FindingList& findings) {
  return Binder(unrolled, layouts, cells, findings).bind();
}

}  // namespace mfsdp
