// Follows the values of a step in the order in which the host issues its ops. Each kernel must be a
// step of the configuration's model and read the values and weights that the model has there. The
// inputs of the norm, the loss and the updates must be the expected ones. Plans run consecutively,
// two steps of each, and then all once more: each begins both from the first state and from the
// state that the others leave. The classes of a job run together, each until it waits for a message.
#include "verify/checker/gathered_casts.hpp"
#include "verify/checker/messages.hpp"
#include "verify/checker/model_steps.hpp"
#include "verify/checker/ring.hpp"

namespace mfsdp::checker {
namespace {

/// The stated one, or the plan's name.
std::string role_of(const Json& plan) {
  std::string role = plan.value("role", plan.at("name").get<std::string>());
  if (role != "train" && role != "eval" && role != "logprob")
    refuse("plan {}: is neither train nor eval nor logprob", plan.at("name").dump());
  return role;
}

class Steps {
 public:
  Steps(const PlanView& view, CheckedPlan& figures, StatisticTables& tables, Messages& messages)
      : state_(view, figures), statistics_(state_, tables), messages_(messages) {}

  /// Buffers that the host fills and reads have the size that the model needs: two int32 a token,
  /// a block of 64 bytes, eight fp32 numbers, tables, four numbers of the loss scale. Masked
  /// documents add an int32 for each token of whole sequences. Those that it found are taken from
  /// `missing`.
  void check_ports(Names& missing) const {
    std::map<std::string, Int> bytes = state_.model.rope_tables;
    bytes.insert({{"tokens", times(4 * state_.model.token_rows, state_.model.tokens)},
                  {"step_block", 64},
                  {"report", 32}});
    if (state_.model.scales_loss) bytes["loss_scale"] = 16;
    if (const Int columns = state_.model.amax_columns(); columns != 0)
      bytes["amax_history"] = times(4 * columns, state_.model.amax_slots() + 2);
    for (const Json& plan : state_.view.json.at("plans"))
      if (role_of(plan) == "logprob") bytes["log_probs"] = times(4, state_.model.tokens);
    for (Index b = 0; b < state_.view.homes.size(); ++b) {
      const std::string port = port_of(b);
      if (port.empty()) continue;
      missing.erase(port);
      if (!bytes.contains(port))
        refuse("buffer {}: is port {}, which the model does not have", b, port);
      const Operand& whole = state_.view.buffers[b];
      if (whole.end - whole.begin != bytes.at(port))
        refuse("buffer {}: port {} has {} bytes, not {}", b, port, bytes.at(port),
               whole.end - whole.begin);
    }
  }
  /// The ports that the model needs.
  [[nodiscard]] Names ports() const {
    Names names{"tokens", "step_block", "report"};
    for (const auto& [name, bytes] : state_.model.rope_tables) names.insert(name);
    if (state_.model.scales_loss) names.insert("loss_scale");
    if (state_.model.amax_columns() != 0) names.insert("amax_history");
    for (const Json& plan : state_.view.json.at("plans"))
      if (role_of(plan) == "logprob") names.insert("log_probs");
    return names;
  }

  void begin(Index p) {
    const Json& json = state_.view.json.at("plans")[p];
    role_ = role_of(json);
    state_.trains = role_ == "train";
    count_microbatches(p);
    state_.values.begin_plan();
    state_.weights.begin_plan();
    plan_ = p;
    next_ = 0;
    instance_step_ = repetition_ = -1;
  }
  /// Follows the plan to its end, or to a recv of which nothing was sent; whether it followed any op.
  bool go_on() {
    const Plan& plan = state_.view.plans[plan_];
    const Index first = next_;
    for (; next_ < plan.size(); ++next_) {
      const Instance& instance = plan[next_];
      if (instance.op->does == "recv" && !messages_.has(route_of(state_.view, *instance.op))) break;
      if (std::exchange(instance_step_, instance.step) != instance.step)
        begin_step(instance.step > 0);
      if (std::exchange(repetition_, instance.repetition) != instance.repetition)
        state_.ledger.begin_run(is_cut(instance));
      follow(*instance.op);
    }
    return next_ > first;
  }
  void end() {
    const Plan& plan = state_.view.plans[plan_];
    if (next_ < plan.size()) refuse("{}: receives what is not sent", plan[next_].op->place());
    end_step();
  }
  /// Steps of which the host of this class received the loss.
  [[nodiscard]] Int reports() const { return reports_; }
  [[nodiscard]] Int steps() const { return state_.step + 1; }
  /// The same of log-probabilities.
  [[nodiscard]] Int log_probs() const { return log_probs_; }
  [[nodiscard]] Int steps_of_log_probs() const { return steps_of_log_probs_; }

 private:
  // ---- steps of training

  [[nodiscard]] bool is_cut(const Instance& instance) const {
    const Json& segment =
        state_.view.json.at("plans")[plan_].at("segments")[static_cast<Index>(instance.segment)];
    return !state_.view.rotates && segment.at("repeat") > kRepetitions;
  }

  /// The host fills the port of the tokens once a microbatch, in each class that has it.
  void count_microbatches(Index p) const {
    const Json& plan = state_.view.json.at("plans")[p];
    const bool has_tokens =
        state_.view.classes == 1 || std::ranges::any_of(state_.view.homes, [](const Home& home) {
          return home.kind == "port" && home.name == "tokens";
        });
    std::map<std::pair<Int, Int>, Int> copies;  // by segment and repetition
    for (const Instance& instance : state_.view.plans[p]) {
      const Operand* port =
          instance.op->kind == "copy" ? state_.view.port_of(*instance.op) : nullptr;
      copies[{instance.segment, instance.repetition}] +=
          port != nullptr && port_of(port->buffer) == "tokens" ? 1 : 0;
    }
    Int sum = 0, number = 0;
    for (const Json& segment : plan.at("segments")) {
      const Int begun = segment.at("microbatches");
      Int seen = 0;
      for (auto of = copies.lower_bound({number, 0});
           of != copies.end() && of->first.first == number; ++of, ++seen)
        if (has_tokens && of->second != begun)
          refuse("segment {}: reads tokens of {} microbatches", segment.at("name").dump(),
                 of->second);
      if (has_tokens && seen == 0 && begun != 0)
        refuse("segment {}: reads tokens of 0 microbatches", segment.at("name").dump());
      sum = plus(sum, times(begun, segment.at("repeat")));
      ++number;
    }
    if (sum != in_step())
      refuse("plan {}: reads tokens of {} microbatches", plan.at("name").dump(), sum);
  }
  [[nodiscard]] Int in_step() const { return state_.trains ? state_.model.microbatches : 1; }
  [[nodiscard]] std::string port_of(Index buffer) const {
    return state_.view.homes[buffer].kind == "port" ? state_.view.homes[buffer].name : "";
  }

  void begin_step(bool again) {
    if (again) end_step();
    ++state_.step;
    reported_ = gave_log_probs_ = false;
    state_.ledger.begin_step();
    for (Int i = 0; i < in_step() && state_.view.classes > 1; ++i)
      state_.ledger.add_pass(first_pass_ + i);
    if (state_.trains) state_.directions.begin_step();
  }
  void end_step() {
    if (!reported_ && state_.view.classes == 1) refuse("step: the host does not receive its loss");
    if (role_ == "logprob" && !gave_log_probs_ && state_.view.classes == 1)
      refuse("step: a plan of role logprob copies no log-probabilities to the host");
    reports_ += reported_ ? 1 : 0;
    log_probs_ += gave_log_probs_ ? 1 : 0;
    steps_of_log_probs_ += role_ == "logprob" ? 1 : 0;
    first_pass_ += in_step();
    if (state_.trains) state_.weights.end_step();
    if (state_.trains) state_.directions.end_step();
  }

  // ---- ops

  /// Only what is followed there touches directions.
  void check_directions_known(const Op& op) const {
    static const Names known{"all_gather",    "all_to_all", "momentum",
                             "newton_schulz", "update",     "zero_padding"};
    for (const Operand& operand : op.operands)
      if (state_.is_direction(operand) && !known.contains(op.does))
        refuse("{}: operand '{}' is an update direction", op.place(), operand.role);
  }

  void follow(const Op& op) {
    if (op.kind == "kernel" || op.kind == "copy" || op.kind == "collective")
      check_directions_known(op);
    check_group(state_.view, op);
    check_unit(state_.view, op);
    check_gradient_memory(state_.view, op);
    check_apart(state_.view, op);
    if (op.kind == "kernel" || op.kind == "copy" || op.kind == "collective")
      state_.ledger.overwritten(op);
    if (op.kind == "acquire") {
      const Index buffer = op.operands.at(0).buffer;
      state_.values.acquire(buffer);
      state_.weights.acquire(buffer);
      state_.directions.acquire(buffer);
      state_.ledger.follow(op, {});
    } else if (op.kind == "kernel") {
      check_memory(op, "device", "device");
      run_kernel(op);
    } else if (op.kind == "copy") {
      check_memory(op, op.does == "h2d" ? "host" : "device", op.does == "d2h" ? "host" : "device");
      check_ends(op);
      run_copy(op);
    } else if (op.kind == "collective") {
      check_memory(op, "device", "device");
      if (is_transfer(op)) return transfer(op);
      check_ends(op);
      run_collective(op);
    }
  }

  void transfer(const Op& op) {
    const bool sends = op.does == "send";
    const Operand& message = op.operands.at(0);
    if (op.operands.size() != 1 || message.role != (sends ? "input" : "output") ||
        message.access != (sends ? "read" : "write"))
      refuse("{}: expected what it sends or receives", op.place());
    const Route route = route_of(state_.view, op);
    if (sends)
      messages_.send(op, route, state_.values.look(message),
                     state_.view.homes[message.buffer].kind.empty());
    else
      messages_.receive(op, route, message, state_.values);
  }

  void check_memory(const Op& op, const char* reads, const char* writes) const {
    for (const Operand& operand : op.operands)
      if (state_.view.json.at("pools")[operand.pool].at("space") !=
          (operand.writes ? writes : reads))
        refuse("{}: '{}' lies in other memory", op.place(), operand.role);
  }
  /// Refuses a copy or a collective without exactly one input and one output.
  static void check_ends(const Op& op) {
    if (op.operands.size() != 2 || op.operands[0].access != "read" ||
        op.operands[1].access != "write" || op.body->at("input").at("role") != "input" ||
        op.body->at("output").at("role") != "output")
      refuse("{}: expected an input that it reads and an output that it writes", op.place());
  }

  void run_copy(const Op& op) {
    const Operand& from = op.operands[0];
    const Operand& to = op.operands[1];
    const std::string port = port_of(from.buffer);
    const bool all =
        from.offset == 0 && from.dense && from.elements == to.elements && from.dtype == to.dtype;
    if (state_.view.port_of(op) == nullptr) {
      copy_contents(op, from, to);
    } else if (op.does == "h2d" && port == "tokens" && all &&
               from.elements == times(state_.model.token_rows, state_.model.tokens) &&
               from.dtype == "int32") {
      ++pass_;
      if (state_.view.classes == 1) state_.ledger.add_pass(pass_);
      amaxes_.begin_microbatch();
      state_.values.make(op, to, {"tokens", -1, pass_});
    } else if (op.does == "h2d" && port == "step_block" && all && from.elements == 64 &&
               from.dtype == "uint8") {
      state_.values.make(op, to, {"step_block", -1, state_.step});
    } else if (op.does == "d2h" && port_of(to.buffer) == "report" && to.offset == 0) {
      report(op, from, to);
    } else if (op.does == "d2h" && port.empty() && port_of(to.buffer) == "log_probs" && all &&
               to.offset == 0 && role_ == "logprob") {
      give_log_probs(op, from);
    } else {
      refuse("{}: copies a port that the host does not fill or read so", op.place());
    }
  }
  /// Those of all tokens of the microbatch.
  void give_log_probs(const Op& op, const Operand& from) {
    const Int layers = state_.view.json.at("config").at("model").at("layers");
    if (from.elements != state_.model.tokens || from.dtype != "fp32" ||
        state_.values.whole(op, from) != Value{"log_probs", layers + 1, pass_})
      refuse("{}: is not this microbatch's log-probabilities", op.place());
    gave_log_probs_ = true;
  }
  /// Gradients are followed where they go, and values, on the device and through the host's memory.
  /// Anything else that is copied is none.
  void copy_contents(const Op& op, const Operand& from, const Operand& to) {
    if (state_.is_gradient(to)) return state_.ledger.follow(op, {});
    if (!state_.view.homes[to.buffer].kind.empty()) return spoil_weights(op, to);
    if (state_.view.homes[from.buffer].kind.empty()) return state_.values.copy(op, from, to);
    state_.values.make(op, to, {});
  }
  /// A parameter's buffer that a gather fills may be overwritten; it then holds no weights.
  void spoil_weights(const Op& op, const Operand& to) {
    if (state_.view.homes[to.buffer].kind != "parameter" ||
        state_.view.json.at("buffers")[to.buffer].value("persistent", false))
      refuse("{}: '{}' may not be written", op.place(), to.role);
    state_.weights.acquire(to.buffer);
  }

  /// Loss and norm, four numbers each; of plans that do not train the loss alone.
  void report(const Op& op, const Operand& from, const Operand& to) {
    const auto part = [&](Int begin) {
      Operand four = from;
      four.offset += begin * 4;
      four.elements = 4;
      return state_.values.whole(op, four);
    };
    if (from.elements != 8 || from.dtype != "fp32" || !from.dense || to.elements != 8 ||
        to.dtype != "fp32" || !to.dense || part(0) != Value{"loss", -1, state_.step} ||
        (state_.trains && part(4) != Value{"norm", -1, state_.step}))
      refuse("{}: is not this step's loss and norm", op.place());
    reported_ = true;
  }

  void run_collective(const Op& op) {
    const Operand& from = op.operands[0];
    const Operand& to = op.operands[1];
    const Home& home = state_.view.homes[to.buffer];
    if (op.does == "all_reduce" && is_history(home)) return amaxes_.reduce(op, from, to);
    if (op.body->value("reduction", "") == "max" && !has_shard_amaxes(state_, from))
      refuse("{}: takes the maximum of what is no magnitude", op.place());
    if (op.does == "all_to_all" && state_.view.homes[from.buffer].kind.empty() &&
        home.kind.empty()) {
      exchange_rows(op, from, to);
    } else if (op.does == "all_to_all" && !state_.is_gradient(from) && !state_.is_gradient(to)) {
      state_.directions.exchange(op);
    } else if (op.does == "shift") {
      pass_on(op, from, to);
    } else if (has_shard_amaxes(state_, from)) {
      find_largest(state_, op);
    } else if (state_.is_direction(from) || state_.is_direction(to)) {
      if (op.does != "all_gather") refuse("{}: sums directions", op.place());
      state_.directions.gather(op);
    } else if ((op.does == "all_reduce" || op.does == "reduce_scatter") && is_of_model(from, to) &&
               starts_with_value(from, &Steps::is_term)) {
      sum_terms(op, from, to);
    } else if (op.does == "all_gather" && is_of_model(from, to) &&
               starts_with_value(from, &Steps::is_moved)) {
      gather_rows(op, from, to);
    } else if (op.does != "all_gather") {
      if (!state_.is_gradient(to)) return spoil(op, from, to);
      if (op.body->at("dtype") != reduced_dtype(op))
        refuse("{}: sums in another dtype", op.place());
      state_.ledger.follow(op, {});
    } else if (holds_weights(home)) {
      state_.weights.gather(op);
    } else {
      statistics_.gather(op, from, to);
    }
  }
  /// Neither has a home of parameters, gradients or states.
  [[nodiscard]] bool is_of_model(const Operand& from, const Operand& to) const {
    return state_.view.homes[from.buffer].kind.empty() && state_.view.homes[to.buffer].kind.empty();
  }
  [[nodiscard]] bool starts_with_value(const Operand& from,
                                       bool (Steps::*is_one)(const std::string&) const) {
    const auto cells = state_.values.look(from);
    return !cells.empty() && (this->*is_one)(cells[0].second.value.name);
  }
  [[nodiscard]] bool is_term(const std::string& value) const {
    return !state_.model.summed(value, true).empty() ||
           !state_.model.summed(value, false).empty() ||
           !state_.model.summed_over_cp(value, true).empty() ||
           !state_.model.summed_over_cp(value, false).empty();
  }
  [[nodiscard]] bool is_moved(const std::string& value) const {
    return Model::is_part(value) || !state_.model.gathered_rows(value).empty() ||
           !state_.model.gathered_keys(value).empty();
  }
  /// Terms of a value on ranks of tp, or of cp.
  void sum_terms(const Op& op, const Operand& from, const Operand& to) {
    const Value term = state_.values.whole(op, from);
    const bool scatters = op.does == "reduce_scatter";
    if (const std::string all = state_.model.summed_over_cp(term.name, scatters); !all.empty()) {
      if (axes_of(op) != Axes{"cp"})
        refuse("{}: sums {} over other ranks than those of cp", op.place(), term.name);
      return state_.values.make(op, to, {all, term.owner, term.pass});
    }
    const std::string sum = state_.model.summed(term.name, scatters);
    if (axes_of(op) != Axes{"tp"} || sum.empty())
      refuse("{}: sums {} over other ranks than those of tp, or for others", op.place(), term.name);
    state_.values.make(op, to, {sum, term.owner, term.pass});
  }
  /// Rows of ranks of tp in the order of ranks, or what each knows of the softmax of some rows: then
  /// those follow the parts of the rows before.
  void gather_rows(const Op& op, const Operand& from, const Operand& to) {
    const auto cells = state_.values.look(from);
    const Cell& part = cells.front().second;
    if (const std::string keys = state_.model.gathered_keys(part.value.name); !keys.empty()) {
      const Value own = state_.values.whole(op, from);
      if (axes_of(op) != Axes{"cp"} || own.name != part.value.name)
        refuse("{}: does not gather {} from all ranks of cp", op.place(), part.value.name);
      return state_.values.make(op, to, {keys, own.owner, own.pass});
    }
    const Value& value = part.value;
    const bool is_part = Model::is_part(value.name);
    if (axes_of(op) != Axes{"tp"} || cells.size() != 1 || (!is_part && part.base != 0) || !to.dense)
      refuse("{}: does not gather {} from all ranks of tp", op.place(), value.name);
    if (!is_part)
      return state_.values.make(op, to,
                                {state_.model.gathered_rows(value.name), value.owner, value.pass});
    state_.values.write(op, to, to.offset, times(to.elements, size_of(to.dtype)),
                        {"parts of a softmax", value.owner, value.pass},
                        times(-part.base, state_.view.ranks_on("tp")));
  }
  /// Those of the op's communicator on which there are several ranks.
  [[nodiscard]] Axes axes_of(const Op& op) const {
    Axes axes;
    for (const std::string axis : state_.view.communicator_of(op).at("axes"))
      if (state_.view.mesh.contains(axis)) axes.push_back(axis);
    return axes;
  }
  /// Rows go to the ranks that have their experts, or their heads, and back.
  void exchange_rows(const Op& op, const Operand& from, const Operand& to) {
    const Value sent = state_.values.whole(op, from);
    const bool of_heads = axes_of(op) == Axes{"cp"};
    const std::string received =
        of_heads ? Model::regrouped(sent.name) : Model::received(sent.name);
    if ((!of_heads && axes_of(op) != Axes{"ep"}) || received.empty())
      refuse("{}: sends {} to ranks that do not read it", op.place(), sent.name);
    state_.values.make(op, to, {received, sent.owner, sent.pass});
  }
  /// Keys and values of a rank of cp, or terms of their gradients, go to the next one.
  void pass_on(const Op& op, const Operand& from, const Operand& to) {
    const Value sent = state_.values.whole(op, from);
    const std::string received = state_.model.passed_on(sent.name);
    if (axes_of(op) != Axes{"cp"} || received.empty() || !is_of_model(from, to))
      refuse("{}: sends {} to a rank that does not read it", op.place(), sent.name);
    state_.values.make(op, to, {received, sent.owner, sent.pass});
  }
  /// The output of an op that is no step of the model has no known value.
  void spoil(const Op& op, const Operand& from, const Operand& to) {
    const auto cells = state_.values.look(from);
    const bool written = std::ranges::none_of(
        cells, [](const auto& cell) { return cell.second.value.name.empty(); });
    if (cells.empty() || !written) refuse("{}: 'input' was not written", op.place());
    state_.values.make(op, to, {});
  }

  /// Sums over ranks that share a group have the reduction dtype, sums over groups the main
  /// gradient's.
  [[nodiscard]] Json reduced_dtype(const Op& op) const {
    const Axes axes = axes_of(op);
    const bool over_groups = std::ranges::any_of(axes, [](const std::string& axis) {
      return axis == "dp_outer" || axis == "expt_dp_outer";
    });
    return state_.view.json.at("config").at(over_groups ? "grad_dtype" : "reduce_dtype");
  }

  // ---- kernels that are no steps of the model

  void run_kernel(const Op& op) {
    check_attributes_known(op);
    const std::string& does = op.does;
    if (does == "token_copy") {
      state_.forms(op, {{"input", "read"}, {"output", "write"}}, {});
      for (const Operand& tokens : op.operands)
        if (tokens.shape != std::vector<Int>{state_.model.token_rows, state_.model.tokens})
          refuse("{}: '{}' is of another shape", op.place(), tokens.role);
      state_.values.copy(op, operand(op, "input"), operand(op, "output"));
    } else if (does == "cast" || does == "accumulate") {
      const std::string role = does == "cast" && has(op, "weight_grad") ? "weight_grad" : "output";
      const bool adds = op.attribute("beta") != 0;
      state_.forms(op, {{"input", "read"}, {role, adds ? "read_write" : "write"}}, {"beta"});
      if (!state_.is_gradient(operand(op, role)))
        return spoil(op, operand(op, "input"), operand(op, role));
      state_.ledger.follow(op, {});
    } else if (does == "sum_ranks") {
      sum_ranks(op);
    } else if (does == "zero_padding") {
      for (const Operand& padding : op.operands) {
        if (padding.role != "padding" || padding.access != "write" || !padding.dense)
          refuse("{}: operand '{}' is not padding", op.place(), padding.role);
        if (state_.is_direction(padding))
          state_.directions.zero(op, padding);
        else if (state_.view.homes[padding.buffer].kind == "parameter")
          spoil_weights(op, padding);
        else if (!state_.is_gradient(padding))
          state_.values.make(op, padding, {});
      }
      state_.check_attributes(op, does, 0, {});
      state_.ledger.follow(op, {});
    } else if (does == "norm_partial") {
      statistics_.take_partial(op);
    } else if (does == "attention_merge" || does == "add_rows") {
      add_ring_parts(state_, op);
    } else if (does == "amax_history") {
      amaxes_.finish(op);
    } else if (does == "norm_finish") {
      statistics_.finish_norm(op);
    } else if (does == "loss_finish") {
      statistics_.finish_loss(op);
    } else if (does == "update" || does == "momentum") {
      update(op);
    } else if (does == "newton_schulz") {
      state_.check_attributes(op, does, 0, {"cols", "rows"});
      state_.directions.newton_schulz(op);
      state_.values.make(op, operand(op, "workspace"), {});
    } else if (casts_shard(state_, op)) {
      cast_shard(state_, op);
    } else {
      model_steps_.run(op);
    }
  }

  /// Parts of all ranks of one slice, in their order.
  void sum_ranks(const Op& op) {
    const bool adds = op.attribute("beta") != 0;
    state_.forms(op, {{"input", "read"}, {"output", adds ? "read_write" : "write"}},
                 {"beta", "count", "ranks"});
    const Operand& parts = operand(op, "input");
    const Operand& sum = operand(op, "output");
    const Int count = op.attribute("count");
    if (!state_.is_gradient(parts) || !state_.is_gradient(sum) || !parts.dense || !sum.dense ||
        parts.shape != std::vector<Int>{op.attribute("ranks"), count} ||
        sum.shape != std::vector<Int>{count})
      refuse("{}: does not sum each rank's contribution to a gradient", op.place());
    state_.ledger.follow(op, {});
  }

  static void check_attributes_known(const Op& op) {
    const auto beta = op.attributes.find("beta");
    if (beta != op.attributes.end() && beta->second != 0 && beta->second != 1)
      refuse("{}: beta is neither 0 nor 1", op.place());
  }

  void update(const Op& op) {
    if (!state_.trains) refuse("{}: updates weights in a plan that does not train", op.place());
    // A direction has been scaled before it was orthogonalised.
    const bool makes = op.does == "momentum";
    const bool along = !makes && has(op, "direction");
    std::map<std::string, std::string> roles{{"step_block", "read"}};
    if (!along) roles["loss"] = "read";
    if (number(state_.model.clip).first != 0 || state_.model.scales_loss) roles["norm"] = "read";
    for (const Operand& slice : op.operands)
      if (!state_.view.homes[slice.buffer].groups.empty()) roles[slice.role] = slice.access;
    state_.forms(op, roles, {"elements"});
    const Operand& block = operand(op, "step_block");
    if (block.elements != 64 ||
        state_.values.whole(op, block) != Value{"step_block", -1, state_.step} ||
        (!along && state_.scalar(op, "loss") != Value{"loss", -1, state_.step}) ||
        (roles.contains("norm") && state_.scalar(op, "norm") != Value{"norm", -1, state_.step}) ||
        op.attributes.at("elements") != operand(op, along ? "direction" : "grad").elements)
      refuse("{}: loss, norm, settings or size are not this step's", op.place());
    state_.ledger.follow(op, {});
    if (makes) return state_.directions.momentum(op);
    state_.directions.update(op);
    state_.weights.update(op);
  }

  StepState state_;
  Statistics statistics_;
  Amaxes amaxes_{state_};
  ModelSteps model_steps_{state_, statistics_, amaxes_};
  Messages& messages_;
  std::string role_{};  ///< of the plan
  bool reported_ = false, gave_log_probs_ = false;
  Int reports_ = 0, log_probs_ = 0, steps_of_log_probs_ = 0;
  Int pass_ = -1;       ///< microbatches whose tokens were read, less 1
  Int first_pass_ = 0;  ///< the first one of this step
  Index plan_ = 0, next_ = 0;
  Int instance_step_ = -1, repetition_ = -1;
};

/// Each group that trains is in one class, which then has all uses of its parameters.
void check_groups(const std::deque<PlanView>& views) {
  for (Index g = 0; g < views[0].groups.size(); ++g) {
    const auto has_it = [&](const PlanView& view) { return view.holds(g); };
    const auto classes = std::ranges::count_if(views, has_it);
    if (views[0].groups[g].trains && classes != 1)
      refuse("group {}: {} classes have its parameters", g, classes);
  }
}

/// Plans have equal names and roles in all classes, in one order.
void check_names(const std::deque<PlanView>& views) {
  std::vector<std::pair<std::string, std::string>> first;
  for (const PlanView& view : views) {
    std::vector<std::pair<std::string, std::string>> plans;
    Names names, roles;
    for (const Json& plan : view.json.at("plans")) {
      plans.emplace_back(plan.at("name"), role_of(plan));
      if (!names.insert(plan.at("name")).second || !roles.insert(role_of(plan)).second)
        refuse("plans: two of one name or role");
    }
    if (first.empty()) first = plans;
    if (plans != first) refuse("plans: classes have different ones");
    if (!roles.contains("train") || (views.size() == 1 && !roles.contains("eval")))
      refuse("plans: expected train and eval");
  }
}

/// The host of one class receives the loss of a step, and its log-probabilities where it has some.
void check_reports(const std::deque<Steps>& classes) {
  Int reports = 0, log_probs = 0;
  for (const Steps& of : classes) {
    reports += of.reports();
    log_probs += of.log_probs();
  }
  if (reports != classes[0].steps()) refuse("step: the hosts do not receive its loss once");
  if (log_probs != classes[0].steps_of_log_probs())
    refuse("step: the hosts do not receive its log-probabilities once");
}

}  // namespace

void check_values(const std::deque<PlanView>& views, CheckedPlan& figures) {
  StatisticTables tables;
  Messages messages;
  std::deque<Steps> classes;
  for (const PlanView& view : views) classes.emplace_back(view, figures, tables, messages);
  for (int round = 0; round < 2; ++round)
    for (Index p = views[0].plans.size(); p-- > 0;) {
      for (Steps& of : classes) of.begin(p);
      for (bool moved = true; moved;) {
        moved = false;
        for (Steps& of : classes) moved = of.go_on() || moved;
      }
      for (Steps& of : classes) of.end();
      if (!messages.empty()) refuse("plan {}: a message is not received", p);
      check_reports(classes);
    }
  Names missing = classes[0].ports();
  for (const Steps& of : classes) of.check_ports(missing);
  if (!missing.empty()) refuse("plan: there is no buffer for port {}", *missing.begin());
  check_names(views);
  check_groups(views);
}

}  // namespace mfsdp::checker
