// Graphs of cuDNN operations, built through its backend API and compiled to one launch.
//
//   CudnnGraph graph;
//   const auto scores = graph.matmul(query, key);     // tensors between operations are virtual
//   graph.matmul(probabilities, value, output);       // the last argument: where the result goes
//   MFSDP_LET(plan, graph.build(target, workspace_bytes));
//   plan.run(handle, {{query, q}, ...}, workspace);
#pragma once

#include <cudnn.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp::cuda {

/// Owns a backend descriptor.
class CudnnDescriptor {
 public:
  CudnnDescriptor() = default;
  explicit CudnnDescriptor(cudnnBackendDescriptor_t owned) : owned_(owned) {}
  [[nodiscard]] cudnnBackendDescriptor_t get() const { return owned_.get(); }

 private:
  struct Destroy {
    void operator()(void* descriptor) const { cudnnBackendDestroyDescriptor(descriptor); }
  };
  std::unique_ptr<void, Destroy> owned_;
};

/// Creates a descriptor attribute by attribute. The first failed call is returned by finish(),
/// which is called once, at the end.
class DescriptorMaker {
 public:
  /// `what` names it in errors.
  DescriptorMaker(cudnnBackendDescriptorType_t type, std::string_view what);

  DescriptorMaker& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       std::int64_t count, const void* values);
  DescriptorMaker& set(cudnnBackendAttributeName_t name, std::span<const std::int64_t> values);
  DescriptorMaker& set(cudnnBackendAttributeName_t name, std::int64_t value);
  DescriptorMaker& set(cudnnBackendAttributeName_t name, bool value);
  DescriptorMaker& set(cudnnBackendAttributeName_t name, cudnnDataType_t value);
  DescriptorMaker& set(cudnnBackendAttributeName_t name, const CudnnDescriptor& value);

  [[nodiscard]] Result<CudnnDescriptor> finish();

 private:
  void note(cudnnStatus_t status, std::string_view call);

  std::string what_;
  CudnnDescriptor descriptor_;
  std::optional<Error> error_;
};

/// The device for which graphs are compiled: a present one, or a description of one. For a
/// description cuDNN reports the engines and their workspace, but builds nothing to launch.
class CudnnTarget {
 public:
  /// `handle` outlives the target.
  explicit CudnnTarget(cudnnHandle_t handle) : handle_(handle) {}
  /// From cuDNN's JSON of a device's properties.
  [[nodiscard]] static Result<CudnnTarget> described(std::string_view json);

  [[nodiscard]] cudnnHandle_t handle() const { return handle_; }  ///< null for a description
  [[nodiscard]] const CudnnDescriptor& properties() const { return properties_; }

 private:
  CudnnTarget() = default;
  cudnnHandle_t handle_ = nullptr;
  CudnnDescriptor properties_;
};

/// A tensor of a graph, by number.
struct GraphTensor {
  std::int64_t id = 0;
};

/// The address of a graph's tensor during a run. A scalar is in host memory.
struct GraphMemory {
  GraphTensor tensor;
  const void* data = nullptr;
};

/// A compiled graph.
class CudnnPlan {
 public:
  CudnnPlan(CudnnDescriptor plan, std::int64_t workspace_bytes)
      : plan_(std::move(plan)), workspace_bytes_(workspace_bytes) {}

  /// Queues one run on the handle's stream. `memory` names every tensor that is not virtual; a
  /// workspace that is too small is an error.
  [[nodiscard]] Result<void> run(cudnnHandle_t handle, std::span<const GraphMemory> memory,
                                 std::span<std::byte> workspace) const;

 private:
  CudnnDescriptor plan_;
  std::int64_t workspace_bytes_;
};

/// An engine that cuDNN proposes for a graph.
struct CudnnEngine {
  CudnnDescriptor config;
  std::int64_t number = 0;
  std::int64_t workspace_bytes = 0;
};

/// Four dims, outermost first.
using GraphShape = std::array<std::int64_t, 4>;

/// Strides of contiguous elements.
[[nodiscard]] GraphShape contiguous(const GraphShape& dims);

/// Collects operations in order. Intermediate tensors are fp32 and contiguous unless made by
/// `between`. engines() and build() return the first error.
class CudnnGraph {
 public:
  /// Memory that a run names. Its address and the size of each row are multiples of `alignment`
  /// bytes.
  GraphTensor memory(const GraphShape& dims, const GraphShape& strides, cudnnDataType_t type,
                     std::int64_t alignment = 16);
  /// One number in host memory, usually fp32, that a run names.
  GraphTensor scalar(cudnnDataType_t type = CUDNN_DATA_FLOAT);
  /// A tensor without memory.
  GraphTensor between(const GraphShape& dims, const GraphShape& strides, cudnnDataType_t type);

  using Into = std::optional<GraphTensor>;
  /// [.., m, k] [.., k, n]; dim 1 of `b` may divide that of `a`.
  GraphTensor matmul(GraphTensor a, GraphTensor b, Into into = {});
  GraphTensor pointwise(cudnnPointwiseMode_t mode, GraphTensor x);
  GraphTensor pointwise(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b, Into into = {});
  /// Converts to another type.
  GraphTensor convert(GraphTensor x, GraphTensor into);
  /// x if `mask` is true, else b.
  GraphTensor select(GraphTensor x, GraphTensor b, GraphTensor mask);
  /// int32: the element's index along `axis` of x.
  GraphTensor index(GraphTensor x, std::int64_t axis);
  /// Boolean x >= b, of int32.
  GraphTensor at_least(GraphTensor x, GraphTensor b);
  /// Boolean x > b, of int32.
  GraphTensor above(GraphTensor x, GraphTensor b);
  /// x + b, of int32.
  GraphTensor shifted(GraphTensor x, GraphTensor b);
  /// Reduces the last dim, or the dims in which `into` is smaller.
  GraphTensor reduce(cudnnReduceTensorOp_t op, GraphTensor x, Into into = {});
  /// The same elements with other strides.
  GraphTensor reshape(GraphTensor x, GraphTensor into);

  /// Engines that cuDNN proposes, best first.
  [[nodiscard]] Result<std::vector<CudnnEngine>> engines(const CudnnTarget& target) const;

  /// Compiles the first engine that can be built and needs at most `workspace_bytes`; takes about
  /// half a second. The error names the required and the available workspace.
  [[nodiscard]] Result<CudnnPlan> build(const CudnnTarget& target,
                                        std::int64_t workspace_bytes) const;

 private:
  struct Tensor {
    GraphShape dims;
    CudnnDescriptor descriptor;
  };
  struct Kept {  // where
    bool is_virtual = false;
    bool by_value = false;
    std::int64_t alignment = 16;  // a by-value tensor and a virtual one need it too
  };
  GraphTensor add_tensor(const GraphShape& dims, const GraphShape& strides, cudnnDataType_t type,
                         const Kept& kept);
  GraphTensor result(Into into, const GraphShape& dims, cudnnDataType_t type = CUDNN_DATA_FLOAT);
  GraphTensor pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                        std::span<const GraphTensor> in, GraphTensor out,
                        std::optional<std::int64_t> axis = {});
  /// The finished descriptor, or an empty one after an error.
  CudnnDescriptor made(DescriptorMaker maker);
  [[nodiscard]] const Tensor& at(GraphTensor tensor) const {
    return tensors_[static_cast<std::size_t>(tensor.id - 1)];
  }
  [[nodiscard]] Result<CudnnDescriptor> operation_graph(const CudnnTarget& target) const;

  std::vector<Tensor> tensors_;
  std::vector<CudnnDescriptor> operations_;
  std::optional<Error> error_;
};

}  // namespace mfsdp::cuda
