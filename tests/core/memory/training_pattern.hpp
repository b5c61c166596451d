// Lifetimes like those of a training step, for tests and benchmarks of the allocators.
#pragma once

#include <cstdint>
#include <vector>

#include "core/memory/allocation.hpp"

namespace mfsdp::test {

/// Builds a problem by walking through time: acquire now, release later.
class Walk {
 public:
  std::size_t acquire(std::int64_t bytes) {
    AllocationItem item;
    item.size = Bytes(bytes);
    item.lifetimes = {{now_, now_}};
    problem_.items.push_back(std::move(item));
    ++now_;
    return problem_.items.size() - 1;
  }
  void release(std::size_t item) { problem_.items[item].lifetimes.back().end = now_++; }
  [[nodiscard]] AllocationProblem take() { return std::move(problem_); }

 private:
  AllocationProblem problem_;
  std::int64_t now_ = 0;
};

/// Saved activations of one block, and how it handles those that recompute makes again.
struct BlockShape {
  std::int64_t tokens = 8192;
  std::int64_t hidden = 4096;
  std::int64_t qkv = 6144;
  std::int64_t ffn = 14336;
  bool keep_norms = false;  ///< keep outputs of norms and SwiGLU (no recompute)
};

/// Activations of `layers` blocks: saved ones in forward order, released in reverse; transients in
/// both directions; logits in chunks between them. All bytes are bf16 but the log-sum-exp.
inline AllocationProblem activations(std::int64_t layers, BlockShape s = {}) {
  struct Saved {
    std::size_t input, norm1, qkv, lse, attention, middle, norm2, gate_up, product;
  };
  Walk walk;
  const std::int64_t row = s.tokens * 2;
  std::vector<Saved> saved;
  std::size_t stream = walk.acquire(row * s.hidden);
  for (std::int64_t layer = 0; layer < layers; ++layer) {
    Saved b{};
    b.input = stream;
    b.norm1 = walk.acquire(row * s.hidden);
    b.qkv = walk.acquire(row * s.qkv);
    if (!s.keep_norms) walk.release(b.norm1);
    b.attention = walk.acquire(row * s.hidden);
    b.lse = walk.acquire(s.tokens * 32 * 4);
    const std::size_t projected = walk.acquire(row * s.hidden);
    b.middle = walk.acquire(row * s.hidden);
    b.norm2 = walk.acquire(row * s.hidden);
    walk.release(projected);
    b.gate_up = walk.acquire(row * 2 * s.ffn);
    if (!s.keep_norms) walk.release(b.norm2);
    b.product = walk.acquire(row * s.ffn);
    stream = walk.acquire(row * s.hidden);
    if (!s.keep_norms) walk.release(b.product);
    saved.push_back(b);
  }
  const std::size_t final_norm = walk.acquire(row * s.hidden);
  std::size_t gradient = walk.acquire(row * s.hidden);
  const std::size_t head_gradient = walk.acquire(128256 * s.hidden * 4);
  for (int chunk = 0; chunk < 8; ++chunk) {
    const std::size_t logits = walk.acquire(row / 8 * 128256);
    walk.release(logits);
  }
  walk.release(head_gradient);
  walk.release(final_norm);
  walk.release(stream);
  while (!saved.empty()) {
    Saved b = saved.back();
    saved.pop_back();
    if (!s.keep_norms) b.product = walk.acquire(row * s.ffn);
    const std::size_t d_product = walk.acquire(row * s.ffn);
    walk.release(b.product);
    const std::size_t d_gate_up = walk.acquire(row * 2 * s.ffn);
    walk.release(d_product);
    walk.release(b.gate_up);
    if (!s.keep_norms) b.norm2 = walk.acquire(row * s.hidden);
    const std::size_t d_norm2 = walk.acquire(row * s.hidden);
    walk.release(b.norm2);
    walk.release(d_gate_up);
    const std::size_t d_middle = walk.acquire(row * s.hidden);
    walk.release(d_norm2);
    walk.release(gradient);
    walk.release(b.middle);
    const std::size_t d_attention = walk.acquire(row * s.hidden);
    const std::size_t d_qkv = walk.acquire(row * s.qkv);
    const std::size_t scratch = walk.acquire(row * s.hidden * 2 + 12345);
    walk.release(scratch);
    walk.release(d_attention);
    walk.release(b.attention);
    walk.release(b.lse);
    walk.release(b.qkv);
    if (!s.keep_norms) b.norm1 = walk.acquire(row * s.hidden);
    const std::size_t d_norm1 = walk.acquire(row * s.hidden);
    walk.release(b.norm1);
    walk.release(d_qkv);
    gradient = walk.acquire(row * s.hidden);
    walk.release(d_norm1);
    walk.release(d_middle);
    walk.release(b.input);
  }
  walk.release(gradient);
  return walk.take();
}

/// Full buffers of units gathered in sequence, `live` at a time: embedding, blocks, head, and the
/// same in reverse.
inline AllocationProblem gathered(std::int64_t layers, std::size_t live, std::int64_t embedding,
                                  std::int64_t block, std::int64_t head) {
  std::vector<std::int64_t> sizes{embedding};
  sizes.insert(sizes.end(), static_cast<std::size_t>(layers), block);
  sizes.push_back(head);
  sizes.insert(sizes.end(), static_cast<std::size_t>(layers), block);
  sizes.push_back(embedding);
  Walk walk;
  std::vector<std::size_t> held;
  for (const std::int64_t size : sizes) {
    if (held.size() == live) {
      walk.release(held.front());
      held.erase(held.begin());
    }
    held.push_back(walk.acquire(size));
  }
  for (const std::size_t item : held) walk.release(item);
  return walk.take();
}

}  // namespace mfsdp::test
