// Every pair of conflicting accesses, compared one by one: slow and obvious.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/happens_before.hpp"

namespace mfsdp::test {

struct Touch {
  std::size_t instance = 0;
  std::int64_t begin = 0;  ///< bytes in the pool
  std::int64_t end = 0;
  bool writes = false;
};

/// Two accesses to the same bytes, one of them a write, that nothing orders; acquire and release
/// count as writes of the whole buffer. Seen from the last rank of the mesh.
inline std::optional<std::string> find_race(const Program& program, const Plan& plan) {
  const HappensBefore order(program, plan);
  std::map<PoolId, std::vector<Touch>> pools;
  const auto add = [&](std::size_t i, const Operand& operand) {
    const Buffer& buffer = program.buffers[operand.buffer.value];
    std::int64_t begin = buffer.offset.value + operand.offset;
    for (const RankStride& stride : operand.rank_strides)
      begin += stride.bytes * (program.config.mesh.size(stride.axis) - 1);
    pools[buffer.pool].push_back({.instance = i,
                                  .begin = begin,
                                  .end = begin + operand.span_bytes(),
                                  .writes = operand.access != Access::read});
  };
  const auto add_buffer = [&](std::size_t i, BufferId id) {
    const Buffer& buffer = program.buffers[id.value];
    pools[buffer.pool].push_back({.instance = i,
                                  .begin = buffer.offset.value,
                                  .end = buffer.offset.value + buffer.size.value,
                                  .writes = true});
  };
  for (std::size_t i = 0; i < order.instances().size(); ++i) {
    const OpBody& body = order.instances()[i].op->body;
    if (const auto* kernel = std::get_if<Kernel>(&body))
      for (const Operand& operand : kernel->operands) add(i, operand);
    if (const auto* collective = std::get_if<Collective>(&body)) {
      add(i, collective->input);
      add(i, collective->output);
    }
    if (const auto* copy = std::get_if<Copy>(&body)) {
      add(i, copy->input);
      add(i, copy->output);
    }
    if (const auto* acquire = std::get_if<Acquire>(&body)) add_buffer(i, acquire->buffer);
    if (const auto* release = std::get_if<Release>(&body)) add_buffer(i, release->buffer);
  }
  const auto ordered = [&](std::size_t a, std::size_t b) {
    return a == b || order.before(a, b) || order.before(b, a);
  };
  for (auto& [pool, touches] : pools) {
    std::sort(touches.begin(), touches.end(),
              [](const Touch& a, const Touch& b) { return a.begin < b.begin; });
    for (std::size_t i = 0; i < touches.size(); ++i)
      for (std::size_t j = i + 1; j < touches.size() && touches[j].begin < touches[i].end; ++j)
        if ((touches[i].writes || touches[j].writes) &&
            !ordered(touches[i].instance, touches[j].instance))
          return "nothing orders " + order.instances()[touches[i].instance].op->name + " and " +
                 order.instances()[touches[j].instance].op->name;
  }
  return std::nullopt;
}

}  // namespace mfsdp::test
