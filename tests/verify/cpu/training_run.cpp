#include "tests/verify/cpu/training_run.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <stdexcept>

#include "core/runtime/interpreter.hpp"
#include "core/runtime/rope_table.hpp"
#include "core/runtime/scalar.hpp"
#include "core/runtime/step_block.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/hash_kernel.hpp"
#include "verify/cpu/kernels/run_kernel.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp::test {
namespace {

/// Elements of a parameter that lie in a row in one rank's memory.
struct Run {
  const PlacedParameter* parameter = nullptr;
  std::int64_t first = 0;
  std::int64_t count = 0;
  DType dtype = DType::fp32;
  std::byte* data = nullptr;
};

/// Where one rank holds a program's parameters, worked out from what strategies mean and not from
/// the plan's ops.
class RankMemory {
 public:
  RankMemory(const Program& program, const Interpreter& interpreter, std::int64_t rank)
      : program_(program), interpreter_(interpreter), rank_(rank) {}

  template <class T>
  [[nodiscard]] T* data(std::string_view name) const {
    for (const Buffer& buffer : program_.buffers)
      if (buffer.name == name) return reinterpret_cast<T*>(bytes(buffer).data());
    throw std::out_of_range(std::string(name));
  }
  [[nodiscard]] std::span<std::byte> bytes(const Buffer& buffer) const {
    return interpreter_.buffer_bytes(buffer.id);
  }

  /// The runs of a category that are up to date after a step: of weights all that the rank holds,
  /// of main weights and gradients what it updates.
  [[nodiscard]] std::vector<Run> runs(Category category) const {
    std::vector<Run> all;
    for (const Group& group : program_.groups)
      if (const Buffer* buffer = find(group, category)) add_runs(group, *buffer, all);
    return all;
  }

 private:
  struct Slice {
    std::int64_t begin = 0;
    std::int64_t elements = 0;
  };

  /// Of the group, what this rank has up to date.
  [[nodiscard]] Slice slice_of(const Group& group, Category category) const {
    const PlanConfig& config = program_.config;
    const Mesh& mesh = config.mesh;
    const Placements inner = placements_of(config.strategy, mesh.dp_shard);
    const bool weights = category == Category::model_weight;
    Slice slice{.begin = 0, .elements = group.elements};
    if ((weights ? inner.parameter : inner.optimizer) == Placement::shard) {
      slice.elements /= mesh.dp_shard;
      slice.begin = rank_ % mesh.dp_shard * slice.elements;
    }
    if (!weights && mesh.dp_outer > 1 && config.outer_strategy == Strategy::optim) {
      slice.elements /= mesh.dp_outer;
      slice.begin += rank_ / mesh.dp_shard * slice.elements;
    }
    return slice;
  }

  void add_runs(const Group& group, const Buffer& buffer, std::vector<Run>& all) const {
    const Slice slice = slice_of(group, buffer.category);
    const std::int64_t size = size_of(buffer.dtype);
    // A buffer holds the slice alone, or the dp_shard part or whole group that it is a slice of.
    const std::int64_t in_buffer = slice.begin % (buffer.size.value / size);
    std::byte* const data = bytes(buffer).data() + in_buffer * size;
    for (const PlacedParameter& parameter : group.parameters) {
      const std::int64_t begin = std::max(slice.begin, parameter.offset);
      const std::int64_t end =
          std::min(slice.begin + slice.elements, parameter.offset + parameter.elements());
      if (begin < end)
        all.push_back({.parameter = &parameter,
                       .first = begin - parameter.offset,
                       .count = end - begin,
                       .dtype = buffer.dtype,
                       .data = data + (begin - slice.begin) * size});
    }
  }

  [[nodiscard]] const Buffer* find(const Group& group, Category category) const {
    for (const Buffer& buffer : program_.buffers)
      if (buffer.persistent && buffer.category == category && buffer.unit == group.unit &&
          (buffer.name.find(".frozen.") == std::string::npos) == group.requires_grad)
        return &buffer;
    return nullptr;
  }

  const Program& program_;
  const Interpreter& interpreter_;
  std::int64_t rank_;
};

std::uint64_t hash_text(const std::string& text) {
  std::uint64_t hash = 0;
  for (const char letter : text) hash = mix(hash, static_cast<unsigned char>(letter));
  return hash;
}

/// Matrices with deviation of 1 / sqrt(columns), vectors about 1.
float initial_weight(const PlacedParameter& parameter, std::uint64_t name, std::int64_t element) {
  const std::uint64_t hash = mix(name, static_cast<std::uint64_t>(element));
  const float uniform = static_cast<float>(hash >> 40U) * 0x1p-23F - 1;
  if (parameter.shape.size() == 1) return 1 + 0.1F * uniform;
  return 1.7F / std::sqrt(static_cast<float>(parameter.shape.back())) * uniform;
}

void fill(const Program& program, const RankMemory& memory) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.persistent && buffer.name != "gemm_workspace")
      std::ranges::fill(memory.bytes(buffer), std::byte{0});
  for (const Category category : {Category::model_weight, Category::main_weight})
    for (const Run& run : memory.runs(category)) {
      const std::uint64_t name = hash_text(run.parameter->name);
      for (std::int64_t i = 0; i < run.count; ++i) {
        const float value = initial_weight(*run.parameter, name, run.first + i);
        if (run.dtype == DType::bf16)
          reinterpret_cast<Bf16*>(run.data)[i] = narrow<Bf16>(value);
        else
          reinterpret_cast<float*>(run.data)[i] = value;
      }
    }
  const auto table = make_rope_table(program.config.model, program.config.seq_len);
  std::ranges::copy(table, memory.data<float>("rope_table"));
}

/// Tokens as of text, some much more frequent than others; every seventh label is left out.
void fill_sample(std::int64_t sample, std::int64_t vocab, std::int32_t ignored,
                 std::span<std::int32_t> tokens, std::span<std::int32_t> labels) {
  std::uint64_t state = mix(7, static_cast<std::uint64_t>(sample));
  for (std::size_t t = 0; t <= tokens.size(); ++t) {
    state = mix(state, t);
    const double uniform = static_cast<double>(state >> 11U) * 0x1p-53;
    const auto token = static_cast<std::int32_t>(uniform * uniform * static_cast<double>(vocab));
    if (t < tokens.size()) tokens[t] = token;
    if (t > 0) labels[t - 1] = state % 7 == 0 ? ignored : token;
  }
}

/// What a training loop's host does on one rank.
class Host {
 public:
  Host(const Program& program, const KernelSettings& settings, const TrainingRun& run,
       std::int64_t rank)
      : program_(program), settings_(settings), run_(run), rank_(rank) {}

  Result<void> operator()(const BoundOp& copy, std::int64_t step) {
    if (std::get<Copy>(copy.op->body).kind == CopyKind::d2h) {
      if (step > 0) hear(reinterpret_cast<const float*>(copy.operands[1].data));
    } else if (copy.op->name == "tokens.h2d") {
      microbatch_ = step == step_ ? microbatch_ + 1 : 0;
      step_ = step;
      fill_tokens(reinterpret_cast<std::int32_t*>(copy.operands[0].data));
    } else {
      const StepBlock block = make_step_block(step, run_.learning_rate, settings_);
      std::memcpy(copy.operands[0].data, &block, sizeof block);
    }
    return {};
  }

  void hear(const float* report) {
    losses.push_back(report[0]);
    norms.push_back(report[4]);
  }

  std::vector<float> losses;
  std::vector<float> norms;

 private:
  void fill_tokens(std::int32_t* to) const {
    const PlanConfig& config = program_.config;
    const std::int64_t tokens = config.tokens_per_microbatch();
    const std::int64_t before =
        (step_ * config.microbatches + microbatch_) * config.mesh.world_size() + rank_;
    const auto length = static_cast<std::size_t>(config.seq_len);
    for (std::int64_t i = 0; i < config.micro_batch; ++i)
      fill_sample(run_.first_sample + before * config.micro_batch + i, config.model.vocab,
                  settings_.ignore_index, {to + i * config.seq_len, length},
                  {to + tokens + i * config.seq_len, length});
  }

  const Program& program_;
  const KernelSettings& settings_;
  TrainingRun run_;
  std::int64_t rank_;
  std::int64_t step_ = -1;
  std::int64_t microbatch_ = 0;
};

/// Puts together what the ranks hold.
class Gathered {
 public:
  Result<void> add(const std::vector<Run>& runs) {
    const std::scoped_lock lock(mutex_);
    for (const Run& run : runs) MFSDP_TRY(add(run));
    return {};
  }

  /// Errors: an element that no rank has given.
  Result<ParameterBits> take() {
    ParameterBits bits;
    for (auto& [name, elements] : elements_) {
      std::vector<std::uint32_t>& to = bits[name];
      for (const auto& element : elements) {
        if (!element) return fail(name, "some element is with no rank");
        to.push_back(*element);
      }
    }
    return bits;
  }

 private:
  Result<void> add(const Run& run) {
    auto& elements = elements_[run.parameter->name];
    elements.resize(static_cast<std::size_t>(run.parameter->elements()));
    const std::int64_t size = size_of(run.dtype);
    for (std::int64_t i = 0; i < run.count; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, run.data + i * size, static_cast<std::size_t>(size));
      auto& element = elements[static_cast<std::size_t>(run.first + i)];
      if (element && *element != bits)
        return fail(fmt::format("{}[{}]", run.parameter->name, run.first + i),
                    "ranks hold different bits");
      element = bits;
    }
    return {};
  }

  std::mutex mutex_;
  std::map<std::string, std::vector<std::optional<std::uint32_t>>> elements_;
};

Result<void> check_allocations(const Program& program, const Machine& machine) {
  std::vector<Bytes> heights;
  for (const Pool& pool : program.pools) heights.push_back(pool.height);
  for (std::int64_t rank = 0; rank < program.config.mesh.world_size(); ++rank)
    if (machine.allocated(rank) != heights)
      return fail(fmt::format("rank {}", rank), "allocated other bytes than the plan's pools");
  return {};
}

}  // namespace

Result<Trained> train_on_machine(const PlanConfig& config, const TrainingRun& run) {
  MFSDP_LET(program, build_program(config, {}));
  KernelSettings settings;
  settings.program = &program;
  Gathered gradients;
  Gathered weights;
  Gathered main_weights;
  Trained trained;
  MachineSettings machine_settings;
  machine_settings.kernel = [&](const KernelCall& call) { return run_kernel(call, settings); };
  Machine machine(program, machine_settings);
  const auto train = [&](std::int64_t rank, Backend& backend) -> Result<void> {
    Host host(program, settings, run, rank);
    MFSDP_LET(interpreter, Interpreter::create(program, backend, rank, std::ref(host)));
    const RankMemory memory(program, *interpreter, rank);
    fill(program, memory);
    MFSDP_TRY(interpreter->run("train"));
    MFSDP_TRY(interpreter->finish());
    MFSDP_TRY(gradients.add(memory.runs(Category::main_grad)));
    MFSDP_TRY(interpreter->run("train", run.steps - 1));
    MFSDP_TRY(interpreter->finish());
    MFSDP_TRY(weights.add(memory.runs(Category::model_weight)));
    MFSDP_TRY(main_weights.add(memory.runs(Category::main_weight)));
    host.hear(memory.data<float>("pinned_report"));
    if (rank == 0) {
      trained.losses = host.losses;
      trained.norms = host.norms;
    }
    return {};
  };
  MFSDP_TRY(machine.run(train));
  MFSDP_TRY(check_allocations(program, machine));
  MFSDP_LET(first_gradients, gradients.take());
  MFSDP_LET(last_weights, weights.take());
  MFSDP_LET(last_main_weights, main_weights.take());
  trained.gradients = std::move(first_gradients);
  trained.weights = std::move(last_weights);
  trained.main_weights = std::move(last_main_weights);
  return trained;
}

std::uint64_t hash_of(const ParameterBits& bits) {
  std::uint64_t hash = 0;
  for (const auto& [name, elements] : bits) {
    hash = mix(hash, hash_text(name));
    for (const std::uint32_t element : elements) hash = mix(hash, element);
  }
  return hash;
}

std::string first_difference(const ParameterBits& a, const ParameterBits& b) {
  for (const auto& [name, elements] : a) {
    const auto other = b.find(name);
    if (other == b.end() || other->second.size() != elements.size()) return name;
    for (std::size_t i = 0; i < elements.size(); ++i)
      if (elements[i] != other->second[i])
        return fmt::format("{}[{}]: {:#010x}, {:#010x}", name, i, elements[i], other->second[i]);
  }
  return a.size() == b.size() ? "" : "other parameters";
}

}  // namespace mfsdp::test
