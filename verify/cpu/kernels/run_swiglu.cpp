#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"
#include "verify/cpu/kernels/swiglu.hpp"

namespace mfsdp::kernels {

Result<void> run_swiglu_forward(const KernelCall& call) {
  return with_type_of(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<void> {
    OperandReader in(call);
    const std::int64_t rows = in.attribute("rows");
    const std::int64_t cols = in.attribute("cols");
    const auto* gate_up = in.take<const T>("gate_up", {rows, 2 * cols});
    auto* product = in.take<T>("product", {rows, cols});
    MFSDP_TRY(in.result());
    swiglu_forward(rows, cols, gate_up, product);
    return {};
  });
}

Result<void> run_swiglu_backward(const KernelCall& call) {
  return with_type_of(call, "gate_up", [&]<class T>(TypeTag<T>) -> Result<void> {
    OperandReader in(call);
    const std::int64_t rows = in.attribute("rows");
    const std::int64_t cols = in.attribute("cols");
    auto* gate_up = in.take<T>("gate_up", {rows, 2 * cols});
    const auto run = [&]<class D>(TypeTag<D>) -> Result<void> {
      auto* d_product = in.take<D>("d_product", {rows, cols});
      MFSDP_TRY(in.result());
      swiglu_backward(rows, cols, gate_up, d_product);
      return {};
    };
    const OperandView* view = in.find("d_product");
    // Where the plan lets the gradient be written, it wants the product in its place.
    const bool writes = view != nullptr && view->access == Access::read_write;
    return writes ? run(TypeTag<T>{}) : run(TypeTag<const T>{});
  });
}

}  // namespace mfsdp::kernels
