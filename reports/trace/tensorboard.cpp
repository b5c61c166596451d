#include "reports/trace/tensorboard.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <limits>
#include <optional>

#include "core/formats/crc32c.hpp"
#include "reports/record/origin.hpp"
#include "reports/trace/output_file.hpp"

namespace mfsdp {
namespace {

constexpr double kSecond = 1e9;  ///< nanoseconds
constexpr double kGiB = 1024.0 * 1024.0 * 1024.0;

/// Little-endian, as the file and protocol buffers have numbers of fixed width.
template <class Number>
void append_fixed(std::string& bytes, Number number) {
  for (std::size_t i = 0; i < sizeof(Number); ++i)
    bytes += static_cast<char>(number >> (8 * i) & 0xFFU);
}

void append_varint(std::string& bytes, std::uint64_t number) {
  while (number >= 128) {
    bytes += static_cast<char>(number % 128 + 128);
    number /= 128;
  }
  bytes += static_cast<char>(number);
}

enum class WireType { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void append_key(std::string& message, std::uint64_t field, WireType type) {
  append_varint(message, field * 8 + static_cast<std::uint64_t>(type));
}

void append_bytes(std::string& message, std::uint64_t field, std::string_view bytes) {
  append_key(message, field, WireType::bytes);
  append_varint(message, bytes.size());
  message += bytes;
}

/// Fields 1, wall time, and 2, step, of tensorflow.Event.
std::string event_head(double wall_time, std::int64_t step) {
  std::string event;
  append_key(event, 1, WireType::fixed64);
  append_fixed(event, std::bit_cast<std::uint64_t>(wall_time));
  append_key(event, 2, WireType::varint);
  append_varint(event, static_cast<std::uint64_t>(step));
  return event;
}

/// Scalars of one step: field 5 of tensorflow.Event.
class Scalars {
 public:
  void add(std::string_view tag, std::optional<double> value) {
    if (!value || !std::isfinite(*value)) return;
    std::string scalar;
    append_bytes(scalar, 1, tag);
    append_key(scalar, 2, WireType::fixed32);
    append_fixed(scalar, std::bit_cast<std::uint32_t>(static_cast<float>(*value)));
    append_bytes(summary_, 1, scalar);
  }

  [[nodiscard]] bool empty() const { return summary_.empty(); }

  [[nodiscard]] std::string event(double wall_time, std::int64_t step) const {
    std::string event = event_head(wall_time, step);
    append_bytes(event, 5, summary_);
    return event;
  }

 private:
  std::string summary_;
};

/// A text as PyTorch's SummaryWriter.add_text() writes it: a tensor of one string for the plug-in
/// "text".
std::string text_event(double wall_time, std::string_view tag, std::string_view text) {
  constexpr std::uint64_t string_type = 7;
  std::string dim;
  append_key(dim, 1, WireType::varint);
  append_varint(dim, 1);
  std::string shape;
  append_bytes(shape, 2, dim);
  std::string tensor;
  append_key(tensor, 1, WireType::varint);
  append_varint(tensor, string_type);
  append_bytes(tensor, 2, shape);
  append_bytes(tensor, 8, text);
  std::string plugin;
  append_bytes(plugin, 1, "text");
  std::string metadata;
  append_bytes(metadata, 1, plugin);
  std::string value;
  append_bytes(value, 1, tag);
  append_bytes(value, 8, tensor);
  append_bytes(value, 9, metadata);
  std::string summary;
  append_bytes(summary, 1, value);
  std::string event = event_head(wall_time, 0);
  append_bytes(event, 5, summary);
  return event;
}

void write_record(OutputFile& file, std::string_view event) {
  std::string head;
  append_fixed(head, static_cast<std::uint64_t>(event.size()));
  std::string record = head;
  append_fixed(record, masked_crc32c(head));
  record += event;
  append_fixed(record, masked_crc32c(event));
  file.write(record);
}

std::optional<double> known(const RunFigures& run, ResultFigure figure, double value) {
  return run.absent.has(figure) ? std::nullopt : std::optional(value);
}

void add_memory(Scalars& scalars, const RunFigures& run) {
  const auto add = [&](std::string_view name, ResultFigure figure, Bytes bytes) {
    const auto value = known(run, figure, static_cast<double>(bytes.value));
    if (!value) return;
    scalars.add(fmt::format("memory/max_{}(GiB)", name), *value / kGiB);
    if (run.memory.capacity > Bytes(0) && !run.absent.has(ResultFigure::capacity_bytes))
      scalars.add(fmt::format("memory/max_{}(%)", name),
                  100 * *value / static_cast<double>(run.memory.capacity.value));
  };
  add("active", ResultFigure::peak_bytes, run.memory.peak);
  add("reserved", ResultFigure::allocated_bytes, run.memory.allocated);
}

/// Rates of a step by its duration; MFU at the run's peak rate.
void add_rates(Scalars& scalars, const RunFigures& run, Nanos duration) {
  scalars.add("time_metrics/end_to_end(s)", static_cast<double>(duration.value) / kSecond);
  const bool knows_tokens = !run.absent.has(ResultFigure::tokens_per_second_per_gpu);
  if (duration <= Nanos(0) || run.time.median_step <= Nanos(0) || !knows_tokens) return;
  const double faster =
      static_cast<double>(run.time.median_step.value) / static_cast<double>(duration.value);
  scalars.add("throughput(tps)", run.time.tokens_per_second_per_gpu * faster);
  if (const auto tflops = known(run, ResultFigure::tflops_per_gpu, run.time.tflops_per_gpu))
    scalars.add("tflops", *tflops * faster);
  if (const auto mfu = known(run, ResultFigure::mfu, run.time.mfu))
    scalars.add("mfu(%)", 100 * *mfu * faster);
}

void write_steps(OutputFile& file, const RunFigures& run, const Measured& measured) {
  double time = static_cast<double>(run.created_unix_ns) / kSecond;
  auto evaluation = measured.evaluations.begin();
  const auto evaluate_until = [&](std::int64_t step) {
    for (; evaluation != measured.evaluations.end() && evaluation->step <= step; ++evaluation) {
      Scalars scalars;
      scalars.add("validation_metrics/loss", evaluation->loss);
      if (!scalars.empty()) write_record(file, scalars.event(time, evaluation->step));
    }
  };
  for (const StepResult& step : measured.steps) {
    evaluate_until(step.step - 1);
    time += static_cast<double>(step.duration.value) / kSecond;
    Scalars scalars;
    scalars.add("loss_metrics/global_avg_loss", step.loss);
    scalars.add("grad_norm", step.grad_norm);
    scalars.add("lr", step.learning_rate);
    if (step.timed) add_rates(scalars, run, step.duration);
    add_memory(scalars, run);
    if (!scalars.empty()) write_record(file, scalars.event(time, step.step));
  }
  evaluate_until(std::numeric_limits<std::int64_t>::max());
}

}  // namespace

std::string file_name_part(std::string_view text) {
  std::string part;
  for (const char c : text)
    part += (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-'
                ? c
                : '_';
  return part;
}

std::string tensorboard_file_name(const RunHead& run) {
  constexpr std::size_t kMost = 64;
  return fmt::format("events.out.tfevents.{:010}.{}", run.created_unix_ns / 1'000'000'000,
                     file_name_part(std::string_view(run.run_id).substr(0, kMost)));
}

Result<void> write_tensorboard(const RunResult& run, const std::filesystem::path& path) {
  MFSDP_LET(file, OutputFile::create(path));
  const double begin = static_cast<double>(run.created_unix_ns) / kSecond;
  std::string version = event_head(begin, 0);
  append_bytes(version, 3, "brain.Event:2");
  write_record(file, version);
  write_record(file, text_event(begin, kOriginTag, origin_text(run)));
  if (const Measured* measured = run.measured()) {
    write_steps(file, run, *measured);
  } else {
    Scalars scalars;
    if (const auto step = known(run, ResultFigure::step_ns, 0))
      add_rates(scalars, run, run.time.step);
    add_memory(scalars, run);
    if (!scalars.empty()) write_record(file, scalars.event(begin, 1));
  }
  return file.commit();
}

}  // namespace mfsdp
