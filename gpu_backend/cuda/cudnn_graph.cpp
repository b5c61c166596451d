#include "gpu_backend/cuda/cudnn_graph.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {
namespace {

/// More than heuristics mode A ever returned for one of our graphs.
constexpr std::int64_t kMostEngines = 16;

Result<std::int64_t> read_int64(const CudnnDescriptor& from, cudnnBackendAttributeName_t name) {
  std::int64_t value = 0;
  std::int64_t count = 0;
  MFSDP_TRY(check(cudnnBackendGetAttribute(from.get(), name, CUDNN_TYPE_INT64, 1, &count, &value),
                  "cudnnBackendGetAttribute"));
  return value;
}

Result<CudnnDescriptor> empty_descriptor(cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t made = nullptr;
  MFSDP_TRY(check(cudnnBackendCreateDescriptor(type, &made), "cudnnBackendCreateDescriptor"));
  return CudnnDescriptor(made);
}

tl::unexpected<Error> too_little_workspace(std::int64_t needed, std::int64_t planned) {
  return fail("cuDNN", fmt::format("needs {} bytes of workspace, the plan has {}", needed, planned),
              Fault::environment);
}

/// The engine of a configuration.
Result<CudnnEngine> describe(CudnnDescriptor config) {
  MFSDP_LET(engine, empty_descriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR));
  cudnnBackendDescriptor_t raw = engine.get();
  std::int64_t count = 0;
  MFSDP_TRY(check(cudnnBackendGetAttribute(config.get(), CUDNN_ATTR_ENGINECFG_ENGINE,
                                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &raw),
                  "cudnnBackendGetAttribute"));
  MFSDP_LET(number, read_int64(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX));
  MFSDP_LET(bytes, read_int64(config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE));
  return CudnnEngine{std::move(config), number, bytes};
}

}  // namespace

DescriptorMaker::DescriptorMaker(cudnnBackendDescriptorType_t type, std::string_view what)
    : what_(what) {
  auto made = empty_descriptor(type);
  if (made)
    descriptor_ = std::move(*made);
  else
    error_ = std::move(made.error());
}

void DescriptorMaker::note(cudnnStatus_t status, std::string_view call) {
  if (status == CUDNN_STATUS_SUCCESS || error_) return;
  error_ = std::move(check(status, fmt::format("{} of {}", call, what_)).error());
}

DescriptorMaker& DescriptorMaker::set(cudnnBackendAttributeName_t name,
                                      cudnnBackendAttributeType_t type, std::int64_t count,
                                      const void* values) {
  if (!error_)
    note(cudnnBackendSetAttribute(descriptor_.get(), name, type, count, values),
         fmt::format("cudnnBackendSetAttribute {}", static_cast<int>(name)));
  return *this;
}
DescriptorMaker& DescriptorMaker::set(cudnnBackendAttributeName_t name,
                                      std::span<const std::int64_t> values) {
  return set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
}
DescriptorMaker& DescriptorMaker::set(cudnnBackendAttributeName_t name, std::int64_t value) {
  return set(name, CUDNN_TYPE_INT64, 1, &value);
}
DescriptorMaker& DescriptorMaker::set(cudnnBackendAttributeName_t name, bool value) {
  return set(name, CUDNN_TYPE_BOOLEAN, 1, &value);
}
DescriptorMaker& DescriptorMaker::set(cudnnBackendAttributeName_t name, cudnnDataType_t value) {
  return set(name, CUDNN_TYPE_DATA_TYPE, 1, &value);
}
DescriptorMaker& DescriptorMaker::set(cudnnBackendAttributeName_t name,
                                      const CudnnDescriptor& value) {
  cudnnBackendDescriptor_t raw = value.get();
  return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &raw);
}

Result<CudnnDescriptor> DescriptorMaker::finish() {
  if (!error_) note(cudnnBackendFinalize(descriptor_.get()), "cudnnBackendFinalize");
  if (error_) return tl::unexpected<Error>(std::move(*error_));
  return std::move(descriptor_);
}

Result<CudnnTarget> CudnnTarget::described(std::string_view json) {
  CudnnTarget target;
  // The length includes the terminating zero.
  const std::string text(json);
  MFSDP_LET(properties, DescriptorMaker(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, "device properties")
                            .set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                 static_cast<std::int64_t>(text.size() + 1), text.c_str())
                            .finish());
  target.properties_ = std::move(properties);
  return target;
}

Result<void> CudnnPlan::run(cudnnHandle_t handle, std::span<const GraphMemory> memory,
                            std::span<std::byte> workspace) const {
  if (static_cast<std::int64_t>(workspace.size()) < workspace_bytes_)
    return too_little_workspace(workspace_bytes_, static_cast<std::int64_t>(workspace.size()));
  void* scratch = workspace.data();
  std::vector<std::int64_t> ids;
  std::vector<const void*> pointers;
  for (const GraphMemory& tensor : memory) {
    ids.push_back(tensor.tensor.id);
    pointers.push_back(tensor.data);
  }
  MFSDP_LET(pack, DescriptorMaker(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "operands")
                      .set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, ids)
                      .set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                           static_cast<std::int64_t>(pointers.size()), pointers.data())
                      .set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &scratch)
                      .finish());
  return check(cudnnBackendExecute(handle, plan_.get(), pack.get()), "cudnnBackendExecute");
}

GraphShape contiguous(const GraphShape& dims) {
  return {dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1};
}

GraphTensor CudnnGraph::memory(const GraphShape& dims, const GraphShape& strides,
                               cudnnDataType_t type, std::int64_t alignment) {
  return add_tensor(dims, strides, type, {.alignment = alignment});
}
GraphTensor CudnnGraph::scalar(cudnnDataType_t type) {
  return add_tensor({1, 1, 1, 1}, {1, 1, 1, 1}, type, {.by_value = true});
}
GraphTensor CudnnGraph::between(const GraphShape& dims, const GraphShape& strides,
                                cudnnDataType_t type) {
  return add_tensor(dims, strides, type, {.is_virtual = true});
}

GraphTensor CudnnGraph::add_tensor(const GraphShape& dims, const GraphShape& strides,
                                   cudnnDataType_t type, const Kept& kept) {
  const auto id = static_cast<std::int64_t>(tensors_.size()) + 1;
  DescriptorMaker maker(CUDNN_BACKEND_TENSOR_DESCRIPTOR, fmt::format("tensor {}", id));
  maker.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type)
      .set(CUDNN_ATTR_TENSOR_DIMENSIONS, dims)
      .set(CUDNN_ATTR_TENSOR_STRIDES, strides)
      .set(CUDNN_ATTR_TENSOR_UNIQUE_ID, id)
      .set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, kept.alignment)
      .set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, kept.is_virtual)
      .set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, kept.by_value);
  tensors_.push_back({dims, made(std::move(maker))});
  return {id};
}

GraphTensor CudnnGraph::result(Into into, const GraphShape& dims, cudnnDataType_t type) {
  return into ? *into : between(dims, contiguous(dims), type);
}

CudnnDescriptor CudnnGraph::made(DescriptorMaker maker) {
  auto outcome = maker.finish();
  if (outcome) return std::move(*outcome);
  if (!error_) error_ = std::move(outcome.error());
  return {};
}

GraphTensor CudnnGraph::matmul(GraphTensor a, GraphTensor b, Into into) {
  const GraphShape& left = at(a).dims;
  const GraphTensor out = result(into, {left[0], left[1], left[2], at(b).dims[3]});
  DescriptorMaker product(CUDNN_BACKEND_MATMUL_DESCRIPTOR, "matmul");
  product.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_DATA_FLOAT);
  const CudnnDescriptor kind = made(std::move(product));
  DescriptorMaker operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
                            fmt::format("matmul into tensor {}", out.id));
  operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, at(a).descriptor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, at(b).descriptor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, at(out).descriptor)
      .set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
  operations_.push_back(made(std::move(operation)));
  return out;
}

GraphTensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision,
                                  std::span<const GraphTensor> in, GraphTensor out,
                                  std::optional<std::int64_t> axis) {
  DescriptorMaker kind_maker(CUDNN_BACKEND_POINTWISE_DESCRIPTOR, "pointwise");
  kind_maker.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode)
      .set(CUDNN_ATTR_POINTWISE_MATH_PREC, precision);
  if (axis) kind_maker.set(CUDNN_ATTR_POINTWISE_AXIS, *axis);
  const CudnnDescriptor kind = made(std::move(kind_maker));
  DescriptorMaker operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR,
                            fmt::format("pointwise into tensor {}", out.id));
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind)
      .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, at(out).descriptor);
  static constexpr std::array inputs{CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                     CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                     CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  for (std::size_t i = 0; i < in.size(); ++i) operation.set(inputs[i], at(in[i]).descriptor);
  operations_.push_back(made(std::move(operation)));
  return out;
}

GraphTensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, GraphTensor x) {
  return pointwise(mode, CUDNN_DATA_FLOAT, std::array{x}, result({}, at(x).dims));
}
GraphTensor CudnnGraph::pointwise(cudnnPointwiseMode_t mode, GraphTensor x, GraphTensor b,
                                  Into into) {
  return pointwise(mode, CUDNN_DATA_FLOAT, std::array{x, b}, result(into, at(x).dims));
}
GraphTensor CudnnGraph::convert(GraphTensor x, GraphTensor into) {
  return pointwise(CUDNN_POINTWISE_IDENTITY, CUDNN_DATA_FLOAT, std::array{x}, into);
}
GraphTensor CudnnGraph::select(GraphTensor x, GraphTensor b, GraphTensor mask) {
  return pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, std::array{x, b, mask},
                   result({}, at(x).dims));
}
GraphTensor CudnnGraph::index(GraphTensor x, std::int64_t axis) {
  return pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_INT32, std::array{x},
                   result({}, at(x).dims, CUDNN_DATA_INT32), axis);
}
GraphTensor CudnnGraph::at_least(GraphTensor x, GraphTensor b) {
  return pointwise(CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, std::array{x, b},
                   result({}, at(x).dims, CUDNN_DATA_BOOLEAN));
}

GraphTensor CudnnGraph::above(GraphTensor x, GraphTensor b) {
  return pointwise(CUDNN_POINTWISE_CMP_GT, CUDNN_DATA_BOOLEAN, std::array{x, b},
                   result({}, at(x).dims, CUDNN_DATA_BOOLEAN));
}
GraphTensor CudnnGraph::shifted(GraphTensor x, GraphTensor b) {
  return pointwise(CUDNN_POINTWISE_ADD, CUDNN_DATA_INT32, std::array{x, b},
                   result({}, at(x).dims, CUDNN_DATA_INT32));
}

GraphTensor CudnnGraph::reduce(cudnnReduceTensorOp_t op, GraphTensor x, Into into) {
  const GraphShape& dims = at(x).dims;
  const GraphTensor out = result(into, {dims[0], dims[1], dims[2], 1});
  DescriptorMaker kind_maker(CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
  kind_maker.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_DATA_FLOAT)
      .set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op);
  const CudnnDescriptor kind = made(std::move(kind_maker));
  DescriptorMaker operation(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
                            fmt::format("reduction into tensor {}", out.id));
  operation.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, at(x).descriptor)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, at(out).descriptor)
      .set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
  operations_.push_back(made(std::move(operation)));
  return out;
}

GraphTensor CudnnGraph::reshape(GraphTensor x, GraphTensor into) {
  DescriptorMaker operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
                            fmt::format("reshape into tensor {}", into.id));
  operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, at(x).descriptor)
      .set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, at(into).descriptor);
  operations_.push_back(made(std::move(operation)));
  return into;
}

Result<CudnnDescriptor> CudnnGraph::operation_graph(const CudnnTarget& target) const {
  if (error_) return tl::unexpected<Error>(*error_);
  std::vector<cudnnBackendDescriptor_t> operations;
  for (const CudnnDescriptor& operation : operations_) operations.push_back(operation.get());
  DescriptorMaker graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, "operation graph");
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            static_cast<std::int64_t>(operations.size()), operations.data());
  if (cudnnHandle_t handle = target.handle(); handle != nullptr)
    graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  return graph.finish();
}

Result<std::vector<CudnnEngine>> CudnnGraph::engines(const CudnnTarget& target) const {
  MFSDP_LET(graph, operation_graph(target));
  const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
  DescriptorMaker maker(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, "heuristics");
  maker.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph)
      .set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
  if (target.handle() == nullptr) maker.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, target.properties());
  MFSDP_LET(heuristics, maker.finish());

  std::vector<CudnnDescriptor> configs;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < kMostEngines; ++i) {
    MFSDP_LET(config, empty_descriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR));
    raw.push_back(config.get());
    configs.push_back(std::move(config));
  }
  std::int64_t count = 0;
  MFSDP_TRY(check(
      cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                               CUDNN_TYPE_BACKEND_DESCRIPTOR, kMostEngines, &count, raw.data()),
      "cudnnBackendGetAttribute of heuristics"));
  std::vector<CudnnEngine> engines;
  for (std::int64_t i = 0; i < std::min(count, kMostEngines); ++i) {
    MFSDP_LET(engine, describe(std::move(configs[static_cast<std::size_t>(i)])));
    engines.push_back(std::move(engine));
  }
  return engines;
}

Result<CudnnPlan> CudnnGraph::build(const CudnnTarget& target, std::int64_t workspace_bytes) const {
  MFSDP_LET(proposed, engines(target));
  std::optional<std::int64_t> least;
  std::optional<Error> refused;
  for (const CudnnEngine& engine : proposed) {
    cudnnHandle_t handle = target.handle();
    auto made = DescriptorMaker(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                                fmt::format("plan of engine {}", engine.number))
                    .set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, engine.config)
                    .set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle)
                    .finish();
    if (!made) {
      if (!refused) refused = made.error();
      continue;
    }
    MFSDP_LET(bytes, read_int64(*made, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE));
    if (bytes <= workspace_bytes) return CudnnPlan(std::move(*made), bytes);
    least = std::min(least.value_or(bytes), bytes);
  }
  if (least) return too_little_workspace(*least, workspace_bytes);
  if (refused) return tl::unexpected<Error>(*refused);
  return fail("cuDNN", "knows no engine for this graph", Fault::environment);
}

}  // namespace mfsdp::cuda
