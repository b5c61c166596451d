// PyTorch's eager execution with autograd: tensors are freed with their last reference, backward
// runs the operators of forward in reverse, and activation checkpointing runs forward again.
// Model code on a tape reads like that of PyTorch, and its memory follows from it.
//
//   Ref      a reference to a tensor's memory, as a variable of Python or an entry of autograd
//   Value    a tensor with the operator that made it
//   saved    references that an operator's backward needs; they go after it has run
//
// Gradients of one tensor are summed into the first of them if nothing else refers to it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "sim/engines/step_builder.hpp"

namespace mfsdp {

class EagerTape {
 public:
  explicit EagerTape(StepBuilder& step) : step_(step) {}

  class Storage {
   public:
    Storage(StepBuilder& step, Tensor tensor) : step_(step), tensor_(tensor) {}
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;
    ~Storage() {
      if (owned_) step_.free(tensor_);
    }
    [[nodiscard]] Tensor tensor() const { return tensor_; }
    /// Others free the tensor.
    Tensor give_up() {
      owned_ = false;
      return tensor_;
    }

   private:
    StepBuilder& step_;
    Tensor tensor_;
    bool owned_ = true;
  };
  using Ref = std::shared_ptr<Storage>;
  using Refs = std::vector<Ref>;

  struct Node;
  struct Value {
    Ref ref;
    std::int64_t bytes = 0;
    std::shared_ptr<Node> node{};  ///< none where it needs no gradient
  };

  /// From the gradient of the output and the saved tensors to the gradients of the inputs.
  using Backward = std::function<Refs(Ref gradient, Refs saved)>;
  /// Receives the gradient of a weight or of the whole function's input.
  using Sink = std::function<void(Ref gradient)>;

  /// Inputs of a checkpointed function's operators that backward recomputes, and outputs that it
  /// does not.
  struct Frame;
  struct Slot;
  using Saved = std::vector<std::shared_ptr<Slot>>;

  [[nodiscard]] Ref make(std::string_view name, std::int64_t bytes,
                         Category category = Category::activation);
  [[nodiscard]] Ref adopt(Tensor tensor) { return std::make_shared<Storage>(step_, tensor); }
  void kernel(KernelKind kind, std::string_view name, const Traffic& traffic) {
    step_.memory_bound(kind, name, traffic);
  }
  [[nodiscard]] StepBuilder& step() { return step_; }

  /// A leaf that hands its gradient to `sink`.
  [[nodiscard]] Value leaf(Ref ref, std::int64_t bytes, Sink sink);
  [[nodiscard]] std::shared_ptr<Node> leaf_node(Sink sink);

  /// Saves references for the backward of the next operator. Saves come before the operator's
  /// allocations, except those of its outputs.
  void save(const Ref& ref, Saved& saved);
  /// The operator's output.
  [[nodiscard]] Value output(Ref ref, std::int64_t bytes, std::vector<std::shared_ptr<Node>> inputs,
                             Saved saved, Backward backward);

  /// A tensor of an operator with several outputs.
  struct Part {
    Ref ref;
    std::int64_t bytes = 0;
  };
  /// From the gradients of all parts and the saved tensors to the gradients of the inputs.
  using PartsBackward = std::function<Refs(Refs gradients, Refs saved)>;
  [[nodiscard]] std::vector<Value> outputs(const std::vector<Part>& parts,
                                           std::vector<std::shared_ptr<Node>> inputs, Saved saved,
                                           PartsBackward backward);

  /// The same value, with `reached` called when its gradient is there.
  [[nodiscard]] Value watch(Value value, std::function<void()> reached);

  /// Runs `function` as torch.utils.checkpoint does: nothing is saved, and the first backward that
  /// needs a saved tensor runs it again until all of them are there. `by_operator`: operators that
  /// use cached() keep their outputs.
  [[nodiscard]] Value checkpoint(std::function<Value()> function, bool by_operator);

  /// Keeps the outputs of an operator, so that `compute` does not run again.
  [[nodiscard]] Refs cached(const std::function<Refs()>& compute);
  [[nodiscard]] bool caches_by_operator() const;
  /// Counts GEMMs inside a checkpoint, from 1.
  [[nodiscard]] std::int64_t count_product() { return ++products_; }

  /// Runs backward from `value`.
  void backward(Value value, Ref gradient);

 private:
  struct StopRecomputation {};

  void add(Ref& sum, Ref gradient, std::string_view name);
  void recompute(Frame& frame);
  [[nodiscard]] Refs unpack(Saved saved);

  StepBuilder& step_;
  std::uint64_t sequence_ = 0;
  std::shared_ptr<Frame> frame_;  ///< of the function that runs
  bool recomputing_ = false;
  std::int64_t products_ = 0;
};

struct EagerTape::Slot {
  Ref ref{};
  std::shared_ptr<Frame> frame{};
};

struct EagerTape::Frame {
  std::function<Value()> function;
  bool by_operator = false;
  std::vector<std::weak_ptr<Slot>> slots{};
  std::deque<Refs> cached{};
  std::size_t next = 0;  ///< slot, while it is computed again
  bool is_recomputed = false;
};

struct EagerTape::Node {
  std::uint64_t sequence = 0;
  std::vector<std::shared_ptr<Node>> inputs{};
  Saved saved{};
  Backward backward{};
  Sink sink{};
  // In backward.
  std::size_t waits_for = 0;
  bool is_counted = false;
  Ref gradient{};
};

}  // namespace mfsdp
