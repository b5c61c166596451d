#include "sim/engines/plan_engine.hpp"

#include <cassert>

#include "sim/engines/fsdp2.hpp"
#include "sim/engines/mcore.hpp"
#include "sim/engines/megatron_fsdp1.hpp"
#include "sim/engines/megatron_fsdp2.hpp"

namespace mfsdp {

EnginePlan engine_plan_of(EngineKind engine, const PlanConfig& config, const Meta& meta,
                          std::int64_t l2_bytes) {
  assert(engine != EngineKind::mfsdp);
  if (engine == EngineKind::mfsdp1)
    return megatron_fsdp1_plan(config, meta, CompileCache::filled, l2_bytes);
  if (engine == EngineKind::mfsdp2 || engine == EngineKind::mfsdp2_eager)
    return megatron_fsdp2_plan(engine, config, meta, l2_bytes);
  if (is_mcore(engine)) return mcore_plan(engine, config, meta);
  return fsdp2_plan(engine, config, meta, l2_bytes);
}

}  // namespace mfsdp
