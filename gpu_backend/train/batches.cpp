#include "gpu_backend/train/batches.hpp"

#include <algorithm>
#include <limits>
#include <vector>

namespace mfsdp {
namespace {

/// An evaluation's batches are steps of one microbatch.
BatchShape eval_shape(const PlanConfig& config) {
  BatchShape shape = batch_shape(config);
  shape.microbatches = 1;
  return shape;
}

/// Where a rank's chunks of a sequence begin: one, or two where it has all heads.
std::vector<std::size_t> chunks_of(const PlanConfig& config, std::int64_t part) {
  const std::int64_t parts = sequence_parts(config.mesh);
  if (!config.has_chunks()) return {static_cast<std::size_t>(config.seq_len / parts * part)};
  const std::int64_t chunk = config.seq_len / (2 * parts);
  return {static_cast<std::size_t>(chunk * part),
          static_cast<std::size_t>(chunk * (2 * parts - 1 - part))};
}

}  // namespace

BatchShape batch_shape(const PlanConfig& config) {
  return {.data_ranks = data_ranks(config.mesh),
          .micro_batch = config.micro_batch,
          .microbatches = config.microbatches};
}

Batch train_batch(const PlanConfig& config, std::int64_t rank, std::int64_t step,
                  std::int64_t microbatch) {
  return {.first = sample_number(batch_shape(config), step, microbatch,
                                 data_index(config.mesh, rank), 0),
          .end = std::numeric_limits<std::int64_t>::max(),
          .part = sequence_part(config.mesh, rank)};
}

Batch eval_batch(const PlanConfig& config, std::int64_t rank, std::int64_t batch,
                 std::int64_t samples) {
  return {.first = sample_number(eval_shape(config), batch, 0, data_index(config.mesh, rank), 0),
          .end = samples,
          .part = sequence_part(config.mesh, rank)};
}

std::int64_t eval_batches(const PlanConfig& config, std::int64_t samples) {
  return ceil_div(samples, eval_shape(config).global_batch());
}

Result<void> fill_batch(const Dataset& data, const Batch& batch, std::uint64_t seed,
                        const PlanConfig& config, std::span<std::int32_t> tokens) {
  const auto length = static_cast<std::size_t>(config.seq_len);
  const auto all = static_cast<std::size_t>(config.tokens_per_microbatch());
  const auto share = length / static_cast<std::size_t>(sequence_parts(config.mesh));
  const std::vector<std::size_t> chunks = chunks_of(config, batch.part);
  const std::size_t of_chunk = share / chunks.size();
  std::vector<std::int32_t> whole(share == length ? 0 : 2 * length);
  for (std::int64_t i = 0; i < config.micro_batch; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::span<std::int32_t> ids = tokens.subspan(at * share, share);
    const std::span<std::int32_t> labels = tokens.subspan(all + at * share, share);
    // Labels are the next tokens of the whole sample, also at the end of a part.
    SampleSpans sample{.tokens = ids, .labels = labels};
    if (share != length)
      sample = {.tokens = std::span(whole).first(length), .labels = std::span(whole).last(length)};
    if (config.document_mask) sample.positions = tokens.subspan(2 * all + at * length, length);
    count_positions(sample.positions);
    if (batch.first + i < batch.end) {
      MFSDP_TRY(data.read_in_order(seed, batch.first + i, sample));
    } else {
      std::ranges::fill(sample.tokens, 0);
      std::ranges::fill(sample.labels, kIgnoreIndex);
    }
    if (share == length) continue;
    for (std::size_t chunk = 0; chunk < chunks.size(); ++chunk) {
      const auto to = static_cast<std::ptrdiff_t>(chunk * of_chunk);
      std::ranges::copy(sample.tokens.subspan(chunks[chunk], of_chunk), ids.begin() + to);
      std::ranges::copy(sample.labels.subspan(chunks[chunk], of_chunk), labels.begin() + to);
    }
  }
  return {};
}

}  // namespace mfsdp
