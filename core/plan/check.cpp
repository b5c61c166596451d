#include "core/plan/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bare_key.hpp"
#include "core/plan/field_names.hpp"
#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "core/plan/job.hpp"
#include "core/plan/structure_faults.hpp"
#include "core/plan/transport.hpp"

namespace mfsdp {
namespace {

/// Limits tables of events by segments.
constexpr std::size_t kMostSegments = 64;
/// Limits runs of ops in a step, so that sums over them stay far below 63 bits.
constexpr Int128 kMostRuns = std::int64_t{1} << 27;
/// More than the memory of any GPU, and small enough for times at any bandwidth.
constexpr std::int64_t kMostKernelBytes = std::int64_t{1} << 50;

/// Whether the grid has one of the axes other than pp, which is on both grids.
bool has_any(const std::vector<MeshAxis>& grid, const std::vector<Axis>& axes) {
  return std::ranges::any_of(grid, [&](const MeshAxis& on) {
    return on.axis != Axis::pp && std::ranges::find(axes, on.axis) != axes.end();
  });
}

/// Whether two classes have different indices on some axis.
bool are_apart(const RankClass& a, const RankClass& b) {
  return std::ranges::any_of(a.at, [&](const MeshPlace& place) {
    return std::ranges::any_of(b.at, [&](const MeshPlace& theirs) {
      return theirs.axis == place.axis && theirs.index != place.index;
    });
  });
}

/// Checks that a program with a valid structure agrees with its configuration.
class ConfiguredCheck {
 public:
  /// `is_part`: other programs have the other ranks of the mesh.
  explicit ConfiguredCheck(const Program& program, bool is_part)
      : program_(program),
        is_part_(is_part),
        communicators_(program.communicators),
        pools_(program.pools),
        buffers_(program.buffers) {}

  Result<void> run() {
    MFSDP_TRY(check_ranks());
    MFSDP_TRY(check_communicators());
    MFSDP_TRY(check_groups(program_));
    for (std::size_t p = 0; p < program_.plans.size(); ++p)
      MFSDP_TRY(check_name(program_.plans[p], fmt::format("plans[{}]", p)));
    for (std::size_t p = 0; p < program_.plans.size(); ++p)
      MFSDP_TRY(check_plan(program_.plans[p], fmt::format("plans[{}]", p)));
    return check_model(program_);
  }

 private:
  Result<void> check_name(const Plan& plan, const std::string& where) {
    if (program_.find_plan(plan.name) != &plan)
      return fail(where + ".name", fmt::format("'{}' appears twice", plan.name));
    const std::optional<PlanRole> role = plan.role();
    if (!role)
      return fail(where + ".role", fmt::format("expected {}, because the name '{}' is none of them",
                                               name_list<PlanRole>(), plan.name));
    if (program_.find_plan(*role) == &plan) return {};
    return fail(where + ".role", fmt::format("'{}' is {}, as plan '{}' is", plan.name,
                                             to_string(*role), program_.find_plan(*role)->name));
  }

  /// Each rank of the configured mesh is in one class. Stages of a pipeline are separate classes.
  Result<void> check_ranks() {
    const Mesh& mesh = program_.config.mesh;
    const std::vector<RankClass>& classes = program_.classes;
    std::int64_t ranks = 0;
    for (std::size_t c = 0; c < classes.size(); ++c) {
      MFSDP_TRY(check_class(classes[c], fmt::format("classes[{}]", c)));
      ranks = checked_add(ranks, classes[c].ranks);
      for (std::size_t other = 0; other < c; ++other)
        if (!are_apart(classes[c], classes[other]))
          return fail(fmt::format("classes[{}].at", c),
                      fmt::format("shares ranks with class {}", other));
    }
    if (!is_part_ && ranks != mesh.world_size())
      return fail("classes",
                  fmt::format("hold {} ranks where config.mesh has {}", ranks, mesh.world_size()));
    const auto lies_at_a_stage = [](const RankClass& of) {
      return std::ranges::find(of.at, Axis::pp, &MeshPlace::axis) != of.at.end();
    };
    if (mesh.size(Axis::pp) > 1 && (!is_part_ || !std::ranges::all_of(classes, lies_at_a_stage)))
      return fail("classes", fmt::format("expected one for each of the {} stages on pp of "
                                         "config.mesh, at its index, with a plan of its own",
                                         mesh.size(Axis::pp)));
    return {};
  }

  /// The number of ranks of a class agrees with its indices; without these it has the whole mesh.
  Result<void> check_class(const RankClass& ranks_class, const std::string& where) {
    const Mesh& mesh = program_.config.mesh;
    // Budgets, comparisons and traces use it as a key.
    if (!is_bare_key(ranks_class.role))
      return fail(where + ".role", "expected letters, digits, '_' and '-'");
    std::int64_t ranks = mesh.world_size();
    for (std::size_t i = 0; i < ranks_class.at.size(); ++i) {
      const auto& [axis, index] = ranks_class.at[i];
      const std::string place = fmt::format("{}.at[{}]", where, i);
      if (std::ranges::count(ranks_class.at, axis, &MeshPlace::axis) > 1)
        return fail(place + ".axis", fmt::format("{} is repeated", to_string(axis)));
      if (index >= mesh.size(axis))
        return fail(place + ".index", fmt::format("expected less than the {} ranks on {}, got {}",
                                                  mesh.size(axis), to_string(axis), index));
      ranks /= mesh.size(axis);
    }
    const bool is_only_one = !is_part_ && program_.classes.size() == 1 && ranks_class.at.empty();
    if (!is_only_one && ranks_class.ranks != ranks)
      return fail(where + ".ranks", fmt::format("expected {} by its place in the mesh, got {}",
                                                ranks, ranks_class.ranks));
    return {};
  }

  Result<void> check_communicators() {
    const Mesh& mesh = program_.config.mesh;
    for (std::size_t i = 0; i < program_.communicators.size(); ++i) {
      std::int64_t size = 1;
      const std::vector<Axis>& axes = program_.communicators[i].axes;
      for (std::size_t a = 0; a < axes.size(); ++a) {
        if (std::ranges::count(axes, axes[a]) > 1)
          return fail(fmt::format("communicators[{}].axes[{}]", i, a),
                      fmt::format("{} is repeated", to_string(axes[a])));
        size = checked_mul(size, mesh.size(axes[a]));
      }
      if (has_any(mesh.dense, axes) && has_any(mesh.experts, axes))
        return fail(fmt::format("communicators[{}].axes", i),
                    "expected axes of config.mesh.dense or of config.mesh.experts, not of both");
      if (program_.communicators[i].size != size)
        return fail(fmt::format("communicators[{}].size", i),
                    fmt::format("expected {} as config.mesh has on its axes, got {}", size,
                                program_.communicators[i].size));
    }
    MFSDP_TRY(check_used(program_.config.gather, "gather"));
    return check_used(program_.config.reduce, "reduce");
  }

  /// If shards are shared, some communicator has the configured transport.
  Result<void> check_used(Transport configured, const char* field) {
    if (!traits_of(configured).uses_windows || program_.config.mesh.size(Axis::dp_shard) == 1 ||
        std::ranges::find(program_.communicators, configured, &Communicator::transport) !=
            program_.communicators.end())
      return {};
    return fail("communicators", fmt::format("expected one of transport {}, as config.{} has",
                                             to_string(configured), field));
  }

  Result<void> check_plan(const Plan& plan, const std::string& where) {
    if (plan.segments.empty()) return fail(where + ".segments", "expected at least one segment");
    if (plan.segments.size() > kMostSegments)
      return fail(where + ".segments",
                  fmt::format("expected at most {}, got {}", kMostSegments, plan.segments.size()));
    acquiring_.assign(program_.pools.size(), std::nullopt);
    Int128 runs = 0;
    for (std::size_t s = 0; s < plan.segments.size(); ++s) {
      const Segment& segment = plan.segments[s];
      const std::string place = fmt::format("{}.segments[{}]", where, s);
      const Segment& next = plan.segments[(s + 1) % plan.segments.size()];
      if (segment.live_out != next.live_in)
        return fail(place + ".live_out",
                    fmt::format("differs from live_in of segment '{}'", next.name));
      if (segment.repeat > 1 && segment.calls.empty() && segment.live_in != segment.live_out)
        return fail(place, "a repeated segment needs live_in equal to live_out");
      runs += Int128{segment.repeat} * std::max<Int128>(ops_in_run(plan, s), 1);
      if (runs > kMostRuns)
        return fail(place + ".repeat", fmt::format("expected steps of at most {} ops, got more",
                                                   static_cast<std::int64_t>(kMostRuns)));
      MFSDP_TRY(check_ops(segment.ops, place));
    }
    for (std::size_t p = 0; p < plan.passes.size(); ++p)
      MFSDP_TRY(check_ops(plan.passes[p].ops, fmt::format("{}.passes[{}]", where, p)));
    return {};
  }

  Result<void> check_ops(const std::vector<Op>& ops, const std::string& place) {
    for (std::size_t i = 0; i < ops.size(); ++i)
      MFSDP_TRY(check_op(ops[i], [&] { return fmt::format("{}.ops[{}]", place, i); }));
    return {};
  }

  Result<void> check_op(const Op& op, auto place) {
    if (const auto* acquire = std::get_if<Acquire>(&op.body))
      return check_acquire(op, program_.buffers[buffers_[acquire->buffer]], place);
    if (const auto* kernel = std::get_if<Kernel>(&op.body)) return check_costs(*kernel, place);
    if (const auto* collective = std::get_if<Collective>(&op.body))
      return check_transport(*collective, place);
    return {};
  }

  /// Collectives over registered memory have the configured transport: weights `gather`, gradients
  /// `reduce`.
  Result<void> check_transport(const Collective& collective, auto place) {
    const Communicator& communicator =
        program_.communicators[communicators_[collective.communicator]];
    const bool gathers = collective.kind == CollectiveKind::all_gather;
    const Transport configured = gathers ? program_.config.gather : program_.config.reduce;
    if (!traits_of(communicator.transport).uses_windows || communicator.transport == configured)
      return {};
    return fail(
        place() + ".body.collective.communicator",
        fmt::format("has transport {}, but config.{} is {}", to_string(communicator.transport),
                    gathers ? "gather" : "reduce", to_string(configured)));
  }

  /// All transient buffers of a pool are acquired on one stream.
  Result<void> check_acquire(const Op& op, const Buffer& buffer, auto place) {
    const std::size_t pool = pools_[buffer.pool];
    if (acquiring_[pool].value_or(op.stream) != op.stream)
      return fail(place() + ".stream",
                  fmt::format("buffer '{}' is acquired on stream {}, others of pool '{}' on stream "
                              "{}: expected one stream for all of a pool",
                              buffer.name, op.stream.value, program_.pools[pool].name,
                              acquiring_[pool]->value));
    acquiring_[pool] = op.stream;
    return {};
  }

  /// A kernel's stated cost, if any, is the cost of its attributes, and no loss has more rows than
  /// logits are live at once.
  Result<void> check_costs(const Kernel& kernel, auto place) const {
    const KernelSpec* spec = spec_of(kernel);
    const std::int64_t flops = spec == nullptr || spec->flops == nullptr ? 0 : spec->flops(kernel);
    if (kernel.flops != 0 && kernel.flops != flops)
      return fail(
          place() + ".body.kernel.flops",
          fmt::format("expected 0 or the {} of its attributes, got {}", flops, kernel.flops));
    if (const std::int64_t bytes = kernel.attribute("bytes"); bytes > kMostKernelBytes)
      return fail(place() + ".body.kernel.attributes",
                  fmt::format("expected bytes of at most 2^50, got {}", bytes));
    const bool of_loss =
        kernel.kind == KernelKind::cross_entropy || kernel.kind == KernelKind::cross_entropy_loss;
    if (const std::int64_t rows = kernel.attribute("rows");
        of_loss && rows > program_.config.logits_chunk)
      return fail("config.logits_chunk", fmt::format("is {} tokens, but {} has logits of {}",
                                                     program_.config.logits_chunk, place(), rows));
    return {};
  }

  const Program& program_;
  bool is_part_;
  IdIndex<CommunicatorId> communicators_;
  IdIndex<PoolId> pools_;
  IdIndex<BufferId> buffers_;
  std::vector<std::optional<StreamId>> acquiring_;  // by pool, in the current plan
};

Result<void> check_program(const Program& program, bool is_part) {
  if (const auto valid = validate(program.config); !valid)
    return tl::unexpected<Error>(named_by_field(valid.error()));
  if (const auto faults = structure_faults(program, 1); !faults.empty())
    return fail(faults.front().where, faults.front().what);
  return ConfiguredCheck(program, is_part).run();
}

/// Each program of a job has one class; all have one configuration.
std::string place_in_job(std::size_t c, const std::string& where) {
  constexpr std::string_view kOnlyClass = "classes[0]";
  if (where.starts_with("config")) return where;
  if (where.starts_with(kOnlyClass))
    return fmt::format("classes[{}]{}", c, where.substr(kOnlyClass.size()));
  return fmt::format("classes[{}]: {}", c, where);
}

Result<void> check_parts(const Job& job) {
  std::int64_t ranks = 0;
  for (std::size_t c = 0; c < job.programs.size(); ++c) {
    const Program& program = job.programs[c];
    if (auto checked = check_program(program, true); !checked)
      return fail(place_in_job(c, checked.error().where), checked.error().what);
    ranks = checked_add(ranks, program.classes[0].ranks);
    for (std::size_t other = 0; other < c; ++other) {
      if (!are_apart(program.classes[0], job.programs[other].classes[0]))
        return fail(fmt::format("classes[{}].at", c),
                    fmt::format("shares ranks with class {}", other));
      if (program.classes[0].role == job.programs[other].classes[0].role)
        return fail(fmt::format("classes[{}].role", c),
                    fmt::format("is that of class {} too; expected a name of its own", other));
    }
    for (const Plan& plan : job.programs[0].plans)
      if (const Plan* own = program.find_plan(plan.name);
          own == nullptr || own->role() != plan.role() ||
          program.plans.size() != job.programs[0].plans.size())
        return fail(fmt::format("classes[{}].plans", c),
                    "expected plans of the names and roles of those of class 0");
  }
  const std::int64_t world = job.programs[0].config.mesh.world_size();
  if (ranks != world)
    return fail("classes", fmt::format("hold {} ranks where config.mesh has {}", ranks, world));
  return {};
}

Result<void> without_overflow(const auto& check) {
  try {
    return check();
  } catch (const OverflowError& error) {
    return fail("plan", fmt::format("a size is too large: {}", error.what()));
  }
}

}  // namespace

Result<void> check_structure(const Program& program) {
  return without_overflow([&] { return check_program(program, false); });
}

Result<void> check_structure(const Job& job) {
  if (job.programs.size() == 1) return check_structure(job.programs[0]);
  return without_overflow([&] { return check_parts(job); });
}

}  // namespace mfsdp
