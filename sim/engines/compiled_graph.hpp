// A graph as Inductor writes it out: buffers are made before the kernel that fills them, and
// dropped after the last one that reads them. A dropped buffer of the same size is taken again
// before a new one is made; which of several, the last one dropped. So a buffer that is taken
// again later stays allocated between.
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
  /// What runs there.
  void run(std::function<void()> work);

  /// Writes all of it down.
  void emit();
  /// Where a value is, after emit().
  [[nodiscard]] Tensor tensor(Value value) const { return tensors_[value.number]; }

 private:
  enum class Kind { make, drop, run };
  struct Line {
    Kind kind = Kind::run;
    std::size_t value = 0;
    std::function<void()> work{};
    bool skipped = false;  ///< a drop whose buffer is taken again
  };
  struct Made {
    std::string_view name;
    std::int64_t bytes = 0;
    Category category = Category::activation;
    bool given = false;
    std::size_t place = 0;  ///< the value whose buffer it has
  };

  void place_values();

  StepBuilder& step_;
  std::vector<Line> lines_;
  std::vector<Made> values_;
  std::vector<Tensor> tensors_;
};

}  // namespace mfsdp
