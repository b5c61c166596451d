#include "gpu_backend/train/eval_logits.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "core/plan/instances.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp {
namespace {

/// Bytes [begin, end) of a pool.
struct Place {
  PoolId pool;
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

bool overlap(const Place& a, const Place& b) {
  return a.pool == b.pool && a.begin < b.end && b.begin < a.end;
}

/// The whole buffer of an operand, for any rank.
Result<Place> place_of(const Program& program, const Operand& operand) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.id == operand.buffer)
      return Place{.pool = buffer.pool,
                   .begin = buffer.offset.value,
                   .end = buffer.offset.value + buffer.size.value};
  return fail("plan", fmt::format("has no buffer {}", operand.buffer.value));
}

std::vector<const Operand*> written_by(const Op& op) {
  std::vector<const Operand*> written;
  if (const auto* collective = std::get_if<Collective>(&op.body)) written = {&collective->output};
  if (const auto* copy = std::get_if<Copy>(&op.body)) written = {&copy->output};
  if (const auto* kernel = std::get_if<Kernel>(&op.body))
    for (const Operand& operand : kernel->operands)
      if (operand.access != Access::read) written.push_back(&operand);
  return written;
}

const Operand* logits_of(const Op& op) {
  const auto* kernel = std::get_if<Kernel>(&op.body);
  if (kernel == nullptr || kernel->kind != KernelKind::cross_entropy_loss) return nullptr;
  for (const Operand& operand : kernel->operands)
    if (operand.role == "logits") return &operand;
  return nullptr;
}

}  // namespace

void cap_logits(const ModelShape& model, DType dtype, std::span<std::byte> values) {
  if (model.logit_cap.num == 0) return;
  const double cap = model.logit_cap.value();
  with_floating(dtype, [&]<class T>(T) {
    for (std::size_t at = 0; at + sizeof(T) <= values.size(); at += sizeof(T)) {
      T value;
      std::memcpy(&value, values.data() + at, sizeof(T));
      const double capped = cap * std::tanh(static_cast<double>(widen(value)) / cap);
      value = narrow<T>(static_cast<Real<T>>(capped));
      std::memcpy(values.data() + at, &value, sizeof(T));
    }
  });
}

void close_rows(const Operand& logits, std::vector<std::byte>& bytes) {
  if (logits.strides.empty()) return;
  const auto cols = static_cast<std::size_t>(logits.shape.at(1) * size_of(logits.dtype));
  const auto pitch = static_cast<std::size_t>(logits.strides.at(0) * size_of(logits.dtype));
  const auto rows = static_cast<std::size_t>(logits.shape.at(0));
  for (std::size_t row = 1; row < rows; ++row)
    std::memmove(bytes.data() + row * cols, bytes.data() + row * pitch, cols);
  bytes.resize(rows * cols);
}

Result<Operand> find_eval_logits(const Program& program) {
  const Plan* plan = program.find_plan(PlanRole::eval);
  if (plan == nullptr) return fail("plan", "expected a plan eval");
  const std::int64_t tokens = program.config.tokens_per_microbatch();
  const Operand* found = nullptr;
  Place place;
  // Later ops are issued after the loss, because they wait for it.
  for (const Op& op : ops_of(*plan)) {
    if (const Operand* logits = logits_of(op); logits != nullptr) {
      if (logits->shape.at(0) != tokens)
        return fail("plan, eval, " + op.name,
                    fmt::format("expected the logits of all {} tokens at once, got {}; "
                                "--logits-chunk {} makes them so",
                                tokens, logits->shape.at(0), tokens));
      found = logits;
      MFSDP_SET(place, place_of(program, *logits));
      continue;
    }
    if (found == nullptr) continue;
    for (const Operand* written : written_by(op)) {
      MFSDP_LET(other, place_of(program, *written));
      if (overlap(place, other))
        return fail("plan, eval, " + op.name, "writes over the logits, which cannot be kept");
    }
  }
  if (found == nullptr) return fail("plan, eval", "expected an op of kind cross_entropy_loss");
  return *found;
}

}  // namespace mfsdp
