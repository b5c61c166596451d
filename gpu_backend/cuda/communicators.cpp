#include "gpu_backend/cuda/communicators.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <utility>

#include "core/plan/transport.hpp"
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/handles.hpp"
#include "gpu_backend/cuda/transport_check.hpp"

namespace mfsdp::cuda {
namespace {

/// Time for the other ranks to be notified of the failure. A collective that one rank aborts may
/// end on another with any values as its sum.
constexpr std::chrono::milliseconds kOthersHear{500};
/// Time that give_up() leaves a call to end.
constexpr std::chrono::seconds kCallEnds{2};
/// Part of the name of the all-reduce kernel before a captured collective; it is not counted.
constexpr std::string_view kOrdersLaunches = "AllReduce";

/// This host's name, possibly truncated.
Peers::Bytes host_name() {
  std::array<char, 256> name{};
  gethostname(name.data(), name.size() - 1);
  const auto bytes = std::as_bytes(std::span(name.data(), std::strlen(name.data())));
  return {bytes.begin(), bytes.end()};
}

std::int64_t bytes_of(const OperandView& view) {
  return mfsdp::bytes_of(product_of(view.shape), view.dtype).value;
}

/// The ids of a rank's communicators. A rank creates the ids of those of which it is the first
/// member.
Result<Peers::Bytes> make_ids(std::span<const std::int64_t> members) {
  Peers::Bytes bytes(members.size() * sizeof(ncclUniqueId));
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i] != 0) continue;
    ncclUniqueId id{};
    MFSDP_TRY(check(ncclGetUniqueId(&id), "ncclGetUniqueId"));
    std::memcpy(bytes.data() + i * sizeof id, &id, sizeof id);
  }
  return bytes;
}

}  // namespace

Result<ncclDataType_t> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::bf16: return ncclBfloat16;
    case DType::fp16: return ncclFloat16;
    case DType::fp32: return ncclFloat32;
    case DType::fp64: return ncclFloat64;
    case DType::int32: return ncclInt32;
    case DType::int64: return ncclInt64;
    case DType::uint8:
    case DType::fp8_e4m3:  // gathered as bytes
    case DType::fp8_e5m2:
    case DType::fp4_e2m1x2:
    case DType::e8m0: return ncclUint8;
  }
  return fail("", "expected a dtype of the plan");
}

Result<void> check_collective(const BoundOp& op, std::int64_t member, std::int64_t members) {
  const auto& collective = std::get<Collective>(op.op->body);
  MFSDP_TRY(nccl_type(collective.dtype));
  if (is_point_to_point(collective.kind)) return {};  // one operand, and nothing is summed
  const bool gathers = collective.kind == CollectiveKind::all_gather;
  const bool scatters = collective.kind == CollectiveKind::reduce_scatter;
  const bool exchanges = collective.kind == CollectiveKind::all_to_all;
  const bool passes = collective.kind == CollectiveKind::shift;
  const bool sums = !gathers && !exchanges && !passes;
  const bool adds =
      collective.dtype == DType::bf16 || collective.dtype == DType::fp16 ||
      collective.dtype == DType::fp32 || collective.dtype == DType::fp64 ||
      (collective.dtype == DType::int32 && collective.kind == CollectiveKind::all_reduce);
  const bool takes_max = collective.kind == CollectiveKind::all_reduce &&
                         collective.dtype == DType::fp32 && collective.reduction == Reduction::max;
  if (sums && !takes_max && collective.reduction != Reduction::sum)
    return fail("", "expected the reduction sum for " + std::string(to_string(collective.kind)));
  if (sums && !adds)
    return fail("", fmt::format("expected fp64, fp32, bf16 or fp16 to sum, got {}",
                                to_string(collective.dtype)));
  if (collective.count == 0) return {};
  const std::int64_t part = mfsdp::bytes_of(collective.count, collective.dtype).value;
  const std::int64_t whole = checked_mul(part, members);
  const std::byte* input = op.operands[0].data;
  const std::byte* output = op.operands[1].data;
  const bool apart = input + (scatters || exchanges ? whole : part) <= output ||
                     output + (gathers || exchanges ? whole : part) <= input;
  const bool in_place =
      !exchanges && !passes &&
      input + (scatters ? member * part : 0) == output + (gathers ? member * part : 0);
  if (apart || in_place) return {};
  return fail("", fmt::format("input and output of {} bytes overlap, but not in place",
                              bytes_of(op.operands[0])));
}

std::set<PeerLink> peer_links(const BoundPlan& plan) {
  std::set<PeerLink> links;
  for (const BoundList& list : plan.lists)
    for (const BoundOp& op : list.ops)
      if (const auto* collective = std::get_if<Collective>(&op.op->body);
          collective != nullptr && is_point_to_point(collective->kind))
        links.insert({op.communicator, collective->kind, op.peer});
  return links;
}

Result<void> Communicators::check_hosts(const CudaSettings& settings) const {
  const auto& communicators = program_->communicators;
  const bool windows = std::ranges::any_of(communicators, [](const Communicator& communicator) {
    return traits_of(communicator.transport).uses_windows;
  });
  if (!windows) return {};
  int version = 0;
  MFSDP_TRY(check(ncclGetVersion(&version), "ncclGetVersion"));
  MFSDP_LET(names, settings.peers.all_gather(host_name()));
  for (std::size_t i = 0; i < memberships_.size(); ++i) {
    const Membership& membership = memberships_[i];
    std::vector<std::string> hosts;
    for (std::int64_t member = 0; member < membership.size(); ++member) {
      const std::int64_t rank = membership.rank(membership.of(settings.rank), member);
      const Peers::Bytes& name = names.at(static_cast<std::size_t>(rank));
      hosts.emplace_back(reinterpret_cast<const char*>(name.data()), name.size());
    }
    if (const auto possible = check_windows_possible(communicators[i].transport, version, hosts);
        !possible)
      return fail("communicator " + communicators[i].purpose, possible.error().what,
                  Fault::environment);
  }
  return {};
}

Result<std::optional<std::string>> Communicators::check_transport_of(const BoundOp& op,
                                                                     cudaStream_t stream) {
  const Communicator& communicator = program_->communicators[op.communicator];
  checked_.resize(handles_.size());
  if (!traits_of(communicator.transport).uses_windows ||
      std::exchange(checked_[op.communicator], 1) != 0)
    return std::nullopt;
  const std::int64_t count = std::get<Collective>(op.op->body).count;
  // The first collective initializes NCCL's resources for all others. That may not be captured.
  MFSDP_TRY(launch(op, count, stream));
  MFSDP_TRY(check(cudaStreamSynchronize(stream), "the first collective, registered",
                  communicator.purpose));
  MFSDP_LET(kernels, queued_kernels(stream, [&]() -> Result<void> {
              MFSDP_TRY(launch_kernel(op, stream));
              return launch(op, count, stream);
            }));
  MFSDP_TRY(launch_kernel(op, stream));
  MFSDP_TRY(
      check(cudaStreamSynchronize(stream), "a kernel after the capture", communicator.purpose));
  std::erase_if(kernels, [](const std::string& name) {
    return name.find(kOrdersLaunches) != std::string::npos;
  });
  if (const auto as_planned = check_transport(communicator.transport, kernels); !as_planned)
    return fail("communicator " + communicator.purpose, as_planned.error().what,
                Fault::environment);
  return fmt::format("collectives of {} are moved by {}", communicator.purpose,
                     transport_text(communicator.transport, kernels));
}

/// Launches a kernel of the communicator before a collective by copy engines. Under
/// NCCL_LAUNCH_ORDER_IMPLICIT the collective waits for the launch of the communicator's last
/// kernel. That kernel must belong to the same capture, or to none if the collective is not
/// captured.
Result<void> Communicators::launch_kernel(const BoundOp& op, cudaStream_t stream) {
  std::byte* const any = op.operands[0].data;
  return guarded([&] {
    return check(
        ncclAllReduce(any, any, 1, ncclFloat32, ncclSum, handles_[op.communicator], stream),
        "ncclAllReduce");
  });
}

Result<void> Communicators::create(const Program& program, const CudaSettings& settings, int device,
                                   cudaStream_t stream) {
  program_ = &program;
  device_ = device;
  if (program.communicators.empty()) return {};
  const Mesh& mesh = program.config.mesh;
  for (const Communicator& communicator : program.communicators) {
    memberships_.emplace_back(communicator.axes, mesh);
    members_.push_back(memberships_.back().member(settings.rank));
  }
  MFSDP_TRY(check_hosts(settings));
  MFSDP_LET(own, make_ids(members_));
  MFSDP_LET(ids, settings.peers.all_gather(own));
  MFSDP_LET(memory, allocate_device(sizeof(float), "a small all-reduce"));
  MFSDP_TRY(check(cudaMemsetAsync(memory.get(), 0, sizeof(float), stream), "cudaMemsetAsync"));
  for (std::size_t i = 0; i < memberships_.size(); ++i) {
    const std::string place =
        fmt::format("rank {}, communicator {}", settings.rank, program.communicators[i].purpose);
    const std::int64_t first = memberships_[i].rank(memberships_[i].of(settings.rank), 0);
    const Peers::Bytes& of_first = ids.at(static_cast<std::size_t>(first));
    if (of_first.size() != own.size())
      return fail(place,
                  fmt::format("rank {} sent {} bytes of ids, expected {}", first, of_first.size(),
                              own.size()),
                  Fault::environment);
    ncclUniqueId id{};
    std::memcpy(&id, of_first.data() + i * sizeof id, sizeof id);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    config.commName = program.communicators[i].purpose.c_str();
    if (!traits_of(program.communicators[i].transport).holds_sms)
      config.CTAPolicy = NCCL_CTA_POLICY_ZERO;
    ncclComm_t handle = nullptr;
    MFSDP_TRY(check(ncclCommInitRankConfig(&handle, static_cast<int>(memberships_[i].size()), id,
                                           static_cast<int>(members_[i]), &config),
                    "ncclCommInitRankConfig", place));
    auto* const value = reinterpret_cast<float*>(memory.get());
    MFSDP_TRY(guarded([&] {
      handles_.push_back(handle);
      return check(ncclAllReduce(value, value, 1, ncclFloat32, ncclSum, handle, stream),
                   "ncclAllReduce", place);
    }));
    MFSDP_TRY(check(cudaStreamSynchronize(stream), "the first ncclAllReduce", place));
  }
  return {};
}

Communicators::~Communicators() {
  {
    const std::scoped_lock lock(aborting_);
    if (abort_.joinable()) {
      abort_.join();
      return;
    }
  }
  for (const Window& window : windows_)
    ncclCommWindowDeregister(window.communicator, window.window);
  for (const ncclComm_t handle : handles_) ncclCommDestroy(handle);
}

template <class Call>
Result<void> Communicators::guarded(const Call& call) {
  const std::scoped_lock lock(calls_);
  if (aborted_) return fail("NCCL", "communicators were aborted", Fault::environment);
  return call();
}

Result<void> Communicators::register_window(std::size_t communicator, std::span<std::byte> memory) {
  return guarded([&]() -> Result<void> {
    ncclWindow_t window = nullptr;
    MFSDP_TRY(check(ncclCommWindowRegister(handles_[communicator], memory.data(), memory.size(),
                                           &window, NCCL_WIN_COLL_SYMMETRIC),
                    "ncclCommWindowRegister", program_->communicators[communicator].purpose));
    if (window == nullptr)
      return fail("communicator " + program_->communicators[communicator].purpose,
                  "NCCL cannot register a pool: GPUs without peer access, NCCL_WIN_ENABLE=0 or "
                  "NCCL_CUMEM_ENABLE=0",
                  Fault::environment);
    windows_.push_back({.communicator = handles_[communicator], .window = window});
    return {};
  });
}

Result<void> Communicators::launch(const BoundOp& op, std::int64_t count, cudaStream_t stream) {
  const auto& collective = std::get<Collective>(op.op->body);
  MFSDP_LET(type, nccl_type(collective.dtype));
  const ncclComm_t handle = handles_[op.communicator];
  std::byte* const input = op.operands.front().data;  // of a recv: its output
  std::byte* const output = op.operands.back().data;  // of a send: its input
  const auto elements = static_cast<std::size_t>(count);
  return guarded([&]() -> Result<void> {
    switch (collective.kind) {
      case CollectiveKind::all_gather:
        return check(ncclAllGather(input, output, elements, type, handle, stream), "ncclAllGather");
      case CollectiveKind::all_reduce:
        return check(ncclAllReduce(input, output, elements, type,
                                   collective.reduction == Reduction::max ? ncclMax : ncclSum,
                                   handle, stream),
                     "ncclAllReduce");
      case CollectiveKind::all_to_all: return exchange(op, elements, type, stream);
      case CollectiveKind::shift: return pass_on(op, elements, type, stream);
      case CollectiveKind::send:
        return check(ncclSend(input, elements, type, peer_of(op), handle, stream), "ncclSend");
      case CollectiveKind::recv:
        return check(ncclRecv(output, elements, type, peer_of(op), handle, stream), "ncclRecv");
      case CollectiveKind::reduce_scatter: break;
    }
    return check(ncclReduceScatter(input, output, elements, type, ncclSum, handle, stream),
                 "ncclReduceScatter");
  });
}

/// A send and a recv for each pair, as one launch. Only NCCL 2.28 and later has one call for this.
/// Copy engines do not serve single sends, but registered memory needs 2.28 too.
Result<void> Communicators::exchange(const BoundOp& op, std::size_t elements, ncclDataType_t type,
                                     cudaStream_t stream) {
  const auto& collective = std::get<Collective>(op.op->body);
  const ncclComm_t handle = handles_[op.communicator];
  if (!traits_of(program_->communicators[op.communicator].transport).holds_sms)
    return check(
        ncclAlltoAll(op.operands[0].data, op.operands[1].data, elements, type, handle, stream),
        "ncclAlltoAll");
  const auto part =
      static_cast<std::size_t>(mfsdp::bytes_of(collective.count, collective.dtype).value);
  const auto members = static_cast<int>(program_->communicators[op.communicator].size);
  MFSDP_TRY(check(ncclGroupStart(), "ncclGroupStart"));
  for (int peer = 0; peer < members; ++peer) {
    const std::size_t at = static_cast<std::size_t>(peer) * part;
    MFSDP_TRY(check(ncclSend(op.operands[0].data + at, elements, type, peer, handle, stream),
                    "ncclSend"));
    MFSDP_TRY(check(ncclRecv(op.operands[1].data + at, elements, type, peer, handle, stream),
                    "ncclRecv"));
  }
  return check(ncclGroupEnd(), "ncclGroupEnd");
}

/// A send to the next member and a recv from the one before, around, as one launch.
Result<void> Communicators::pass_on(const BoundOp& op, std::size_t elements, ncclDataType_t type,
                                    cudaStream_t stream) {
  const ncclComm_t handle = handles_[op.communicator];
  const std::int64_t members = memberships_[op.communicator].size();
  const std::int64_t member = members_[op.communicator];
  const auto next = static_cast<int>((member + 1) % members);
  const auto before = static_cast<int>((member + members - 1) % members);
  MFSDP_TRY(check(ncclGroupStart(), "ncclGroupStart"));
  MFSDP_TRY(check(ncclSend(op.operands[0].data, elements, type, next, handle, stream), "ncclSend"));
  MFSDP_TRY(
      check(ncclRecv(op.operands[1].data, elements, type, before, handle, stream), "ncclRecv"));
  return check(ncclGroupEnd(), "ncclGroupEnd");
}

/// Otherwise NCCL connects two ranks in the first launch between them. The host of one rank would
/// wait there for the host of the other, in the middle of a step.
Result<void> Communicators::connect_peers(const BoundPlan& plan, cudaStream_t stream) {
  const std::set<PeerLink> links = peer_links(plan);
  if (links.empty()) return {};
  MFSDP_LET(memory, allocate_device(links.size(), "the first sends"));
  MFSDP_TRY(check(cudaMemsetAsync(memory.get(), 0, links.size(), stream), "cudaMemsetAsync"));
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    auto sent = guarded([&] { return launch_bytes(i, links, memory.get(), stream); });
    if (!sent) return sent;
    MFSDP_TRY(check(cudaStreamSynchronize(stream), "the first sends and receives",
                    program_->communicators[i].purpose));
  }
  return {};
}

/// One byte over each link of the communicator. Requires the lock.
Result<void> Communicators::launch_bytes(std::size_t communicator, const std::set<PeerLink>& links,
                                         std::byte* bytes, cudaStream_t stream) const {
  const ncclComm_t handle = handles_[communicator];
  MFSDP_TRY(check(ncclGroupStart(), "ncclGroupStart"));
  for (const auto& [of_link, kind, peer] : links) {
    std::byte* const own = bytes++;
    if (of_link != communicator) continue;
    const auto member = static_cast<int>(memberships_[communicator].member(peer));
    if (kind == CollectiveKind::send)
      MFSDP_TRY(check(ncclSend(own, 1, ncclUint8, member, handle, stream), "ncclSend"));
    else
      MFSDP_TRY(check(ncclRecv(own, 1, ncclUint8, member, handle, stream), "ncclRecv"));
  }
  return check(ncclGroupEnd(), "ncclGroupEnd", program_->communicators[communicator].purpose);
}

Result<void> Communicators::begin_group() {
  return guarded([] { return check(ncclGroupStart(), "ncclGroupStart"); });
}

Result<void> Communicators::end_group() {
  return guarded([] { return check(ncclGroupEnd(), "ncclGroupEnd"); });
}

/// Skips the check while the host is in a call: the next one follows soon.
Result<void> Communicators::asynchronous_error() const {
  const std::unique_lock lock(calls_, std::try_to_lock);
  if (!lock.owns_lock() || aborted_) return {};
  for (std::size_t i = 0; i < handles_.size(); ++i) {
    ncclResult_t error = ncclSuccess;
    const std::string place = "communicator " + program_->communicators[i].purpose;
    MFSDP_TRY(check(ncclCommGetAsyncError(handles_[i], &error), "ncclCommGetAsyncError", place));
    if (error == ncclSuccess || error == ncclInProgress) continue;
    return fail(place,
                fmt::format("{}: {}", ncclGetErrorString(error), ncclGetLastError(handles_[i])),
                Fault::environment);
  }
  return {};
}

void Communicators::give_up() {
  const std::scoped_lock lock(aborting_);
  if (abort_.joinable()) return;
  abort_ = std::jthread([this](const std::stop_token& stays) {
    std::mutex mutex;
    std::unique_lock hear(mutex);
    std::condition_variable_any asked;
    if (asked.wait_for(hear, stays, kOthersHear, [&] { return stays.stop_requested(); })) return;
    std::unique_lock calls(calls_, kCallEnds);
    aborted_ = true;  // a call that hangs holds the lock, and no other call follows
    if (calls.owns_lock()) calls.unlock();
    std::vector<std::jthread> each;  // one thread each: an abort may wait for another
    for (const ncclComm_t handle : handles_)
      each.emplace_back([this, handle] {
        cudaSetDevice(device_);
        ncclCommAbort(handle);
      });
  });
}

void Communicators::stay() {
  const std::scoped_lock lock(aborting_);
  abort_.request_stop();
}

}  // namespace mfsdp::cuda
