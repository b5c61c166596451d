// What a step computes, followed in the order in which the host issues it: each kernel is a step of
// the configuration's model, reads the values and the weights that the model has there, and what
// the norm, the loss and the updates read is what they should. Plans run one after the other, two
// steps of each, and once more, so that each begins both from the first state and from what the
// others leave.
#include <optional>
#include <tuple>

#include "verify/checker/directions.hpp"
#include "verify/checker/forms.hpp"
#include "verify/checker/values.hpp"
#include "verify/checker/weights.hpp"

namespace mfsdp::checker {
namespace {

class Steps {
 public:
  Steps(const PlanView& view, CheckedPlan& figures)
      : view_(view),
        model_(view),
        ledger_(view, model_, figures),
        values_(view),
        weights_(view, model_),
        directions_(view) {}

  /// What the host fills and reads is as large as the model has it: two int32 a token, three where
  /// documents are masked, a block of 64 bytes, eight fp32 numbers, tables, four numbers of the
  /// loss scale.
  void check_ports() const {
    std::map<std::string, Int> bytes = model_.rope_tables;
    bytes.insert({{"tokens", times(4 * model_.token_rows, model_.tokens)},
                  {"step_block", 64},
                  {"report", 32}});
    if (model_.scales_loss) bytes["loss_scale"] = 16;
    Names left;
    for (const auto& [name, size] : bytes) left.insert(name);
    for (Index b = 0; b < view_.homes.size(); ++b) {
      const std::string port = port_of(b);
      if (port.empty()) continue;
      left.erase(port);
      if (!bytes.contains(port)) refuse("buffer {}: port {} is none of the model's", b, port);
      const Operand& whole = view_.buffers[b];
      if (whole.end - whole.begin != bytes.at(port))
        refuse("buffer {}: port {} has {} bytes, not {}", b, port, bytes.at(port),
               whole.end - whole.begin);
    }
    if (!left.empty()) refuse("plan: no buffer is the port {}", *left.begin());
  }

  void run(std::size_t p) {
    const Json& json = view_.json.at("plans")[p];
    trains_ = json.at("name") == "train";
    if (!trains_ && json.at("name") != "eval") refuse("plan {}: neither train nor eval", p);
    count_microbatches(json);
    values_.begin_plan();
    weights_.begin_plan();
    Int step = -1;
    for (const Instance& instance : view_.plans[p]) {
      if (std::exchange(step, instance.step) != instance.step) begin_step(instance.step > 0);
      follow(*instance.op);
    }
    end_step();
  }

 private:
  // ---- steps of training

  /// The host fills the port of the tokens once a microbatch.
  void count_microbatches(const Json& plan) {
    Int sum = 0;
    for (const Json& segment : plan.at("segments")) {
      Int count = 0;
      for (const Json& op : segment.at("ops"))
        if (op.at("body").contains("copy") &&
            port_of(view_.at("buffers", op.at("body").at("copy").at("input"), "buffer")) ==
                "tokens")
          ++count;
      if (segment.at("microbatches") != count)
        refuse("segment {}: takes tokens of {} microbatches", segment.at("name").dump(), count);
      sum = plus(sum, times(count, segment.at("repeat")));
    }
    if (sum != (trains_ ? model_.microbatches : 1))
      refuse("plan {}: takes tokens of {} microbatches", plan.at("name").dump(), sum);
  }
  [[nodiscard]] std::string port_of(Index buffer) const {
    return view_.homes[buffer].kind == "port" ? view_.homes[buffer].name : "";
  }

  void begin_step(bool again) {
    if (again) end_step();
    ++step_;
    reported_ = false;
    ledger_.begin_step();
    if (trains_) directions_.begin_step();
  }
  void end_step() {
    if (!reported_) refuse("step: the host does not hear of its loss");
    if (trains_) weights_.end_step();
    if (trains_) directions_.end_step();
  }

  // ---- ops

  /// Only what is followed there touches directions.
  void check_directions_known(const Op& op) const {
    static const Names known{"all_gather",    "all_to_all", "momentum",
                             "newton_schulz", "update",     "zero_padding"};
    for (const Operand& operand : op.operands)
      if (is_direction(operand) && !known.contains(op.does))
        refuse("{}: '{}' is a direction", op.place(), operand.role);
  }

  void follow(const Op& op) {
    if (op.kind == "kernel" || op.kind == "copy" || op.kind == "collective")
      check_directions_known(op);
    check_group(view_, op);
    check_unit(view_, op);
    check_apart(view_, op);
    if (op.kind == "acquire") {
      const Index buffer = op.operands.at(0).buffer;
      values_.acquire(buffer);
      weights_.acquire(buffer);
      directions_.acquire(buffer);
      ledger_.follow(op, {});
    } else if (op.kind == "kernel") {
      check_memory(op, "device", "device");
      run_kernel(op);
    } else if (op.kind == "copy") {
      check_memory(op, op.does == "h2d" ? "host" : "device", op.does == "d2h" ? "host" : "device");
      check_ends(op);
      run_copy(op);
    } else if (op.kind == "collective") {
      check_memory(op, "device", "device");
      check_ends(op);
      run_collective(op);
    }
  }

  void check_memory(const Op& op, const char* reads, const char* writes) const {
    for (const Operand& operand : op.operands)
      if (view_.json.at("pools")[operand.pool].at("space") != (operand.writes ? writes : reads))
        refuse("{}: '{}' lies in other memory", op.place(), operand.role);
  }
  /// Of a copy or a collective.
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
    if (op.does == "d2d") {
      copy_inside(op, from, to);
    } else if (op.does == "h2d" && port == "tokens" && all &&
               from.elements == times(model_.token_rows, model_.tokens) && from.dtype == "int32") {
      ledger_.add_pass(++pass_);
      values_.make(op, to, {"tokens", -1, pass_});
    } else if (op.does == "h2d" && port == "step_block" && all && from.elements == 64 &&
               from.dtype == "uint8") {
      values_.make(op, to, {"step_block", -1, step_});
    } else if (op.does == "d2h" && port_of(to.buffer) == "report" && to.offset == 0) {
      report(op, from, to);
    } else {
      refuse("{}: copies what the host does not have, or does not hear", op.place());
    }
  }
  /// Gradients are followed where they go, and values. Anything else that is copied is none.
  void copy_inside(const Op& op, const Operand& from, const Operand& to) {
    if (is_gradient(to)) return ledger_.follow(op, {});
    if (!view_.homes[to.buffer].kind.empty()) return spoil_weights(op, to);
    if (view_.homes[from.buffer].kind.empty()) return values_.copy(op, from, to);
    values_.make(op, to, {});
  }
  /// What is gathered may be written over, and then is no weight.
  void spoil_weights(const Op& op, const Operand& to) {
    if (view_.homes[to.buffer].kind != "parameter" ||
        view_.json.at("buffers")[to.buffer].value("persistent", false))
      refuse("{}: '{}' may not be written", op.place(), to.role);
    weights_.acquire(to.buffer);
  }
  [[nodiscard]] bool is_direction(const Operand& operand) const {
    return view_.homes[operand.buffer].kind == "direction";
  }
  [[nodiscard]] bool is_gradient(const Operand& operand) const {
    return view_.homes[operand.buffer].kind == "gradient";
  }

  /// Loss and norm, four numbers each; of eval the loss alone.
  void report(const Op& op, const Operand& from, const Operand& to) {
    const auto part = [&](Int begin) {
      Operand four = from;
      four.offset += begin * 4;
      four.elements = 4;
      return values_.whole(op, four);
    };
    if (from.elements != 8 || from.dtype != "fp32" || !from.dense || to.elements != 8 ||
        to.dtype != "fp32" || !to.dense || part(0) != Value{"loss", -1, step_} ||
        (trains_ && part(4) != Value{"norm", -1, step_}))
      refuse("{}: is not this step's loss and norm", op.place());
    reported_ = true;
  }

  void run_collective(const Op& op) {
    const Operand& from = op.operands[0];
    const Operand& to = op.operands[1];
    const Home& home = view_.homes[to.buffer];
    if (op.does == "all_to_all" && view_.homes[from.buffer].kind.empty() && home.kind.empty()) {
      exchange_rows(op, from, to);
    } else if (op.does == "all_to_all" && !is_gradient(from) && !is_gradient(to)) {
      directions_.exchange(op);
    } else if (is_direction(from) || is_direction(to)) {
      if (op.does != "all_gather") refuse("{}: sums directions", op.place());
      directions_.gather(op);
    } else if (op.does != "all_gather") {
      if (!is_gradient(to)) return spoil(op, from, to);
      if (op.body->at("dtype") != reduced_dtype(op))
        refuse("{}: sums in another dtype", op.place());
      ledger_.follow(op, {});
    } else if (home.kind == "parameter") {
      weights_.gather(op);
    } else {
      Gathered made{.bytes = times(from.elements, size_of(from.dtype)),
                    .cells = values_.look(from)};
      for (const std::string axis : view_.communicator_of(op).at("axes"))
        if (view_.mesh.contains(axis)) made.axes.push_back(axis);
      gathered_.push_back(std::move(made));
      values_.make(op, to, {"gathered", std::ssize(gathered_) - 1, step_});
    }
  }
  /// Rows go to the ranks that have their experts, and back.
  void exchange_rows(const Op& op, const Operand& from, const Operand& to) {
    const Value sent = values_.whole(op, from);
    const std::string received = Model::received(sent.name);
    Axes axes;
    for (const std::string axis : view_.communicator_of(op).at("axes"))
      if (view_.mesh.contains(axis)) axes.push_back(axis);
    if (axes != Axes{"ep"} || received.empty())
      refuse("{}: sends {} to ranks that do not take it", op.place(), sent.name);
    values_.make(op, to, {received, sent.owner, sent.pass});
  }
  /// What is made of values by what is no step of the model is none.
  void spoil(const Op& op, const Operand& from, const Operand& to) {
    const auto cells = values_.look(from);
    const bool written = std::ranges::none_of(
        cells, [](const auto& cell) { return cell.second.value.name.empty(); });
    if (cells.empty() || !written) refuse("{}: 'input' was not written", op.place());
    values_.make(op, to, {});
  }

  /// Sums of several ranks are of the wire's dtype, and of the main gradient's where they begin
  /// and end in it.
  [[nodiscard]] Json reduced_dtype(const Op& op) const {
    const Json& config = view_.json.at("config");
    const bool kept = std::ranges::all_of(op.operands, [&](const Operand& operand) {
      return view_.json.at("buffers")[operand.buffer].value("persistent", false);
    });
    return config.at(kept ? "grad_dtype" : "reduce_dtype");
  }

  // ---- kernels that are no steps of the model

  void run_kernel(const Op& op) {
    check_attributes_known(op);
    const std::string& does = op.does;
    if (does == "token_copy") {
      forms(op, {{"input", "read"}, {"output", "write"}}, {});
      for (const Operand& tokens : op.operands)
        if (tokens.shape != std::vector<Int>{model_.token_rows, model_.tokens})
          refuse("{}: '{}' is of another shape", op.place(), tokens.role);
      values_.copy(op, operand(op, "input"), operand(op, "output"));
    } else if (does == "cast" || does == "accumulate") {
      const std::string role = does == "cast" && has(op, "weight_grad") ? "weight_grad" : "output";
      const bool adds = op.attribute("beta") != 0;
      forms(op, {{"input", "read"}, {role, adds ? "read_write" : "write"}}, {"beta"});
      if (!is_gradient(operand(op, role)))
        return spoil(op, operand(op, "input"), operand(op, role));
      ledger_.follow(op, {});
    } else if (does == "sum_ranks") {
      sum_ranks(op);
    } else if (does == "zero_padding") {
      for (const Operand& padding : op.operands) {
        if (padding.role != "padding" || padding.access != "write" || !padding.dense)
          refuse("{}: '{}' is nothing that it clears", op.place(), padding.role);
        if (is_direction(padding))
          directions_.zero(op, padding);
        else if (view_.homes[padding.buffer].kind == "parameter")
          spoil_weights(op, padding);
        else if (!is_gradient(padding))
          values_.make(op, padding, {});
      }
      check_attributes(op, does, 0, {});
      ledger_.follow(op, {});
    } else if (does == "norm_partial") {
      take_partial(op);
    } else if (does == "norm_finish") {
      finish_norm(op);
    } else if (does == "loss_finish") {
      finish_loss(op);
    } else if (does == "update" || does == "momentum") {
      update(op);
    } else if (does == "newton_schulz") {
      check_attributes(op, does, 0, {"cols", "rows"});
      directions_.newton_schulz(op);
      values_.make(op, operand(op, "workspace"), {});
    } else {
      run_step(op);
    }
  }

  /// Parts of all ranks of one slice, in their order.
  void sum_ranks(const Op& op) {
    const bool adds = op.attribute("beta") != 0;
    forms(op, {{"input", "read"}, {"output", adds ? "read_write" : "write"}},
          {"beta", "count", "ranks"});
    const Operand& parts = operand(op, "input");
    const Operand& sum = operand(op, "output");
    const Int count = op.attribute("count");
    if (!is_gradient(parts) || !is_gradient(sum) || !parts.dense || !sum.dense ||
        parts.shape != std::vector<Int>{op.attribute("ranks"), count} ||
        sum.shape != std::vector<Int>{count})
      refuse("{}: sums no parts of a gradient", op.place());
    ledger_.follow(op, {});
  }

  static void check_attributes_known(const Op& op) {
    const auto beta = op.attributes.find("beta");
    if (beta != op.attributes.end() && beta->second != 0 && beta->second != 1)
      refuse("{}: beta is neither 0 nor 1", op.place());
  }
  static bool has(const Op& op, const std::string& role) {
    return std::ranges::find(op.operands, role, &Operand::role) != op.operands.end();
  }
  static const Operand& operand(const Op& op, const std::string& role, std::ptrdiff_t nth = 0) {
    for (const Operand& operand : op.operands)
      if (operand.role == role && nth-- == 0) return operand;
    refuse("{}: lacks '{}'", op.place(), role);
  }

  /// Exactly those operands, each once, and those attributes.
  void forms(const Op& op, const std::map<std::string, std::string>& roles,
             const Names& attributes) const {
    for (const auto& [role, access] : roles)
      if (operand(op, role).access != access)
        refuse("{}: '{}' is {}, not {}", op.place(), role, operand(op, role).access, access);
    if (op.operands.size() != roles.size()) refuse("{}: an operand too many", op.place());
    // What is no slice of a group is a row of numbers, or tokens.
    for (const Operand& operand : op.operands)
      if (view_.homes[operand.buffer].groups.empty() && operand.shape.size() != 1 &&
          op.does != "token_copy" && op.does != "cast")
        refuse("{}: '{}' is no row of numbers", op.place(), operand.role);
    check_attributes(op, op.does, 0, attributes);
  }
  /// Values of `exact` are those that exact sums need; who asks looks at those of `named`.
  void check_attributes(const Op& op, const std::string& kernel, Int rows,
                        const Names& named) const {
    const auto exact = model_.exact(kernel, rows);
    for (const auto& [name, value] : exact)
      if (!op.attributes.contains(name) || op.attributes.at(name) != value)
        refuse("{}: {} is not {}", op.place(), name, value.dump());
    for (const auto& [name, value] : op.attributes)
      if (!exact.contains(name) && !named.contains(name) && (name != "bytes" || !tells_bytes(op)))
        refuse("{}: has no attribute {}", op.place(), name);
    if (tells_bytes(op) && !op.attributes.contains("bytes"))
      refuse("{}: lacks attribute bytes", op.place());
    for (const std::string& name : named)
      if (!op.attributes.contains(name)) refuse("{}: lacks attribute {}", op.place(), name);
  }
  /// What touches only some rows of an operand.
  static bool tells_bytes(const Op& op) {
    return op.does.starts_with("embedding_") || op.does.starts_with("cross_entropy") ||
           op.does == "newton_schulz";
  }
  void check_scratch(const Op& op, Int least) {
    const Operand& scratch = operand(op, "workspace");
    if (scratch.access != "scratch" || scratch.dtype != "uint8" || scratch.shape.size() != 1 ||
        !scratch.dense || scratch.offset % kScratchUnit != 0 || scratch.elements < least)
      refuse("{}: expected a workspace of at least {} bytes, from a multiple of {} on", op.place(),
             least, kScratchUnit);
    values_.make(op, scratch, {});
  }

  /// The sum of squares of a rank's slice.
  void take_partial(const Op& op) {
    forms(op, {{"input", "read"}, {"output", "write"}, {"workspace", "scratch"}}, {});
    check_scratch(op, 1024 * 2 * 8 + 8);
    const Operand& output = operand(op, "output");
    const Spot spot = locate(view_, operand(op, "input"));
    if (!is_gradient(operand(op, "input")) || spot.group == kNone || output.elements != 1 ||
        spot.begin != 0 || spot.end != view_.groups[spot.group].elements ||
        output.dtype != partial_dtype())
      refuse("{}: is no slice of a group's gradient", op.place());
    ledger_.follow(op, {});
    partials_.push_back({spot.group, spot.kind, step_});
    values_.make(op, output, {"norm_partial", std::ssize(partials_) - 1, step_});
  }
  [[nodiscard]] std::string partial_dtype() const {
    return model_.exact("norm_partial", 0).empty() ? "fp32" : "int64";
  }

  /// What ranks have gathered, or one has by itself, as the part of each and the axes on which
  /// they differ. Neighbours of a communicator differ on its last axes.
  struct Members {
    Names axes{};
    std::vector<std::pair<Int, Cell>> cells{};
    Int bytes = 0;
  };
  Members members_of(const Op& op, const Operand& operand) {
    const Int bytes = times(operand.elements, size_of(operand.dtype));
    const auto cells = values_.look(operand);
    if (cells.empty()) refuse("{}: '{}' is no value", op.place(), operand.role);
    const Cell& first = cells.front().second;
    if (first.value.name != "gathered") return {{}, cells, bytes};
    const Gathered& gathered = gathered_.at(static_cast<std::size_t>(first.value.owner));
    Members made{.axes = {}, .cells = gathered.cells, .bytes = gathered.bytes};
    Int ranks = 1;
    for (auto axis = gathered.axes.rbegin();
         axis != gathered.axes.rend() && times(ranks, gathered.bytes) < bytes; ++axis) {
      ranks = times(ranks, view_.ranks_on(*axis));
      made.axes.insert(*axis);
    }
    // Ranks that differ on the other axes alone have the same parts.
    if (cells.size() != 1 || first.base % bytes != 0 || times(ranks, gathered.bytes) != bytes)
      refuse("{}: '{}' is no part of what was gathered", op.place(), operand.role);
    return made;
  }

  static Names names_of(const PerAxis& grid) {
    Names names;
    for (const auto& [axis, ranks] : grid) names.insert(axis);
    return names;
  }

  /// Ranks that differ on these axes alone, if those are the innermost of a grid; 0: they are not.
  [[nodiscard]] Int neighbours_on(const Axes& order, const Names& axes) const {
    Int ranks = 1;
    Index found = 0;
    for (auto axis = order.rbegin(); axis != order.rend() && found < axes.size(); ++axis) {
      if (!view_.mesh.contains(*axis)) continue;
      if (!axes.contains(*axis)) return 0;
      ranks = times(ranks, view_.ranks_on(*axis));
      ++found;
    }
    return found == axes.size() ? ranks : 0;
  }

  void finish_norm(const Op& op) {
    std::map<std::string, std::string> roles{
        {"input", "read"}, {"loss", "read"}, {"norm", "write"}};
    Names attributes{"groups", "limit"};
    if (model_.scales_loss) roles["loss_scale"] = "read_write";
    if (model_.scale_window != 0) attributes.insert("scale_window");
    forms(op, roles, attributes);
    const Operand& input = operand(op, "input");
    const Members members = members_of(op, input);
    std::set<Index> seen;
    Int last = 0;  // unit: rounding depends on the order in which parts are added
    const Int size = size_of(partial_dtype());
    for (const auto& [at, cell] : members.cells) {
      if (cell.value.name != "norm_partial" || cell.value.pass != step_ || cell.base != at ||
          at != std::ssize(seen) * size)
        refuse("{}: byte {} of a rank's part is no partial norm of this step", op.place(), at);
      const auto& [group, kind, step] = partials_.at(static_cast<std::size_t>(cell.value.owner));
      const Axes& cut = view_.groups[group].cut;
      const Int unit = view_.groups[group].unit;
      if (std::exchange(last, unit) > unit)
        refuse("{}: adds up parts that do not lie in forward order", op.place());
      Names apart(cut.begin(), cut.begin() + kind);
      bool right = apart == members.axes;
      if (view_.groups[group].dealt) {
        // Another grid of the same ranks: of as many neighbours each has its own elements.
        apart.insert("ep");
        const Int ranks = neighbours_on(kDealtOrder, apart);
        right = ranks != 0 && ranks == neighbours_on(kDenseOrder, members.axes);
      }
      if (!seen.insert(group).second || !right)
        refuse("{}: does not have each element of group {} once", op.place(), group);
    }
    const Int trained = std::ranges::count(view_.groups, true, &Group::trains);
    if (std::ssize(seen) != trained || members.bytes != trained * size ||
        input.dtype != partial_dtype() || op.attributes.at("groups") != trained ||
        number(op.attributes.at("limit")) != number(model_.clip))
      refuse("{}: expected a partial norm of each group that trains, and the limit that is set",
             op.place());
    if (scalar(op, "loss") != Value{"loss", -1, step_})
      refuse("{}: 'loss' is not this step's", op.place());
    make_scalar(op, "norm", {"norm", -1, step_});
    if (model_.scales_loss) keep_scale(op);
  }
  /// The next step's loss scale is made of this step's, once.
  void keep_scale(const Op& op) {
    if (!trains_ || scalar(op, "loss_scale") != scale_ || scale_.pass == step_ ||
        (model_.scale_window != 0 && op.attributes.at("scale_window") != model_.scale_window))
      refuse("{}: does not keep the loss scale of this step as configured", op.place());
    scale_.pass = step_;
    make_scalar(op, "loss_scale", scale_);
  }
  /// Integers are written without a denominator.
  static std::pair<Json, Json> number(const Json& value) {
    return value.is_object() ? std::pair(value.at("num"), value.at("den"))
                             : std::pair(value, Json(1));
  }

  /// Four numbers of fp32: loss or norm, and what goes with it.
  Value scalar(const Op& op, const std::string& role) {
    check_scalar(op, operand(op, role));
    return values_.whole(op, operand(op, role));
  }
  void make_scalar(const Op& op, const std::string& role, const Value& value) {
    check_scalar(op, operand(op, role));
    values_.make(op, operand(op, role), value);
  }
  static void check_scalar(const Op& op, const Operand& operand) {
    if (operand.elements != 4 || operand.dtype != "fp32")
      refuse("{}: '{}' is not four of fp32", op.place(), operand.role);
  }

  /// The mean over all tokens of all ranks and microbatches.
  void finish_loss(const Op& op) {
    std::map<std::string, std::string> roles{{"input", "read"}, {"loss", "write"}};
    const bool scales = trains_ && model_.scales_loss;
    if (scales) roles["loss_scale"] = "read";
    forms(op, roles, {});
    // That of all gradients of the step, as only a norm changes it, which reads this loss.
    if (scales && scalar(op, "loss_scale") != scale_)
      refuse("{}: takes another loss scale out of 1/T", op.place());
    const Operand& input = operand(op, "input");
    const Members members = members_of(op, input);
    const Names all = names_of(view_.dense);
    const Cell& cell = members.cells.at(0).second;
    if (members.axes != all || members.cells.size() != 1 || cell.value.name != "loss_sums" ||
        cell.base != members.cells[0].first || input.dtype != model_.statistic ||
        members.bytes != 2 * size_of(model_.statistic))
      refuse("{}: does not have the loss of each rank once", op.place());
    std::map<Int, Int> rows;  // by microbatch: those behind which nothing is missing
    for (const auto& [pass, row, end] : sums_.at(static_cast<std::size_t>(cell.value.owner)))
      if (std::exchange(rows[pass], end) != row)
        refuse("{}: row {} of a microbatch is not summed once", op.place(), row);
    for (const Int pass : ledger_.passes())
      if (rows[pass] != model_.tokens) refuse("{}: a microbatch is missing", op.place());
    if (rows.size() != ledger_.passes().size())
      refuse("{}: sums a microbatch of another step", op.place());
    make_scalar(op, "loss", {"loss", -1, step_});
  }

  void update(const Op& op) {
    if (!trains_) refuse("{}: updates weights in eval", op.place());
    // A direction has been scaled before it was orthogonalised.
    const bool makes = op.does == "momentum";
    const bool along = !makes && has(op, "direction");
    std::map<std::string, std::string> roles{{"step_block", "read"}};
    if (!along) roles["loss"] = "read";
    if (number(model_.clip).first != 0 || model_.scales_loss) roles["norm"] = "read";
    for (const Operand& slice : op.operands)
      if (!view_.homes[slice.buffer].groups.empty()) roles[slice.role] = slice.access;
    forms(op, roles, {"elements"});
    const Operand& block = operand(op, "step_block");
    if (block.elements != 64 || values_.whole(op, block) != Value{"step_block", -1, step_} ||
        (!along && scalar(op, "loss") != Value{"loss", -1, step_}) ||
        (roles.contains("norm") && scalar(op, "norm") != Value{"norm", -1, step_}) ||
        op.attributes.at("elements") != operand(op, along ? "direction" : "grad").elements)
      refuse("{}: loss, norm, settings or size are not this step's", op.place());
    ledger_.follow(op, {});
    if (makes) return directions_.momentum(op);
    directions_.update(op);
    weights_.update(op);
  }

  // ---- steps of the model

  void run_step(const Op& op) {
    const std::string kernel =
        op.does == "gemm" ? fmt::format("gemm {}", op.attribute("kind")) : op.does;
    std::string wrong = "is no kernel of the model";
    for (const Step& step : model_.steps(kernel)) {
      try {
        Work work{.step = &step};
        match(op, kernel, step, work);
        check_phase(op, step, work);
        perform(op, step, work);
        return;
      } catch (const Mismatch& mismatch) {
        wrong = mismatch.what();
      }
    }
    refuse("{}: {}", op.place(), wrong);
  }

  /// What uses parameters that train is done once for each row of a microbatch, and again only
  /// where the op says so.
  void check_phase(const Op& op, const Step& step, const Work& work) {
    const bool forward = op.does.ends_with("_forward") || (op.does == "gemm" && step.product == 0);
    const bool uses =
        std::ranges::any_of(step.flows, [](const Flow& flow) { return flow.role == "weight"; });
    if (!forward || !uses) return;
    const bool again = op.json->value("phase", "") == "recompute";
    std::string what = fmt::format("{} {}", op.does, step.product);
    for (const Flow& flow : step.flows) what += flow.role == "weight" ? " " + flow.parameter : "";
    const bool known = !computed_.emplace(what, work.owner, work.pass, work.row).second;
    bool counts = trains_;
    for (const Operand& operand : op.operands)
      if (const Spot spot = locate(view_, operand); spot.group != kNone)
        counts = counts && view_.groups[spot.group].trains;
    if (again != known && (again || counts))
      refuse("{}: is {}computed again, as it says", op.place(), known ? "" : "not ");
  }

  /// Operand of each flow of the step, of one role in their order.
  static std::vector<const Operand*> operands_of(const Op& op, const Step& step) {
    std::vector<const Operand*> found;
    std::map<std::string, std::ptrdiff_t> nth;
    for (const Flow& flow : step.flows) {
      const Operand* match = nullptr;
      std::ptrdiff_t skip = nth[flow.role]++;
      for (const Operand& operand : op.operands)
        if (operand.role == flow.role && skip-- == 0) match = &operand;
      if (match == nullptr) differ("lacks '{}'", flow.role);
      found.push_back(match);
    }
    if (op.operands.size() != step.flows.size() + (uses_scratch(op, step) ? 1 : 0))
      differ("has an operand too many or too few");
    return found;
  }

  /// Products may do without.
  static bool uses_scratch(const Op& op, const Step& step) {
    const bool is_product = op.does == "gemm" || op.does.starts_with("grouped_");
    return step.least_scratch >= 0 && (!is_product || has(op, "workspace"));
  }

  void match(const Op& op, const std::string& kernel, const Step& step, Work& work) {
    const auto operands = operands_of(op, step);
    work.rows = model_.tokens;
    if (step.chunk) work.rows = op.attribute(op.does == "gemm" ? "m" : "rows");
    for (std::size_t i = 0; i < operands.size(); ++i)
      check_form(op, step.flows[i], *operands[i], work.rows);
    for (std::size_t i = 0; i < operands.size(); ++i) check_parameter(step.flows[i], *operands[i]);
    Names named;
    for (const auto& [name, value] : step.attributes) {
      named.insert(name);
      const Json& wanted = value == Json(kRows) ? Json(work.rows) : value;
      const auto found = op.attributes.find(name);
      if (found == op.attributes.end() || number(found->second) != number(wanted))
        differ("attribute {} is not {}", name, wanted.dump());
    }
    if (std::ranges::find(step.flows, "adds", &Flow::access) != step.flows.end())
      named.insert("beta");
    // Rows of ranks and rows of tokens may be as many: then steps differ in this alone.
    if (op.attributes.contains("peers") && !named.contains("peers")) differ("has attribute peers");
    check_attributes(op, kernel, work.rows, named);
    bool first = true;
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (!step.flows[i].reads.name.empty())
        check_value(op, step, step.flows[i], *operands[i], work, std::exchange(first, false));
    if (work.owner < 0 || model_.place_of(work.owner) != step.place)
      differ("is of another place in the model");
    if (step.slides && *step.slides != model_.slides(work.owner))
      differ("is of a layer that {}", *step.slides ? "slides" : "sees all tokens");
  }

  /// Where steps differ in their weights alone. What is no whole parameter `use` refuses.
  void check_parameter(const Flow& flow, const Operand& operand) const {
    if (flow.role != "weight") return;
    const Spot spot = locate(view_, operand);
    if (spot.group == kNone) return;
    const Group& group = view_.groups[spot.group];
    const auto found = group.parameters.find(spot.begin);
    if (found != group.parameters.end() && found->second.role != flow.parameter)
      differ("'weight' is {}, not {}", found->second.role, flow.parameter);
  }

  void check_value(const Op& op, const Step& step, const Flow& flow, const Operand& operand,
                   Work& work, bool first) {
    if (flow.role == "loss_scale") {
      if (values_.whole(op, operand) != scale_) differ("'loss_scale' is not this step's");
      return;
    }
    // Loss sums are their own.
    if (flow.role == "loss_sums" || (flow.access == "adds" && op.attribute("beta") == 0)) return;
    Extent place = extent_of(flow, operand, work.row);
    const Cell cell = values_.read(op, operand, place.begin, place.bytes);
    const Value& value = cell.value;
    const bool of_nobody = value.owner < 0;
    if (value.name != flow.reads.name)
      differ("'{}' is {}, not {}", flow.role, value.name, flow.reads.name);
    if (first && step.chunk) {
      const Int row = place.bytes / work.rows;
      work.row = (place.begin - cell.base) / row;
      place = extent_of(flow, operand, work.row);
      if (work.row < 0 || work.row + work.rows > model_.tokens) differ("rows are no rows");
    }
    if (cell.base != place.begin - place.position)
      differ("'{}' does not begin where its value does", flow.role);
    if (!of_nobody && work.owner < 0) work.owner = value.owner - flow.reads.shift;
    if (of_nobody && step.place == Place::embedding) work.owner = 0;
    if (value.pass >= 0 && work.pass < 0) work.pass = value.pass;
    if ((!of_nobody && value.owner != work.owner + flow.reads.shift) ||
        (value.pass >= 0 && value.pass != work.pass))
      differ("'{}' is of another block or microbatch", flow.role);
  }

  /// Weights are read, values made, and gradients entered.
  void perform(const Op& op, const Step& step, Work& work) {
    const auto operands = operands_of(op, step);
    for (std::size_t i = 0; i < operands.size(); ++i)
      if (!step.flows[i].parameter.empty()) use(op, step.flows[i], *operands[i], work);
    ledger_.follow(op, work);
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Flow& flow = step.flows[i];
      const Operand& operand = *operands[i];
      if (flow.role == "loss_sums") {
        add_loss(op, operand, work);
      } else if (flow.access == "scratch") {
        values_.make(op, operand, {});
      } else if (!flow.makes.name.empty() && operand.access != "read") {
        const Extent place = extent_of(flow, operand, work.row);
        values_.write(op, operand, place.begin, place.bytes,
                      {flow.makes.name, work.owner + flow.makes.shift, work.pass}, place.position);
      }
    }
    if (uses_scratch(op, step)) check_scratch(op, step.least_scratch);
  }

  void use(const Op& op, const Flow& flow, const Operand& operand, Work& work) {
    const bool makes = flow.role == "weight_grad";
    const Spot spot = locate(view_, operand);
    if (makes) work.parameter = flow.parameter;
    // A gradient that is summed in more bits first is moved to its place later.
    if (makes && view_.homes[operand.buffer].kind.empty()) {
      if (operand.dtype != model_.statistic) refuse("{}: sums in too few bits", op.place());
      return;
    }
    if (spot.group == kNone || spot.kind != 0)
      refuse("{}: '{}' is no parameter", op.place(), flow.role);
    const Group& group = view_.groups[spot.group];
    const auto found = group.parameters.find(spot.begin);
    if (found == group.parameters.end() || found->second.end != spot.end ||
        found->second.role != flow.parameter || found->second.shape != operand.shape ||
        !model_.owns(work.owner, flow.parameter, group.unit))
      refuse("{}: '{}' is not {} of its unit", op.place(), flow.role, flow.parameter);
    if (!makes) weights_.read(op, operand, spot);
    if (makes && !is_gradient(operand)) refuse("{}: '{}' is no gradient", op.place(), flow.role);
    // Rows of one microbatch are not added up in fewer bits than their sum is worth.
    if (makes && work.row > 0 && size_of(operand.dtype) < size_of(model_.statistic))
      refuse("{}: sums rows of a microbatch in {}", op.place(), operand.dtype);
  }

  void add_loss(const Op& op, const Operand& operand, const Work& work) {
    Sums sums;
    if (op.attribute("beta") != 0) {
      const Value before = values_.whole(op, operand);
      if (before.name != "loss_sums") refuse("{}: adds to what is no loss", op.place());
      sums = sums_.at(static_cast<std::size_t>(before.owner));
    }
    sums.push_back({work.pass, work.row, work.row + work.rows});
    sums_.push_back(std::move(sums));
    values_.make(op, operand, {"loss_sums", std::ssize(sums_) - 1, step_});
  }

  /// What an all-gather took from each rank, by the axes on which they differ.
  struct Gathered {
    Axes axes{};
    Int bytes = 0;
    std::vector<std::pair<Int, Cell>> cells{};
  };
  struct Partial {
    Index group;
    Int kind, step;
  };
  using Sums = std::vector<std::array<Int, 3>>;  ///< microbatch, first row, behind the last

  const PlanView& view_;
  const Model model_;
  Ledger ledger_;
  Values values_;
  Weights weights_;
  Directions directions_;
  bool trains_ = false, reported_ = false;
  Int step_ = -1, pass_ = -1;
  Value scale_{"loss_scale", -1, -1};  ///< of losses, by the step whose norm made it
  std::vector<Gathered> gathered_{};
  std::vector<Partial> partials_{};
  std::vector<Sums> sums_{};
  /// By kernel and parameter, owner, microbatch and row.
  std::set<std::tuple<std::string, Int, Int, Int>> computed_{};
};

}  // namespace

void check_values(const PlanView& view, CheckedPlan& figures) {
  Steps steps(view, figures);
  for (int round = 0; round < 2; ++round)
    for (std::size_t p = view.plans.size(); p-- > 0;) steps.run(p);
  steps.check_ports();
  Names names;
  for (const Json& plan : view.json.at("plans"))
    if (!names.insert(plan.at("name")).second) refuse("plans: two of one name");
  if (names != Names{"eval", "train"}) refuse("plans: expected train and eval");
}

}  // namespace mfsdp::checker
