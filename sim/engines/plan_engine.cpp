#include "sim/engines/plan_engine.hpp"

#include <cassert>

#include "sim/engines/ddp.hpp"
#include "sim/engines/deepspeed_states.hpp"
#include "sim/engines/deepspeed_weights.hpp"
#include "sim/engines/fsdp1.hpp"
#include "sim/engines/fsdp2.hpp"
#include "sim/engines/mcore.hpp"
#include "sim/engines/megatron_fsdp1.hpp"
#include "sim/engines/megatron_fsdp2.hpp"

namespace mfsdp {

EnginePlan engine_plan_of(EngineKind engine, const PlanConfig& config, const Meta& meta,
                          std::int64_t l2_bytes, const EngineOptions& options, std::int64_t stage) {
  switch (traits_of(engine).family) {
    case EngineFamily::mfsdp: assert(false); break;
    case EngineFamily::fsdp2: break;
    case EngineFamily::megatron_fsdp_v1:
      return megatron_fsdp1_plan(config, meta, CompileCache::filled, l2_bytes);
    case EngineFamily::megatron_fsdp_v2: return megatron_fsdp2_plan(engine, config, meta, l2_bytes);
    case EngineFamily::mcore: return mcore_plan(engine, config, meta, options, stage);
    case EngineFamily::ddp: return ddp_plan(config, meta, options);
    case EngineFamily::fsdp1: return fsdp1_plan(config, meta, options);
    case EngineFamily::deepspeed_states:
      return deepspeed_states_plan(engine, config, meta, options);
    case EngineFamily::deepspeed_weights: return deepspeed_weights_plan(config, meta, options);
  }
  return fsdp2_plan(engine, config, options, meta, l2_bytes);
}

}  // namespace mfsdp
