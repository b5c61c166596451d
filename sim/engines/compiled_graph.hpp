// A graph as Inductor generates it. Buffers are allocated before the kernel that fills them and
// dropped after the last one that reads them. A new buffer reuses the most recently dropped buffer
// of equal size, which stays allocated in between. It does so only if the next kernel takes it, or
// if the graph's peak does not grow.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "sim/engines/step_builder.hpp"

namespace mfsdp {

class CompiledGraph {
 public:
  explicit CompiledGraph(StepBuilder& step) : step_(step) {}

  /// A buffer of the graph; it has no address before emit().
  struct Value {
    std::size_t number = 0;
  };

  [[nodiscard]] Value make(std::string_view name, std::int64_t bytes,
                           Category category = Category::activation);
  /// A tensor that already exists: dropping it frees it, and it is never reused.
  [[nodiscard]] Value given(Tensor tensor);
  void drop(Value value);
  void drop(std::initializer_list<Value> values);
  /// Adds a kernel.
  void run(std::function<void()> work);
  /// Adds an action other than a kernel, at its place among the kernels.
  void note(std::function<void()> work);

  /// Writes the graph to the step.
  void emit();
  /// The tensor of a value, after emit().
  [[nodiscard]] Tensor tensor(Value value) const { return tensors_[value.number]; }

 private:
  enum class Kind { make, drop, run, note };
  struct Line {
    Kind kind = Kind::run;
    std::size_t value = 0;
    std::function<void()> work{};
    bool skipped = false;    ///< a drop whose buffer is taken again
    std::size_t kernel = 0;  ///< how many kernels are before it
  };
  struct Made {
    std::string_view name;
    std::int64_t bytes = 0;
    Category category = Category::activation;
    bool given = false;
    std::size_t place = 0;  ///< the value whose buffer it has
  };

  [[nodiscard]] bool may_take(const Line& dropped, const Line& made) const;
  void measure();
  void place_values();

  StepBuilder& step_;
  std::vector<Line> lines_;
  std::vector<Made> values_;
  std::vector<Tensor> tensors_;
  std::vector<std::int64_t> live_;  ///< bytes while each kernel runs, if no buffer is taken again
  std::int64_t peak_ = 0;
};

}  // namespace mfsdp
