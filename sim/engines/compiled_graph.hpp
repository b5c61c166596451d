// A graph as Inductor writes it out: buffers are made before the kernel that fills them, and
// dropped after the last one that reads them. A buffer of the same size that was dropped last is
// taken again before a new one is made, and so stays allocated between: where the next kernel takes
// it, or where the graph's peak is not raised by what stays.
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

  /// A buffer of the graph, until emit() without a place.
  struct Value {
    std::size_t number = 0;
  };

  [[nodiscard]] Value make(std::string_view name, std::int64_t bytes,
                           Category category = Category::activation);
  /// One that is there already: dropping it frees it, and nothing takes it again.
  [[nodiscard]] Value given(Tensor tensor);
  void drop(Value value);
  void drop(std::initializer_list<Value> values);
  /// A kernel.
  void run(std::function<void()> work);
  /// Something that is none, at its place among them.
  void note(std::function<void()> work);

  /// Writes all of it down.
  void emit();
  /// Where a value is, after emit().
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
